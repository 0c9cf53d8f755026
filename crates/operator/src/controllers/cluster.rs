//! One pass over one RayCluster.

use crate::events::Regarding;
use crate::look_up::look_up;
use crate::observe::{self, Observation};
use crate::queue::Next;
use crate::run::Operator;
use crate::status_writer::StatusWrite;
use jiff::Timestamp;
use manta_logic::action::{Event, ObjectKey, Outcome, Stage, Wake};
use manta_logic::cluster::{self, Observed, Plan, StatusUpdate, mtls, network_policy};
use std::time::Duration;
use tracing::{debug, error};

/// How often a plan may ask for more before it is told to wait.
const LOOK_UPS: usize = 4;
/// When to look again after writes, at the latest.
const AFTER_WRITES: Duration = Duration::from_secs(2);

/// Looks at a RayCluster and does what is to be done. The only awaits are on the way out.
pub(crate) async fn reconcile(op: &Operator, key: &ObjectKey) -> Next {
    let mut looked_up = op.memory.of(key);
    for _ in 0..LOOK_UPS {
        let seen = match observe::cluster(op, key, looked_up) {
            Observation::Ready(seen) => seen,
            Observation::Waiting => return Next::Rest,
            Observation::InFlight => return Next::After(AFTER_WRITES), // the watch brings it much sooner
            Observation::Gone => {
                op.in_flight.forget(key);
                op.memory.forget(key);
                return Next::Rest;
            }
        };
        let now = op.clock.now();
        let plan = cluster::plan(&seen, now, &op.config);
        let certificates = mtls::plan(&seen, now, &op.config);
        let wanted: Vec<&ObjectKey> = plan.look_up.iter().chain(&certificates.look_up).collect();
        if wanted.is_empty() {
            return carry_out(op, key, &seen, &plan, certificates, now).await;
        }
        looked_up = seen.looked_up;
        for wanted in wanted {
            let found = look_up(&op.client, wanted).await;
            if matches!(found, cluster::LookedUp::Found(_)) {
                op.memory.remember(key, wanted);
            }
            looked_up.insert(wanted.clone(), found);
        }
    }
    error!(name = key.name, namespace = key.namespace, "a plan asked for more look-ups than there can be");
    Next::BackOff
}

async fn carry_out(
    op: &Operator,
    key: &ObjectKey,
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
        failed |= act_as(op, key, seen, controller, &stages, events).await.failure.is_some();
    }
    let outcome = act_as(op, key, seen, "raycluster-controller", &plan.stages, plan.events.clone()).await;
    if let Some(halt) = &plan.halt {
        debug!(name = key.name, namespace = key.namespace, why = halt.error, "the pass ended early");
    }
    let status = match plan.status {
        StatusUpdate::Compute => publish_status(op, key, seen, plan, &outcome, now).await,
        StatusUpdate::Keep => StatusWrite::Done,
    };
    failed |= outcome.failure.is_some() || status == StatusWrite::Failed;
    next(op, key, plan, certificates.wake, failed, now)
}

async fn act_as(
    op: &Operator,
    key: &ObjectKey,
    seen: &Observed,
    controller: &'static str,
    stages: &[Stage],
    events: Vec<Event>,
) -> Outcome {
    if stages.is_empty() && events.is_empty() {
        return Outcome::default();
    }
    let regarding = Regarding::new(seen.cluster.as_ref(), controller);
    op.publisher.publish(&regarding, events);
    op.actor.act(key, &regarding, stages).await
}

/// Writes the status if it says something new.
async fn publish_status(
    op: &Operator,
    key: &ObjectKey,
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
    op.status.write(key, seen.cluster.metadata.resource_version.as_deref(), &status).await
}

/// When to look again, if nothing happens before.
fn next(op: &Operator, key: &ObjectKey, plan: &Plan, certificates: Wake, failed: bool, now: Timestamp) -> Next {
    // The watch shows most writes at once; this is for those that nobody watches.
    let unseen = (!plan.stages.is_empty()).then_some(AFTER_WRITES);
    let wishes = Next::by(plan.wake, failed, now).or_earlier(Next::by(certificates, failed, now));
    let writes = [op.in_flight.expiry(key), unseen].into_iter().flatten().min();
    wishes.or_earlier(writes.map_or(Next::Rest, Next::After))
}
