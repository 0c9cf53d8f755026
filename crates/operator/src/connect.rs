//! Finds the API server to talk to.

use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::path::{Path, PathBuf};

/// Why there is no API server to talk to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot read kubeconfig {0}")]
    Unreadable(PathBuf, #[source] KubeconfigError),
    #[error("kubeconfig {0} has no usable cluster")]
    Unusable(PathBuf, #[source] KubeconfigError),
    #[error("cannot use the kubeconfig")]
    Default(#[source] KubeconfigError),
    #[error("no kubeconfig; set KUBECONFIG or pass --kubeconfig FILE")]
    Missing(#[source] KubeconfigError),
    #[error("cannot use the Pod's service account")]
    InCluster(#[source] InClusterError),
}

/// Returns the configuration of the given kubeconfig, else of the Pod's service account, else of the default kubeconfig.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    config_with(kubeconfig, &KubeConfigOptions::default()).await
}

/// Like [`config`], with a choice of context, cluster and user.
pub async fn config_with(kubeconfig: Option<&Path>, options: &KubeConfigOptions) -> Result<Config, ConnectError> {
    let has_choice = options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| ConnectError::Unreadable(path.to_owned(), error))?;
            let config = Config::from_custom_kubeconfig(file, options).await;
            config.map_err(|error| ConnectError::Unusable(path.to_owned(), error))
        }
        None if has_choice => Config::from_kubeconfig(options).await.map_err(ConnectError::Default),
        // In a Pod, its service account takes precedence over a kubeconfig in the home directory.
        None if std::env::var_os("KUBECONFIG").is_none() && Config::incluster().is_ok() => {
            Config::incluster().map_err(ConnectError::InCluster)
        }
        // Not inferred by kube: its error also says that this is no Pod, which nobody thought.
        None => match Config::from_kubeconfig(options).await {
            Err(error) => Config::incluster().map_err(|_| ConnectError::Missing(error)),
            Ok(found) => Ok(found),
        },
    }
}
