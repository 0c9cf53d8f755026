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
}

impl Allocation<'_> {
    pub(super) fn commit(mut self) {
        self.taken.clear();
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
        let mut allocation = Allocation { pool: self, taken: Vec::new() };
        if &*resource.table != "services" {
            return Ok(allocation);
        }
        let name = value["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let spec = &mut value["spec"];
        let kind = spec["type"].as_str().unwrap_or("").to_owned();
        if kind == "ExternalName" {
            return Ok(allocation);
        }
        let refuse = |field: &str, given: &Value, why: &str| {
            ApiError::invalid(resource.kind_named(&name), &[FieldError::invalid(field, given, why)])
        };
        let given = spec["clusterIP"].as_str().unwrap_or("").to_owned();
        let before = old.and_then(|old| old["spec"]["clusterIP"].as_str());
        match (given.as_str(), before) {
            ("", Some(before)) => spec["clusterIP"] = before.into(),
            ("", None) => {
                let Some(number) = self.pick(&mut allocation, SIZE - RESERVED - 1, NETWORK + RESERVED, cluster) else {
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
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            let mut ports = spec["ports"].as_array().cloned().unwrap_or_default();
            for port in &mut ports {
                if port["nodePort"].as_i64().unwrap_or(0) == 0 {
                    if let Some(number) = self.pick(&mut allocation, PORTS.end - PORTS.start, PORTS.start, cluster) {
                        port["nodePort"] = number.into();
                    }
                } else if let Some(number) = port["nodePort"].as_u64().and_then(|number| u32::try_from(number).ok())
                    && self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(number)
                {
                    allocation.taken.push(number);
                }
            }
            spec["ports"] = ports.into();
        }
        Ok(allocation)
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

/// Returns the addresses and node ports of a service, as numbers.
fn held_by(service: &Value) -> Vec<u32> {
    let spec = &service["spec"];
    let address = spec["clusterIP"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok()).map(u32::from);
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports = ports.filter_map(|port| port["nodePort"].as_u64()).filter_map(|number| u32::try_from(number).ok());
    address.into_iter().chain(ports).collect()
}
