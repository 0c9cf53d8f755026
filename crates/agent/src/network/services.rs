//! The endpoints of Services, and the records of the resolver.
//!
//! Pure: Services and pods in, a table out. There is one node, so the pods of the API are all the
//! endpoints there are; readiness is that of an EndpointSlice, without its delay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The state of the proxy and the resolver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Where a connection to a virtual address goes.
    pub forwards: BTreeMap<SocketAddrV4, Vec<SocketAddrV4>>,
    /// Addresses by lower-case name, without the trailing dot.
    pub names: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    /// CNAME records.
    pub aliases: BTreeMap<String, String>,
    /// Ports by `_port._proto.name`, each with the name of its target.
    pub ports: BTreeMap<String, BTreeSet<(u16, String)>>,
}

pub const DOMAIN: &str = "cluster.local";

/// What the name of a Service with a cluster IP resolves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    VirtualAddresses,
    /// The pods behind it, as if all Services were headless.
    Pods,
}

/// Builds the table from every Service and pod of the cluster.
pub fn table<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    pods: impl IntoIterator<Item = &'a Pod> + Clone,
    reach: Reach,
) -> Table {
    let mut table = Table::default();
    for pod in pods.clone() {
        if let (Some(ip), Some(namespace)) = (address(pod), &pod.metadata.namespace) {
            let dashed = ip.to_string().replace('.', "-");
            table.name(format!("{dashed}.{namespace}.pod.{DOMAIN}"), ip);
        }
    }
    for service in services {
        table.add(service, pods.clone(), reach);
    }
    table
}

impl Table {
    fn name(&mut self, name: String, ip: Ipv4Addr) {
        self.names.entry(name.to_lowercase()).or_default().insert(ip);
    }

    fn add<'a>(&mut self, service: &Service, pods: impl IntoIterator<Item = &'a Pod>, reach: Reach) {
        let (Some(name), Some(namespace), Some(spec)) =
            (&service.metadata.name, &service.metadata.namespace, &service.spec)
        else {
            return;
        };
        let full = format!("{name}.{namespace}.svc.{DOMAIN}").to_lowercase();
        if let Some(other) = spec.external_name.as_ref().filter(|_| spec.type_.as_deref() == Some("ExternalName")) {
            self.aliases.insert(full, other.trim_end_matches('.').to_lowercase());
            return;
        }
        // The name exists even without endpoints.
        self.names.entry(full.clone()).or_default();
        let vip = spec.cluster_ip.as_deref().filter(|_| reach == Reach::VirtualAddresses);
        let vip: Option<Ipv4Addr> = vip.and_then(|ip| ip.parse().ok());
        let selector = spec.selector.as_ref().filter(|s| !s.is_empty());
        let behind: Vec<(&Pod, Ipv4Addr)> = pods
            .into_iter()
            .filter(|pod| pod.metadata.namespace.as_ref() == Some(namespace))
            .filter(|pod| selector.is_some_and(|s| selects(s, pod)))
            .filter(|pod| spec.publish_not_ready_addresses == Some(true) || is_ready(pod))
            .filter_map(|pod| Some((pod, address(pod)?)))
            .collect();

        for (pod, ip) in &behind {
            let host = pod.spec.as_ref().and_then(|s| s.hostname.clone());
            let member = pod.spec.as_ref().and_then(|s| s.subdomain.as_ref()).filter(|s| *s == name).and(host);
            if let Some(host) = member {
                self.name(format!("{host}.{full}"), *ip);
            }
            if vip.is_none() {
                self.name(full.clone(), *ip);
            }
        }
        if let Some(vip) = vip {
            self.name(full.clone(), vip);
        }
        for port in spec.ports.iter().flatten() {
            let Ok(number) = u16::try_from(port.port) else { continue };
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let targets: Vec<SocketAddrV4> = behind
                .iter()
                .filter_map(|(pod, ip)| {
                    Some(SocketAddrV4::new(*ip, target_port(pod, port.target_port.as_ref(), number)?))
                })
                .collect();
            if let Some(port_name) = port.name.as_ref().filter(|n| !n.is_empty()) {
                let record = format!("_{port_name}._{protocol}.{full}").to_lowercase();
                self.ports.entry(record).or_default().insert((number, full.clone()));
            }
            if let Some(vip) = vip.filter(|_| protocol == "TCP" && selector.is_some()) {
                self.forwards.insert(SocketAddrV4::new(vip, number), targets);
            }
        }
    }

    /// The addresses of a name; `None` when there is no such name.
    pub fn resolve(&self, name: &str) -> Option<Vec<Ipv4Addr>> {
        let mut name = name.trim_end_matches('.').to_lowercase();
        // Aliases may form chains, but not endless ones.
        for _ in 0..8 {
            match self.aliases.get(&name) {
                Some(other) => name.clone_from(other),
                None => break,
            }
        }
        if let Some(ips) = self.names.get(&name) {
            return Some(ips.iter().copied().collect());
        }
        // A name above an existing one exists too, without addresses.
        let below = format!(".{name}");
        self.names.keys().any(|n| n.ends_with(&below)).then(Vec::new)
    }
}

