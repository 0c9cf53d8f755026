//! Where a connection to a pod or a service leads.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpStream;

use super::node_error;
use crate::error::ApiError;
use crate::node::{Duplex, PodRef};
use crate::ops::{Cluster, Target};
use crate::registry::internal_range;
use crate::store::{ListRange, ObjectKey};

/// The label of an EndpointSlice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A port of a pod, or of an address without one.
pub(crate) struct Backend {
    pod: Option<Value>,
    address: String,
    pub(super) port: u16,
}

impl Backend {
    /// Returns a port of a pod.
    pub(super) fn of_pod(pod: Value, port: u16) -> Backend {
        let address = pod["status"]["podIP"].as_str().unwrap_or("").to_owned();
        Backend { pod: Some(pod), address, port }
    }

    /// Returns a ready endpoint of a service, from its EndpointSlices.
    pub(crate) fn of_service(cluster: &Cluster, target: Target<'_>, port: &str) -> Result<Backend, ApiError> {
        let service = cluster.get(target)?.value();
        let ports: Vec<&Value> = service["spec"]["ports"].as_array().into_iter().flatten().collect();
        let chosen = ports.iter().find(|known| {
            port.is_empty()
                || known["name"] == port
                || known["port"].as_u64().is_some_and(|number| number.to_string() == port)
        });
        let Some(chosen) = chosen else {
            return Err(ApiError::unavailable(format!("no service port {port:?} found for service {:?}", target.name)));
        };
        let span = ListRange { namespace: Some(target.namespace), ..ListRange::default() };
        let slices = cluster
            .store
            .list("endpointslices.discovery.k8s.io", &span, |slice| slice.label(SERVICE_NAME) == Some(target.name));
        let slices = slices.map(|page| page.entries).unwrap_or_default();
        let found = slices.iter().find_map(|slice| {
            let (endpoint, port) = ready_endpoint(&slice.shared_value(), chosen["name"].as_str().unwrap_or(""))?;
            let address = endpoint["addresses"][0].as_str()?.to_owned();
            Some(Backend { pod: pod_of(cluster, target.namespace, &endpoint["targetRef"]), address, port })
        });
        found.ok_or_else(|| ApiError::unavailable(format!("no endpoints available for service {:?}", target.name)))
    }

    /// Returns the address that the connection leads to.
    pub(super) fn host(&self) -> Option<&str> {
        Some(self.address.as_str()).filter(|address| !address.is_empty())
    }

    /// Opens a connection: by the node into its pods, directly to anything else.
    pub(crate) async fn connect(&self, cluster: &Cluster) -> Result<Box<dyn Duplex>, ApiError> {
        if let (Some(pod), Some(node)) = (&self.pod, cluster.node()) {
            let text = |key: &str| pod["metadata"][key].as_str().unwrap_or("").to_owned();
            let reference = PodRef { namespace: text("namespace"), name: text("name"), object: Arc::new(pod.clone()) };
            return (node.dial)(reference, self.port).await.map_err(node_error);
        }
        let failed =
            |error: std::io::Error| ApiError::unavailable(format!("dial tcp {}:{}: {error}", self.address, self.port));
        // The server resolves a name before it checks where it leads: users write the addresses of services.
        let found = tokio::net::lookup_host((self.address.as_str(), self.port)).await.map_err(failed)?;
        let is_literal = self.address.parse::<IpAddr>().is_ok();
        let trusted = self.pod.is_some() && is_literal;
        let allowed = allowed(found, trusted).map_err(failed)?;
        Ok(Box::new(TcpStream::connect(&*allowed).await.map_err(failed)?))
    }
}

/// Returns the addresses that may be connected to: those of pods, and those that are not the machine's own.
fn allowed(found: impl Iterator<Item = SocketAddr>, trusted: bool) -> std::io::Result<Vec<SocketAddr>> {
    let mut allowed = Vec::new();
    let mut refused = None;
    for address in found {
        match internal_range(address.ip()).filter(|_| !trusted) {
            None => allowed.push(address),
            Some(why) => refused = Some(format!("{} {why}", address.ip())),
        }
    }
    match refused {
        Some(why) if allowed.is_empty() => Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why)),
        _ => Ok(allowed),
    }
}

/// Returns the first ready endpoint of a slice that does not end, and the number of the named port.
fn ready_endpoint(slice: &Value, port: &str) -> Option<(Value, u16)> {
    let mut ports = slice["ports"].as_array().into_iter().flatten();
    let number = ports.find(|known| known["name"].as_str().unwrap_or("") == port)?["port"].as_u64()?;
    let mut endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let ready =
        endpoints.find(|one| one["conditions"]["ready"] != false && one["conditions"]["terminating"] != true)?;
    Some((ready.clone(), u16::try_from(number).ok()?))
}

/// Returns the pod that an endpoint refers to.
fn pod_of(cluster: &Cluster, namespace: &str, reference: &Value) -> Option<Value> {
    let name = reference["name"].as_str().filter(|_| reference["kind"] == "Pod")?;
    cluster.store.get("pods", &ObjectKey::new(namespace, name)).map(|pod| pod.value())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn connections_lead_to_ready_endpoints_by_the_name_of_the_port() {
        let endpoint = |address: &str, conditions: Value| json!({"addresses": [address], "conditions": conditions});
        let check = |endpoints: Value, port: &str, expect: Option<(&str, u16)>| {
            let slice = json!({"ports": [{"name": "web", "port": 8080}, {"port": 81}], "endpoints": endpoints});
            let found = ready_endpoint(&slice, port);
            let found = found.as_ref().map(|(one, port)| (one["addresses"][0].as_str().unwrap(), *port));
            assert_eq!(found, expect, "{slice} {port}");
        };
        let good = || endpoint("10.0.0.3", json!({"ready": true}));
        check(json!([endpoint("10.0.0.1", json!({"ready": false})), good()]), "web", Some(("10.0.0.3", 8080)));
        let ending = endpoint("10.0.0.2", json!({"ready": true, "terminating": true}));
        check(json!([ending.clone(), good()]), "", Some(("10.0.0.3", 81)));
        check(json!([ending]), "web", None);
        check(json!([endpoint("10.0.0.4", json!({}))]), "web", Some(("10.0.0.4", 8080)));
        check(json!([good()]), "other", None);
    }

    #[test]
    fn only_the_addresses_of_pods_may_be_the_machine_itself() {
        let check = |addresses: &[&str], trusted: bool, expect: Option<&[&str]>| {
            let parse = |address: &&str| SocketAddr::new(address.parse().expect("an address"), 80);
            let got = allowed(addresses.iter().map(parse), trusted).ok();
            assert_eq!(got, expect.map(|list| list.iter().map(parse).collect()), "{addresses:?}");
        };
        check(&["10.0.0.1"], false, Some(&["10.0.0.1"]));
        check(&["127.0.0.1"], true, Some(&["127.0.0.1"]));
        for own in ["127.0.0.1", "::ffff:127.0.0.1", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1"] {
            check(&[own], false, None);
            check(&[own, "10.0.0.1"], false, Some(&["10.0.0.1"]));
        }
    }
}
