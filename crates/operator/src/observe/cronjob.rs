//! Gathers what is known about a RayCronJob.

use super::{Observation, Observe, Sources};
use manta_api::RayCronJob;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::cronjob::Observed;

impl Observe for RayCronJob {
    fn observe(sources: &Sources<'_>, key: &ObjectKey) -> Observation<Observed> {
        let stores = sources.stores;
        let Some(raw) = stores.cron_jobs.get(key, &key.name) else { return Observation::Gone };
        let missing = sources.not_synced([Kind::RayJob]);
        if !missing.is_empty() {
            return Observation::NotSynced(missing);
        }
        if sources.in_flight.is_outdated(key, raw.version()) || sources.has_writes_in_flight(key) {
            return Observation::InFlight;
        }
        let Some(cron_job) = raw.read() else { return Observation::Unreadable };
        let jobs = stores.jobs.of(key).iter().filter_map(|raw| raw.metadata()).collect();
        Observation::ready(Observed { cron_job, jobs, local_zone: sources.local_zone.get() })
    }

    fn object(seen: &Observed) -> &Self {
        &seen.cron_job
    }
}
