//! Values of the downward API: `fieldRef` and `resourceFieldRef`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use manta_quantity::Quantity;

/// Values that are not in the pod object itself.
#[derive(Debug, Clone, Default)]
pub struct NodeValues {
    pub pod_ip: String,
    pub host_ip: String,
    /// What stands in for a limit that is not set.
    pub allocatable: BTreeMap<String, QuantityText>,
}

/// The value of a `fieldRef`; `None` for a path Kubernetes does not offer.
pub fn field(pod: &Pod, values: &NodeValues, path: &str) -> Option<String> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return None,
        };
        return Some(map.as_ref().and_then(|m| m.get(key)).cloned().unwrap_or_default());
    }
    Some(match path {
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => spec.and_then(|s| s.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
        "status.podIP" | "status.podIPs" => values.pod_ip.clone(),
        "status.hostIP" | "status.hostIPs" => values.host_ip.clone(),
        _ => return None,
    })
}

/// The value of a `resourceFieldRef` for one container; `None` for an unknown resource.
pub fn resource(container: &Container, values: &NodeValues, selector: &ResourceFieldSelector) -> Option<String> {
    let (kind, name) = selector.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|r| r.limits.as_ref()).and_then(|m| m.get(name));
    let value = match kind {
        "limits" => limit.or_else(|| values.allocatable.get(name)),
        "requests" => resources.and_then(|r| r.requests.as_ref()).and_then(|m| m.get(name)).or(limit),
        _ => return None,
    };
    let parse = |text: Option<&QuantityText>| text.map(|text| Quantity::parse_or_zero(&text.0)).unwrap_or_default();
    let divisor = Some(parse(selector.divisor.as_ref())).filter(Quantity::is_positive);
    Some(parse(value).ceil_div(&divisor.unwrap_or(1.into())).to_string())
}

/// `metadata.labels['key']` → (`metadata.labels`, `key`).
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once('[')?;
    let key = rest.strip_suffix(']')?;
    Some((map, key.trim_matches(['\'', '"'])))
}

/// Labels as a downward API file holds them.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    map.into_iter().flatten().map(|(k, v)| format!("{k}={v:?}")).collect::<Vec<_>>().join("\n")
}
