//! Allocation of cluster addresses and node ports to services.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::Cluster;
use crate::error::ApiError;
use crate::registry::Resource;
use crate::schema::FieldError;

/// The network of cluster addresses, 10.96.0.0/16, and the range of node ports.
const NETWORK: u32 = 0x0a60_0000;
const SIZE: u32 = 1 << 16;
/// The size of the range that is reserved for static addresses.
const RESERVED: u32 = 256;
const PORTS: std::ops::Range<u32> = 30000..32768;

/// The allocated addresses and node ports.
#[derive(Default)]
pub struct ServiceIps {
    used: Mutex<HashSet<u32>>,
}

/// Addresses reserved for a service that is not stored yet; dropping releases them.
#[must_use]
pub(super) struct Allocation<'a> {
    pool: &'a ServiceIps,
    taken: Vec<u32>,
    /// What the service had and gives back.
    freed: Vec<u32>,
}

impl Allocation<'_> {
    pub(super) fn commit(mut self) {
        // Dropping it releases what it lists.
        self.taken = std::mem::take(&mut self.freed);
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        let mut used = self.pool.used.lock().unwrap_or_else(PoisonError::into_inner);
        for number in &self.taken {
            used.remove(number);
        }
    }
}

impl ServiceIps {
    /// Allocates the addresses and node ports that a service lacks; `old` is its previous state.
    pub(super) fn allocate(
        &self,
        resource: &Resource,
        value: &mut Value,
        old: Option<&Value>,
        cluster: &Cluster,
    ) -> Result<Allocation<'_>, ApiError> {
        let mut allocation = Allocation { pool: self, taken: Vec::new(), freed: Vec::new() };
        if &*resource.table != "services" {
            return Ok(allocation);
        }
        self.fill(resource, value, old, cluster, &mut allocation)?;
        let kept = held_by(value);
        let before = old.map(held_by).unwrap_or_default();
        allocation.freed = before.into_iter().filter(|number| !kept.contains(number)).collect();
        Ok(allocation)
    }

    fn fill(
        &self,
        resource: &Resource,
        value: &mut Value,
        old: Option<&Value>,
        cluster: &Cluster,
        allocation: &mut Allocation<'_>,
    ) -> Result<(), ApiError> {
        let name = value["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let spec = &mut value["spec"];
        let kind = spec["type"].as_str().unwrap_or("").to_owned();
        if kind == "ExternalName" {
            return Ok(());
        }
        let refuse = |field: &str, given: &Value, why: &str| {
            ApiError::invalid(resource.kind_named(&name), &[FieldError::invalid(field, given, why)])
        };
        let given = spec["clusterIP"].as_str().unwrap_or("").to_owned();
        let before = old.and_then(|old| old["spec"]["clusterIP"].as_str()).filter(|before| !before.is_empty());
        match (given.as_str(), before) {
            ("", Some(before)) => spec["clusterIP"] = before.into(),
            ("", None) => {
                let Some(number) = self.pick(allocation, SIZE - RESERVED - 1, NETWORK + RESERVED, cluster) else {
                    return Err(ApiError::internal("no cluster address is free"));
                };
                spec["clusterIP"] = Ipv4Addr::from(number).to_string().into();
            }
            ("None", _) => {}
            (given, before) if Some(given) == before => {}
            (given, _) => {
                let parsed = given.parse::<Ipv4Addr>().map(u32::from).ok();
                let inside = parsed.filter(|number| number & !(SIZE - 1) == NETWORK);
                let Some(number) = inside else {
                    let why =
                        format!("failed to allocate IP {given}: the provided network does not match the current range");
                    return Err(refuse("spec.clusterIPs", &json!([given]), &why));
                };
                if !self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
                    let why = format!("failed to allocate IP {given}: provided IP is already allocated");
                    return Err(refuse("spec.clusterIPs", &json!([given]), &why));
                }
                allocation.taken.push(number);
            }
        }
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
        if has_node_ports(&value["spec"]) {
            self.fill_node_ports(resource, &name, value, old, cluster, allocation)?;
        }
        Ok(())
    }

    /// Allocates the node ports that a service lacks, and those that it names.
    fn fill_node_ports(
        &self,
        resource: &Resource,
        name: &str,
        value: &mut Value,
        old: Option<&Value>,
        cluster: &Cluster,
        allocation: &mut Allocation<'_>,
    ) -> Result<(), ApiError> {
        let spec = &mut value["spec"];
        let before = old.map(|old| &old["spec"]).filter(|spec| has_node_ports(spec));
        let before: &[Value] = before.and_then(|spec| spec["ports"].as_array()).map_or(&[], Vec::as_slice);
        let mut ports = spec["ports"].as_array().cloned().unwrap_or_default();
        keep_node_ports(before, &mut ports);
        // A load balancer may do without; ports that are named are allocated all the same.
        let draws = spec["type"] != "LoadBalancer" || spec["allocateLoadBalancerNodePorts"] != false;
        let mut own: HashSet<u32> = before.iter().filter_map(node_port).collect();
        for (index, given) in ports.iter().enumerate() {
            let Some(number) = node_port(given).filter(|number| !own.contains(number)) else { continue };
            let why = if !PORTS.contains(&number) {
                let (first, last) = (PORTS.start, PORTS.end - 1);
                format!("provided port is not in the valid range. The range of valid ports is {first}-{last}")
            } else if !self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
                "provided port is already allocated".to_owned()
            } else {
                allocation.taken.push(number);
                own.insert(number);
                continue;
            };
            let error = FieldError::invalid(format!("spec.ports[{index}].nodePort"), &given["nodePort"], &why);
            return Err(ApiError::invalid(resource.kind_named(name), &[error]));
        }
        for index in 0..ports.len() {
            if node_port(&ports[index]).is_some() || !draws {
                continue;
            }
            // TCP and UDP of one port share its number.
            let shares =
                |other: &&Value| other["port"] == ports[index]["port"] && other["protocol"] != ports[index]["protocol"];
            let shared = ports.iter().filter(shares).find_map(node_port);
            let drawn = shared.or_else(|| self.pick(allocation, PORTS.end - PORTS.start, PORTS.start, cluster));
            let Some(number) = drawn else {
                return Err(ApiError::internal("failed to allocate a nodePort: range is full"));
            };
            ports[index]["nodePort"] = number.into();
        }
        spec["ports"] = ports.into();
        Ok(())
    }

    fn pick(&self, allocation: &mut Allocation<'_>, size: u32, base: u32, cluster: &Cluster) -> Option<u32> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let start = (cluster.clock.next() % u64::from(size)) as u32;
        let free = (0..size).map(|step| base + (start + step) % size).find(|number| used.insert(*number))?;
        allocation.taken.push(free);
        Some(free)
    }

    /// Reserves the addresses and node ports of a stored service.
    pub(crate) fn reserve(&self, service: &Value) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).extend(held_by(service));
    }

    /// Releases the addresses and node ports of a deleted service.
    pub(crate) fn release(&self, service: &Value) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for number in held_by(service) {
            used.remove(&number);
        }
    }
}

