//! The endpoints of Services, and the records of the resolver.
//!
//! Pure: Services, EndpointSlices and pods in, a table out. There is one node, so the pods of the API are all the
//! endpoints that a selector can find; readiness is that of an EndpointSlice, without its delay. Only a Service without
//! a selector has the endpoints of the EndpointSlices that its user wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{API_SERVER, GATEWAY};

/// The state of the proxy and the resolver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Where a connection to an address of the node goes.
    pub forwards: BTreeMap<(Protocol, SocketAddrV4), Forward>,
    /// Addresses by lower-case name, without the trailing dot.
    pub names: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    /// CNAME records.
    pub aliases: BTreeMap<String, String>,
    /// Ports by `_port._proto.name`, each with the name of its target.
    pub ports: BTreeMap<String, BTreeSet<(u16, String)>>,
    /// PTR records.
    pub owners: BTreeMap<Ipv4Addr, String>,
}

/// The protocol of a forwarded port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// Returns the protocol of a port; `None` for SCTP, which is not forwarded.
    fn of(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some(_) => None,
        }
    }
}

/// The targets of a forwarded port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forward {
    pub targets: Vec<SocketAddrV4>,
    /// How long a client stays with its target, for `sessionAffinity: ClientIP`.
    pub affinity: Option<Duration>,
}

pub const DOMAIN: &str = "cluster.local";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What the name of a Service with a cluster IP resolves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    VirtualAddresses,
    /// The pods behind it, as if all Services were headless.
    Pods,
}

/// One address behind a Service.
struct Endpoint<'a> {
    ip: Ipv4Addr,
    hostname: Option<&'a str>,
    behind: Behind<'a>,
}

enum Behind<'a> {
    Pod(&'a Pod),
    Slice(&'a EndpointSlice),
}

/// Builds the table from every Service, EndpointSlice and pod of the cluster.
pub fn table<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    slices: impl IntoIterator<Item = &'a EndpointSlice> + Clone,
    pods: impl IntoIterator<Item = &'a Pod> + Clone,
    reach: Reach,
) -> Table {
    let mut table = Table::default();
    for pod in pods.clone() {
        if let (Some(ip), Some(namespace)) = (address(pod), &pod.metadata.namespace) {
            table.name(format!("{}.{namespace}.pod.{DOMAIN}", dashed(ip)), ip);
            if reach == Reach::VirtualAddresses {
                table.add_host_ports(pod, ip);
            }
        }
    }
    for service in services {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).filter(|s| !s.is_empty());
        let endpoints: Vec<Endpoint<'a>> = match selector {
            Some(selector) => of_pods(service, selector, pods.clone()).collect(),
            None => of_slices(service, slices.clone()).collect(),
        };
        table.add(service, &endpoints, reach);
    }
    table
}

/// Returns the ready pods that a selector finds.
fn of_pods<'a>(
    service: &Service,
    selector: &BTreeMap<String, String>,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> impl Iterator<Item = Endpoint<'a>> {
    let name = service.metadata.name.as_deref();
    let early = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let found = pods.into_iter().filter(move |pod| {
        pod.metadata.namespace == service.metadata.namespace && selects(selector, pod) && (early || is_ready(pod))
    });
    found.filter_map(move |pod| {
        let spec = pod.spec.as_ref();
        let is_member = spec.and_then(|s| s.subdomain.as_deref()) == name;
        let hostname = spec.and_then(|s| s.hostname.as_deref()).filter(|_| is_member);
        Some(Endpoint { ip: address(pod)?, hostname, behind: Behind::Pod(pod) })
    })
}

/// Returns the ready endpoints of the slices that name a Service.
fn of_slices<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
) -> impl Iterator<Item = Endpoint<'a>> {
    let mine = slices.into_iter().filter(|slice| {
        let named = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
        slice.metadata.namespace == service.metadata.namespace && named == service.metadata.name.as_ref()
    });
    mine.flat_map(|slice| {
        let ready = slice
            .endpoints
            .iter()
            .flatten()
            .filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false));
        ready.flat_map(move |endpoint| {
            let ips = endpoint.addresses.iter().filter_map(|text| text.parse().ok());
            ips.map(move |ip| Endpoint { ip, hostname: endpoint.hostname.as_deref(), behind: Behind::Slice(slice) })
        })
    })
}

