//! The tasks behind the Makefile: `make help` lists them.

mod apt;
mod bench;
mod cargo_test;
mod chart;
mod check;
mod conformance;
mod coverage;
mod debian_package;
mod disk_space;
mod instructions;
mod neighbours;
mod operator;
mod parity;
mod process;
mod release;
mod soak;
mod takeover;
mod test;
mod usage;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use manta_testkit::ControlPlane;

use process::print_line;

/// The project's tasks.
#[derive(Debug, Parser)]
#[command(name = "xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Checks formatting, clippy and dependencies.
    Check,
    /// Checks dependencies: bans, licences, sources, advisories.
    Deny,
    /// Builds and downloads the tools that the tests use.
    Prepare,
    /// Runs everything that CI runs.
    Test,
    /// Runs the operator beside programs of other projects.
    TestNeighbours(neighbours::Args),
    /// Runs Kubernetes' conformance suite against local mode.
    Conformance(conformance::Args),
    /// Replays the recorded cases against an operator and compares the results.
    Parity(parity::Args),
    /// Loads objects that KubeRay created, starts an operator, and counts its pod writes.
    Takeover(takeover::Args),
    /// Measures operators side by side.
    Bench(bench::Args),
    /// Counts the instructions of a pass, and compares them with those in the repository.
    Instructions,
    /// Creates and deletes many pods in local mode, and checks that its memory stays the same.
    Soak(soak::Args),
    /// Measures which lines of `logic` the simulation reaches.
    Coverage(coverage::Args),
    /// Writes the release archive, its SBOM, the packaged charts and their checksums.
    Dist(release::Args),
    /// Writes the container image as an OCI archive, and runs it in a bare root file system.
    Image(release::Args),
    /// Runs a control plane until interrupted, and prints how to reach it.
    ControlPlane,
}

fn main() -> ExitCode {
    let outcome = if coverage::is_wrapper() { coverage::wrap_rustc() } else { run(Cli::parse().task).map(exit_code) };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            print_line(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn exit_code(succeeded: bool) -> ExitCode {
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a task and returns whether it succeeded.
fn run(task: Task) -> Result<bool> {
    match task {
        Task::Check => Ok(process::all_passed(&check::run())),
        Task::Deny => Ok(process::all_passed(&check::deny())),
        Task::Prepare => Ok(process::all_passed(&test::prepare())),
        Task::Test => test::run(),
        Task::TestNeighbours(args) => neighbours::run(&args),
        Task::Conformance(args) => conformance::run(&args),
        Task::Parity(args) => parity::run(&args).map(|outcome| outcome.failed == 0),
        Task::Takeover(args) => takeover::run(&args).map(|outcome| outcome.failed == 0),
        Task::Bench(args) => bench::run(&args).map(|()| true),
        Task::Instructions => Ok(process::all_passed(&[process::step("instructions of a pass", instructions::check)])),
        Task::Soak(args) => soak::run(&args),
        Task::Coverage(args) => coverage::run(&args),
        Task::Dist(args) => release::dist(&args).map(|()| true),
        Task::Image(args) => release::image(&args).map(|()| true),
        Task::ControlPlane => serve_control_plane().map(|()| true),
    }
}

fn serve_control_plane() -> Result<()> {
    let plane = ControlPlane::start()?;
    process::block_on(async {
        plane.install_ray_crds().await?;
        print_line(&format!("export KUBECONFIG={}", plane.kubeconfig_path().display()));
        print_line(&format!("export {}={}", manta_testkit::SHARED_VARIABLE, plane.folder().display()));
        print_line("press Ctrl-C to stop it");
        tokio::signal::ctrl_c().await?;
        Ok(())
    })
}
