//! RayCronJobs at given times.

use super::*;
use crate::action::{Action, EventKind, ObjectKey};
use crate::cronjob::Plan;
use crate::fake_api::{FakeApi, view};
use crate::plan::{LookUps, StatusPlan, Wake, plan};
use crate::view::MetaView;
use jiff::tz::TimeZone;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cron(schedule: &str) -> Observed {
    let cron_job = serde_json::from_value(json!({
        "metadata": {
            "name": "test-cronjob", "namespace": "default", "uid": "u",
            "creationTimestamp": "2024-01-01T00:00:00Z",
        },
        "spec": {
            "schedule": schedule,
            "jobTemplate": {
                "entrypoint": "python x.py",
                "rayClusterSpec": {
                    "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray", "image": "i"}]}}},
                },
            },
        },
    }));
    Observed { cron_job: cron_job.unwrap(), jobs: Vec::new(), local_zone: TimeZone::UTC }
}

fn decide(seen: &Observed, now: &str) -> Plan {
    plan::<RayCronJob>(seen, &LookUps::new(), time(now), &Config::default())
}

/// Returns the run up to which a plan settles everything.
fn settled(plan: &Plan) -> Option<Timestamp> {
    match &plan.status {
        StatusPlan::Write(status) => status.last_schedule_time.as_ref().map(|time| time.0),
        _ => None,
    }
}

/// Returns the RayJob that a plan starts.
fn started(plan: &Plan) -> Option<&str> {
    plan.stages.first().map(|stage| stage.steps[0].action.key().name.as_str())
}

#[test]
fn an_invalid_schedule_is_reported() {
    let plan = decide(&cron("invalid cron string"), "2024-01-01T00:05:30Z");
    assert_eq!((plan.stages.len(), settled(&plan), plan.wake), (0, None, Wake::OnChange));
    let [event] = &plan.events[..] else { panic!("{:?}", plan.events) };
    assert_eq!((event.kind, event.reason), (EventKind::Warning, "InvalidRayCronJobSpec"));
    let note = "default/test-cronjob: invalid cron schedule: expected exactly 5 fields, found 3: [invalid cron string]";
    assert_eq!(event.note, note);
}

#[test]
fn a_due_run_creates_a_job_named_after_its_minute() {
    let mut seen = cron("*/5 * * * *");
    for _ in 0..2 {
        let plan = decide(&seen, "2024-01-01T00:05:30Z");
        assert_eq!(started(&plan), Some("test-cronjob-28401125"));
        assert_eq!(settled(&plan), Some(time("2024-01-01T00:05:00Z")));
        assert_eq!(plan.wake, Wake::At(time("2024-01-01T00:10:00Z")));
        assert!(plan.events.is_empty());
        seen.cron_job.status = Some(RayCronJobStatus { last_schedule_time: Some(Time(time("2024-01-01T00:00:00Z"))) });
    }
}

#[test]
fn the_created_job_follows_the_template() {
    let plan = decide(&cron("*/5 * * * *"), "2024-01-01T00:05:30Z");
    let Action::Create { body, .. } = &plan.stages[0].steps[0].action else { panic!("no creation") };
    insta::assert_yaml_snapshot!(body.value());
}

#[test]
fn a_suspended_cron_job_starts_nothing() {
    let mut seen = cron("*/5 * * * *");
    seen.cron_job.spec.suspend = Some(true);
    let plan = decide(&seen, "2024-01-01T09:05:30Z");
    assert_eq!((plan.stages.len(), settled(&plan), plan.wake), (0, None, Wake::OnChange));
    assert_eq!(plan.events[0].reason, "SuspendedRayCronJob");
    assert_eq!(plan.events[0].note, "RayCronJob suspended, no new RayJobs will be created");
}

#[test]
fn a_run_never_creates_two_jobs() {
    let seen = cron("*/1 * * * *");
    let first = decide(&seen, "2024-01-01T00:01:00Z");
    let again = decide(&seen, "2024-01-01T00:01:59Z");
    assert_eq!(started(&first), started(&again), "a status that is late changes nothing");
    assert_eq!(first.stages[0].steps[0].accept, Accept::AlreadyExists);
    let next = decide(&seen, "2024-01-01T00:02:00Z");
    assert_ne!(started(&first), started(&next));
}

#[test]
fn schedules_follow_their_time_zone() {
    let mut seen = cron("0 9 * * *");
    let mut check = |zone: &str, now: &str, expect: Result<Option<&str>, &str>| {
        seen.cron_job.spec.time_zone = Some(zone.to_owned());
        let plan = decide(&seen, now);
        match expect {
            Ok(run) => {
                let settled = settled(&plan);
                assert_eq!(settled, run.map(time), "{zone}");
            }
            Err(error) => assert!(plan.events[0].note.ends_with(error), "{:?}", plan.events),
        }
    };
    check("Asia/Taipei", "2024-01-01T01:00:00Z", Ok(Some("2024-01-01T01:00:00Z")));
    check("UTC", "2024-01-01T01:00:00Z", Ok(None));
    check("UTC", "2024-01-01T09:00:00Z", Ok(Some("2024-01-01T09:00:00Z")));
    check("Local", "2024-01-01T09:00:00Z", Ok(Some("2024-01-01T09:00:00Z")));
    check("Invalid/Zone", "2024-01-01T09:00:00Z", Err("invalid time zone: unknown time zone Invalid/Zone"));
}

