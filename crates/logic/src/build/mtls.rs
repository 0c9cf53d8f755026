//! The cert-manager objects of a cluster with TLS, as `cert-manager.io/v1` JSON.
//!
//! ```text
//! self-signed Issuer ─▶ CA Certificate ─▶ CA Issuer ─┬▶ head Certificate ─▶ Secret of the head
//!                                                    └▶ worker Certificate ─▶ Secret of the workers
//! ```

use super::owner;
use super::pod::{HEAD_SECRET_PREFIX, WORKER_SECRET_PREFIX};
use crate::cluster_spec;
use crate::config::Config;
use crate::labels;
use manta_api::RayCluster;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the Issuer that signs the CA's certificate.
pub fn self_signed_issuer(cluster: &RayCluster) -> Value {
    let name = self_signed_issuer_name(cluster_spec::name(cluster));
    object(cluster, "Issuer", &name, "selfsigned-issuer", json!({"selfSigned": {}}))
}

/// Returns the Certificate of the cluster's own CA.
pub fn ca_certificate(cluster: &RayCluster) -> Value {
    let name = cluster_spec::name(cluster);
    let spec = json!({
        "secretName": ca_secret_name(cluster),
        "isCA": true,
        "commonName": format!("ray-ca-{name}"),
        "privateKey": {"algorithm": "RSA", "size": 4096},
        "duration": "87600h0m0s",
        "renewBefore": "720h0m0s",
        "usages": ["cert sign", "crl sign"],
        "issuerRef": issuer(&self_signed_issuer_name(name)),
    });
    object(cluster, "Certificate", &ca_certificate_name(name), "ca-certificate", spec)
}

/// Returns the Issuer that signs with the CA.
pub fn ca_issuer(cluster: &RayCluster) -> Value {
    let spec = json!({"ca": {"secretName": ca_secret_name(cluster)}});
    object(cluster, "Issuer", &ca_issuer_name(cluster_spec::name(cluster)), "ca-issuer", spec)
}

/// Returns the Certificate of the head for its Service and the addresses of its Pods.
pub fn head_certificate(cluster: &RayCluster, config: &Config, pod_ips: &[&str]) -> Value {
    let name = cluster_spec::name(cluster);
    let fqdn = cluster_spec::head_fqdn(cluster, config);
    let spec = leaf(name, head_tls_secret_name(name), &["localhost", &fqdn], pod_ips);
    object(cluster, "Certificate", &head_certificate_name(name), "head-certificate", spec)
}

/// Returns the Certificate of all workers for the addresses of their Pods.
pub fn worker_certificate(cluster: &RayCluster, pod_ips: &[&str]) -> Value {
    let name = cluster_spec::name(cluster);
    let spec = leaf(name, worker_tls_secret_name(name), &["localhost"], pod_ips);
    object(cluster, "Certificate", &worker_certificate_name(name), "worker-certificate", spec)
}

/// Returns the object to write if a live Certificate differs from the wanted one.
///
/// Only labels, DNS names and IP addresses are compared; other fields may have been changed on purpose.
pub fn certificate_update(wanted: &Value, live: &Value) -> Option<Value> {
    let same = wanted["metadata"]["labels"] == live["metadata"]["labels"]
        && same_members(&wanted["spec"]["dnsNames"], &live["spec"]["dnsNames"])
        && same_members(&wanted["spec"]["ipAddresses"], &live["spec"]["ipAddresses"]);
    if same {
        return None;
    }
    let mut updated = live.clone();
    updated["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
    updated["metadata"]["ownerReferences"] = wanted["metadata"]["ownerReferences"].clone();
    updated["spec"] = wanted["spec"].clone();
    Some(updated)
}

fn same_members(one: &Value, other: &Value) -> bool {
    let empty = Vec::new();
    let (one, other) = (one.as_array().unwrap_or(&empty), other.as_array().unwrap_or(&empty));
    one.len() == other.len() && one.iter().all(|member| other.contains(member))
}

/// Returns the name of the self-signed Issuer.
pub fn self_signed_issuer_name(cluster: &str) -> String {
    format!("ray-selfsigned-issuer-{cluster}")
}

/// Returns the name of the CA's Certificate.
pub fn ca_certificate_name(cluster: &str) -> String {
    format!("ray-ca-certificate-{cluster}")
}

/// Returns the name of the CA's Issuer.
pub fn ca_issuer_name(cluster: &str) -> String {
    format!("ray-ca-issuer-{cluster}")
}

/// Returns the name of the head's Certificate.
pub fn head_certificate_name(cluster: &str) -> String {
    format!("ray-head-cert-{cluster}")
}

/// Returns the name of the workers' Certificate.
pub fn worker_certificate_name(cluster: &str) -> String {
    format!("ray-worker-cert-{cluster}")
}

/// Returns the name of the Secret that holds the head's certificate.
pub fn head_tls_secret_name(cluster: &str) -> String {
    format!("{HEAD_SECRET_PREFIX}{cluster}")
}

/// Returns the name of the Secret that holds the workers' certificate.
pub fn worker_tls_secret_name(cluster: &str) -> String {
    format!("{WORKER_SECRET_PREFIX}{cluster}")
}

/// Returns the name of the Secret that holds the CA's key.
///
/// The UID distinguishes it from the Secret of an earlier cluster of the same name.
pub fn ca_secret_name(cluster: &RayCluster) -> String {
    let uid: String = cluster_spec::uid(cluster).chars().take(8).collect();
    format!("{}-ca-secret-{uid}", cluster_spec::name(cluster))
}

fn object(cluster: &RayCluster, kind: &str, name: &str, component: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": cluster_spec::namespace(cluster),
            "labels": {
                labels::APP_NAME: labels::KUBERAY,
                labels::CREATED_BY: labels::KUBERAY_OPERATOR,
                labels::COMPONENT: component,
                labels::CLUSTER: cluster_spec::name(cluster),
            },
            "ownerReferences": [owner::cluster_reference(cluster)],
        },
        "spec": spec,
    })
}

