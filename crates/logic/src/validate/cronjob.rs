//! Rules for RayCronJobs: name, schedule, time zone and job template.

use super::job::validate_job_spec;
use super::{Invalid, Part, invalid};
use crate::config::Config;
use crate::cronjob::schedule::Schedule;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use manta_api::RayCronJob;
use std::sync::LazyLock;

/// The compiled-in time zones, which are the same on every machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The maximum length of names; the name of a job includes the minute.
pub(crate) const MAX_NAME: usize = 36;

/// A RayCronJob that has passed validation, with its parsed schedule.
#[derive(Clone, Debug)]
pub struct ValidCronJob<'a> {
    cron: &'a RayCronJob,
    pub schedule: Schedule,
    /// The time zone of the schedule; none means that of the operator.
    pub zone: Option<TimeZone>,
}

impl<'a> ValidCronJob<'a> {
    /// Checks metadata and spec.
    pub fn check(cron: &'a RayCronJob, config: &Config) -> Result<Self, Invalid> {
        let fail = invalid(Part::CronJobSpec);
        let name = cron.metadata.name.as_deref().unwrap_or_default();
        if name.len() > MAX_NAME {
            return Err(fail(format!("RayCronJob name should be no more than {MAX_NAME} characters")));
        }
        if cron.spec.schedule.contains("TZ") {
            return Err(fail("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned()));
        }
        let schedule =
            Schedule::parse(&cron.spec.schedule).map_err(|error| fail(format!("invalid cron schedule: {error}")))?;
        let zone = match cron.spec.time_zone.as_deref() {
            None => None,
            Some(name) => parse_zone(name).map_err(&fail)?,
        };
        validate_job_spec(&cron.spec.job_template, None, config)
            .map_err(|text| fail(format!("invalid RayJob template: {text}")))?;
        Ok(Self { cron, schedule, zone })
    }
}

impl std::ops::Deref for ValidCronJob<'_> {
    type Target = RayCronJob;

    fn deref(&self) -> &RayCronJob {
        self.cron
    }
}

/// Returns a time zone by its name; none for `Local`, the operator's own.
fn parse_zone(name: &str) -> Result<Option<TimeZone>, String> {
    match name {
        "" => {
            return Err("timeZone must not be empty string, omit the field to use the local time zone of the KubeRay \
                        operator"
                .to_owned());
        }
        "UTC" => return Ok(Some(TimeZone::UTC)),
        "Local" => return Ok(None),
        _ if name.contains("..") || name.starts_with('/') || name.contains('\\') => {
            return Err("invalid time zone: time: invalid location name".to_owned());
        }
        _ => {}
    }
    // This lookup ignores case, but that of Go does not.
    let zone = ZONES.get(name).ok().filter(|zone| zone.iana_name() == Some(name));
    zone.map(Some).ok_or_else(|| format!("invalid time zone: unknown time zone {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::fixtures::{Edit, cluster_spec, edited, everything};
    use serde_json::json;

    #[track_caller]
    fn check(edits: &[Edit<'_>], expect: &str) {
        let base = json!({
            "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 3 * * *", "jobTemplate": {"entrypoint": "x", "rayClusterSpec": cluster_spec()}},
        });
        let cron: RayCronJob = serde_json::from_value(edited(base, edits)).unwrap();
        let text = ValidCronJob::check(&cron, &everything()).map_or_else(|invalid| invalid.text, |_| "ok".to_owned());
        assert_eq!(text, expect, "{edits:?}");
    }

    #[test]
    fn broken_rules_are_reported() {
        check(&[], "ok");
        check(&[("/metadata/name", json!("c".repeat(36)))], "ok");
        check(&[("/metadata/name", json!("my.cron"))], "ok");
        check(&[("/metadata/name", json!("c".repeat(37)))], "RayCronJob name should be no more than 36 characters");
        for schedule in ["TZ=UTC 0 3 * * *", "CRON_TZ=UTC 0 3 * * *"] {
            check(
                &[("/spec/schedule", json!(schedule))],
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            );
        }
        check(
            &[("/spec/schedule", json!("invalid cron string"))],
            "invalid cron schedule: expected exactly 5 fields, found 3: [invalid cron string]",
        );
        check(&[("/spec/schedule", json!(""))], "invalid cron schedule: empty spec string");
        check(
            &[("/spec/jobTemplate", json!({}))],
            "invalid RayJob template: The RayJob spec is invalid: one of RayClusterSpec or ClusterSelector must be set",
        );
    }

    #[test]
    fn time_zones_are_checked_as_in_go() {
        let check = |zone: &str, expect: &str| check(&[("/spec/timeZone", json!(zone))], expect);
        for zone in ["UTC", "Local", "Asia/Taipei", "US/Eastern", "Etc/GMT+5"] {
            check(zone, "ok");
        }
        check(
            "",
            "timeZone must not be empty string, omit the field to use the local time zone of the KubeRay operator",
        );
        check("Invalid/Zone", "invalid time zone: unknown time zone Invalid/Zone");
        check("asia/taipei", "invalid time zone: unknown time zone asia/taipei");
        for zone in ["../etc/passwd", "/etc/localtime", "a\\b"] {
            check(zone, "invalid time zone: time: invalid location name");
        }
    }
}
