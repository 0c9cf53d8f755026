//! End-to-end tests: `manta up` with real Ray, used from outside.
//!
//! Scenarios share one running local mode, each in a namespace of its own, a few at a time. They apply the files of
//! `examples/`. Arguments select scenarios by parts of their names. A scenario that needs something this machine lacks
//! is reported as ignored, with the reason.
#![allow(clippy::print_stdout, reason = "the report of a test without a harness")]

mod accounts;
mod autoscaling;
mod cert_manager;
mod chaos;
mod clusters;
mod commands;
mod explain;
mod fault_tolerance;
mod faults;
mod images;
mod internet;
mod jobs;
mod kills;
mod mounts;
mod page;
mod persistence;
mod redis;
mod reduced;
mod samples;
mod services;
mod terminal;
mod traefik;
mod up;
mod user;

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt};
use manta_testkit::Tally;
use user::{Machine, User};

/// A test in a running local mode.
struct Scenario {
    name: &'static str,
    run: for<'a> fn(&'a User) -> LocalBoxFuture<'a, ()>,
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

/// The longest come first, so that none of them runs alone at the end.
const SCENARIOS: &[Scenario] = scenarios![
    services::an_upgrade_fails_no_request,
    page::an_upgrade_is_watched,
    page::every_action_is_carried_out,
    fault_tolerance::redis_keeps_a_cluster_through_head_loss,
    jobs::a_failing_job_is_retried_and_reports_the_reason,
    explain::the_first_line_names_the_cause,
    autoscaling::v1_adds_and_removes_workers,
    autoscaling::v2_adds_and_removes_workers,
    fault_tolerance::rocksdb_keeps_a_cluster_through_head_loss,
    page::a_failed_job_is_seen_explained_and_remembered,
    page::a_cluster_is_used_from_the_page,
    page::local_mode_serves_one_of_its_own,
    clusters::kubectl_inspects_a_cluster_that_runs_a_job,
    jobs::a_schedule_creates_jobs,
    clusters::a_cluster_survives_head_loss_and_suspension,
    clusters::hosts_of_a_replica_are_replaced_together,
    jobs::an_interactive_job_succeeds,
    jobs::a_job_with_a_submitter_pod_succeeds,
    jobs::a_job_with_a_sidecar_succeeds,
    jobs::output_is_kept_of_jobs_without_a_submitter,
    clusters::token_authentication_is_enforced,
    explain::a_failed_job_is_explained_after_its_end,
    services::a_wrong_import_path_is_reported,
    terminal::a_running_cluster_is_used,
    terminal::a_job_gets_a_cluster_of_its_own,
    internet::a_runtime_env_that_downloads_is_answered_at_once,
    internet::a_job_that_cannot_download_fails_soon,
];

/// Tests that start their own local mode and need no Ray.
const STANDALONE: &[(&str, fn())] = &[
    ("kills::sigkill_leaves_nothing_behind", kills::sigkill_leaves_nothing_behind),
    ("faults::a_port_in_use_is_reported", faults::a_port_in_use_is_reported),
    ("faults::missing_python_is_reported", faults::missing_python_is_reported),
    ("faults::a_full_disk_is_reported", faults::a_full_disk_is_reported),
    ("faults::a_demo_that_cannot_go_on_is_explained", faults::a_demo_that_cannot_go_on_is_explained),
    ("faults::pods_that_cannot_run_report_the_remedy", faults::pods_that_cannot_run_report_the_remedy),
    (
        "commands::status_follows_changes_until_local_mode_stops",
        commands::status_follows_changes_until_local_mode_stops,
    ),
    ("commands::kubectl_applies_after_manta_up", commands::kubectl_applies_after_manta_up),
    ("commands::another_operator_runs_instead", commands::another_operator_runs_instead),
    ("commands::local_mode_holds_little_memory_at_rest", commands::local_mode_holds_little_memory_at_rest),
    ("mounts::pods_see_the_folders_that_are_mounted", mounts::pods_see_the_folders_that_are_mounted),
    ("accounts::other_accounts_reach_no_port_of_a_cluster", accounts::other_accounts_reach_no_port_of_a_cluster),
    (
        "images::environments_are_made_from_requirements_and_projects",
        images::environments_are_made_from_requirements_and_projects,
    ),
    ("images::two_processes_make_an_environment_once", images::two_processes_make_an_environment_once),
    ("images::the_mapping_file_is_read_while_local_mode_runs", images::the_mapping_file_is_read_while_local_mode_runs),
];

/// Tests that start their own local mode and need Ray.
const STANDALONE_WITH_RAY: &[(&str, fn())] = &[
    ("persistence::objects_survive_a_restart", || {
        runtime().block_on(with_timeout(persistence::objects_survive_a_restart()))
    }),
    ("internet::pip_in_a_runtime_env_works", || {
        runtime().block_on(with_timeout(internet::pip_in_a_runtime_env_works()))
    }),
    ("reduced::ray_runs_with_reduced_isolation", reduced::ray_runs_with_reduced_isolation),
    ("reduced::the_demo_runs_with_reduced_isolation", reduced::the_demo_runs_with_reduced_isolation),
];

