//! One pass over one RayCronJob.

use crate::events::Regarding;
use crate::queue::Next;
use crate::run::Operator;
use crate::status_writer::{self, StatusWrite};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::ObjectReference;
use manta_api::{API_VERSION, RayCronJob};
use manta_logic::action::{Target, Wake};
use manta_logic::cronjob::{self, Observed};
use std::time::Duration;

/// Looks at a RayCronJob and starts the run that is due.
pub(crate) async fn reconcile(op: &Operator, target: &Target) -> Next {
    let Some(cron_job) = op.stores.cron_jobs.get(target, &target.name) else { return Next::Rest };
    let seen = Observed { cron_job: (*cron_job).clone(), local_zone: TimeZone::system() };
    let now = Timestamp::now();
    let plan = cronjob::plan(&seen, now, &op.config);
    let regarding = Regarding { reference: reference(&seen.cron_job), controller: "raycronjob-controller" };
    op.publisher.publish(&regarding, plan.events.clone());
    let outcome = op.actor.act(target, &regarding, &plan.stages).await;
    // A run is told apart by its name, so nothing needs to be remembered until the watch shows it.
    op.in_flight.forget(target);
    let mut failed = outcome.failure.is_some();
    if let Some(status) = cronjob::settle(&plan, &outcome) {
        let version = seen.cron_job.metadata.resource_version.as_deref();
        failed |= status_writer::write(&op.client, target, version, &status).await == StatusWrite::Failed;
    }
    match plan.wake {
        _ if failed => Next::BackOff,
        Wake::BackOff => Next::BackOff,
        Wake::At(at) => Next::After(Duration::try_from(at.duration_since(now)).unwrap_or_default()),
        Wake::OnChange => Next::Rest,
    }
}

fn reference(cron_job: &RayCronJob) -> ObjectReference {
    let meta = &cron_job.metadata;
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(RayCronJob::KIND.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}
