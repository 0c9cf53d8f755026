//! `manta version`: prints the version of this program, and of the operator in the current cluster.

use crate::connect;
use crate::output::print_line;
use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use std::process::ExitCode;
use std::time::Duration;

/// The version of KubeRay whose behaviour this version follows.
const KUBERAY: &str = "v1.7.0";
/// The labels of the operator's Deployment, from our charts or KubeRay's.
const OPERATOR: &str = "app.kubernetes.io/name in (kuberay-operator,kuberay)";
/// How long the cluster may take to respond.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Print the version of manta, and of the operator in the current cluster
///
/// Exits with 1 if a cluster is configured but cannot be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print only the version of this program
    #[arg(long)]
    client: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    print_line(&format!("manta {}, compatible with KubeRay {KUBERAY}", env!("CARGO_PKG_VERSION")));
    if args.client {
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = match connect::config(None).await {
            Ok(config) => config,
            Err(error) => {
                print_line(&format!("operator: unknown, because no cluster is configured: {error:#}"));
                return Ok(ExitCode::SUCCESS);
            }
        };
        let cluster = config.cluster_url.to_string();
        let operators = tokio::time::timeout(TIMEOUT, operators(config))
            .await
            .with_context(|| format!("{cluster} did not respond within {} s", TIMEOUT.as_secs()))?
            .with_context(|| format!("cannot list Deployments of {cluster}"))?;
        if operators.is_empty() {
            print_line(&format!("operator: none in {cluster}"));
        }
        operators.iter().for_each(|operator| print_line(&format!("operator: {operator}")));
        Ok(ExitCode::SUCCESS)
    })
}

async fn operators(config: kube::Config) -> anyhow::Result<Vec<String>> {
    let deployments: Api<Deployment> = Api::all(Client::try_from(config)?);
    let found = deployments.list(&ListParams::default().labels(OPERATOR)).await?;
    Ok(found.iter().map(describe).collect())
}

/// Returns the image and the name of an operator's Deployment.
fn describe(deployment: &Deployment) -> String {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let image = pod.and_then(|pod| pod.containers.first()?.image.as_deref()).unwrap_or("unknown image");
    format!("{image} (Deployment {}/{})", deployment.namespace().unwrap_or_default(), deployment.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_operator_is_described_by_image_and_name() {
        let check = |spec, expect: &str| {
            let object = json!({"metadata": {"name": "kuberay-operator", "namespace": "ray-system"}, "spec": spec});
            assert_eq!(describe(&serde_json::from_value(object).unwrap()), expect);
        };
        let template = json!({"spec": {"containers": [{"name": "kuberay-operator", "image": "manta:0.1.0"}]}});
        check(
            json!({"selector": {}, "template": template}),
            "manta:0.1.0 (Deployment ray-system/kuberay-operator)",
        );
        check(json!({"selector": {}, "template": {}}), "unknown image (Deployment ray-system/kuberay-operator)");
    }
}
