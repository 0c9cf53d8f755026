//! The Secret with the token of a cluster that names none of its own.

use super::cluster_facts as facts;
use super::owner;
use super::pod::TOKEN_KEY;
use crate::labels;
use crate::validate::ValidCluster;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// The Secret. The token is the text that the random bytes have in base64.
pub fn auth_secret(cluster: &ValidCluster<'_>, random: &[u8; 32]) -> Secret {
    let metadata = ObjectMeta {
        name: Some(facts::auth_secret_name(cluster)),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([(labels::CLUSTER.to_owned(), facts::name(cluster).to_owned())])),
        owner_references: Some(vec![owner::cluster_reference(cluster)]),
        ..ObjectMeta::default()
    };
    let string_data = Some(BTreeMap::from([(TOKEN_KEY.to_owned(), STANDARD.encode(random))]));
    Secret { metadata, string_data, ..Secret::default() }
}
