//! Copies Endpoints that users write for services without a selector into EndpointSlices.

use serde_json::{Value, json};

use super::{MANAGED_BY, MAX_PER_SLICE, SERVICE_NAME, SKIP_MIRROR, put_slices};
use crate::ops::{Cluster, Target};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";

/// Writes the slices that mirror the Endpoints of a service, or removes them with the Endpoints.
pub(super) fn sync(cluster: &Cluster, service: &Value) {
    let metadata = &service["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str().unwrap_or(""), metadata["name"].as_str().unwrap_or(""));
    let resource = cluster.registry.builtin("", "endpoints");
    let endpoints = cluster.get(Target { resource: &resource, namespace, name }).ok().map(|entry| entry.value());
    let mirrored = endpoints.filter(|endpoints| endpoints["metadata"]["labels"][SKIP_MIRROR] != "true");
    let wanted = mirrored.as_ref().map(slices).unwrap_or_default();
    let labels = json!({SERVICE_NAME: name, MANAGED_BY: MANAGER});
    put_slices(cluster, namespace, mirrored.as_ref().unwrap_or(service), &labels, &wanted);
}

/// Returns the ports and endpoints of each slice.
fn slices(endpoints: &Value) -> Vec<(Vec<Value>, Vec<Value>)> {
    let mut slices = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let ports = subset["ports"].as_array().cloned().unwrap_or_default();
        let of = |list: &str, ready: bool| {
            let addresses = subset[list].as_array().cloned().unwrap_or_default();
            addresses.into_iter().map(move |address| endpoint(&address, ready))
        };
        let all: Vec<Value> = of("addresses", true).chain(of("notReadyAddresses", false)).collect();
        slices.extend(all.chunks(MAX_PER_SLICE).map(|chunk| (ports.clone(), chunk.to_vec())));
    }
    slices
}

fn endpoint(address: &Value, ready: bool) -> Value {
    let mut endpoint = json!({"addresses": [address["ip"]], "conditions": {"ready": ready}});
    for field in ["hostname", "nodeName", "targetRef"] {
        if !address[field].is_null() {
            endpoint[field] = address[field].clone();
        }
    }
    endpoint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_become_slices() {
        let given = json!({"subsets": [
            {"addresses": [{"ip": "10.1.2.3", "hostname": "h"}], "notReadyAddresses": [{"ip": "10.1.2.4"}],
             "ports": [{"port": 80}]},
            {"ports": [{"port": 81}]},
        ]});
        let expect = (
            vec![json!({"port": 80})],
            vec![
                json!({"addresses": ["10.1.2.3"], "conditions": {"ready": true}, "hostname": "h"}),
                json!({"addresses": ["10.1.2.4"], "conditions": {"ready": false}}),
            ],
        );
        assert_eq!(slices(&given), [expect]);
    }
}
