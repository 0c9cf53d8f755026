//! What a spec may say, but its author hardly means: numbers that contradict each other, names and ports used twice,
//! images of another Ray.
//!
//! Nothing here is refused. The paths are those of fields below the cluster spec.

use crate::cluster_spec::{ray_container, worker_groups};
use crate::version::RayVersion;
use k8s_openapi::api::core::v1::{Container, ContainerPort, PodTemplateSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manta_api::{RayClusterSpec, WorkerGroupSpec};
use manta_quantity::Quantity;
use std::collections::{BTreeMap, HashMap};

/// Something that is accepted and probably wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The path of the field, e.g. `workerGroupSpecs[0].replicas`.
    pub path: String,
    pub message: String,
}

/// Memory below this is a forgotten unit, not a choice.
const LEAST_MEMORY: i64 = 1 << 20;

/// The parameters of `ray start` that set a port, each with the name that the operator gives the port.
const PORT_PARAMS: [(&str, &str); 5] = [
    ("port", "gcs-server"),
    ("dashboard-port", "dashboard"),
    ("ray-client-server-port", "client"),
    ("metrics-export-port", "metrics"),
    ("dashboard-agent-listen-port", "dashboard-agent"),
];

/// Returns the warnings about the spec of a cluster.
pub fn cluster_warnings(spec: &RayClusterSpec) -> Vec<Warning> {
    let mut found = Found::default();
    check_group_names(worker_groups(spec), &mut found);
    check_autoscaler(spec, &mut found);
    let head = &spec.head_group_spec;
    check_template(&head.template, "headGroupSpec", head.ray_start_params.as_ref(), &mut found);
    check_images(spec, &mut found);
    for (index, group) in worker_groups(spec).iter().enumerate() {
        let path = format!("workerGroupSpecs[{index}]");
        check_replicas(group, &path, &mut found);
        check_template(&group.template, &path, group.ray_start_params.as_ref(), &mut found);
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<Warning>);

impl Found {
    fn add(&mut self, path: String, message: String) {
        self.0.push(Warning { path, message });
    }
}

fn check_group_names(groups: &[WorkerGroupSpec], found: &mut Found) {
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (index, group) in groups.iter().enumerate() {
        let name = group.group_name.as_str();
        match first.get(name) {
            None => _ = first.insert(name, index),
            Some(other) => found.add(
                format!("workerGroupSpecs[{index}].groupName"),
                format!("{name:?} is also the name of workerGroupSpecs[{other}]; the two share their Pods"),
            ),
        }
    }
}

/// Ray's autoscaler reads `workerGroupSpecs` and exits if it is not there, so the head never stays ready.
fn check_autoscaler(spec: &RayClusterSpec, found: &mut Found) {
    if spec.enable_in_tree_autoscaling == Some(true) && worker_groups(spec).is_empty() {
        found.add(
            "enableInTreeAutoscaling".to_owned(),
            "Ray's autoscaler exits without a worker group; add one to workerGroupSpecs, with 0 replicas if need be"
                .to_owned(),
        );
    }
}

fn check_replicas(group: &WorkerGroupSpec, path: &str, found: &mut Found) {
    let (min, max) = (group.min_replicas.unwrap_or(0), group.max_replicas.unwrap_or(i32::MAX));
    match group.replicas {
        Some(replicas) if replicas < 0 => {
            found.add(format!("{path}.replicas"), format!("{replicas} is negative and counts as 0"));
        }
        // Bounds that contradict each other are refused.
        _ if min > max => {}
        // An unset number is 0 by default, so only a number that was written can contradict the minimum.
        Some(replicas) if replicas > 0 && replicas < min => found.add(
            format!("{path}.replicas"),
            format!("{replicas} is less than minReplicas, so {min} replicas are created"),
        ),
        Some(replicas) if replicas > max => found.add(
            format!("{path}.replicas"),
            format!("{replicas} is more than maxReplicas, so {max} replicas are created"),
        ),
        _ => {}
    }
    if let Some(hosts) = group.num_of_hosts.filter(|hosts| *hosts < 1) {
        found.add(format!("{path}.numOfHosts"), format!("{hosts} hosts per replica: the group never has a Pod"));
    }
}

/// Compares the Ray images with `rayVersion`.
fn check_images(spec: &RayClusterSpec, found: &mut Found) {
    let Some(text) = spec.ray_version.as_deref() else { return };
    let Some(version) = RayVersion::parse(text) else { return };
    let groups = worker_groups(spec).iter().enumerate();
    let templates = std::iter::once(("headGroupSpec".to_owned(), &spec.head_group_spec.template))
        .chain(groups.map(|(index, group)| (format!("workerGroupSpecs[{index}]"), &group.template)));
    for (path, template) in templates {
        let image = ray_container(template).and_then(|container| container.image.as_deref()).unwrap_or_default();
        if let Some(tagged) = tagged_version(image).filter(|tagged| *tagged != version) {
            found.add(
                format!("{path}.template.spec.containers[0].image"),
                format!("the image has Ray {tagged}, but rayVersion is {text}"),
            );
        }
    }
}

/// Returns the version in the tag of one of Ray's own images; tags of other images mean something else.
fn tagged_version(image: &str) -> Option<RayVersion> {
    let (repository, tag) = image.rsplit_once(':')?;
    let name = repository.rsplit('/').next()?;
    let whole = tag.split('-').next()?;
    // `2.53` is a moving tag, and `nightly.250101` is none of a release.
    let is_release = whole.split('.').count() == 3;
    ["ray", "ray-ml", "ray-llm"].contains(&name).then(|| RayVersion::parse(whole)).flatten().filter(|_| is_release)
}

fn check_template(
    template: &PodTemplateSpec,
    path: &str,
    params: Option<&BTreeMap<String, String>>,
    found: &mut Found,
) {
    let Some(pod) = &template.spec else { return };
    let path = format!("{path}.template.spec");
    check_ports(&pod.containers, &path, found);
    if let Some(ray) = pod.containers.first() {
        check_ray_ports(ray, &path, params, found);
    }
    for (index, container) in pod.containers.iter().enumerate() {
        let path = format!("{path}.containers[{index}]");
        check_probes(container, &path, found);
        check_memory(container, &path, found);
    }
}

/// The containers of a Pod share its network, so a port belongs to one of them.
fn check_ports(containers: &[Container], path: &str, found: &mut Found) {
    let mut numbers: HashMap<(i32, &str), &str> = HashMap::new();
    for (index, container) in containers.iter().enumerate() {
        let mut names: HashMap<&str, i32> = HashMap::new();
        for (at, port) in container.ports.iter().flatten().enumerate() {
            let path = format!("{path}.containers[{index}].ports[{at}]");
            if let Some(other) = numbers.insert((port.container_port, protocol(port)), &container.name) {
                let number = port.container_port;
                found.add(
                    format!("{path}.containerPort"),
                    format!("port {number} is already declared by the container {other:?}"),
                );
            }
            let Some(name) = port.name.as_deref() else { continue };
            if let Some(other) = names.insert(name, port.container_port) {
                found.add(format!("{path}.name"), format!("{name:?} is already the name of port {other}"));
            }
        }
    }
}

fn protocol(port: &ContainerPort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// Compares the ports in `rayStartParams` with each other and with the declared ones, which Services use.
fn check_ray_ports(ray: &Container, path: &str, params: Option<&BTreeMap<String, String>>, found: &mut Found) {
    let base = path.trim_end_matches(".template.spec");
    let set = |param: &str| params?.get(param)?.parse::<i32>().ok();
    let mut taken: HashMap<i32, &str> = HashMap::new();
    for (param, name) in PORT_PARAMS {
        let Some(number) = set(param) else { continue };
        if let Some(other) = taken.insert(number, param) {
            found.add(
                format!("{base}.rayStartParams.{param}"),
                format!("port {number} is already used by the parameter {other:?}"),
            );
        }
        let declared = ray.ports.iter().flatten().position(|port| port.name.as_deref() == Some(name));
        let Some(at) = declared else { continue };
        let other = ray.ports.iter().flatten().nth(at).map_or(0, |port| port.container_port);
        if other != number {
            found.add(
                format!("{path}.containers[0].ports[{at}].containerPort"),
                format!("Ray listens on port {number}, as rayStartParams.{param} says, but {name:?} is {other}"),
            );
        }
    }
}

/// Checks that the named ports of probes exist.
fn check_probes(container: &Container, path: &str, found: &mut Found) {
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (field, probe) in probes {
        let Some((handler, IntOrString::String(name))) = probe.as_ref().and_then(probed_port) else { continue };
        let exists = container.ports.iter().flatten().any(|port| port.name.as_deref() == Some(name));
        // A number in quotes is a number.
        if !exists && name.parse::<u16>().is_err() {
            found.add(format!("{path}.{field}.{handler}.port"), format!("the container has no port named {name:?}"));
        }
    }
}

fn probed_port(probe: &Probe) -> Option<(&'static str, &IntOrString)> {
    let http = probe.http_get.as_ref().map(|action| ("httpGet", &action.port));
    http.or_else(|| probe.tcp_socket.as_ref().map(|action| ("tcpSocket", &action.port)))
}

/// Reports memory that lacks its unit: `4` is four bytes and `512m` half a byte.
fn check_memory(container: &Container, path: &str, found: &mut Found) {
    let Some(resources) = &container.resources else { return };
    for (list, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        let Some(text) = amounts.as_ref().and_then(|amounts| Some(amounts.get("memory")?.0.as_str())) else { continue };
        let Ok(amount) = Quantity::parse(text) else { continue };
        if amount.is_positive() && amount.value() < LEAST_MEMORY {
            found.add(format!("{path}.resources.{list}.memory"), describe_little_memory(text, &amount));
        }
    }
}

/// Says how little an amount of memory is, and what may have been meant.
pub fn describe_little_memory(text: &str, amount: &Quantity) -> String {
    let bytes = match amount.value() {
        1 if amount.milli_value() < 1000 => "less than a byte".to_owned(),
        1 => "1 byte".to_owned(),
        bytes => format!("{bytes} bytes"),
    };
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = if text.ends_with('m') { "Mi" } else { "Gi" };
    format!("{text} is {bytes}; did you mean {number}{unit}?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::fixtures::{Edit, cluster_spec, edited};
    use serde_json::json;

    #[track_caller]
    fn check(edits: &[Edit<'_>], expect: &[&str]) {
        let spec: RayClusterSpec = serde_json::from_value(edited(cluster_spec(), edits)).unwrap();
        let found: Vec<String> =
            cluster_warnings(&spec).iter().map(|warning| format!("{}: {}", warning.path, warning.message)).collect();
        assert_eq!(found, expect);
    }

    const GROUP: &str = "/workerGroupSpecs/0";
    const RAY: &str = "/headGroupSpec/template/spec/containers/0";

    #[test]
    fn a_plain_cluster_gives_no_warning() {
        check(&[], &[]);
    }

    #[test]
    fn replicas_that_contradict_their_bounds_are_reported() {
        let with = |replicas: i32, min: i32, max: i32| {
            [("replicas", replicas), ("minReplicas", min), ("maxReplicas", max)]
                .map(|(key, number)| (format!("{GROUP}/{key}"), json!(number)))
        };
        let check = |replicas, min, max, expect: &[&str]| {
            let edits = with(replicas, min, max);
            let edits: Vec<Edit<'_>> = edits.iter().map(|(path, value)| (path.as_str(), value.clone())).collect();
            super::tests::check(&edits, expect);
        };
        check(2, 0, 5, &[]);
        check(0, 1, 5, &[]);
        check(-1, 0, 5, &["workerGroupSpecs[0].replicas: -1 is negative and counts as 0"]);
        check(9, 0, 5, &["workerGroupSpecs[0].replicas: 9 is more than maxReplicas, so 5 replicas are created"]);
        check(1, 3, 5, &["workerGroupSpecs[0].replicas: 1 is less than minReplicas, so 3 replicas are created"]);
        super::tests::check(
            &[("/workerGroupSpecs/0/numOfHosts", json!(0))],
            &["workerGroupSpecs[0].numOfHosts: 0 hosts per replica: the group never has a Pod"],
        );
    }

    #[test]
    fn groups_of_the_same_name_are_reported() {
        let group = cluster_spec()["workerGroupSpecs"][0].clone();
        check(
            &[("/workerGroupSpecs", json!([group, group]))],
            &[
                "workerGroupSpecs[1].groupName: \"small\" is also the name of workerGroupSpecs[0]; the two share their Pods",
            ],
        );
    }

    #[test]
    fn an_autoscaler_without_a_worker_group_is_reported() {
        let autoscaled = ("/enableInTreeAutoscaling", json!(true));
        check(std::slice::from_ref(&autoscaled), &[]);
        check(
            &[autoscaled, ("/workerGroupSpecs", json!([]))],
            &[
                "enableInTreeAutoscaling: Ray's autoscaler exits without a worker group; add one to workerGroupSpecs, with 0 replicas if need be",
            ],
        );
    }

    #[test]
    fn images_of_another_ray_are_reported() {
        let image = format!("{RAY}/image");
        let check = |version: &str, tag: &str, expect: &[&str]| {
            check(&[("/rayVersion", json!(version)), (&image, json!(tag)), ("/workerGroupSpecs", json!([]))], expect);
        };
        check("2.53.0", "rayproject/ray:2.53.0-py310-gpu", &[]);
        check("2.53.0", "rayproject/ray:nightly", &[]);
        check("2.53.0", "registry:5000/team/trainer:1.2.3", &[]);
        check("2.53.0", "registry:5000/ray", &[]);
        check(
            "2.46.0",
            "registry:5000/ray-ml:2.53.0",
            &["headGroupSpec.template.spec.containers[0].image: the image has Ray 2.53.0, but rayVersion is 2.46.0"],
        );
    }

    #[test]
    fn ports_that_collide_or_do_not_exist_are_reported() {
        let ports = format!("{RAY}/ports");
        check(
            &[(
                &ports,
                json!([{"containerPort": 1, "name": "a"}, {"containerPort": 1}, {"containerPort": 2, "name": "a"}]),
            )],
            &[
                "headGroupSpec.template.spec.containers[0].ports[1].containerPort: port 1 is already declared by the \
                 container \"ray-head\"",
                "headGroupSpec.template.spec.containers[0].ports[2].name: \"a\" is already the name of port 1",
            ],
        );
        check(
            &[
                ("/headGroupSpec/rayStartParams", json!({"port": "6380", "dashboard-port": "6380"})),
                (&ports, json!([{"containerPort": 6379, "name": "gcs-server"}])),
            ],
            &[
                "headGroupSpec.template.spec.containers[0].ports[0].containerPort: Ray listens on port 6380, as \
                 rayStartParams.port says, but \"gcs-server\" is 6379",
                "headGroupSpec.rayStartParams.dashboard-port: port 6380 is already used by the parameter \"port\"",
            ],
        );
        let probe = format!("{RAY}/readinessProbe");
        check(
            &[(&probe, json!({"httpGet": {"port": "web"}}))],
            &[
                "headGroupSpec.template.spec.containers[0].readinessProbe.httpGet.port: the container has no port named \"web\"",
            ],
        );
        check(&[(&probe, json!({"tcpSocket": {"port": "8265"}}))], &[]);
    }

    #[test]
    fn memory_without_its_unit_is_reported() {
        let resources = format!("{RAY}/resources");
        let check = |text: &str, expect: &[&str]| check(&[(&resources, json!({"limits": {"memory": text}}))], expect);
        check("2Gi", &[]);
        check("0", &[]);
        let path = "headGroupSpec.template.spec.containers[0].resources.limits.memory";
        check("4", &[&format!("{path}: 4 is 4 bytes; did you mean 4Gi?")]);
        check("1", &[&format!("{path}: 1 is 1 byte; did you mean 1Gi?")]);
        check("512m", &[&format!("{path}: 512m is less than a byte; did you mean 512Mi?")]);
    }
}
