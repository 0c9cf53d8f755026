//! Resource quotas: what an object uses, and whether a namespace has that much left.
//!
//! Usage is always counted from the stored objects. A lock is held from the check until the commit, so two writes cannot
//! both take what is left. Namespaces without a quota pay nothing.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use manta_quantity::Quantity;
use serde_json::Value;

use super::Cluster;
use crate::error::ApiError;
use crate::registry::{Resource, qos_class};
use crate::store::ListRange;

pub(crate) const TABLE: &str = "resourcequotas";

/// Amounts by the name of the quota's resource.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// The kinds of the core group that a quota counts under their plain name.
const COUNTED: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];

/// Returns what an object of a table uses.
pub(crate) fn usage(table: &str, object: &Value) -> Amounts {
    let mut used = Amounts::new();
    add(&mut used, &format!("count/{table}"), &Quantity::from(1));
    if COUNTED.contains(&table) && !(table == "pods" && is_over(object)) {
        add(&mut used, table, &Quantity::from(1));
    }
    match table {
        "pods" if !is_over(object) => add_pod(&mut used, object),
        "services" => add_service(&mut used, object),
        "persistentvolumeclaims" => add_claim(&mut used, object),
        _ => {}
    }
    used
}

fn add(used: &mut Amounts, name: &str, amount: &Quantity) {
    *used.entry(name.to_owned()).or_default() += amount;
}

/// Returns whether a pod no longer uses anything.
fn is_over(pod: &Value) -> bool {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return true;
    }
    // One whose node does not report its end in time counts no longer.
    let deadline = pod["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    deadline.is_some_and(|_| pod["metadata"]["deletionGracePeriodSeconds"] == 0)
}

fn add_pod(used: &mut Amounts, pod: &Value) {
    for (list, is_request) in [("requests", true), ("limits", false)] {
        for (name, amount) in pod_resources(&pod["spec"], list) {
            let standard = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
            if is_request {
                add(used, &format!("requests.{name}"), &amount);
                if standard || name.starts_with("hugepages-") {
                    add(used, &name, &amount);
                }
            } else if standard {
                add(used, &format!("limits.{name}"), &amount);
            }
        }
    }
}

/// Returns the requests or limits of a pod: the sum of its containers, or what its init containers need if that is more.
fn pod_resources(spec: &Value, list: &str) -> Amounts {
    let amounts = |container: &Value| -> Amounts {
        let all = container["resources"][list].as_object().into_iter().flatten();
        all.map(|(name, value)| (name.clone(), quantity(value))).collect()
    };
    let containers = |key: &str| spec[key].as_array().cloned().unwrap_or_default();
    let mut total = Amounts::new();
    for container in containers("containers") {
        amounts(&container).iter().for_each(|(name, amount)| add(&mut total, name, amount));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in containers("initContainers") {
        let mut needed = amounts(&container);
        if container["restartPolicy"] == "Always" {
            needed.iter().for_each(|(name, amount)| add(&mut sidecars, name, amount));
            needed = sidecars.clone();
        } else {
            sidecars.iter().for_each(|(name, amount)| add(&mut needed, name, amount));
        }
        for (name, amount) in needed {
            let most = starting.entry(name).or_default();
            if amount > *most {
                *most = amount;
            }
        }
    }
    sidecars.iter().for_each(|(name, amount)| add(&mut total, name, amount));
    for (name, amount) in starting {
        let most = total.entry(name).or_default();
        if amount > *most {
            *most = amount;
        }
    }
    if list == "requests" || spec["overhead"].is_object() {
        for (name, value) in spec["overhead"].as_object().into_iter().flatten() {
            add(&mut total, name, &quantity(value));
        }
    }
    total
}

fn quantity(value: &Value) -> Quantity {
    value.as_str().map(Quantity::parse_or_zero).unwrap_or_else(|| Quantity::from(value.as_i64().unwrap_or(0)))
}

fn add_service(used: &mut Amounts, service: &Value) {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().map_or(0, Vec::len);
    let opened = match spec["type"].as_str() {
        Some("NodePort") => ports,
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] != false => ports,
        Some("LoadBalancer") => {
            spec["ports"].as_array().into_iter().flatten().filter(|port| port["nodePort"].is_u64()).count()
        }
        _ => 0,
    };
    add(used, "services.nodeports", &Quantity::from(opened as i64));
    add(used, "services.loadbalancers", &Quantity::from(i64::from(spec["type"] == "LoadBalancer")));
}

