//! Benchmarks operators side by side, on real control planes with a fake kubelet.
//!
//! Every operator gets a fresh control plane for every scenario and size. The figures come from the kernel's accounting,
//! the audit log and watches, so any operator can be measured. A bare client that creates the same objects is [the
//! floor](floor).

mod apiserver;
mod clusters;
mod contender;
mod floor;
mod jobs;
mod load;
mod machine;
mod measured;
mod objects;
mod percentile;
mod picture;
mod plan;
mod reaction;
mod report;
mod rest;
mod restart;
mod scale;
mod services;
mod starvation;
mod table;
mod trial;

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::operator::{Build, built_operator};
use crate::process::print_line;
use contender::Contender;
use measured::{FLOOR, Measured};
use report::Report;
use trial::Trial;

/// The program to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Operator,
    Apiserver,
}

/// What operators have to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scenario {
    Clusters,
    /// After `clusters`, on the same control plane.
    Rest,
    /// After `clusters`, on the same control plane.
    Restart,
    Scale,
    Reaction,
    Starvation,
    Jobs,
    Services,
    Plan,
}

/// The API server of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Server {
    /// With etcd.
    KubeApiserver,
    /// `manta apiserver`.
    Embedded,
}

/// How our own programs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    Release,
    Sim,
}

impl From<Profile> for Build {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Release => Self::Release,
            Profile::Sim => Self::Sim,
        }
    }
}

impl Scenario {
    /// Returns whether a bare client does comparable work. What RayJobs and RayServices need most are requests to Ray, which it
    /// does not send; and it shares nothing between RayClusters that one could take from another.
    const fn has_floor(self) -> bool {
        !matches!(self, Self::Starvation | Self::Jobs | Self::Services)
    }
}

impl Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

impl Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KubeApiserver => "kube-apiserver and etcd",
            Self::Embedded => "manta apiserver",
        })
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The program to measure
    #[arg(long, env = "WHAT", value_enum, default_value_t = What::Operator)]
    what: What,
    #[command(flatten)]
    settings: Settings,
    /// Draw the pictures of the documentation from a report, instead of measuring
    #[arg(long, env = "FROM", value_name = "FILE")]
    pictures: Option<PathBuf>,
}

/// What is measured, and how.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Settings {
    /// The operators: `ours`, or NAME=COMMAND with `{kubeconfig}` as placeholder; separated by semicolons
    #[arg(long, env = "OPERATORS", value_delimiter = ';', default_value = "ours")]
    operators: Vec<Contender>,
    /// The scenarios [default: all]
    #[arg(long, env = "SCENARIO", value_enum, value_delimiter = ',')]
    scenarios: Vec<Scenario>,
    /// The sizes of every scenario: RayClusters, workers, RayJobs [default: those of docs/performance.md]
    #[arg(long, env = "SIZES", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// How often everything is measured; every second time, and for every second size, in the opposite order
    #[arg(long, env = "ROUNDS", default_value_t = 1)]
    rounds: usize,
    /// How our own programs are built
    #[arg(long, env = "PROFILE", value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// The API server [default: the embedded one where kube-apiserver and etcd take too much of this machine]
    #[arg(long, env = "SERVER", value_enum)]
    server: Option<Server>,
    /// Leaves the bare client out
    #[arg(long, env = "NO_FLOOR")]
    no_floor: bool,
    /// Seconds to measure at rest, while Pods change, and while jobs are polled [default: 120, or 5 when quick]
    #[arg(long, env = "REST_SECONDS")]
    rest_seconds: Option<u64>,
    /// Timeout for whatever is waited for, in seconds
    #[arg(long, env = "LIMIT_SECONDS", default_value_t = 3_600)]
    limit_seconds: u64,
    /// Tiny sizes, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Also write the report without single samples to docs/performance/NAME.json
    #[arg(long, env = "KEEP", value_name = "NAME")]
    keep: Option<String>,
}

impl Settings {
    fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_seconds)
    }

    fn rest(&self) -> Duration {
        Duration::from_secs(self.rest_seconds.unwrap_or(if self.quick { 5 } else { 120 }))
    }

    /// Returns how long an operator sends no requests until it counts as settled.
    fn quiet(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { 3 })
    }

    /// Returns how many of a fixed number of objects to create.
    fn few(&self, many: usize) -> usize {
        if self.quick { many / 10 } else { many }
    }

    fn includes(&self, scenario: Scenario) -> bool {
        if std::env::var_os(services::INSIDE).is_some() {
            return scenario == Scenario::Services;
        }
        self.scenarios.is_empty() || self.scenarios.contains(&scenario)
    }

    fn sizes(&self, scenario: Scenario) -> Vec<usize> {
        if !self.sizes.is_empty() {
            return self.sizes.clone();
        }
        match scenario {
            _ if self.quick => vec![20],
            Scenario::Clusters | Scenario::Rest | Scenario::Restart => vec![100, 1_000, 2_500, 10_000],
            Scenario::Scale => vec![100, 1_000, 5_000],
            Scenario::Starvation | Scenario::Jobs => vec![5_000],
            Scenario::Services => vec![500],
            Scenario::Reaction | Scenario::Plan => vec![1_000],
        }
    }

    /// Returns the server of a trial with this many Pods.
    fn server_for(&self, pods: usize) -> Server {
        let default = if pods > MOST_PODS { Server::Embedded } else { Server::KubeApiserver };
        self.server.unwrap_or(default)
    }
}