fn leaf(cluster: &str, secret: String, dns_names: &[&str], pod_ips: &[&str]) -> Value {
    let dns_names: BTreeSet<_> = dns_names.iter().collect();
    let ip_addresses: BTreeSet<_> = pod_ips.iter().chain(&["127.0.0.1"]).filter(|ip| !ip.is_empty()).collect();
    json!({
        "secretName": secret,
        "duration": "2160h0m0s",
        "renewBefore": "360h0m0s",
        "dnsNames": dns_names,
        "ipAddresses": ip_addresses,
        "usages": ["digital signature", "key encipherment", "server auth", "client auth"],
        "issuerRef": issuer(&ca_issuer_name(cluster)),
    })
}

fn issuer(name: &str) -> Value {
    json!({"name": name, "kind": "Issuer", "group": "cert-manager.io"})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::cluster;

    fn given() -> RayCluster {
        cluster(json!({"metadata": {"uid": "01234567-89ab"}}))
    }

    #[test]
    fn every_certificate_refers_to_its_issuer() {
        let cluster = given();
        assert_eq!(self_signed_issuer(&cluster)["spec"], json!({"selfSigned": {}}));
        let expect = json!({
            "secretName": "test-cluster-ca-secret-01234567",
            "isCA": true,
            "commonName": "ray-ca-test-cluster",
            "privateKey": {"algorithm": "RSA", "size": 4096},
            "duration": "87600h0m0s",
            "renewBefore": "720h0m0s",
            "usages": ["cert sign", "crl sign"],
            "issuerRef": {"name": "ray-selfsigned-issuer-test-cluster", "kind": "Issuer", "group": "cert-manager.io"},
        });
        assert_eq!(ca_certificate(&cluster)["spec"], expect);
        assert_eq!(ca_issuer(&cluster)["spec"], json!({"ca": {"secretName": "test-cluster-ca-secret-01234567"}}));
        let head = head_certificate(&cluster, &Config::default(), &[]);
        assert_eq!(head["spec"]["dnsNames"], json!(["localhost", "test-cluster-head-svc.test-ns.svc.cluster.local"]));
        assert_eq!(head["spec"]["secretName"], "ray-head-secret-test-cluster");
        assert_eq!(head["spec"]["issuerRef"]["name"], ca_issuer(&cluster)["metadata"]["name"]);
        let worker = worker_certificate(&cluster, &[]);
        assert_eq!(worker["spec"]["dnsNames"], json!(["localhost"]));
        assert_eq!(worker["spec"]["ipAddresses"], json!(["127.0.0.1"]));
        assert_eq!(worker["metadata"]["labels"]["app.kubernetes.io/component"], "worker-certificate");
    }

    #[test]
    fn addresses_are_sorted_and_unique() {
        let made = worker_certificate(&given(), &["10.244.0.6", "", "10.244.0.10", "10.244.0.6", "127.0.0.1"]);
        assert_eq!(made["spec"]["ipAddresses"], json!(["10.244.0.10", "10.244.0.6", "127.0.0.1"]));
    }

    #[test]
    fn short_uids_are_used_whole() {
        assert_eq!(ca_secret_name(&cluster(json!({"metadata": {"uid": "a"}}))), "test-cluster-ca-secret-a");
    }

    #[test]
    fn only_names_addresses_and_labels_are_compared() {
        let wanted = worker_certificate(&given(), &["10.0.0.1"]);
        let mut live = wanted.clone();
        live["spec"]["ipAddresses"] = json!(["127.0.0.1", "10.0.0.1"]);
        live["spec"]["duration"] = json!("1h0m0s");
        live["status"] = json!({"notAfter": "later"});
        live["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(certificate_update(&wanted, &live), None);
        for (path, value) in [
            ("/spec/ipAddresses", json!(["127.0.0.1", "10.0.0.2"])),
            ("/spec/ipAddresses", json!(["127.0.0.1"])),
            ("/spec/dnsNames", json!(["localhost", "other"])),
            ("/metadata/labels/extra", json!("x")),
        ] {
            let mut drifted = live.clone();
            match drifted.pointer_mut(path) {
                Some(field) => *field = value,
                None => drifted["metadata"]["labels"]["extra"] = value,
            }
            let updated = certificate_update(&wanted, &drifted).unwrap();
            assert_eq!(updated["spec"], wanted["spec"], "{path}");
            assert_eq!(updated["metadata"]["labels"], wanted["metadata"]["labels"]);
            assert_eq!(updated["metadata"]["resourceVersion"], "7");
        }
    }
}
