//! One pass over one RayCronJob.

use crate::events::Regarding;
use crate::queue::Next;
use crate::run::Operator;
use crate::status_writer::StatusWrite;
use jiff::tz::TimeZone;
use manta_logic::action::ObjectKey;
use manta_logic::cronjob::{self, Observed};

/// Looks at a RayCronJob and starts the run that is due.
pub(crate) async fn reconcile(op: &Operator, key: &ObjectKey) -> Next {
    let Some(kept) = op.stores.cron_jobs.get(key, &key.name) else {
        op.in_flight.forget(key);
        return Next::Rest;
    };
    if op.in_flight.is_outdated(key, kept.version()) {
        return op.in_flight.expiry(key).map_or(Next::Rest, Next::After);
    }
    let Some(cron_job) = kept.read() else { return Next::Rest };
    let seen = Observed { cron_job, local_zone: TimeZone::system() };
    let now = op.clock.now();
    let plan = cronjob::plan(&seen, now, &op.config);
    let regarding = Regarding::new(&seen.cron_job, "raycronjob-controller");
    op.publisher.publish(&regarding, plan.events.clone());
    let outcome = op.actor.act(key, &regarding, &plan.stages).await;
    // A run is told apart by its name, so nothing needs to be remembered until the watch shows it.
    op.in_flight.forget(key);
    let mut failed = outcome.failure.is_some();
    if let Some(status) = cronjob::settle(&plan, &outcome) {
        let version = seen.cron_job.metadata.resource_version.as_deref();
        failed |= op.status.write(key, version, &status).await == StatusWrite::Failed;
    }
    Next::by(plan.wake, failed, now)
}