impl Endpoint<'_> {
    /// Returns where a port of the Service is here.
    fn target(&self, port: &ServicePort) -> Option<SocketAddrV4> {
        let number = match self.behind {
            Behind::Pod(pod) => target_port(pod, port.target_port.as_ref(), u16::try_from(port.port).ok()?),
            Behind::Slice(slice) => {
                let same = |text: Option<&str>, other: Option<&str>, default: &str| {
                    text.unwrap_or(default) == other.unwrap_or(default)
                };
                let named = slice.ports.iter().flatten().find(|known| {
                    same(known.name.as_deref(), port.name.as_deref(), "")
                        && same(known.protocol.as_deref(), port.protocol.as_deref(), "TCP")
                });
                named.and_then(|known| u16::try_from(known.port?).ok())
            }
        };
        Some(SocketAddrV4::new(self.ip, number?))
    }
}

impl Table {
    fn name(&mut self, name: String, ip: Ipv4Addr) {
        self.names.entry(name.to_lowercase()).or_default().insert(ip);
    }

    /// Forwards the ports of the node that a pod asks for.
    fn add_host_ports(&mut self, pod: &Pod, ip: Ipv4Addr) {
        let Some(spec) = pod.spec.as_ref().filter(|spec| spec.host_network != Some(true)) else { return };
        for port in spec.containers.iter().flat_map(|container| container.ports.iter().flatten()) {
            let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
            let (Some(protocol), Some(from), Some(to)) =
                (Protocol::of(port.protocol.as_deref()), port.host_port.and_then(number), number(port.container_port))
            else {
                continue;
            };
            let listed: Option<Ipv4Addr> = port.host_ip.as_deref().and_then(|ip| ip.parse().ok());
            let address = listed.filter(|ip| !ip.is_unspecified()).unwrap_or(GATEWAY);
            let forward = Forward { targets: vec![SocketAddrV4::new(ip, to)], affinity: None };
            self.forwards.insert((protocol, SocketAddrV4::new(address, from)), forward);
        }
    }

