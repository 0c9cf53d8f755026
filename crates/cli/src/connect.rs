//! Finds the cluster to talk to.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;

/// Returns the configuration of the given kubeconfig, else of the Pod's service account, else of the default kubeconfig.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    match kubeconfig {
        Some(path) => {
            let file =
                Kubeconfig::read_from(path).with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("kubeconfig {} has no usable cluster", path.display()))
        }
        // In a Pod, its service account takes precedence over a kubeconfig in the home directory.
        None if std::env::var_os("KUBECONFIG").is_none() && kube::Config::incluster().is_ok() => {
            kube::Config::incluster().context("cannot use the Pod's service account")
        }
        None => kube::Config::infer().await.context("no kubeconfig found; pass one with --kubeconfig FILE"),
    }
}
