//! Passes over a toy object, step by step.

use super::*;
use crate::action::{Accept, Kind, Step};
use crate::dashboard::{DashboardEndpoint, RayRequest};
use crate::plan::{Halt, Planner};
use serde_json::json;

/// A status that nothing follows from.
const LAST: &str = "over";

/// A kind whose plan is made by a function.
struct Toy;

type Decide = fn(&mut Planner<'_, Toy>);

impl Reconciled for Toy {
    const CONTROLLER: &'static str = "toy-controller";
    type Observed = Decide;
    type Status = &'static str;
    type Poll = &'static str;
    type Draft<'a> = StatusPlan<&'static str>;

    fn draft<'a>(_: &'a Decide, _: &'a Config) -> Self::Draft<'a> {
        StatusPlan::Write("all is well")
    }

    fn decide(planner: &mut Planner<'_, Self>) {
        (planner.seen)(planner);
    }

    fn propose(planner: &mut Planner<'_, Self>) -> StatusPlan<&'static str> {
        planner.draft.clone()
    }

    fn follows_from(_: &Decide, written: &&'static str) -> bool {
        *written != LAST
    }

    fn compute_status(
        _: &Decide,
        _: &PlanOf<Self>,
        outcome: &Outcome,
        _: Timestamp,
        _: &Config,
    ) -> Option<&'static str> {
        Some(if outcome.failures.is_empty() { "computed" } else { "computed after a failure" })
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Pod, "ns", name)
}

fn create(name: &str) -> Step {
    Step::create(key(name), &json!({}), "a test")
        .on_success("Created", format!("created {name}"))
        .on_failure("Failed", format!("cannot create {name}: "))
        .failure_reason("FailedCreate")
        .accept(Accept::AlreadyExists)
}

/// Drives a pass and returns what it needed, in words; writes of names that start with `bad` fail.
fn drive(decide: Decide) -> Vec<String> {
    drive_with(decide, StatusWrite::Done)
}

fn drive_with(decide: Decide, status_write: StatusWrite) -> Vec<String> {
    let config = Config::default();
    let mut pass = Pass::<Toy>::begin(&decide, LookUps::new(), now(), &config);
    let mut needs = Vec::new();
    loop {
        match pass.advance() {
            Need::LookUp(keys) => {
                needs.push(format!(
                    "look up {}",
                    keys.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join(" ")
                ));
                let found = keys.iter().map(|_| LookedUp::Absent).collect();
                pass.looked_up(found);
            }
            Need::Poll(poll) => needs.push(format!("poll {poll:?}")),
            Need::Publish(events) => {
                for event in events {
                    needs.push(format!("{} publishes {}: {}", event.controller, event.reason, event.note));
                }
            }
            Need::Execute(stage) => {
                let names: Vec<&str> = stage.into_iter().map(|step| step.action.key().name.as_str()).collect();
                needs.push(format!("{} writes {}", stage.controller, names.join(" ")));
                let result = |name: &&str| match name.strip_prefix("bad") {
                    Some(_) => StepResult::Failed("no".to_owned()),
                    None if name.starts_with("old") => StepResult::Unchanged,
                    None if name.starts_with("late") => StepResult::Superseded,
                    None => StepResult::Done,
                };
                let results = names.iter().map(result).collect();
                pass.executed(results, Timestamp::UNIX_EPOCH);
            }
            Need::WriteStatus(status) => {
                needs.push(format!("status {status}"));
                pass.wrote_status(status_write);
            }
            Need::Done(wake) => {
                needs.push(format!("{wake:?}"));
                return needs;
            }
        }
    }
}

#[test]
fn a_pass_polls_publishes_writes_and_settles_in_this_order() {
    let needs = drive(|planner| {
        planner.poll = Some("jobs");
        planner.event(Event::normal("Seen", "Look", "hello"));
        planner.push(create("a"));
        planner.push(create("b"));
        planner.finally(create("z"));
        planner.then(create("old"));
    });
    let expect = [
        "poll Some(\"jobs\")",
        "toy-controller publishes Seen: hello",
        "toy-controller writes a b",
        "toy-controller writes old",
        "toy-controller writes z",
        "toy-controller publishes Created: created a",
        "toy-controller publishes Created: created b",
        "toy-controller publishes Created: created z",
        "status all is well",
        "OnceShown",
    ];
    assert_eq!(needs, expect);
}

#[test]
fn a_failure_ends_the_stages_of_its_controller_and_claims_nothing() {
    let needs = drive(|planner| {
        planner.act_as("other-controller", |planner| {
            planner.then(create("bad-other"));
            planner.then(create("other-skipped"));
        });
        planner.push(create("a"));
        planner.push(create("bad"));
        planner.then(create("skipped"));
    });
    let expect = [
        "poll None",
        "other-controller writes bad-other",
        "toy-controller writes a bad",
        "other-controller publishes Failed: cannot create bad-other: no",
        "toy-controller publishes Created: created a",
        "toy-controller publishes Failed: cannot create bad: no",
        "Refused",
    ];
    assert_eq!(needs, expect);
}

#[test]
fn a_failure_of_another_controller_does_not_stop_this_one() {
    let needs = drive(|planner| {
        planner.act_as("other-controller", |planner| planner.then(create("bad")));
        planner.then(create("a"));
        planner.then(create("b"));
    });
    assert!(needs.contains(&"toy-controller writes b".to_owned()), "{needs:?}");
    assert_eq!(needs.last().unwrap(), "Refused");
}

#[test]
fn a_change_of_the_object_ends_the_pass() {
    let needs = drive(|planner| {
        planner.draft = StatusPlan::Compute;
        planner.push(create("a"));
        planner.push(create("late"));
        planner.then(create("skipped"));
        planner.act_as("other-controller", |planner| planner.then(create("other-skipped")));
    });
    let expect = [
        "poll None",
        "toy-controller writes a late",
        "toy-controller publishes Created: created a",
        "At(2026-01-01T00:00:00Z)",
    ];
    assert_eq!(needs, expect, "no status: it would be about the earlier spec");
}

#[test]
fn a_computed_status_shows_what_failed() {
    let needs = drive(|planner| {
        planner.draft = StatusPlan::Compute;
        planner.then(create("bad"));
    });
    assert_eq!(needs[3..], ["status computed after a failure", "Refused"]);
    let needs = drive(|planner| planner.draft = StatusPlan::Keep);
    assert_eq!(needs, ["poll None", "OnChange"]);
}

#[test]
fn a_refusal_of_ray_is_reported_and_does_not_fail_the_pass() {
    let needs = drive(|planner| {
        let endpoint = DashboardEndpoint {
            namespace: "ns".into(),
            address: "host:8265".into(),
            service: "head".into(),
            token_secret: None,
        };
        let request = RayRequest::StopJob { job_id: "id".into() };
        let action = crate::action::Action::Ray { key: key("bad-ray"), endpoint, request };
        planner.finally(Step::new(action, "a test").on_failure("Failed", "cannot stop: "));
    });
    let expect = [
        "poll None",
        "toy-controller writes bad-ray",
        "toy-controller publishes Failed: cannot stop: no",
        "status all is well",
        "OnceShown",
    ];
    assert_eq!(needs, expect);
}

#[test]
fn look_ups_come_before_everything_else() {
    let needs = drive(|planner| {
        planner.event(Event::normal("Seen", "Look", "hello"));
        planner.then(create("a"));
        for name in ["one", "two"] {
            if planner.found(&key(name)).is_none() {
                return planner.look_up(key(name));
            }
        }
    });
    assert_eq!(needs[..3], ["look up one", "look up two", "poll None"]);
    assert!(needs.contains(&"toy-controller writes a".to_owned()));
}

#[test]
fn a_plan_that_never_stops_asking_is_given_up() {
    let needs = drive(|planner| planner.look_up(key("again")));
    assert_eq!(needs, ["look up again", "look up again", "look up again", "look up again", "BackOff"]);
}

#[test]
fn halts_and_failed_status_writes_are_repeated_after_a_back_off() {
    let halted = drive(|planner| planner.halt("not yet"));
    assert_eq!(halted, ["poll None", "status all is well", "BackOff"]);
    assert_eq!(drive_with(|_| {}, StatusWrite::Failed).last().unwrap(), "BackOff");
}

#[test]
fn a_status_that_decisions_depend_on_is_waited_for() {
    let end = |decide: Decide, write: StatusWrite| drive_with(decide, write).pop().unwrap();
    assert_eq!(end(|_| {}, StatusWrite::Done), "OnceShown");
    assert_eq!(end(|_| {}, StatusWrite::Conflict), "OnceShown", "somebody else's status wakes nobody");
    assert_eq!(end(|_| {}, StatusWrite::Unchanged), "OnChange", "no watch shows it");
    let last: Decide = |planner| planner.draft = StatusPlan::Write(LAST);
    assert_eq!(end(last, StatusWrite::Done), "OnChange");
    assert_eq!(end(last, StatusWrite::Conflict), "OnceShown");
}

#[test]
fn the_earliest_wake_up_counts_and_lies_in_the_future() {
    let at = |decide: Decide| drive_with(decide, StatusWrite::Unchanged).pop().unwrap();
    assert_eq!(at(|planner| planner.wake_after(60)), "At(2026-01-01T00:01:00Z)");
    assert_eq!(
        at(|planner| {
            planner.wake_after(60);
            planner.wake_after(30);
        }),
        "At(2026-01-01T00:00:30Z)"
    );
    assert_eq!(at(|planner| planner.wake_at(now())), "At(2026-01-01T00:00:01Z)", "a wake-up in the past would spin");
    assert_eq!(
        at(|planner| {
            planner.wake_after(60);
            planner.then(create("a"));
        }),
        "At(2026-01-01T00:00:02Z)",
        "writes that no watch shows are looked for soon"
    );
}

#[test]
fn a_moment_that_has_not_come_wakes_the_object_then() {
    let config = Config::default();
    let decide: Decide = |planner| {
        assert!(planner.reached_or_wake_at(planner.now));
        assert!(!planner.reached_or_wake_at("2026-01-01T00:00:07Z".parse::<Timestamp>().unwrap()));
        assert!(!planner.reached_or_wake_at(None), "a moment that no clock can show never comes");
    };
    let plan = plan::<Toy>(&decide, &LookUps::new(), now(), &config);
    assert_eq!(plan.wake, Wake::At("2026-01-01T00:00:07Z".parse().unwrap()));
    assert_eq!(plan.halts, Vec::<Halt>::new());
}

#[test]
fn the_failure_of_an_independent_step_stops_nothing() {
    let needs = drive(|planner| {
        planner.push(create("bad").independent());
        planner.then(create("a"));
    });
    let expect = [
        "poll None",
        "toy-controller writes bad",
        "toy-controller writes a",
        "toy-controller publishes Failed: cannot create bad: no",
        "toy-controller publishes Created: created a",
        "status all is well",
        "OnceShown",
    ];
    assert_eq!(needs, expect);
    let needs = drive(|planner| {
        planner.draft = StatusPlan::Keep;
        planner.push(create("bad").independent());
    });
    assert_eq!(needs.last().unwrap(), "At(2026-01-01T00:00:10Z)", "it is tried again");
}
