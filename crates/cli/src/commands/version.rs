//! `manta version`: prints the version of this program, and of the operator in the current cluster.

use crate::connect::{ConnectionArgs, Target};
use crate::output::{error_text, print_line};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::process::ExitCode;
use std::time::Duration;

/// The version of KubeRay whose behaviour this version follows.
const KUBERAY: &str = "v1.7.0";
/// The labels of the operator's Deployment, from our charts or KubeRay's.
pub(in crate::commands) const OPERATOR: &str = "app.kubernetes.io/name in (kuberay-operator,kuberay)";
/// How long the cluster may take to respond.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Print the version of manta, and of the operator in the current cluster
///
/// Exits with 1 if a cluster is configured but cannot be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Print only the version of this program
    #[arg(long)]
    client: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    print_line(&format!("manta {}, compatible with KubeRay {KUBERAY}", env!("CARGO_PKG_VERSION")));
    if args.client {
        return Ok(ExitCode::SUCCESS);
    }
    super::run_async(async {
        let target = match args.connection.connect().await {
            Ok(target) => target,
            Err(error) => {
                print_line(&format!("operator: unknown, because no cluster is configured: {}", error_text(&error)));
                return Ok(ExitCode::SUCCESS);
            }
        };
        let asked = tokio::time::timeout(TIMEOUT, operators(&target)).await;
        let operators = asked.map_err(|_| {
            anyhow::anyhow!("the cluster {} did not answer within {} s", target.name(), TIMEOUT.as_secs())
        })??;
        if operators.is_empty() {
            print_line(&format!("operator: none in {}", target.name()));
        }
        operators.iter().for_each(|operator| print_line(&format!("operator: {operator}")));
        Ok(ExitCode::SUCCESS)
    })
}

async fn operators(target: &Target) -> anyhow::Result<Vec<String>> {
    let deployments: Api<Deployment> = Api::all(target.client.clone());
    let found = deployments.list(&ListParams::default().labels(OPERATOR)).await;
    let found = found.map_err(|error| target.failed("cannot list deployments", error))?;
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
