//! `manta job`: submits, lists, follows and stops Ray jobs.

mod list;
mod logs;
mod stop;
mod submit;

use crate::connect::{ConnectionArgs, Target};
use crate::head;
use crate::job::{Dashboard, Job};
use crate::resource::{Kind, Reference};
use anyhow::Context;
use serde_json::Value;
use std::process::ExitCode;

/// Submit, list, follow and stop Ray jobs
#[derive(clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Submit(Box<submit::Args>),
    List(list::Args),
    Logs(logs::Args),
    Stop(stop::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { connection, command } = args;
    super::run_async(async {
        match command {
            Command::Submit(args) => submit::run(&connection, *args).await,
            Command::List(args) => list::run(&connection, args).await,
            Command::Logs(args) => logs::run(&connection, args).await,
            Command::Stop(args) => stop::run(&connection, args).await,
        }
    })
}

/// Names a job: a RayJob, or a job of a Ray cluster.
#[derive(clap::Args, Clone, Debug)]
struct JobName {
    /// Name of a RayJob, or with --ray-cluster the id of a job
    #[arg(value_name = "NAME")]
    name: String,
    /// Ray cluster that runs the job
    #[arg(short = 'c', long, value_name = "NAME")]
    ray_cluster: Option<String>,
}

impl JobName {
    /// Returns the job, reached through its cluster, which the dashboard keeps open.
    async fn reach(&self, target: &Target) -> anyhow::Result<(Dashboard, Job)> {
        let (reference, id) = match &self.ray_cluster {
            Some(cluster) => (Reference { kind: Kind::Cluster, name: cluster.clone() }, self.name.clone()),
            None => {
                let name = self.name.rsplit('/').next().unwrap_or_default().to_owned();
                let reference = Reference { kind: Kind::Job, name };
                let object = target.get_ray(&reference).await?;
                head::cluster_of(&reference, &object.data)?;
                (reference, job_id(&object.data).with_context(|| format!("{} has not been submitted yet", self.name))?)
            }
        };
        let dashboard = Dashboard::reach(target, &reference).await?;
        let job = Job::new(&dashboard.address, &id, dashboard.token.clone());
        Ok((dashboard, job))
    }
}

fn job_id(rayjob: &Value) -> Option<String> {
    rayjob["status"]["jobId"].as_str().filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Returns the exit code of a command for a job that ended like this.
fn exit_code(status: &str, driver: Option<i32>) -> ExitCode {
    match (status, driver) {
        ("SUCCEEDED", _) => ExitCode::SUCCESS,
        // A driver that was killed by a signal has a negative code, as shells' are 128 and more.
        (_, Some(code @ ..=-1)) => ExitCode::from(u8::try_from(128_i32.saturating_sub(code)).unwrap_or(1)),
        (_, Some(code @ 1..)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_jobs() {
        let check = |status: &str, driver: Option<i32>, expect: u8| {
            assert_eq!(exit_code(status, driver), ExitCode::from(expect), "{status} {driver:?}");
        };
        check("SUCCEEDED", Some(0), 0);
        check("FAILED", Some(3), 3);
        check("FAILED", Some(-9), 137);
        check("FAILED", Some(0), 1);
        check("FAILED", Some(1000), 1);
        check("FAILED", None, 1);
        check("STOPPED", None, 1);
    }
}
