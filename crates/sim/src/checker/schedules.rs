//! Each tick of a schedule starts a RayJob, and the status says which tick was the last.

use super::{Checker, Seen};
use crate::object::{is_deleting, name, text, uid};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// The schedule of all RayCronJobs.
const INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// The last run of each RayCronJob that is not suspended, by UID; none before its first.
pub(crate) type LastRuns = BTreeMap<String, Option<Timestamp>>;

impl Checker {
    /// Returns the last run of each RayCronJob that is not suspended.
    pub(crate) fn last_runs(&self) -> LastRuns {
        let seen = self.lock();
        let last = |cron_job| seen.runs_of(cron_job).last();
        seen.running_schedules().map(|cron_job| (uid(cron_job), last(cron_job))).collect()
    }

    /// Returns which RayCronJob has not made two runs in a row since then, or does not report the last one.
    pub(crate) fn behind_schedule(&self, since: &LastRuns) -> Option<String> {
        let seen = self.lock();
        seen.running_schedules().find_map(|cron_job| {
            let known = since.get(&uid(cron_job)).copied().flatten();
            let runs: Vec<Timestamp> = seen.runs_of(cron_job).filter(|run| Some(*run) > known).collect();
            let reported = last_schedule_time(cron_job);
            let is_on_time =
                matches!(runs[..], [.., before, last] if last - INTERVAL == before && reported == Some(last));
            (!is_on_time).then(|| {
                format!("RayCronJob {} made the runs {runs:?}, and reports {reported:?} as the last", name(cron_job))
            })
        })
    }
}

impl Seen {
    /// A run that a status names has been made.
    pub(super) fn schedule_unsettled(&self, cron_job: &Value) -> Option<String> {
        let last = last_schedule_time(cron_job)?;
        (!self.runs_of(cron_job).any(|run| run == last)).then(|| format!("its last run, of {last}, was never made"))
    }

    fn running_schedules(&self) -> impl Iterator<Item = &Value> {
        let all = self.of_kind("RayCronJob").map(|(_, cron_job)| cron_job);
        all.filter(|cron_job| cron_job["spec"]["suspend"] != true && !is_deleting(cron_job))
    }

    /// Returns the times of the runs of a RayCronJob that were made, in order.
    fn runs_of(&self, cron_job: &Value) -> impl Iterator<Item = Timestamp> {
        let id = uid(cron_job);
        let runs = self.runs.range((id.clone(), String::new())..).take_while(move |((of, _), _)| *of == id);
        runs.filter_map(|((_, run), _)| run.parse().ok())
    }
}

fn last_schedule_time(cron_job: &Value) -> Option<Timestamp> {
    text(&cron_job["status"]["lastScheduleTime"]).parse().ok()
}
