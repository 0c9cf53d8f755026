//! `manta job submit`: runs a command on a Ray cluster, and exits as it does.

use super::exit_code;
use crate::commands::INTERRUPTED;
use crate::commands::ray::create::FIELD_MANAGER;
use crate::commands::ray::job::{ClusterArgs, from_flags};
use crate::connect::{ConnectionArgs, Target, parse_duration};
use crate::job::{
    Dashboard, EntrypointArgs, Interactive, Interrupted, Job, RuntimeEnv, RuntimeEnvArgs, Started, command_line,
    generate_id,
};
use crate::local::{self, StateArgs};
use crate::output::print_note;
use crate::program_output;
use crate::resource::{Kind, Reference};
use anyhow::Context;
use serde_json::{Map, Value};
use std::process::ExitCode;
use std::time::Duration;

/// How long a finished job's cluster stays, so that its end can be read.
const TTL_SECONDS: u32 = 30;

/// Run a command on a Ray cluster, print its output, and exit with its code
///
/// Uploads the current directory, without what .gitignore and .rayignore name. Without --ray-cluster, makes a cluster
/// for the job and deletes it afterwards. An interrupt stops the job.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Ray cluster to use, instead of a new one
    #[arg(short = 'c', long, value_name = "NAME")]
    ray_cluster: Option<String>,
    /// Name of the RayJob for a new cluster [default: a random one]
    #[arg(long, conflicts_with = "ray_cluster")]
    name: Option<String>,
    #[command(flatten)]
    env: RuntimeEnvArgs,
    #[command(flatten)]
    entrypoint_args: EntrypointArgs,
    /// Id of the job [default: a random one]
    #[arg(long, value_name = "ID")]
    submission_id: Option<String>,
    /// Return when the job is submitted
    #[arg(long)]
    no_wait: bool,
    /// How long a new cluster may take to become ready
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    timeout: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The command
    #[arg(required = true, last = true, value_name = "COMMAND")]
    entrypoint: Vec<String>,
}

pub(super) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let submission = args.submission()?;
    if connection.is_local() {
        let state = StateArgs::from_environment().folder()?;
        if let Some(what) = local::not_downloadable(&state, &args.runtime_env()?.into())? {
            print_note(&format!("warning: {}", local::no_internet(&what)));
        }
    }
    let target = connection.connect().await?;
    let mut started = Started::begin(&submission.id)?;
    match submission.run(&target, &args, &mut started).await {
        Ok(code) => Ok(code),
        Err(error) => {
            started.clean_up(&target, &error).await;
            if error.is::<Interrupted>() { Ok(ExitCode::from(INTERRUPTED)) } else { Err(error) }
        }
    }
}

/// What to submit.
struct Submission {
    id: String,
    entrypoint: String,
    env: RuntimeEnv,
    timeout: Duration,
}

impl Args {
    /// Checks everything that can be checked without a cluster.
    fn submission(&self) -> anyhow::Result<Submission> {
        let id = match &self.submission_id {
            Some(id) => id.clone(),
            None => generate_id()?,
        };
        let env = self.runtime_env()?;
        let entrypoint = command_line(&self.entrypoint);
        self.entrypoint_args.body(&entrypoint, &id, None)?;
        let timeout = parse_duration(&self.timeout)
            .with_context(|| format!("--timeout {} is not a valid duration, for example 10m", self.timeout))?;
        Ok(Submission { id, entrypoint, env: RuntimeEnv::pack(env)?, timeout })
    }

    /// Reads the runtime environment, which always has a working directory.
    fn runtime_env(&self) -> anyhow::Result<Map<String, Value>> {
        let mut env = self.env.read()?;
        env.entry("working_dir").or_insert_with(|| ".".into());
        Ok(env)
    }
}

impl Submission {
    async fn run(&self, target: &Target, args: &Args, started: &mut Started) -> anyhow::Result<ExitCode> {
        let cluster = match &args.ray_cluster {
            Some(name) => Reference { kind: Kind::Cluster, name: name.clone() },
            None => self.make_cluster(target, args, started).await?,
        };
        print_note(&format!("connecting to {cluster}"));
        let reached = started.unless_interrupted(async {
            let dashboard = Dashboard::reach(target, &cluster).await?;
            let env = self.env.upload(&dashboard.address, dashboard.token.clone(), http::HeaderMap::new()).await?;
            Ok((dashboard, env))
        });
        let (dashboard, env) = reached.await?;
        let body = args.entrypoint_args.body(&self.entrypoint, &self.id, Some(env))?;
        let job = Job::new(&dashboard.address, &self.id, dashboard.token.clone());
        started.submit(&job, dashboard, &body).await?;
        print_note(&format!("submitted job {} to {cluster}", self.id));
        if args.no_wait {
            return Ok(ExitCode::SUCCESS);
        }
        let followed = started.unless_interrupted(async {
            job.follow(&mut program_output::stdout()).await?;
            job.terminal_info().await
        });
        let end = followed.await?;
        if end.status != "SUCCEEDED" {
            print_note(&format!("job {} {}: {}", self.id, end.status, manta_logic::explain::one_line(&end.message)));
        }
        Ok(exit_code(&end.status, end.driver_exit_code))
    }

    /// Creates a RayJob, whose cluster is deleted when the job has ended.
    async fn make_cluster(&self, target: &Target, args: &Args, started: &mut Started) -> anyhow::Result<Reference> {
        let name = args.name.clone().unwrap_or_else(|| default_name(&self.id));
        let object = from_flags(&name, &args.cluster.config()?, &self.entrypoint, &self.id, Some(TTL_SECONDS));
        let rayjob = Interactive::apply(target, FIELD_MANAGER, &object, started).await?;
        print_note(&format!("created {} in namespace {}", rayjob.reference, target.namespace));
        let ready = started.unless_interrupted(rayjob.until_ready(target, self.timeout)).await?;
        ready.with_context(|| format!("the Ray cluster was not ready within {:?}", self.timeout))
    }
}

/// Returns a name for the RayJob of a submission.
fn default_name(id: &str) -> String {
    let letters = id.chars().rev().filter(char::is_ascii_alphanumeric).take(8);
    format!("job-{}", letters.collect::<String>().to_lowercase())
}
