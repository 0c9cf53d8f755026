//! Measures RayServices at rest, and one that is upgraded among them.
//!
//! Operators ask Ray by the names of Services and the addresses of Pods. So this scenario runs in a network namespace of
//! its own, where every name is looked up at a name server that knows one address, all Pod addresses are local, and one
//! fake dashboard answers for all.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use kube::ResourceExt;
use manta_testkit::FakeDashboard;
use serde_json::json;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::Scenario;
use super::load::{create_all, follow, send, wait_for, within};
use super::measured::{Measured, Unit};
use super::objects::{self, Service};
use super::report::Report;
use super::trial::{Trial, from};
use crate::process::{is_root, succeeds};

/// The environment variable with the path of the report, for the process inside the namespace.
pub(super) const INSIDE: &str = "MANTA_BENCH_INSIDE";
/// What must be there to measure it.
pub(super) const NEEDS: &str = "needs ip, and unshare with the right to make a network namespace";
/// Makes the network: only loopback, with all Pod addresses, and a name server of our own.
const SCRIPT: &str = "set -e
resolv=$(mktemp); echo 'nameserver 127.0.0.1' >$resolv; mount --bind $resolv /etc/resolv.conf; rm $resolv
ip link set lo up; ip address add 10.0.0.0/8 dev lo
exec \"$@\"";
/// The ports of Ray's dashboard and of Serve's proxies.
const PORTS: [u16; 2] = [8265, 8000];

/// Runs this program again with the same arguments inside the namespace, and returns what it measured; None where there
/// can be no namespace.
pub(super) fn run_inside() -> Result<Option<Report>> {
    if !can_unshare() {
        return Ok(None);
    }
    let file = tempfile::NamedTempFile::new()?;
    let mut command = unshare();
    command.args(["bash", "-c", SCRIPT, "inside"]).arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    command.env(INSIDE, file.path()).env("CARGO_NET_OFFLINE", "true").stdin(Stdio::null());
    let status = command.status().context("cannot start unshare")?;
    if !status.success() {
        bail!("measuring services failed: {status}");
    }
    Report::read(file.path()).map(Some)
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if !is_root() {
        command.arg("--map-root-user");
    }
    command
}

fn can_unshare() -> bool {
    succeeds(unshare().args(["ip", "link", "set", "lo", "up"]))
}

/// Creates the RayServices, and measures them at rest and during the upgrade of one.
pub(super) fn measure(trial: &mut Trial<'_>, size: usize) -> Result<Measured> {
    let mut measured = trial.measured(Scenario::Services, size);
    trial.put_pods_on_a_node()?;
    let (_names, _dashboards) = trial.block_on(async {
        let mut dashboards = Vec::new();
        for port in PORTS {
            let dashboard = FakeDashboard::start_at(([0, 0, 0, 0], port).into()).await?;
            dashboard.set_app_status("*", "RUNNING");
            dashboards.push(dashboard);
        }
        Ok((NameServer::start().await?, dashboards))
    })?;
    trial.settle()?;
    let names: Vec<String> = (0..size).map(|number| format!("web-{number:05}")).collect();
    let seconds = trial.block_on(create_until_ready(trial, &names))?;
    measured.add("all ready after", seconds, Unit::Seconds);
    std::thread::sleep(trial.settings.rest() / 4);

    let (start, before) = (trial.usage()?, trial.requests()?.len());
    std::thread::sleep(trial.settings.rest());
    if let Some((start, end)) = start.zip(trial.usage()?) {
        let share = (end.cpu_seconds - start.cpu_seconds) / trial.settings.rest().as_secs_f64();
        measured.add("CPU at rest, percent of a core", share * 100.0, Unit::Ratio);
        measured.add("memory at rest", end.rss_bytes as f64, Unit::Bytes);
        measured.add("memory at rest, private", end.private_bytes as f64, Unit::Bytes);
    }
    let at_rest = from(trial.requests()?, before).iter().filter(|request| request.is_write()).count();
    measured.add("writes at rest", at_rest as f64, Unit::Count);
    measured.add_requests(from(trial.requests()?, before));

    let upgrade = upgrade(trial, &names[0]);
    measured.add("one upgraded after", trial.block_on(upgrade)?, Unit::Seconds);
    Ok(measured)
}