/// With more Pods, kube-apiserver and etcd leave a machine of two cores no time for anything else.
const MOST_PODS: usize = 20_000;

/// Measures, prints tables, and writes a report.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(report) = &args.pictures {
        return picture::draw_all(&Report::read(report)?);
    }
    if args.what == What::Apiserver {
        return apiserver::run();
    }
    let settings = &args.settings;
    let first = settings.operators.first().context("no operator is given")?;
    if settings.operators.iter().any(|contender| contender.operator.is_ours()) {
        // Now, because nothing can be downloaded where RayServices are measured.
        built_operator(settings.profile.into())?;
    }
    let mut report = Report::begin(settings)?;
    type Run = fn(&mut Trial<'_>, usize) -> Result<Measured>;
    let scenarios: [(Scenario, Run, usize); 6] = [
        (Scenario::Clusters, clusters::measure, 1 + clusters::WORKERS),
        (Scenario::Scale, scale::measure, 1),
        (Scenario::Reaction, reaction::measure, 1 + clusters::WORKERS),
        (Scenario::Starvation, starvation::measure, 1),
        (Scenario::Jobs, jobs::measure, 1),
        (Scenario::Services, services::measure, 2),
    ];
    let follow_ups: [(Scenario, Run); 2] = [(Scenario::Rest, rest::measure), (Scenario::Restart, restart::measure)];
    for (scenario, run, pods) in scenarios {
        let is_before = scenario == Scenario::Clusters && follow_ups.iter().any(|(next, _)| settings.includes(*next));
        if !settings.includes(scenario) && !is_before {
            continue;
        }
        if scenario == Scenario::Services && std::env::var_os(services::INSIDE).is_none() {
            match services::run_inside() {
                Ok(Some(inside)) => {
                    inside.measured.into_iter().try_for_each(|measured| report.add(measured))?;
                    inside.failed.into_iter().try_for_each(|failure| report.add_failure(failure))?;
                }
                Ok(None) if settings.scenarios.contains(&scenario) => {
                    report.add_failure(format!("{scenario}: {}", services::NEEDS))?;
                }
                Ok(None) => report.add_skipped(format!("{scenario}: {}", services::NEEDS))?,
                Err(error) => report.add_failure(format!("{scenario}: {error:#}"))?,
            }
            continue;
        }
        for (step, size) in settings.sizes(scenario).into_iter().enumerate() {
            for round in 0..settings.rounds {
                let server = settings.server_for(size * pods);
                let has_floor = !settings.no_floor && scenario.has_floor();
                let mut columns: Vec<Option<&Contender>> = settings.operators.iter().map(Some).collect();
                columns.extend(has_floor.then_some(None));
                // The machine gets warmer and its disk fuller, so no column is always the first.
                if !(step + round).is_multiple_of(2) {
                    columns.reverse();
                }
                for contender in columns {
                    let name = contender.map_or(FLOOR, |contender| &contender.name);
                    print_line(&format!("{scenario}, size {size}"));
                    let mut measure = || -> Result<()> {
                        let mut trial = match contender {
                            Some(contender) => Trial::of_operator(settings, contender, server, round)?,
                            None => Trial::of_floor(settings, first, server, round)?,
                        };
                        report.add(run(&mut trial, size)?)?;
                        if scenario == Scenario::Clusters && contender.is_some() {
                            for (_, next) in follow_ups.iter().filter(|(next, _)| settings.includes(*next)) {
                                report.add(next(&mut trial, size)?)?;
                            }
                        }
                        Ok(())
                    };
                    // A wait that expired after hours leaves the rest to measure.
                    if let Err(error) = measure() {
                        report.add_failure(format!("{scenario}, size {size}, {name}: {error:#}"))?;
                    }
                }
            }
        }
    }
    if settings.includes(Scenario::Plan) {
        for size in settings.sizes(Scenario::Plan) {
            match plan::measure(size) {
                Ok(measured) => report.add(measured)?,
                Err(error) => report.add_failure(format!("{}, size {size}: {error:#}", Scenario::Plan))?,
            }
        }
    }
    if report.is_empty() {
        bail!("nothing was measured");
    }
    report.finish()
}