/// Removes what only the previous type of a service had, where the client sends it back unchanged.
pub(super) fn drop_fields_of_other_types(old: &Value, new: &mut Value) {
    let kind = |service: &Value| service["spec"]["type"].as_str().unwrap_or("").to_owned();
    let has_address = |service: &Value| kind(service) != "ExternalName";
    let has_node_ports = |service: &Value| has_node_ports(&service["spec"]);
    let mut gone: Vec<&str> = Vec::new();
    if has_address(old) && !has_address(new) {
        gone.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    if !has_address(old) && has_address(new) {
        gone.push("externalName");
    }
    if has_node_ports(old) && !has_node_ports(new) {
        gone.extend(["externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts"]);
        let before: Vec<Value> = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
        for port in new["spec"]["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            if before.iter().any(|known| port.get("nodePort") == Some(&known["nodePort"])) {
                port.remove("nodePort");
            }
        }
    }
    if let Some(spec) = new["spec"].as_object_mut() {
        spec.retain(|name, value| !(gone.contains(&name.as_str()) && old["spec"][name.as_str()] == *value));
    }
}

/// Returns whether services of this spec's type have node ports.
fn has_node_ports(spec: &Value) -> bool {
    matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"))
}

/// Returns the node port of a port, if it has one.
fn node_port(port: &Value) -> Option<u32> {
    port["nodePort"].as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number != 0)
}

/// Gives ports without a node port the one that the port of this name had, unless another port names it now.
fn keep_node_ports(before: &[Value], ports: &mut [Value]) {
    let mut named: HashSet<u32> = ports.iter().filter_map(node_port).collect();
    for port in ports.iter_mut().filter(|port| node_port(port).is_none()) {
        let known = before.iter().find(|known| known["name"] == port["name"]).and_then(node_port);
        if let Some(number) = known.filter(|number| named.insert(*number)) {
            port["nodePort"] = number.into();
        }
    }
}

/// Returns the addresses and node ports of a service, as numbers.
fn held_by(service: &Value) -> Vec<u32> {
    let spec = &service["spec"];
    let address = spec["clusterIP"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok()).map(u32::from);
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports = ports.filter_map(|port| port["nodePort"].as_u64()).filter_map(|number| u32::try_from(number).ok());
    address.into_iter().chain(ports).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_type_loses_what_only_the_old_one_had() {
        let ports = |node_port: bool| {
            if node_port { json!([{"port": 80, "nodePort": 30080}]) } else { json!([{"port": 80}]) }
        };
        let node_port = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.1.1", "clusterIPs": ["10.96.1.1"],
            "ipFamilies": ["IPv4"], "externalTrafficPolicy": "Cluster", "ports": ports(true)}});
        let check = |old: &Value, change: Value, expect: Value| {
            let mut new = old.clone();
            for (name, value) in change.as_object().unwrap() {
                new["spec"][name] = value.clone();
            }
            drop_fields_of_other_types(old, &mut new);
            assert_eq!(new["spec"], expect);
        };
        let external = json!({"type": "ExternalName", "externalName": "example.org"});
        let mut expect = external.clone();
        expect["ports"] = ports(false);
        check(&node_port, external.clone(), expect);
        let expect = json!({"type": "ClusterIP", "clusterIP": "10.96.1.1", "clusterIPs": ["10.96.1.1"],
            "ipFamilies": ["IPv4"], "ports": ports(false)});
        check(&node_port, json!({"type": "ClusterIP"}), expect);
        let back = json!({"type": "ClusterIP", "ports": ports(false)});
        check(&json!({"spec": external}), back.clone(), back);
    }
}
