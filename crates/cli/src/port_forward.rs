//! Forwards local ports to the Pod behind a Service, as `kubectl port-forward` does.
//!
//! Every connection opens a stream of its own and looks the Pod up again, so a replaced Pod or a lost connection to the
//! API server affects open connections only.

use crate::connect::Target;
use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long to wait before another attempt, and until a connection is given up.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
const RETRY_FOR: Duration = Duration::from_secs(60);
/// How long to wait after a connection that could not be accepted.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(200);

/// A forwarded port; dropping it closes it and its connections.
pub(crate) struct Forward {
    pub(crate) address: SocketAddr,
    _connections: JoinSet<()>,
}

/// Where connections go, and who hears of failures.
struct Route {
    target: Target,
    service: String,
    port: u16,
    report: Report,
    /// The last reported failure: a browser opens many connections at once.
    reported: Mutex<String>,
}

/// Receives failures as they happen.
pub(crate) type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// Listens on a local port, or on a free one if that is taken or 0, and forwards to a port of a Service.
pub(crate) async fn start(
    target: &Target,
    service: &str,
    local: u16,
    port: u16,
    report: Report,
) -> anyhow::Result<Forward> {
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on a local port")?,
    };
    let address = listener.local_addr()?;
    let route = Route {
        target: target.clone(),
        service: service.to_owned(),
        port,
        report,
        reported: Mutex::new(String::new()),
    };
    let mut connections = JoinSet::new();
    connections.spawn(accept(listener, Arc::new(route)));
    Ok(Forward { address, _connections: connections })
}

async fn accept(listener: TcpListener, route: Arc<Route>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            (stream, _) = next(|| listener.accept(), |text| route.report_once(text)) => {
                let route = Arc::clone(&route);
                open.spawn(async move { route.serve(stream).await });
            }
            Some(_) = open.join_next() => {}
        }
    }
}

/// Returns the next connection; pauses after a failure, such as too many open files, which does not pass at once.
async fn next<T, A: Future<Output = std::io::Result<T>>>(accept: impl Fn() -> A, report: impl Fn(&str)) -> T {
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(error) => {
                report(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(ACCEPT_INTERVAL).await;
            }
        }
    }
}

