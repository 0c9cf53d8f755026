//! End to end: `manta up` with real Ray, from the outside.
//!
//! Scenarios talk to one running local mode as users would, each in a namespace of its own, a few side by side. They
//! apply the files of `examples/`. Arguments choose scenarios by parts of their names. What needs something that this
//! machine lacks says so and is counted as ignored.
#![allow(clippy::print_stdout, reason = "the report of a test without a harness")]

mod autoscaling;
mod clusters;
mod fault_tolerance;
mod faults;
mod jobs;
mod kills;
mod persistence;
mod reduced;
mod samples;
mod services;
mod up;
mod user;

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use manta_testkit::Tally;
use user::{Machine, User};

/// Something that happens in a running local mode.
struct Scenario {
    name: &'static str,
    run: for<'a> fn(&'a User) -> BoxFuture<'a, ()>,
}

/// Lists scenarios with their names.
macro_rules! scenarios {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$(Scenario {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: |user| Box::pin($module::$name(user)),
        }),*]
    };
}

/// The longest first, so that none of them is left alone at the end.
const SCENARIOS: &[Scenario] = scenarios![
    services::a_service_changes_without_a_failed_request,
    fault_tolerance::a_cluster_outlives_its_head_by_redis,
    jobs::a_failing_job_is_tried_again_and_says_why,
    autoscaling::version_1_brings_workers_and_removes_them,
    autoscaling::version_2_brings_workers_and_removes_them,
    fault_tolerance::a_cluster_outlives_its_head_by_rocksdb,
    clusters::kubectl_looks_into_a_cluster_and_a_job_runs_on_it,
    jobs::a_schedule_brings_jobs,
    clusters::a_cluster_survives_a_lost_head_and_a_pause,
    clusters::hosts_of_a_replica_are_replaced_together,
    jobs::a_job_by_hand_succeeds,
    jobs::a_job_by_a_submitter_pod_succeeds,
    jobs::a_job_by_a_sidecar_succeeds,
    clusters::a_closed_cluster_wants_its_token,
];

/// Tests that start local modes of their own, and need no Ray.
const ALONE: &[(&str, fn())] = &[
    ("kills::nothing_is_left_after_a_kill", kills::nothing_is_left_after_a_kill),
    ("faults::a_taken_port_is_named", faults::a_taken_port_is_named),
    ("faults::a_machine_without_python_says_so", faults::a_machine_without_python_says_so),
    ("faults::a_full_disk_is_named", faults::a_full_disk_is_named),
    ("faults::pods_that_cannot_run_say_what_to_do", faults::pods_that_cannot_run_say_what_to_do),
];

/// The same with Ray.
const AFTERWARDS: &[(&str, fn())] = &[
    ("persistence::what_was_there_is_there_again", || {
        runtime().block_on(patiently(persistence::what_was_there_is_there_again()))
    }),
    ("reduced::ray_runs_without_namespaces_and_says_so", reduced::ray_runs_without_namespaces_and_says_so),
];

/// No scenario may hang, and a busy machine may be slow.
const PATIENCE: Duration = Duration::from_secs(600);
/// What a scenario takes of the machine.
const MEMORY_EACH: i64 = 3 << 30;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    if std::env::var_os("MANTA_SAMPLES").is_some() {
        std::process::exit(i32::from(!runtime().block_on(samples::run())));
    }
    let mut tally = Tally::default();
    for (name, test) in ALONE.iter().filter(|(name, _)| is_wanted(name)) {
        alone(&mut tally, name, *test);
    }
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|s| is_wanted(s.name)).collect();
    let later: Vec<&(&str, fn())> = AFTERWARDS.iter().filter(|(name, _)| is_wanted(name)).collect();
    match user::ray_environment() {
        Err(why) => {
            let names = chosen.iter().map(|s| s.name).chain(later.iter().map(|(name, _)| *name));
            names.for_each(|name| tally.skip(name, &why));
        }
        Ok(()) => {
            if !chosen.is_empty() {
                tally = runtime().block_on(side_by_side(chosen, tally));
            }
            later.iter().for_each(|(name, test)| alone(&mut tally, name, *test));
        }
    }
    std::process::exit(i32::from(!tally.finish()));
}

fn alone(tally: &mut Tally, name: &str, test: fn()) {
    if let Some(why) = user::lacks(name) {
        return tally.skip(name, &why);
    }
    let began = Instant::now();
    let done = std::panic::catch_unwind(test);
    tally.record(name, done.is_ok(), began.elapsed());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio")
}

async fn patiently(work: impl Future<Output = ()>) {
    if tokio::time::timeout(PATIENCE, work).await.is_err() {
        panic!("not done after {} s", PATIENCE.as_secs());
    }
}

async fn side_by_side(chosen: Vec<&'static Scenario>, tally: Tally) -> Tally {
    let machine = Machine::start().await;
    let tally = Mutex::new(tally);
    let at_once = usize::try_from(user::free_memory() / MEMORY_EACH).unwrap_or(1).clamp(1, 3);
    println!("{} scenarios, {at_once} at a time", chosen.len());
    let (machine_ref, tally_ref) = (&machine, &tally);
    futures::stream::iter(chosen)
        .for_each_concurrent(at_once, |scenario| async move {
            if let Some(why) = user::lacks(scenario.name) {
                tally_ref.lock().expect("no panic").skip(scenario.name, &why);
                return;
            }
            let user = machine_ref.user(scenario.name).await;
            let began = Instant::now();
            let done = AssertUnwindSafe(patiently((scenario.run)(&user))).catch_unwind().await;
            let took = began.elapsed();
            if done.is_err() {
                println!("{}:\n{}", scenario.name, user.describe().await);
            }
            tally_ref.lock().expect("no panic").record(scenario.name, done.is_ok(), took);
            user.leave().await;
        })
        .await;
    tally.into_inner().expect("no panic")
}