#[test]
fn one_missed_run_is_started_after_a_suspension() {
    let seen = cron("*/1 * * * *");
    let plan = decide(&seen, "2024-01-01T00:02:10Z");
    assert_eq!(started(&plan), Some("test-cronjob-28401122"));
    assert_eq!(plan.wake, Wake::At(time("2024-01-01T00:03:00Z")));
    let note = "1 scheduled runs were missed and skipped, the run of 2024-01-01T00:02:00Z was started \
                (see the annotation ray.io/cronjob-missed-runs)";
    assert_eq!(plan.events[0].note, note);
}

#[test]
fn the_annotation_asks_for_every_missed_run_or_none() {
    let mut seen = cron("*/1 * * * *");
    let annotate = |seen: &mut Observed, value: &str| {
        seen.cron_job.metadata.annotations = Some([(missed::ANNOTATION.to_owned(), value.to_owned())].into());
    };
    annotate(&mut seen, "all");
    let plan = decide(&seen, "2024-01-01T00:02:10Z");
    assert_eq!(started(&plan), Some("test-cronjob-28401121"), "the oldest first");
    annotate(&mut seen, "none");
    let plan = decide(&seen, "2024-01-01T05:02:59Z");
    assert_eq!(started(&plan), Some("test-cronjob-28401422"), "the current minute is in time");
    let mut hourly = cron("0 * * * *");
    annotate(&mut hourly, "none");
    let plan = decide(&hourly, "2024-01-01T05:02:00Z");
    assert_eq!(started(&plan), None);
    assert_eq!(settled(&plan), Some(time("2024-01-01T05:00:00Z")));
}

#[test]
fn nothing_is_due_before_its_time() {
    let plan = decide(&cron("0 3 * * *"), "2024-01-01T00:05:30Z");
    assert_eq!((plan.stages.len(), settled(&plan)), (0, None));
    assert_eq!(plan.wake, Wake::At(time("2024-01-01T03:00:00Z")));
}

#[test]
fn impossible_dates_start_nothing() {
    let plan = decide(&cron("0 0 30 2 *"), "2024-06-01T00:00:00Z");
    assert_eq!((plan.stages.len(), settled(&plan), plan.wake), (0, None, Wake::OnChange));
}

#[test]
fn a_run_that_could_not_be_started_is_not_settled() {
    let (seen, mut api) = (cron("*/5 * * * *"), FakeApi::default());
    let pass = |api: &mut FakeApi| {
        let now = time("2024-01-01T00:05:30Z");
        api.run::<RayCronJob>(&seen, now, &Config::default(), |key, _| panic!("asks the Ray of {key:?}"))
    };
    api.refuse = Box::new(|_| Some("no".to_owned()));
    let ran = pass(&mut api);
    assert_eq!((ran.status, ran.wake), (None, Wake::Refused));
    api.refuse = Box::new(|_| None);
    assert!(pass(&mut api).status.is_some());
}

#[test]
fn a_cron_job_being_deleted_starts_nothing() {
    let mut seen = cron("*/5 * * * *");
    seen.cron_job.metadata.deletion_timestamp = Some(Time(time("2024-01-01T00:05:00Z")));
    assert!(decide(&seen, "2024-01-01T00:05:30Z").stages.is_empty());
}

#[test]
fn the_runs_of_an_earlier_cron_job_are_deleted() {
    let run = |name: &str, uid: &str| -> MetaView {
        let owner = json!({
            "apiVersion": "ray.io/v1", "kind": "RayCronJob", "name": "test-cronjob", "uid": uid, "controller": true,
        });
        view(json!({"name": name, "uid": format!("u-{name}"), "ownerReferences": [owner]}))
    };
    let mut seen = cron("0 0 * * *");
    seen.jobs = vec![run("test-cronjob-1", "earlier"), run("test-cronjob-2", "u")];
    let mut api = FakeApi::default();
    let key = |kind, name| ObjectKey::new(kind, "default", name);
    api.objects.insert(key(Kind::RayCronJob, "test-cronjob"), json!(seen.cron_job));
    for name in ["test-cronjob-1", "test-cronjob-2"] {
        api.objects.insert(key(Kind::RayJob, name), json!({"metadata": {"name": name, "uid": format!("u-{name}")}}));
    }
    api.run::<RayCronJob>(&seen, time("2024-01-01T00:05:30Z"), &Config::default(), |_, _| Ok(()));
    assert_eq!(api.deleted, ["RayJob test-cronjob-1"]);
}
