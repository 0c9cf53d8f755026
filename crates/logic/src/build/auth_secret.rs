//! The Secret that holds the token of a cluster whose user provides none.

use super::owner;
use super::pod::TOKEN_KEY;
use crate::cluster_spec;
use crate::labels;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// Returns the Secret that holds this token.
pub fn auth_secret(cluster: &ValidCluster<'_>, token: &str) -> Secret {
    let metadata = ObjectMeta {
        name: Some(cluster_spec::auth_secret_name(cluster)),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([(labels::CLUSTER.to_owned(), cluster_spec::name(cluster).to_owned())])),
        owner_references: Some(vec![owner::cluster_reference(cluster)]),
        ..ObjectMeta::default()
    };
    let string_data = Some(BTreeMap::from([(TOKEN_KEY.to_owned(), token.to_owned())]));
    Secret { metadata, string_data, ..Secret::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, valid};
    use serde_json::{Value, json};

    #[test]
    fn the_secret_holds_the_token_under_its_key() {
        let cluster = cluster(json!({}));
        let secret = auth_secret(&valid(&cluster), "secret");
        let token = &secret.string_data.as_ref().unwrap()[TOKEN_KEY];
        assert_eq!(token, "secret");
        assert_eq!(secret.metadata.name.as_deref(), Some("test-cluster"));
        assert_eq!(json!(secret.metadata.labels), json!({"ray.io/cluster": "test-cluster"}));
    }

    #[test]
    fn a_secret_is_needed_unless_the_token_comes_from_elsewhere() {
        let check = |options: Value, expect: bool| {
            let cluster = cluster(json!({"spec": {"authOptions": options}}));
            assert_eq!(cluster_spec::needs_auth_secret(&cluster.spec), expect);
        };
        check(json!(null), false);
        check(json!({}), true);
        check(json!({"mode": "token"}), true);
        check(json!({"mode": "token", "secretName": ""}), true);
        check(json!({"mode": "disabled"}), false);
        check(json!({"mode": "token", "secretName": "mine"}), false);
        check(json!({"mode": "token", "enableK8sTokenAuth": true}), false);
        check(json!({"mode": "token", "enableK8sTokenAuth": false}), true);
    }
}
