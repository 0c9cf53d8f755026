//! One pass over one RayCluster.

use crate::events::Regarding;
use crate::look_up::look_up;
use crate::observe::{self, Observation};
use crate::queue::Next;
use crate::run::Operator;
use crate::status_writer::{self, StatusWrite};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use manta_api::{API_VERSION, RayCluster};
use manta_logic::action::{Event, Outcome, Stage, Target, Wake};
use manta_logic::cluster::{self, Observed, Plan, StatusUpdate, mtls, network_policy};
use std::time::Duration;
use tracing::{debug, error};

/// How often a plan may ask for more before it is told to wait.
const LOOK_UPS: usize = 4;
/// When to look again after writes, at the latest.
const AFTER_WRITES: Duration = Duration::from_secs(2);

/// Looks at a RayCluster and does what is to be done. The only awaits are on the way out.
pub(crate) async fn reconcile(op: &Operator, target: &Target) -> Next {
    let mut looked_up = op.memory.of(target);
    for _ in 0..LOOK_UPS {
        let seen = match observe::cluster(op, target, looked_up.clone()) {
            Observation::Ready(seen) => seen,
            Observation::Waiting => return Next::Rest,
            Observation::Gone => {
                op.in_flight.forget(target);
                op.memory.forget(target);
                return Next::Rest;
            }
        };
        if op.in_flight.is_outdated(target, version(&seen)) {
            return Next::After(AFTER_WRITES); // the watch brings the next look much sooner
        }
        let now = Timestamp::now();
        let plan = cluster::plan(&seen, now, &op.config);
        let certificates = mtls::plan(&seen, now, &op.config);
        let wanted: Vec<&Target> = plan.look_up.iter().chain(&certificates.look_up).collect();
        if wanted.is_empty() {
            return carry_out(op, target, &seen, &plan, certificates, now).await;
        }
        for wanted in wanted {
            let found = look_up(&op.client, wanted).await;
            if matches!(found, cluster::LookedUp::Found(_)) {
                op.memory.remember(target, wanted);
            }
            looked_up.insert(wanted.clone(), found);
        }
    }
    error!(name = target.name, namespace = target.namespace, "a plan asked for more look-ups than there can be");
    Next::BackOff
}

async fn carry_out(
    op: &Operator,
    target: &Target,
    seen: &Observed,
    plan: &Plan,
    certificates: mtls::Plan,
    now: Timestamp,
) -> Next {
    let policies = network_policy::plan(seen, &op.config);
    let aside = [
        ("networkpolicy-controller", policies.stages, policies.events),
        ("raycluster-mtls-controller", certificates.stages, certificates.events),
    ];
    let mut failed = policies.halt.is_some();
    for (controller, stages, events) in aside {
        failed |= act_as(op, target, seen, controller, &stages, events).await.failure.is_some();
    }
    let outcome = act_as(op, target, seen, "raycluster-controller", &plan.stages, plan.events.clone()).await;
    if let Some(halt) = &plan.halt {
        debug!(name = target.name, namespace = target.namespace, why = halt.error, "the pass ended early");
    }
    let status = match plan.status {
        StatusUpdate::Compute => publish_status(op, target, seen, plan, &outcome, now).await,
        StatusUpdate::Keep => StatusWrite::Done,
    };
    failed |= outcome.failure.is_some() || status == StatusWrite::Failed;
    next(op, target, plan, certificates.wake, failed, now)
}

async fn act_as(
    op: &Operator,
    target: &Target,
    seen: &Observed,
    controller: &'static str,
    stages: &[Stage],
    events: Vec<Event>,
) -> Outcome {
    if stages.is_empty() && events.is_empty() {
        return Outcome::default();
    }
    let regarding = Regarding { reference: reference(&seen.cluster), controller };
    op.publisher.publish(&regarding, events);
    op.actor.act(target, &regarding, stages).await
}

/// Writes the status if it says something new.
async fn publish_status(
    op: &Operator,
    target: &Target,
    seen: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    now: Timestamp,
) -> StatusWrite {
    // What was just written is not in what was seen: the watch brings the look that tells it all.
    if outcome.failure.is_none() && plan.halt.is_none() && !plan.stages.is_empty() {
        return StatusWrite::Done;
    }
    let Some(status) = cluster::settle(seen, plan, outcome, now, &op.config) else { return StatusWrite::Done };
    if !cluster::needs_write(seen.cluster.status.as_ref(), &status) {
        return StatusWrite::Done;
    }
    let written = status_writer::write(&op.client, target, Some(version(seen)), &status).await;
    if written == StatusWrite::Done {
        op.in_flight.wrote_status(target, version(seen));
    }
    written
}

/// When to look again, if nothing happens before.
fn next(op: &Operator, target: &Target, plan: &Plan, certificates: Wake, failed: bool, now: Timestamp) -> Next {
    if failed || plan.wake == Wake::BackOff {
        return Next::BackOff;
    }
    let until = |wake: Wake| match wake {
        Wake::At(at) => Some(Duration::try_from(at.duration_since(now)).unwrap_or_default()),
        _ => None,
    };
    // The watch shows most writes at once; this is for those that nobody watches.
    let unseen = (!plan.stages.is_empty()).then_some(AFTER_WRITES);
    let waits = [until(plan.wake), until(certificates), op.in_flight.expiry(target), unseen];
    waits.into_iter().flatten().min().map_or(Next::Rest, Next::After)
}

/// The version of the cluster that was seen.
fn version(seen: &Observed) -> &str {
    seen.cluster.metadata.resource_version.as_deref().unwrap_or_default()
}

fn reference(cluster: &RayCluster) -> ObjectReference {
    let meta = &cluster.metadata;
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(RayCluster::KIND.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}