fn add_claim(used: &mut Amounts, claim: &Value) {
    let storage = quantity(&claim["spec"]["resources"]["requests"]["storage"]);
    add(used, "requests.storage", &storage);
    if let Some(class) = claim["spec"]["storageClassName"].as_str() {
        add(used, &format!("{class}.storageclass.storage.k8s.io/requests.storage"), &storage);
        add(used, &format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), &Quantity::from(1));
    }
}

/// Returns whether the scopes of a quota cover an object.
pub(crate) fn is_covered(quota: &Value, table: &str, object: &Value) -> bool {
    let plain = quota["spec"]["scopes"].as_array().into_iter().flatten();
    let plain = plain.map(|scope| (scope.as_str().unwrap_or("").to_owned(), "Exists".to_owned(), Vec::new()));
    let selected = quota["spec"]["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let selected = selected.map(|term| {
        let values = term["values"].as_array().into_iter().flatten().map(text).collect();
        (text(&term["scopeName"]), text(&term["operator"]), values)
    });
    plain
        .chain(selected)
        .all(|(scope, operator, values)| table == "pods" && in_scope(object, &scope, &operator, &values))
}

fn in_scope(pod: &Value, scope: &str, operator: &str, values: &[String]) -> bool {
    let spec = &pod["spec"];
    let ends = spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    let best_effort = qos_class(spec) == "BestEffort";
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => {
            let class = spec["priorityClassName"].as_str().filter(|class| !class.is_empty());
            let listed = class.is_some_and(|class| values.iter().any(|value| value == class));
            match operator {
                "In" => listed,
                "NotIn" => !listed,
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            }
        }
        "CrossNamespacePodAffinity" => {
            let terms = ["podAffinity", "podAntiAffinity"].map(|kind| spec["affinity"][kind].to_string());
            terms.iter().any(|terms| terms.contains("\"namespaces\":[\"") || terms.contains("\"namespaceSelector\":{"))
        }
        _ => false,
    }
}

/// Returns the limits of a quota.
pub(crate) fn hard(quota: &Value) -> Amounts {
    let all = quota["spec"]["hard"].as_object().into_iter().flatten();
    all.map(|(name, value)| (name.clone(), quantity(value))).collect()
}

/// Returns the table whose objects a resource of a quota counts.
fn table_of(name: &str) -> &str {
    if let Some(table) = name.strip_prefix("count/") {
        return table;
    }
    match name {
        "services.nodeports" | "services.loadbalancers" => "services",
        "requests.storage" => "persistentvolumeclaims",
        name if name.contains(".storageclass.storage.k8s.io/") => "persistentvolumeclaims",
        name if COUNTED.contains(&name) => name,
        _ => "pods",
    }
}

/// Returns the resources that containers of a pod must specify but do not, with the containers.
fn unspecified(hard: &Amounts, pod: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for name in ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"] {
        if !hard.contains_key(name) {
            continue;
        }
        let (list, resource) = match name.split_once('.') {
            Some((list, resource)) => (list, resource),
            None => ("requests", name),
        };
        let lists = ["containers", "initContainers"];
        let containers = lists.iter().flat_map(|key| pod["spec"][*key].as_array().into_iter().flatten());
        let lacking: Vec<&str> = containers
            .filter(|container| container["resources"][list][resource].is_null())
            .filter_map(|container| container["name"].as_str())
            .collect();
        if !lacking.is_empty() {
            missing.push(format!("{name} for: {}", lacking.join(",")));
        }
    }
    missing
}

impl Cluster {
    /// Returns what is used of a quota.
    pub(crate) fn quota_usage(&self, namespace: &str, quota: &Value) -> Amounts {
        let hard = hard(quota);
        let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
        let mut tables: Vec<&str> = hard.keys().map(|name| table_of(name)).collect();
        tables.sort_unstable();
        tables.dedup();
        let range = ListRange { namespace: Some(namespace), ..ListRange::default() };
        for table in tables {
            let found = self.store.list(table, &range, |_| true);
            for entry in found.map(|page| page.entries).unwrap_or_default() {
                let object = entry.value();
                if !is_covered(quota, table, &object) {
                    continue;
                }
                for (name, amount) in usage(table, &object) {
                    if let Some(sum) = used.get_mut(&name) {
                        *sum += &amount;
                    }
                }
            }
        }
        used
    }