/// Tests beside programs of other projects, which only `make test-neighbours` builds and runs.
const NEIGHBOURS: &[(&str, fn())] = &[
    ("cert_manager::its_own_manifests_issue_a_certificate", || {
        runtime().block_on(with_timeout(cert_manager::its_own_manifests_issue_a_certificate()))
    }),
    ("redis::an_encrypted_redis_keeps_a_cluster_through_head_loss", || {
        runtime().block_on(with_timeout(redis::an_encrypted_redis_keeps_a_cluster_through_head_loss()))
    }),
    ("traefik::an_incremental_upgrade_follows_its_weights", || {
        // It counts thousands of responses.
        runtime().block_on(within(3 * TIMEOUT, traefik::an_incremental_upgrade_follows_its_weights()))
    }),
];

/// The timeout of one scenario; generous, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The memory that a scenario needs.
const SCENARIO_MEMORY: i64 = 3 << 30;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    if std::env::var_os("MANTA_SAMPLES").is_some() {
        std::process::exit(i32::from(!runtime().block_on(samples::run())));
    }
    if std::env::var_os("MANTA_CHAOS_ROUNDS").is_some() {
        std::process::exit(i32::from(!run_chaos()));
    }
    if std::env::var_os("MANTA_NEIGHBOURS").is_some() {
        std::process::exit(i32::from(!run_neighbours(is_wanted)));
    }
    let mut tally = Tally::default();
    for (name, test) in STANDALONE.iter().filter(|(name, _)| is_wanted(name)) {
        run_standalone(&mut tally, name, *test);
    }
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|s| is_wanted(s.name)).collect();
    let later: Vec<&(&str, fn())> = STANDALONE_WITH_RAY.iter().filter(|(name, _)| is_wanted(name)).collect();
    match user::ray_environment() {
        Err(why) => {
            let names = chosen.iter().map(|s| s.name).chain(later.iter().map(|(name, _)| *name));
            names.for_each(|name| tally.skip(name, &why));
        }
        Ok(()) => {
            if !chosen.is_empty() {
                tally = runtime().block_on(run_concurrently(chosen, tally));
            }
            later.iter().for_each(|(name, test)| run_standalone(&mut tally, name, *test));
        }
    }
    std::process::exit(i32::from(!tally.finish()));
}

/// Runs the chosen tests beside other programs, and returns whether all passed.
fn run_neighbours(is_wanted: impl Fn(&str) -> bool) -> bool {
    let mut tally = Tally::default();
    let environment = user::ray_environment();
    for (name, test) in NEIGHBOURS.iter().filter(|(name, _)| is_wanted(name)) {
        match &environment {
            Ok(()) => run_standalone(&mut tally, name, *test),
            Err(why) => tally.skip(name, why),
        }
    }
    tally.finish()
}

/// Kills what serves, again and again, and returns whether it always came back.
fn run_chaos() -> bool {
    let mut tally = Tally::default();
    let name = "chaos::a_service_is_back_after_every_kill";
    match user::ray_environment() {
        Ok(()) => run_standalone(&mut tally, name, || {
            runtime().block_on(within(12 * TIMEOUT, chaos::a_service_is_back_after_every_kill()));
        }),
        Err(why) => tally.skip(name, &why),
    }
    tally.finish()
}

fn run_standalone(tally: &mut Tally, name: &str, test: fn()) {
    if let Some(why) = user::lacks(name) {
        return tally.skip(name, &why);
    }
    let start = Instant::now();
    let done = std::panic::catch_unwind(test);
    tally.record(name, done.is_ok(), start.elapsed());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio")
}

async fn with_timeout(work: impl Future<Output = ()>) {
    within(TIMEOUT, work).await;
}

async fn within(timeout: Duration, work: impl Future<Output = ()>) {
    if tokio::time::timeout(timeout, work).await.is_err() {
        panic!("timed out after {} s", timeout.as_secs());
    }
}

async fn run_concurrently(chosen: Vec<&'static Scenario>, tally: Tally) -> Tally {
    let machine = Machine::start().await;
    let tally = Mutex::new(tally);
    let at_once = usize::try_from(user::free_memory() / SCENARIO_MEMORY).unwrap_or(1).clamp(1, 3);
    println!("{} scenarios, {at_once} at a time", chosen.len());
    let (machine_ref, tally_ref) = (&machine, &tally);
    futures::stream::iter(chosen)
        .for_each_concurrent(at_once, |scenario| async move {
            if let Some(why) = user::lacks(scenario.name) {
                tally_ref.lock().expect("no panic").skip(scenario.name, &why);
                return;
            }
            let user = machine_ref.user(scenario.name).await;
            let start = Instant::now();
            let done = AssertUnwindSafe(with_timeout((scenario.run)(&user))).catch_unwind().await;
            let took = start.elapsed();
            if done.is_err() {
                println!("{}:\n{}", scenario.name, user.describe().await);
            }
            tally_ref.lock().expect("no panic").record(scenario.name, done.is_ok(), took);
            user.clean_up().await;
        })
        .await;
    tally.into_inner().expect("no panic")
}