    fn add(&mut self, service: &Service, endpoints: &[Endpoint<'_>], reach: Reach) {
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
        for endpoint in endpoints {
            if let Some(host) = endpoint.hostname {
                self.name(format!("{host}.{full}"), endpoint.ip);
            }
            if vip.is_none() {
                self.name(full.clone(), endpoint.ip);
            }
        }
        if let Some(vip) = vip {
            self.name(full.clone(), vip);
            self.owners.insert(vip, full.clone());
        }
        for port in spec.ports.iter().flatten() {
            self.add_service_records(&full, port, vip, endpoints);
            self.add_forwards(spec, port, vip, endpoints);
        }
    }

    /// Adds the SRV records of a port: the Service itself, or each endpoint of a headless one.
    fn add_service_records(
        &mut self,
        full: &str,
        port: &ServicePort,
        vip: Option<Ipv4Addr>,
        endpoints: &[Endpoint<'_>],
    ) {
        let (Some(name), Ok(number)) = (port.name.as_deref().filter(|n| !n.is_empty()), u16::try_from(port.port))
        else {
            return;
        };
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let record = format!("_{name}._{protocol}.{full}").to_lowercase();
        let mut targets = BTreeSet::new();
        if vip.is_some() {
            targets.insert((number, full.to_owned()));
        } else {
            for endpoint in endpoints {
                let host = endpoint.hostname.map_or_else(|| dashed(endpoint.ip), str::to_owned);
                let target = format!("{host}.{full}").to_lowercase();
                self.name(target.clone(), endpoint.ip);
                targets.extend(endpoint.target(port).map(|at| (at.port(), target)));
            }
        }
        self.ports.entry(record).or_default().extend(targets);
    }

    /// Forwards a port of the cluster IP, and of the node where the Service has one.
    fn add_forwards(
        &mut self,
        spec: &ServiceSpec,
        port: &ServicePort,
        vip: Option<Ipv4Addr>,
        endpoints: &[Endpoint<'_>],
    ) {
        // The API server listens on its address itself.
        let Some(vip) = vip.filter(|vip| *vip != API_SERVER) else { return };
        let Some(protocol) = Protocol::of(port.protocol.as_deref()) else { return };
        let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
            let seconds = spec.session_affinity_config.as_ref().and_then(|c| c.client_ip.as_ref()?.timeout_seconds);
            Duration::from_secs(seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(10_800))
        });
        let targets = endpoints.iter().filter_map(|endpoint| endpoint.target(port)).collect();
        let forward = Forward { targets, affinity };
        for (ip, number) in [(vip, Some(port.port)), (GATEWAY, port.node_port)] {
            let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
            if let Some(number) = number {
                self.forwards.insert((protocol, SocketAddrV4::new(ip, number)), forward.clone());
            }
        }
    }

    /// Follows aliases; they may form chains, but not endless ones.
    pub fn real_name(&self, name: &str) -> String {
        let mut name = name.trim_end_matches('.').to_lowercase();
        for _ in 0..8 {
            match self.aliases.get(&name) {
                Some(other) => name.clone_from(other),
                None => break,
            }
        }
        name
    }

    /// The addresses of a name; `None` when there is no such name.
    pub fn resolve(&self, name: &str) -> Option<Vec<Ipv4Addr>> {
        let name = self.real_name(name);
        if let Some(ips) = self.names.get(&name) {
            return Some(ips.iter().copied().collect());
        }
        // A name above an existing one exists too, without addresses.
        let below = format!(".{name}");
        self.names.keys().any(|n| n.ends_with(&below)).then(Vec::new)
    }
}

/// An address as a label of a name.
fn dashed(ip: Ipv4Addr) -> String {
    ip.to_string().replace('.', "-")
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
        let table = table([&service], [], &pods, Reach::VirtualAddresses);
        for (name, expect) in names {
            let got = table.resolve(name).map(|ips| ips.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(got, expect.map(|ips| ips.iter().map(|ip| (*ip).to_owned()).collect()), "{name}");
        }
        let got: Vec<(String, Vec<String>)> = table
            .forwards
            .iter()
            .map(|((_, from), to)| (from.to_string(), to.targets.iter().map(ToString::to_string).collect()))
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
        let table = table([&service], [], &[pod("a", "127.244.0.2", true)], Reach::Pods);
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

    #[test]
    fn a_service_without_a_selector_has_the_endpoints_of_its_slices() {
        let slice = |ip: &str, port: i32, ready: bool| -> EndpointSlice {
            serde_json::from_value(json!({
                "metadata": {"namespace": "d", "labels": {SERVICE_NAME: "s"}}, "addressType": "IPv4",
                "endpoints": [{"addresses": [ip], "conditions": {"ready": ready}}],
                "ports": [{"name": "web", "protocol": "TCP", "port": port}],
            }))
            .unwrap()
        };
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "d"},
            "spec": {"clusterIP": "10.96.5.5", "ports": [{"name": "web", "port": 80}, {"name": "other", "port": 81}]},
        }))
        .unwrap();
        let slices = [slice("10.244.0.7", 8080, true), slice("10.244.0.8", 9090, true), slice("10.244.0.9", 1, false)];
        let table = table([&service], &slices, [], Reach::VirtualAddresses);
        let at = |port| &table.forwards[&(Protocol::Tcp, SocketAddrV4::new(Ipv4Addr::new(10, 96, 5, 5), port))];
        let shown: Vec<String> = at(80).targets.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.244.0.7:8080", "10.244.0.8:9090"]);
        assert!(at(81).targets.is_empty());
        assert_eq!(table.owners[&Ipv4Addr::new(10, 96, 5, 5)], "s.d.svc.cluster.local");
    }

    #[test]
    fn node_ports_udp_and_affinity_are_forwarded() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "d"},
            "spec": {"clusterIP": "10.96.5.5", "type": "NodePort", "selector": {"app": "x"}, "sessionAffinity": "ClientIP",
                     "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}},
                     "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}]},
        }))
        .unwrap();
        let table = table([&service], [], &[pod("a", "10.244.0.2", true)], Reach::VirtualAddresses);
        let expect = Forward {
            targets: vec![SocketAddrV4::new(Ipv4Addr::new(10, 244, 0, 2), 53)],
            affinity: Some(Duration::from_secs(7)),
        };
        for address in [SocketAddrV4::new(Ipv4Addr::new(10, 96, 5, 5), 53), SocketAddrV4::new(GATEWAY, 30053)] {
            assert_eq!(table.forwards[&(Protocol::Udp, address)], expect, "{address}");
        }
    }

    #[test]
    fn ports_of_headless_services_lead_to_each_pod() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "d"},
            "spec": {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"name": "web", "port": 80, "targetPort": "web"}]},
        }))
        .unwrap();
        let table = table([&service], [], &[pod("a", "10.244.0.2", true)], Reach::VirtualAddresses);
        let expect = BTreeSet::from([(8000, "h.s.d.svc.cluster.local".to_owned())]);
        assert_eq!(table.ports["_web._tcp.s.d.svc.cluster.local"], expect);
    }

    #[test]
    fn host_ports_lead_to_the_pod() {
        let mut with_port = pod("a", "10.244.0.2", true);
        let ports = json!([{"containerPort": 8080, "hostPort": 54323, "hostIP": "127.0.0.1"}]);
        with_port.spec.as_mut().unwrap().containers[0].ports = serde_json::from_value(ports).unwrap();
        let table = table([], [], &[with_port], Reach::VirtualAddresses);
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 54323);
        assert_eq!(table.forwards[&(Protocol::Tcp, at)].targets, ["10.244.0.2:8080".parse().unwrap()]);
    }
}