    /// Refuses an object that its namespace has no quota for; the guard must be held until the object is committed.
    pub(super) fn admit_quota(
        &self,
        resource: &Resource,
        namespace: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Option<MutexGuard<'_, ()>>, ApiError> {
        if !resource.namespaced || &*resource.table == "events" || self.store.count(TABLE) == 0 {
            return Ok(None);
        }
        let range = ListRange { namespace: Some(namespace), ..ListRange::default() };
        let quotas = self.store.list(TABLE, &range, |_| true).map(|page| page.entries).unwrap_or_default();
        if quotas.is_empty() {
            return Ok(None);
        }
        let guard = self.quota_lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let table = &*resource.table;
        let name = new["metadata"]["name"].as_str().unwrap_or("");
        for quota in &quotas {
            let value = quota.value();
            let hard = hard(&value);
            if !is_covered(&value, table, new) {
                continue;
            }
            if table == "pods" && old.is_none() {
                let missing = unspecified(&hard, new);
                if !missing.is_empty() {
                    let why = format!("failed quota: {}: must specify {}", quota.key.name, missing.join("; "));
                    return Err(ApiError::forbidden(resource.named(name), &why));
                }
            }
            let mut wanted = usage(table, new);
            let covered_before = old.filter(|old| is_covered(&value, table, old));
            for (name, amount) in covered_before.map(|old| usage(table, old)).unwrap_or_default() {
                *wanted.entry(name).or_default() -= &amount;
            }
            wanted.retain(|name, amount| hard.contains_key(name) && amount.is_positive());
            if wanted.is_empty() {
                continue;
            }
            let used = self.quota_usage(namespace, &value);
            let exceeds = |(name, amount): &(&String, &Quantity)| {
                let mut sum = used.get(*name).cloned().unwrap_or_default();
                sum += *amount;
                hard.get(*name).is_some_and(|most| sum > *most)
            };
            let exceeded: Vec<&String> = wanted.iter().filter(exceeds).map(|(name, _)| name).collect();
            if !exceeded.is_empty() {
                let show = |amounts: &Amounts| {
                    let shown = exceeded
                        .iter()
                        .map(|name| format!("{name}={}", amounts.get(*name).cloned().unwrap_or_default()));
                    shown.collect::<Vec<_>>().join(",")
                };
                let why = format!(
                    "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                    quota.key.name,
                    show(&wanted),
                    show(&used),
                    show(&hard)
                );
                return Err(ApiError::forbidden(resource.named(name), &why));
            }
        }
        Ok(Some(guard))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(amounts: &Amounts, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| amounts.get(*name).map_or_else(String::new, ToString::to_string)).collect()
    }

    #[test]
    fn pods_use_the_sum_of_their_containers_or_what_their_start_needs() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}}});
        let pod =
            json!({"spec": {"containers": [container("100m"), container("200m")], "initContainers": [container("1")]}});
        let used = usage("pods", &pod);
        assert_eq!(shown(&used, &["pods", "cpu", "requests.cpu", "limits.memory"]), ["1", "1", "1", "2Gi"]);
        let mut over = pod;
        over["status"]["phase"] = json!("Succeeded");
        assert_eq!(shown(&usage("pods", &over), &["pods", "count/pods", "cpu"]), ["", "1", ""]);
    }

    #[test]
    fn services_use_node_ports_and_load_balancers() {
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
        let names = ["services", "services.nodeports", "services.loadbalancers"];
        assert_eq!(shown(&usage("services", &service), &names), ["1", "2", "1"]);
    }

    #[test]
    fn scopes_limit_what_is_counted() {
        let quota = |scope: &str| json!({"spec": {"scopes": [scope]}});
        let pod = json!({"spec": {"containers": [{}], "activeDeadlineSeconds": 5}});
        for (scope, expect) in
            [("BestEffort", true), ("NotBestEffort", false), ("Terminating", true), ("NotTerminating", false)]
        {
            assert_eq!(is_covered(&quota(scope), "pods", &pod), expect, "{scope}");
        }
        assert!(!is_covered(&quota("BestEffort"), "services", &json!({})), "scopes are about pods");
    }

    #[test]
    fn a_quota_on_compute_resources_makes_them_mandatory() {
        let hard =
            Amounts::from([("cpu".to_owned(), Quantity::from(1)), ("limits.memory".to_owned(), Quantity::from(1))]);
        let pod =
            json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}, {"name": "b"}]}});
        assert_eq!(unspecified(&hard, &pod), ["cpu for: b", "limits.memory for: a,b"]);
    }
}
