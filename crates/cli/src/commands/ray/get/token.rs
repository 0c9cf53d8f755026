//! `kubectl ray get token`: prints the token that a Ray cluster asks for.

use crate::connect::{ConnectionArgs, Target};
use crate::output::write_stdout;
use crate::resource::{Kind, Reference};
use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use manta_api::RayCluster;
use manta_logic::cluster_spec::{auth_secret_name, is_k8s_token_auth, is_token_auth};
use std::process::ExitCode;

/// The key of the token in its Secret.
const KEY: &str = "auth_token";

#[derive(clap::Args)]
pub(super) struct Args {
    /// Ray cluster
    #[arg(value_name = "CLUSTER")]
    cluster: String,
}

pub(super) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let target = connection.connect().await?;
    let reference = Reference { kind: Kind::Cluster, name: args.cluster };
    let object = target.get_ray(&reference).await?;
    let cluster: RayCluster = serde_json::from_value(serde_json::to_value(object)?)
        .with_context(|| format!("cannot read {reference}"))?;
    let token = token_of(&target, &cluster).await?;
    write_stdout(|out| out.write_all(token.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

async fn token_of(target: &Target, cluster: &RayCluster) -> anyhow::Result<String> {
    let (namespace, name) = (&target.namespace, cluster.metadata.name.as_deref().unwrap_or_default());
    ensure!(
        is_token_auth(&cluster.spec),
        "RayCluster {namespace}/{name} was not configured to use authentication tokens"
    );
    ensure!(
        !is_k8s_token_auth(&cluster.spec),
        "RayCluster {namespace}/{name} accepts the tokens of service accounts; get one with kubectl create token"
    );
    let secret = auth_secret_name(cluster);
    let secrets: Api<Secret> = Api::namespaced(target.client.clone(), namespace);
    let what = format!("cannot get the Secret {namespace}/{secret}, which holds the token");
    let found = secrets.get(&secret).await.map_err(|error| target.failed(&what, error))?;
    let bytes = found.data.and_then(|mut data| data.remove(KEY));
    let bytes = bytes.with_context(|| format!("the Secret {namespace}/{secret} has no key {KEY}"))?;
    String::from_utf8(bytes.0).with_context(|| format!("the key {KEY} of the Secret {namespace}/{secret} is no text"))
}