fn target_port(pod: &Pod, target: Option<&IntOrString>, port: u16) -> Option<u16> {
    match target {
        None => Some(port),
        Some(IntOrString::Int(0)) => Some(port),
        Some(IntOrString::Int(number)) => u16::try_from(*number).ok(),
        Some(IntOrString::String(name)) => {
            let spec = pod.spec.as_ref()?;
            let sidecars = spec.init_containers.iter().flatten().filter(|c| crate::pod::is_sidecar(c));
            let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
            ports.into_iter().find(|p| p.name.as_ref() == Some(name)).and_then(|p| u16::try_from(p.container_port).ok())
        }
    }
}

fn selects(selector: &BTreeMap<String, String>, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector.iter().all(|(key, value)| labels.and_then(|l| l.get(key)) == Some(value))
}

fn address(pod: &Pod) -> Option<Ipv4Addr> {
    let status = pod.status.as_ref()?;
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    status.pod_ip.as_deref().filter(|_| !over)?.parse().ok()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, ip: &str, ready: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "d", "labels": {"app": "x"}},
            "spec": {"hostname": "h", "subdomain": "s",
                     "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8000}]}]},
            "status": {"phase": "Running", "podIP": ip,
                       "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        }))
        .unwrap()
    }

    fn check(spec: Value, names: &[(&str, Option<&[&str]>)], forwards: &[(&str, &[&str])]) {
        let service: Service =
            serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "d"}, "spec": spec})).unwrap();
        let pods = [pod("a", "10.244.0.2", true), pod("b", "10.244.0.3", false)];
        let table = table([&service], &pods, Reach::VirtualAddresses);
        for (name, expect) in names {
            let got = table.resolve(name).map(|ips| ips.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(got, expect.map(|ips| ips.iter().map(|ip| (*ip).to_owned()).collect()), "{name}");
        }
        let got: Vec<(String, Vec<String>)> = table
            .forwards
            .iter()
            .map(|(from, to)| (from.to_string(), to.iter().map(ToString::to_string).collect()))
            .collect();
        let expect: Vec<(String, Vec<String>)> = forwards
            .iter()
            .map(|(from, to)| ((*from).to_owned(), to.iter().map(|t| (*t).to_owned()).collect()))
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn cluster_ips_forward_to_ready_pods() {
        check(
            json!({"clusterIP": "10.96.5.5", "selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "web"}]}),
            &[("s.d.svc.cluster.local.", Some(&["10.96.5.5"])), ("S.D.svc.cluster.local", Some(&["10.96.5.5"]))],
            &[("10.96.5.5:80", &["10.244.0.2:8000"])],
        );
        check(
            json!({"clusterIP": "10.96.5.5", "selector": {"app": "none"}, "ports": [{"port": 80}]}),
            &[],
            &[("10.96.5.5:80", &[])],
        );
    }

    #[test]
    fn without_cluster_ips_names_resolve_to_pods() {
        let spec = json!({"clusterIP": "10.96.5.5", "selector": {"app": "x"}, "ports": [{"port": 80}]});
        let service: Service =
            serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "d"}, "spec": spec})).unwrap();
        let table = table([&service], &[pod("a", "127.244.0.2", true)], Reach::Pods);
        assert_eq!(table.resolve("s.d.svc.cluster.local"), Some(vec![Ipv4Addr::new(127, 244, 0, 2)]));
        assert!(table.forwards.is_empty());
    }

    #[test]
    fn headless_services_resolve_to_their_pods() {
        let headless = |early: bool| json!({"clusterIP": "None", "publishNotReadyAddresses": early, "selector": {"app": "x"}, "ports": []});
        let one: &[&str] = &["10.244.0.2"];
        let both: &[&str] = &["10.244.0.2", "10.244.0.3"];
        let names = |ips| {
            [
                ("s.d.svc.cluster.local", Some(ips)),
                ("h.s.d.svc.cluster.local", Some(ips)),
                ("d.svc.cluster.local", Some(&[] as &[&str])),
                ("10-244-0-3.d.pod.cluster.local", Some(&["10.244.0.3"] as &[&str])),
                ("t.d.svc.cluster.local", None),
                ("example.com", None),
            ]
        };
        check(headless(false), &names(one), &[]);
        check(headless(true), &names(both), &[]);
    }

    #[test]
    fn external_names_are_aliases() {
        check(
            json!({"type": "ExternalName", "externalName": "10-244-0-2.d.pod.cluster.local"}),
            &[("s.d.svc.cluster.local", Some(&["10.244.0.2"]))],
            &[],
        );
        check(
            json!({"type": "ExternalName", "externalName": "s.d.svc.cluster.local"}),
            &[("s.d.svc.cluster.local", None)],
            &[],
        );
    }
}
