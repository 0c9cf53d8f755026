//! Benchmarks an operator on a real control plane with a fake kubelet.
//!
//! It creates many RayClusters of one head and three workers, waits until all are ready, measures a minute at rest and
//! a restart. The figures come from the kernel's accounting and the audit log, so any operator can be measured.

mod apiserver;
mod clusters;
mod silent_jobs;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use manta_testkit::audit::{Request, tally};
use manta_testkit::{ControlPlane, Kubelet, Options, User};

use crate::operator::{Build, Operator, OperatorArgs, Rights, is_work};
use crate::process::{block_on, print_line};
use crate::usage::Usage;

/// The program to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Operator,
    Apiserver,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The program to measure
    #[arg(long, env = "WHAT", value_enum, default_value_t = What::Operator)]
    what: What,
    #[command(flatten)]
    operator: OperatorArgs,
    /// Number of RayClusters
    #[arg(long, env = "CLUSTERS", default_value_t = 1000)]
    clusters: usize,
    /// Seconds to measure at rest
    #[arg(long, env = "REST_SECONDS", default_value_t = 60)]
    rest_seconds: u64,
    /// Timeout for all RayClusters to become ready, in seconds
    #[arg(long, env = "LIMIT_SECONDS", default_value_t = 1800)]
    limit_seconds: u64,
    /// Measure instead how this many RayJobs with unresponsive dashboards slow down other objects
    #[arg(long, env = "SILENT_JOBS", default_value_t = 0)]
    silent_jobs: usize,
}

/// Runs the benchmark and prints a table.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.what == What::Apiserver {
        return apiserver::run();
    }
    if args.silent_jobs > 0 {
        return silent_jobs::run(args);
    }
    let plane = ControlPlane::start_with(Options { audit: true, ..Options::default() })?;
    let command = args.operator.prepare(&plane, Build::Release, Rights::All, "")?;
    block_on(plane.install_ray_crds())?;
    print_line(&format!("operator: {}", crate::process::display(&command)));

    let mut operator = Operator::start(&plane, &command, "rayclusters")?;
    operator.wait_quiet(Duration::from_secs(3), Duration::from_secs(60))?;
    let idle = Usage::of(operator.process.pid())?;

    print_line(&format!("creating {} RayClusters", args.clusters));
    let start = Instant::now();
    let created = block_on(async {
        let _kubelet = Kubelet::start(plane.client_for(User::Kubelet).await?, None);
        clusters::create_until_ready(&plane.client().await?, 0..args.clusters, Duration::from_secs(args.limit_seconds))
            .await
    });
    let wall = start.elapsed();
    operator.process.check()?;
    let created_in = created?;
    operator.wait_quiet(Duration::from_secs(5), Duration::from_secs(300))?;
    let busy = Usage::of(operator.process.pid())?;
    let writes_at_start: Vec<Request> = operator.read()?.iter().filter(is_write).cloned().collect();
    let before_rest = operator.requests.len();

    print_line(&format!("resting {} s", args.rest_seconds));
    std::thread::sleep(Duration::from_secs(args.rest_seconds));
    let rest = Usage::of(operator.process.pid())?;
    let at_rest = tally(operator.read()?[before_rest..].iter().filter(|request| is_work(request)));

    print_line("restarting the operator");
    let status = operator.process.terminate(Duration::from_secs(30))?;
    if !status.success() {
        print_line(&format!("the operator exited with {status} after SIGTERM"));
    }
    let again = restart(&plane, &command)?;

    let per_cluster = |count: usize| format!("{:.2}", count as f64 / args.clusters as f64);
    let mut rows = vec![
        ("clusters", args.clusters.to_string()),
        ("all created after", format!("{:.1} s", created_in.as_secs_f64())),
        ("all ready after", format!("{:.1} s", wall.as_secs_f64())),
        ("operator CPU until then", format!("{:.2} s", busy.cpu_seconds - idle.cpu_seconds)),
        ("memory idle", megabytes(idle.rss_bytes)),
        ("memory peak", megabytes(rest.peak_bytes)),
        ("memory at rest", megabytes(rest.rss_bytes)),
        ("CPU at rest", format!("{:.2} s in {} s", rest.cpu_seconds - busy.cpu_seconds, args.rest_seconds)),
        ("requests at rest", list(&at_rest)),
        ("restart until at rest", format!("{:.2} s", again.seconds)),
        ("CPU of the restart", format!("{:.2} s", again.cpu_seconds)),
        ("memory after the restart", megabytes(again.rss_bytes)),
        ("writes of the restart", list(&again.writes)),
        ("writes per cluster", per_cluster(writes_at_start.len())),
    ];
    let by_kind = tally(&writes_at_start);
    rows.extend(by_kind.iter().map(|(kind, count)| (kind.as_str(), per_cluster(*count))));
    let refused = tally(writes_at_start.iter().filter(|request| !request.succeeded()));
    rows.push(("writes refused", list(&refused)));
    print_line("\n| what | measured |\n| --- | --- |");
    rows.iter().for_each(|(what, value)| print_line(&format!("| {what} | {value} |")));
    Ok(())
}

fn is_write(request: &&Request) -> bool {
    request.is_write() && is_work(request)
}

struct Restart {
    seconds: f64,
    cpu_seconds: f64,
    rss_bytes: u64,
    writes: BTreeMap<String, usize>,
}

/// Starts a new process and measures until it becomes idle; the two idle seconds themselves are not counted.
fn restart(plane: &ControlPlane, command: &std::process::Command) -> Result<Restart> {
    const QUIET: Duration = Duration::from_secs(2);
    let start = Instant::now();
    let mut operator = Operator::start(plane, command, "rayclusters")?;
    let (mut last, mut last_active) = (Usage::of(operator.process.pid())?, Instant::now());
    while last_active.elapsed() < QUIET {
        std::thread::sleep(Duration::from_millis(20));
        let now = Usage::of(operator.process.pid()).context("the operator exited")?;
        // One clock tick is background noise, such as timers or a keep-alive.
        if now.cpu_seconds - last.cpu_seconds > 0.015 {
            (last, last_active) = (now, Instant::now());
        }
        if start.elapsed() > Duration::from_secs(120) {
            bail!("the operator was not at rest 120 s after its restart");
        }
    }
    let end = Usage::of(operator.process.pid())?;
    let writes = tally(operator.read()?.iter().filter(is_write));
    let seconds = (last_active - start).as_secs_f64();
    Ok(Restart { seconds, cpu_seconds: end.cpu_seconds, rss_bytes: end.rss_bytes, writes })
}

fn list(counts: &BTreeMap<String, usize>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