impl Route {
    /// Serves one connection; tries again while it cannot be opened.
    async fn serve(&self, mut local: TcpStream) {
        let deadline = Instant::now() + RETRY_FOR;
        loop {
            match self.connect(&mut local).await {
                Ok(()) => return,
                Err(error) if Instant::now() + RETRY_INTERVAL > deadline => {
                    return self.report_once(&format!("failed to port-forward: {error:#}. The connection is closed."));
                }
                Err(error) => {
                    let seconds = RETRY_INTERVAL.as_secs();
                    self.report_once(&format!("failed to port-forward: {error:#}. Retrying in {seconds}s ..."));
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Connects to the Pod and copies both ways until one side ends. Fails only while nothing has been copied.
    async fn connect(&self, local: &mut TcpStream) -> anyhow::Result<()> {
        let (pod, port) = self.backend().await?;
        let pods: Api<Pod> = Api::namespaced(self.target.client.clone(), &self.target.namespace);
        let mut forwarder = pods
            .portforward(&pod, &[port])
            .await
            .map_err(|error| self.target.failed(&format!("cannot forward to Pod {pod}"), error))?;
        let refused = forwarder.take_error(port).context("the port was not forwarded")?;
        let mut remote = forwarder.take_stream(port).context("the port was not forwarded")?;
        let copied = tokio::select! {
            biased;
            Some(error) = refused => bail!("Pod {pod}: {}", error.trim()),
            copied = copy_bidirectional(local, &mut remote) => copied,
        };
        // A connection that breaks on either side has ended, and the next one starts anew.
        drop(copied);
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    /// Returns a Pod behind the Service, and its port.
    async fn backend(&self) -> anyhow::Result<(String, u16)> {
        let (client, namespace) = (self.target.client.clone(), &self.target.namespace);
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let service = services.get(&self.service).await;
        let what = format!("cannot get Service {}", self.service);
        let spec = service.map_err(|error| self.target.failed(&what, error))?.spec.unwrap_or_default();
        let selector = spec.selector.filter(|selector| !selector.is_empty());
        let selector = selector.with_context(|| format!("Service {} selects no Pods", self.service))?;
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let found = pods.list(&ListParams::default().labels(&selector_text(&selector))).await;
        let found = found.map_err(|error| self.target.failed("cannot list Pods", error))?;
        let pod = choose(&found.items).with_context(|| format!("no running Pod behind Service {}", self.service))?;
        let port = target_port(spec.ports.as_deref().unwrap_or_default(), self.port, pod);
        Ok((pod.name_any(), port))
    }

    fn report_once(&self, text: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if *reported != text {
            (self.report)(text);
            text.clone_into(&mut reported);
        }
    }
}

fn selector_text(selector: &BTreeMap<String, String>) -> String {
    selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Returns the best Pod: running, if possible ready, and not on its way out.
fn choose(pods: &[Pod]) -> Option<&Pod> {
    let is_running = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    };
    let is_ready = |pod: &Pod| {
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    pods.iter().filter(is_running).max_by_key(|pod| is_ready(pod))
}

/// Returns the Pod's port that a Service's port leads to; one that the Service does not have is taken as it is.
fn target_port(ports: &[ServicePort], port: u16, pod: &Pod) -> u16 {
    let wanted = ports.iter().find(|candidate| candidate.port == i32::from(port));
    let number = match wanted.and_then(|port| port.target_port.as_ref()) {
        None => None,
        Some(IntOrString::Int(number)) => u16::try_from(*number).ok(),
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            let found = ports.find(|candidate| candidate.name.as_deref() == Some(name));
            found.and_then(|port| u16::try_from(port.container_port).ok())
        }
    };
    number.unwrap_or(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::cell::Cell;

    fn pod(name: &str, phase: &str, ready: &str) -> Pod {
        let ports = json!([{"name": "dashboard", "containerPort": 9265}]);
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "ports": ports}]},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_to_accept_is_reported_and_followed_by_a_pause() {
        let (start, tries, reports) = (Instant::now(), Cell::new(0), Cell::new(0));
        let accept = || {
            tries.set(tries.get() + 1);
            let (number, error) = (tries.get(), std::io::Error::from_raw_os_error(24));
            async move { if number < 4 { Err(error) } else { Ok(number) } }
        };
        let report = |text: &str| {
            assert!(text.starts_with("cannot accept a connection: Too many open files"), "{text}");
            reports.set(reports.get() + 1);
        };
        assert_eq!(next(accept, report).await, 4);
        assert_eq!((reports.get(), start.elapsed()), (3, 3 * ACCEPT_INTERVAL));
    }

    #[test]
    fn a_ready_pod_is_preferred_and_a_dead_one_is_not_used() {
        let check = |pods: &[Pod], expect: Option<&str>| {
            assert_eq!(choose(pods).map(|pod| pod.name_any()).as_deref(), expect);
        };
        check(&[pod("a", "Running", "False"), pod("b", "Running", "True")], Some("b"));
        check(&[pod("a", "Running", "False"), pod("b", "Failed", "True")], Some("a"));
        check(&[pod("a", "Pending", "False")], None);
    }

    #[test]
    fn ports_are_resolved_by_number_and_by_name() {
        let check = |port: Value, expect: u16| {
            let ports: Vec<ServicePort> = serde_json::from_value(json!([port])).unwrap();
            assert_eq!(target_port(&ports, 8265, &pod("a", "Running", "True")), expect, "{ports:?}");
        };
        check(json!({"port": 8265, "targetPort": 8266}), 8266);
        check(json!({"port": 8265, "targetPort": "dashboard"}), 9265);
        check(json!({"port": 8265, "targetPort": "nowhere"}), 8265);
        check(json!({"port": 8265}), 8265);
        check(json!({"port": 1, "targetPort": 2}), 8265);
    }
}
