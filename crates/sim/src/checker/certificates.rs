//! Encrypted clusters start with certificates of their own, which hold for all of their Pods.

use super::{Others, Seen};
use crate::cert_manager::CERTIFICATE_NAME;
use crate::object::{condition, generation, is_alive, is_owned_by, label, name, owner, text, uid};
use serde_json::Value;

/// The Certificates of a cluster that its Pods need.
const PARTS: [&str; 2] = ["head", "worker"];

impl Seen {
    /// A Pod is not created before the certificates of its cluster were issued.
    pub(super) fn before_its_certificates(&self, pod: &Value, others: &Others) -> Option<String> {
        let cluster = label(pod, "ray.io/cluster");
        let object = self.get("RayCluster", &cluster).filter(|object| owner(pod) == Some(uid(object)))?;
        if object["spec"]["tlsOptions"]["enabled"] != true {
            return None;
        }
        let is_issued = |part: &str| {
            let certificate = others.api.get("Certificate", &format!("ray-{part}-cert-{cluster}"));
            certificate.is_some_and(|certificate| others.cert_manager.has_issued(&uid(&certificate)))
        };
        let missing = PARTS.into_iter().find(|part| !is_issued(part))?;
        Some(format!("Pod {} was created before the {missing} certificate was issued", name(pod)))
    }

    /// Returns what is wrong with the certificates of a cluster.
    pub(super) fn certificates_unsettled(&self, cluster: &Value) -> Option<String> {
        if cluster["spec"]["tlsOptions"]["enabled"] != true {
            return None;
        }
        PARTS.into_iter().find_map(|part| self.certificate_unsettled(cluster, part))
    }

    fn certificate_unsettled(&self, cluster: &Value, part: &str) -> Option<String> {
        let certificate = format!("ray-{part}-cert-{}", name(cluster));
        let found = self.get("Certificate", &certificate).filter(|found| is_owned_by(found, &uid(cluster)));
        let Some(found) = found else { return Some(format!("it has no Certificate {certificate}")) };
        if !condition(found, "Ready") || found["status"]["conditions"][0]["observedGeneration"] != generation(found) {
            return Some(format!("{certificate} is not ready"));
        }
        let addresses = found["spec"]["ipAddresses"].as_array().cloned().unwrap_or_default();
        let mut pods = self.of_kind("Pod").map(|(_, pod)| pod);
        let uncovered = pods.find(|pod| {
            let of_part = self.cluster_of(pod) == Some(uid(cluster)) && label(pod, "ray.io/node-type") == part;
            of_part && is_alive(pod) && !addresses.contains(&pod["status"]["podIP"])
        });
        if let Some(pod) = uncovered {
            return Some(format!("{certificate} does not hold for {}", name(pod)));
        }
        let secret = text(&found["spec"]["secretName"]);
        let owned = self.get("Secret", &secret).is_some_and(|secret| is_owned_by(secret, &uid(found)));
        (!owned).then(|| format!("Secret {secret} does not go with {certificate}"))
    }
}

/// Returns whether nobody deletes an object: a Secret whose Certificate went before the Secret became its own.
pub(super) fn stays(object: &Value) -> bool {
    object["metadata"]["annotations"][CERTIFICATE_NAME].is_string() && object["metadata"]["ownerReferences"].is_null()
}
