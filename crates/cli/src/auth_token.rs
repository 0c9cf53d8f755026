//! The token that a Ray cluster asks for.

use crate::connect::Target;
use crate::resource::Reference;
use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use manta_api::RayCluster;
use manta_logic::cluster_spec::{auth_secret_name, is_k8s_token_auth, is_token_auth};

/// The key of the token in its Secret.
const KEY: &str = "auth_token";

/// Reads the token that a cluster asks for, if it asks for one.
pub(crate) async fn asked_by(target: &Target, cluster: &Reference) -> anyhow::Result<Option<String>> {
    let object = serde_json::to_value(target.get_ray(cluster).await?)?;
    let cluster: RayCluster = serde_json::from_value(object).with_context(|| format!("cannot read {cluster}"))?;
    match is_token_auth(&cluster.spec) {
        true => of(target, &cluster).await.map(Some),
        false => Ok(None),
    }
}

/// Reads the token from the Secret that the cluster uses.
pub(crate) async fn of(target: &Target, cluster: &RayCluster) -> anyhow::Result<String> {
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
    String::from_utf8(bytes.0).with_context(|| format!("the key {KEY} of the Secret {namespace}/{secret} is not UTF-8"))
}
