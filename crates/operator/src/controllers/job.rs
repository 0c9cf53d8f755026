//! One pass over one RayJob.

use crate::events::Regarding;
use crate::observe::{self, JobObservation};
use crate::queue::Next;
use crate::run::Operator;
use crate::status_writer::StatusWrite;
use jiff::Timestamp;
use manta_logic::action::ObjectKey;
use manta_logic::job::{self, Observed, Plan};
use tracing::debug;

const CONTROLLER: &str = "rayjob-controller";

/// Looks at a RayJob and does what is to be done. The dashboard is never waited for.
pub(crate) async fn reconcile(op: &Operator, key: &ObjectKey) -> Next {
    let seen = match observe::job(op, key) {
        JobObservation::Ready(seen) => seen,
        JobObservation::Waiting => return Next::Rest,
        // What was just written is on its way back: deciding without it would write it twice.
        JobObservation::InFlight => return op.in_flight.expiry(key).map_or(Next::Rest, Next::After),
        JobObservation::Gone => {
            op.in_flight.forget(key);
            op.ray_jobs.follow(key, None);
            return Next::Rest;
        }
    };
    let now = op.clock.now();
    let plan = job::plan(&seen, now, &op.config);
    carry_out(op, key, &seen, &plan, now).await
}

async fn carry_out(op: &Operator, key: &ObjectKey, seen: &Observed, plan: &Plan, now: Timestamp) -> Next {
    op.ray_jobs.follow(key, plan.dashboard.clone());
    if let Some(waiting) = &plan.waiting {
        debug!(name = key.name, namespace = key.namespace, waiting, "waiting");
    }
    let regarding = Regarding::new(&seen.job, CONTROLLER);
    op.publisher.publish(&regarding, plan.events.clone());
    let outcome = op.actor.act(key, &regarding, &plan.stages).await;
    let mut failed = outcome.failure.is_some();
    if let Some(status) = job::settle(plan, &outcome) {
        let version = seen.job.metadata.resource_version.as_deref();
        let written = op.status.write(key, version, &status).await;
        failed |= written == StatusWrite::Failed;
        if written == StatusWrite::Done {
            op.metrics.job_status(&seen.job, &status, now);
        }
    }
    Next::by(plan.wake, failed, now)
}
