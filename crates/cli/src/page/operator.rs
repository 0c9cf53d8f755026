//! The operator: who leads, from its Lease, and how busy it is, from its metrics.
//!
//! Metrics cannot be watched, so they are read every few seconds, and only while somebody looks.

use super::Page;
use super::live::Outlet;
use super::metrics::Figures;
use super::question::check_name;
use super::session::Session;
use super::stream::{self, every};
use crate::connect::Target;
use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use manta_operator::leader::LEASE;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(3);
/// Where the operator serves its metrics.
const PORT: u16 = 8080;

/// Sends what is known about the operator, until the browser leaves.
pub(super) async fn follow(page: &Page, session: &Session, outlet: &Outlet) {
    if let Some(telemetry) = &page.operator {
        let _ = outlet.send(&json!({"leader": {"holder": "the operator of this local mode"}})).await;
        let mut tick = every(INTERVAL);
        loop {
            tick.tick().await;
            let text = telemetry.scrape(false).unwrap_or_default();
            if !outlet.send(&json!({"figures": Figures::read(&text)})).await {
                return;
            }
        }
    }
    let leases: Api<Lease> = Api::all(session.target.client.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
    let mut events = watcher(leases, config).default_backoff().boxed();
    let mut known = BTreeMap::new();
    let mut tick = every(INTERVAL);
    loop {
        let sent = tokio::select! {
            Some(event) = events.next() => match event {
                Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => {
                    let had_leader = !known.is_empty();
                    known.insert(lease.namespace().unwrap_or_default(), lease);
                    outlet.send(&found(&known, had_leader)).await
                }
                Ok(watcher::Event::Delete(lease)) => {
                    known.remove(&lease.namespace().unwrap_or_default());
                    outlet.send(&found(&known, true)).await
                }
                Ok(watcher::Event::InitDone) if known.is_empty() => outlet.send(&found(&known, true)).await,
                Ok(watcher::Event::Init | watcher::Event::InitDone) => true,
                Err(error) => outlet.send(&json!({"error": super::watched::describe(&error)})).await,
            },
            _ = tick.tick() => match leader(&known) {
                None => true,
                Some(lease) => match scrape(&session.target, lease).await {
                    Ok(figures) => outlet.send(&json!({"figures": figures})).await,
                    Err(error) => outlet.send(&json!({"error": format!("Its metrics cannot be read: {error:#}")})).await,
                },
            },
        };
        if !sent {
            return;
        }
    }
}

/// Returns the Lease that was renewed last.
fn leader(leases: &BTreeMap<String, Lease>) -> Option<&Lease> {
    let renewed = |lease: &&Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    leases.values().max_by_key(renewed)
}

/// Returns who leads; or that nobody does, which is taken back once somebody does.
fn found(leases: &BTreeMap<String, Lease>, had_leader: bool) -> serde_json::Value {
    const NONE: &str = "No operator holds a Lease here: none runs, or leader election is off.";
    match leader(leases) {
        None => json!({"leader": null, "error": NONE}),
        Some(lease) if had_leader => json!({"leader": describe(lease)}),
        Some(lease) => json!({"leader": describe(lease), "error": null}),
    }
}

fn describe(lease: &Lease) -> serde_json::Value {
    let spec = lease.spec.as_ref();
    json!({
        "namespace": lease.namespace(),
        "holder": spec.and_then(|spec| spec.holder_identity.as_deref()),
        "renewed": spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.to_string()),
    })
}

/// Reads the metrics of the operator that holds a Lease, which names its Pod.
async fn scrape(target: &Target, lease: &Lease) -> anyhow::Result<Figures> {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    let pod = holder.split('_').next().filter(|name| !name.is_empty()).context("nobody holds the Lease")?;
    // Whoever may write Leases in some namespace must not choose what this viewer asks the API server.
    check_name(pod).map_err(anyhow::Error::msg)?;
    let target = Target { namespace: lease.namespace().unwrap_or_default(), ..target.clone() };
    stream::metrics(&target, pod, PORT, Figures::read).await
}
