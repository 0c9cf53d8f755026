//! End to end: `manta up` with real Ray, from the outside.
//!
//! Every scenario talks to one running local mode as a user would; they run one after the other, because the machine is
//! one. Arguments choose scenarios by parts of their names. Without a Ray environment and without a way to make one,
//! the scenarios that need it say so and pass.
#![allow(clippy::print_stdout, reason = "the report of a test without a harness")]

mod clusters;
mod jobs;
mod kills;
mod samples;
mod services;
mod user;

use std::time::{Duration, Instant};

use user::User;

type Scenario = (&'static str, for<'a> fn(&'a User) -> futures::future::BoxFuture<'a, ()>);

/// Lists scenarios with their names.
macro_rules! scenarios {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), |user| Box::pin($module::$name(user)))),*]
    };
}

const SCENARIOS: &[Scenario] = scenarios![
    clusters::a_cluster_becomes_ready_and_can_be_looked_into,
    clusters::a_lost_head_comes_back,
    clusters::a_cluster_is_suspended_and_resumed,
    jobs::a_job_by_http_succeeds,
    jobs::a_job_by_a_submitter_pod_succeeds,
    jobs::a_job_that_fails_says_so,
    services::a_service_answers_through_its_service,
    clusters::the_autoscaler_brings_workers,
];

/// No scenario may hang, and a busy machine may be slow.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let mut failed = 0;
    for (name, test) in kills::ALL {
        if is_wanted(name) {
            failed += report(name, test);
        }
    }
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|(name, _)| is_wanted(name)).collect();
    if !chosen.is_empty() {
        failed += with_ray(&chosen);
    }
    std::process::exit(i32::from(failed > 0));
}

fn with_ray(chosen: &[&Scenario]) -> usize {
    if let Err(why) = user::ray_environment() {
        chosen.iter().for_each(|(name, _)| println!("test {name} ... skipped: {why}"));
        return 0;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
    let user = runtime.block_on(User::start());
    if std::env::var_os("MANTA_SAMPLES").is_some() {
        return usize::from(!runtime.block_on(samples::run(&user)));
    }
    let mut failed = 0;
    for (name, scenario) in chosen {
        failed += report(name, || {
            let limited = runtime.block_on(async { tokio::time::timeout(PATIENCE, scenario(&user)).await });
            if limited.is_err() {
                println!("{}", runtime.block_on(user.describe()));
                panic!("not done after {} s", PATIENCE.as_secs());
            }
        });
        runtime.block_on(user.clean());
    }
    failed
}

fn report(name: &str, test: impl FnOnce()) -> usize {
    let began = Instant::now();
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
    let word = if done.is_ok() { "ok" } else { "FAILED" };
    println!("test {name} ... {word} ({:.1} s)", began.elapsed().as_secs_f64());
    usize::from(done.is_err())
}
