//! Avoids port and directory conflicts between Ray pods that share one network.
//!
//! A head keeps its usual ports, so only one cluster can run at a time. Ports that every node of a cluster opens, head
//! and workers alike, are shifted by a number per pod.

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manta_agent::shared_host::HostPod;

/// Ports that every node opens, with the flags that set them.
const SHIFTED_PORTS: [(&str, u16); 2] = [("--dashboard-agent-listen-port=", 52365), ("--metrics-export-port=", 8080)];

/// Rewrites a container that runs `ray start` to use its own ports and directory; leaves other containers unchanged.
pub(super) fn adapt(container: &mut Container, neighbour: &HostPod) {
    for text in [&mut container.command, &mut container.args].into_iter().flatten().flatten() {
        if text.contains("ray start ") {
            *text = adapt_start(text, neighbour);
        }
    }
    let probes = [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(|probe| adapt_probe(probe, neighbour));
}

fn adapt_start(text: &str, neighbour: &HostPod) -> String {
    let own = format!("ray start --node-ip-address={} --temp-dir={} ", neighbour.ip, neighbour.folder.display());
    SHIFTED_PORTS.iter().fold(text.replacen("ray start ", &own, 1), |text, (flag, port)| {
        text.replace(&format!("{flag}{port}"), &format!("{flag}{}", shifted(*port, neighbour)))
    })
}

fn adapt_probe(probe: &mut Probe, neighbour: &HostPod) {
    for (_, port) in SHIFTED_PORTS {
        if let Some(action) = probe.http_get.as_mut().filter(|a| a.port == IntOrString::Int(port.into())) {
            action.port = IntOrString::Int(shifted(port, neighbour).into());
        }
        for text in probe.exec.iter_mut().flat_map(|e| e.command.iter_mut().flatten()) {
            *text = text.replace(&format!(":{port}/"), &format!(":{}/", shifted(port, neighbour)));
        }
    }
}

/// Returns the port shifted by the pod's number; the two ranges do not overlap.
fn shifted(port: u16, neighbour: &HostPod) -> u16 {
    port.saturating_add(neighbour.number() % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_node_gets_its_own_ports_and_directory() {
        let neighbour = HostPod { ip: "127.244.0.7".parse().unwrap(), folder: "/tmp/m/7".into() };
        let mut container: Container = serde_json::from_value(json!({
            "name": "ray-worker",
            "args": ["ulimit -n 65536; ray start --block --dashboard-agent-listen-port=52365 --metrics-export-port=8080"],
            "livenessProbe": {"httpGet": {"port": 52365, "path": "/api/healthz"}},
            "readinessProbe": {"exec": {"command": ["bash", "-c", "wget http://localhost:52365/api/local_raylet_healthz"]}},
        }))
        .unwrap();
        adapt(&mut container, &neighbour);
        let expect = "ulimit -n 65536; ray start --node-ip-address=127.244.0.7 --temp-dir=/tmp/m/7 --block \
                      --dashboard-agent-listen-port=52372 --metrics-export-port=8087";
        assert_eq!(container.args.as_deref(), Some(&[expect.to_owned()][..]));
        assert_eq!(container.liveness_probe.unwrap().http_get.unwrap().port, IntOrString::Int(52372));
        let command = container.readiness_probe.unwrap().exec.unwrap().command.unwrap();
        assert_eq!(command[2], "wget http://localhost:52372/api/local_raylet_healthz");
    }

    #[test]
    fn containers_without_ray_start_are_unchanged() {
        let neighbour = HostPod { ip: "127.244.0.7".parse().unwrap(), folder: "/tmp/m/7".into() };
        let given: Container = serde_json::from_value(json!({
            "name": "c", "command": ["sh", "-c", "echo --metrics-export-port=8080"],
            "livenessProbe": {"tcpSocket": {"port": 1}},
        }))
        .unwrap();
        let mut adapted = given.clone();
        adapt(&mut adapted, &neighbour);
        assert_eq!(adapted, given);
    }
}