/// Returns the seconds until all are ready.
async fn create_until_ready(trial: &Trial<'_>, names: &[String]) -> Result<f64> {
    let start = Instant::now();
    let mut missing: std::collections::BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let ready = follow(objects::ray::<Service>(&trial.client, "RayService"), |service| {
        if objects::is_service_ready(&service) {
            missing.remove(service.name_any().as_str());
        }
        missing.is_empty()
    });
    let create = create_all(&trial.client, "rayservices", names, objects::service);
    within(trial.settings.limit(), "all RayServices are ready", futures::future::try_join(create, ready)).await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Changes the image of one, and returns the seconds until another RayCluster is the active one.
async fn upgrade(trial: &Trial<'_>, name: &str) -> Result<f64> {
    let api = objects::ray::<Service>(&trial.client, "RayService");
    let active = |service: &Service| {
        let status = service.status.clone().unwrap_or_default();
        (status.active_service_status.ray_cluster_name, status.pending_service_status.ray_cluster_name)
    };
    let (before, _) = active(&api.get(name).await?);
    let image = "/spec/rayClusterConfig/headGroupSpec/template/spec/containers/0/image";
    let patch = json!([{"op": "replace", "path": image, "value": "rayproject/ray:2.53.0"}]);
    let start = Instant::now();
    send(&trial.client, "PATCH", &format!("{}/{name}", objects::ray_path("rayservices")), patch.to_string()).await?;
    wait_for(api, name, trial.settings.limit(), |service| {
        let (active, pending) = active(service);
        active != before && !active.is_empty() && pending.is_empty()
    })
    .await?;
    Ok(start.elapsed().as_secs_f64())
}

/// A name server that knows one address for all names; it stops when dropped.
struct NameServer(JoinHandle<()>);

impl NameServer {
    async fn start() -> Result<Self> {
        let socket = UdpSocket::bind(("127.0.0.1", 53)).await.context("cannot listen for name look-ups")?;
        Ok(Self(tokio::spawn(async move {
            let mut query = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut query).await {
                if let Some(reply) = reply(&query[..length]) {
                    let _ = socket.send_to(&reply, peer).await;
                }
            }
        })))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the reply to a query: 127.0.0.1 for IPv4, and no address of other kinds.
fn reply(query: &[u8]) -> Option<Vec<u8>> {
    let name_length = query.get(12..)?.iter().position(|byte| *byte == 0)?;
    // The name, its end, and two bytes each for type and class.
    let question = query.get(12..12 + name_length + 5)?;
    let is_ipv4 = question[name_length + 1..name_length + 3] == [0, 1];
    let mut reply = query[..2].to_vec();
    reply.extend([0x84, 0, 0, 1, 0, u8::from(is_ipv4), 0, 0, 0, 0]);
    reply.extend(question);
    if is_ipv4 {
        // A pointer to the name, type A, class IN, a minute, four bytes.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_address() {
        let query = |kind: u8| {
            let mut query = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            query.extend(b"\x04head\x02ns\x00");
            query.extend([0, kind, 0, 1]);
            query
        };
        let ipv4 = reply(&query(1)).unwrap();
        assert_eq!(ipv4[..8], [7, 9, 0x84, 0, 0, 1, 0, 1]);
        assert_eq!(ipv4[ipv4.len() - 4..], [127, 0, 0, 1]);
        let ipv6 = reply(&query(28)).unwrap();
        assert_eq!(ipv6[7], 0, "no answer, so that IPv4 is used");
        assert_eq!(reply(&query(1)[..20]), None);
    }
}
