//! `kubectl ray version`: prints the versions of the plugin and of the operator.

use crate::commands::version::OPERATOR;
use crate::connect::{ConnectionArgs, Target};
use crate::output::print_line;
use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use std::process::ExitCode;

/// Print the versions of the plugin and of the operator in the cluster
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(connection: &ConnectionArgs, _: Args) -> anyhow::Result<ExitCode> {
    print_line(&format!("kubectl ray plugin version: {}", env!("CARGO_PKG_VERSION")));
    let found = async {
        let target = connection.connect().await?;
        operator_image(&target).await
    };
    match found.await {
        Ok(image) => print_line(&format!("KubeRay operator version: {}", version_of(&image))),
        Err(error) => print_line(&format!(
            "warning: KubeRay operator installation cannot be found: {error:#}. Did you install it with the name \"kuberay-operator\"?"
        )),
    }
    Ok(ExitCode::SUCCESS)
}

async fn operator_image(target: &Target) -> anyhow::Result<String> {
    let deployments: Api<Deployment> = Api::all(target.client.clone());
    let found = deployments.list(&ListParams::default().labels(OPERATOR)).await;
    let found = found.map_err(|error| target.failed("cannot list Deployments", error))?;
    let first = found.items.into_iter().next().context("no Deployment of the operator in any namespace")?;
    let pod = first.spec.and_then(|spec| spec.template.spec);
    let image = pod.and_then(|pod| pod.containers.into_iter().next()?.image);
    image.context("the Deployment of the operator has no image")
}

/// Returns the tag of an image, its digest, or both.
fn version_of(image: &str) -> &str {
    let start = image.rfind('/').map_or(0, |slash| slash + 1);
    match image[start..].find([':', '@']) {
        Some(found) => &image[start + found + 1..],
        None => "latest",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_tag_and_digest() {
        let check = |image: &str, expect: &str| assert_eq!(version_of(image), expect, "{image}");
        check("quay.io/kuberay/operator:v1.7.0", "v1.7.0");
        check("localhost:5000/operator:nightly", "nightly");
        check("quay.io/kuberay/operator:v1.7.0@sha256:abc", "v1.7.0@sha256:abc");
        check("quay.io/kuberay/operator@sha256:abc", "sha256:abc");
        check("localhost:5000/operator", "latest");
    }
}
