//! `kubectl ray job submit`: makes a Ray cluster for a job, submits it and follows it.
//!
//! Everything goes through the API server and Ray's REST API; the `ray` command is not needed.

mod manifest;

pub(in crate::commands) use manifest::from_flags;

use super::create::{ClusterConfig, FIELD_MANAGER, Group, Head, key_values};
use crate::connect::{ConnectionArgs, Target, parse_duration};
use crate::job::{
    self, Dashboard, EntrypointArgs, Interactive, Job, RuntimeEnv, RuntimeEnvArgs, Started, command_line, generate_id,
};
use crate::output::{print_line, to_yaml, write_stdout};
use crate::program_output;
use crate::wait::{self, Waited};
use anyhow::{Context, bail, ensure};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long the operator may take to record the end of a job.
const RECORD_TIMEOUT: Duration = Duration::from_secs(300);

/// Submit jobs
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Submit(Box<SubmitArgs>),
}

/// Submit a job to a Ray cluster that is made for it, and follow it until it ends
#[derive(clap::Args)]
struct SubmitArgs {
    /// RayJob in InteractiveMode to create
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// Name of the RayJob to make from the flags
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    env: RuntimeEnvArgs,
    #[command(flatten)]
    entrypoint_args: EntrypointArgs,
    /// Submission id [default: a new one]
    #[arg(long, value_name = "ID")]
    submission_id: Option<String>,
    /// Address of the dashboard [default: reached through the API server]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Headers of requests to the dashboard, as JSON
    #[arg(long, value_name = "JSON")]
    headers: Option<String>,
    /// For compatibility; the dashboard is not reached by TLS
    #[arg(long, value_name = "VALUE", hide = true)]
    verify: Option<String>,
    /// For compatibility; the log is printed as it comes
    #[arg(long, value_name = "STYLE", hide = true)]
    log_style: Option<String>,
    /// For compatibility; the log is printed as it comes
    #[arg(long, value_name = "COLOR", hide = true)]
    log_color: Option<String>,
    /// Return when the job is submitted
    #[arg(long)]
    no_wait: bool,
    /// Print the RayJob instead of creating it
    #[arg(long)]
    dry_run: bool,
    /// Print what is sent to Ray
    #[arg(short, long)]
    verbose: bool,
    /// How long the Ray cluster may take to become ready
    #[arg(long, value_name = "DURATION", default_value = "120s")]
    timeout: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Seconds after which the finished RayJob and its cluster are deleted
    #[arg(long, value_name = "SECONDS")]
    ttl_seconds_after_finished: Option<u32>,
    /// The entrypoint
    #[arg(required = true, last = true, value_name = "ENTRYPOINT")]
    entrypoint: Vec<String>,
}

/// The flags for the Ray cluster of a job.
#[derive(clap::Args, Clone, Debug, Default)]
pub(in crate::commands) struct ClusterArgs {
    /// Version of Ray [default: 2.52.0]
    #[arg(long, value_name = "VERSION")]
    ray_version: Option<String>,
    /// Image [default: rayproject/ray with the version]
    #[arg(long)]
    image: Option<String>,
    /// CPUs of the head
    #[arg(long, value_name = "QUANTITY", default_value = "2")]
    head_cpu: String,
    /// Memory of the head
    #[arg(long, value_name = "QUANTITY", default_value = "4Gi")]
    head_memory: String,
    /// GPUs of the head
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    head_gpu: String,
    /// Workers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    worker_replicas: i32,
    /// CPUs of each worker
    #[arg(long, value_name = "QUANTITY", default_value = "2")]
    worker_cpu: String,
    /// Memory of each worker
    #[arg(long, value_name = "QUANTITY", default_value = "4Gi")]
    worker_memory: String,
    /// GPUs of each worker
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    worker_gpu: String,
    /// Node selectors of the head, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    head_node_selectors: Vec<String>,
    /// Node selectors of the workers, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    worker_node_selectors: Vec<String>,
}

impl ClusterArgs {
    /// Returns the complete description of the cluster.
    pub(in crate::commands) fn config(&self) -> anyhow::Result<ClusterConfig> {
        let config = ClusterConfig {
            ray_version: self.ray_version.clone(),
            image: self.image.clone(),
            head: Head {
                cpu: Some(self.head_cpu.clone()),
                memory: Some(self.head_memory.clone()),
                gpu: Some(self.head_gpu.clone()),
                node_selectors: key_values("--head-node-selectors", &self.head_node_selectors)?,
                ..Head::default()
            },
            worker_groups: Some(vec![Group {
                replicas: self.worker_replicas,
                cpu: Some(self.worker_cpu.clone()),
                memory: Some(self.worker_memory.clone()),
                gpu: Some(self.worker_gpu.clone()),
                node_selectors: key_values("--worker-node-selectors", &self.worker_node_selectors)?,
                ..Group::default()
            }]),
            ..ClusterConfig::default()
        };
        config.validate()?;
        Ok(config.with_defaults())
    }
}

pub(crate) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let What::Submit(args) = args.what;
    let (request, plan) = args.plan()?;
    if args.dry_run {
        let yaml = to_yaml(&plan.object)?;
        write_stdout(|out| out.write_all(yaml.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let env = RuntimeEnv::pack(request.env.clone())?;
    let mut target = connection.connect().await?;
    if let (None, Some(namespace)) = (connection.given_namespace(), plan.object["metadata"]["namespace"].as_str()) {
        namespace.clone_into(&mut target.namespace);
    }
    let mut started = Started::begin(&request.id)?;
    if args.submission_id.is_none() {
        print_line(&format!("Generated submission ID for Ray job: {}", request.id));
    }
    let outcome = request.run(&target, plan, &env, &mut started).await;
    if let Err(error) = &outcome {
        started.clean_up(&target, error).await;
    }
    outcome
}

/// A RayJob to create.
struct Plan {
    object: Value,
    is_from_file: bool,
}

/// A job to submit.
struct Request {
    id: String,
    entrypoint: String,
    entrypoint_args: EntrypointArgs,
    env: Map<String, Value>,
    address: Option<String>,
    headers: HeaderMap,
    timeout: Duration,
    no_wait: bool,
    verbose: bool,
}

impl SubmitArgs {
    /// Checks everything that can be checked without a cluster.
    fn plan(&self) -> anyhow::Result<(Request, Plan)> {
        let id = match &self.submission_id {
            Some(id) => id.clone(),
            None => generate_id()?,
        };
        let mut env = self.env.read()?;
        let entrypoint = command_line(&self.entrypoint);
        let plan = match (&self.filename, &self.name) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
                let object = manifest::from_file(&text, &id).with_context(|| file.display().to_string())?;
                // The flags add to what the file says, and win.
                let flags = std::mem::replace(&mut env, manifest::runtime_env(&object)?);
                env.extend(flags);
                Plan { object, is_from_file: true }
            }
            (None, Some(name)) => {
                let ttl = self.ttl_seconds_after_finished;
                let object = manifest::from_flags(name, &self.cluster.config()?, &entrypoint, &id, ttl);
                Plan { object, is_from_file: false }
            }
            (None, None) => bail!("Must set either yaml file (--filename) or set Ray job name (--name)"),
        };
        let has_folder = env.get("working_dir").and_then(Value::as_str).is_some_and(|folder| !folder.is_empty());
        ensure!(has_folder, "working directory is required, use --working-dir or set with runtime env");
        let timeout = parse_duration(&self.timeout)
            .with_context(|| format!("--timeout {} is not a valid duration, for example 120s", self.timeout))?;
        let request = Request {
            id,
            entrypoint,
            entrypoint_args: self.entrypoint_args.clone(),
            env,
            address: self.address.clone(),
            headers: headers(self.headers.as_deref())?,
            timeout,
            no_wait: self.no_wait,
            verbose: self.verbose,
        };
        // A mistake in a flag is found before anything is created.
        request.entrypoint_args.body(&request.entrypoint, &request.id, None)?;
        Ok((request, plan))
    }
}

/// Parses headers from a JSON object.
fn headers(text: Option<&str>) -> anyhow::Result<HeaderMap> {
    let Some(text) = text else { return Ok(HeaderMap::new()) };
    let pairs: std::collections::BTreeMap<String, String> =
        serde_json::from_str(text).context("--headers is not a JSON object of texts")?;
    let header = |(name, value): (String, String)| {
        let name: HeaderName = name.parse().with_context(|| format!("--headers: {name} is not a valid header"))?;
        let value: HeaderValue = value.parse().with_context(|| format!("--headers: the value of {name} is not UTF-8"))?;
        Ok((name, value))
    };
    pairs.into_iter().map(header).collect()
}

impl Request {
    /// Creates the RayJob, waits for its cluster, submits the job and follows it.
    async fn run(
        &self,
        target: &Target,
        plan: Plan,
        env: &RuntimeEnv,
        started: &mut Started,
    ) -> anyhow::Result<ExitCode> {
        let rayjob = match plan.is_from_file {
            true => Interactive::create(target, plan.object, started).await?,
            false => Interactive::apply(target, FIELD_MANAGER, &plan.object, started).await?,
        };
        print_line(&format!("Submitted RayJob {}.", rayjob.reference.name));
        let reached = started.unless_interrupted(async {
            rayjob.until_ready(target, self.timeout).await?.context("Timed out waiting for cluster")?;
            let reached = match &self.address {
                Some(address) => Dashboard::at(address, std::env::var("RAY_AUTH_TOKEN").ok())?,
                None => Dashboard::reach(target, &rayjob.reference).await?,
            };
            let env = env.upload(&reached.address, reached.token.clone(), self.headers.clone()).await?;
            Ok((reached, env))
        });
        let (reached, env) = reached.await?;
        let job = Job::new(&reached.address, &self.id, reached.token.clone()).with_headers(self.headers.clone());
        let body = self.entrypoint_args.body(&self.entrypoint, &self.id, Some(env))?;
        if self.verbose {
            print_line(&format!("Submitting to http://{}: {body}", reached.address));
        }
        started.submit(&job, reached, &body).await?;
        print_line(&format!("Job '{}' submitted successfully", self.id));
        if self.no_wait {
            return Ok(ExitCode::SUCCESS);
        }
        let followed = started.unless_interrupted(async {
            job.follow(&mut program_output::stdout()).await?;
            self.until_finished(target, &rayjob).await
        });
        followed.await
    }

    /// Waits until the operator has recorded the end of the job.
    async fn until_finished(&self, target: &Target, rayjob: &Interactive) -> anyhow::Result<ExitCode> {
        let mut shown = String::new();
        let ended = wait::until(target, &rayjob.reference, Some(RECORD_TIMEOUT), |object| {
            let status = &object.data["status"];
            let state = status["jobStatus"].as_str().unwrap_or_default();
            if state != shown {
                let name = &rayjob.reference.name;
                print_line(&format!("Current status: {state} (RayJob: {name}, JobID: {})", self.id));
                state.clone_into(&mut shown);
            }
            let message = status["message"].as_str().unwrap_or_default().to_owned();
            Ok(job::is_terminal(state).then(|| (state.to_owned(), message)))
        });
        match ended.await? {
            Waited::Done((state, message)) if state == "FAILED" => bail!("job {} failed: {message}", self.id),
            Waited::Done((state, _)) => print_line(&format!("Job {} finished with status {state}.", self.id)),
            Waited::TimedOut => bail!(
                "job {} has ended, but the operator has not recorded it within {} s; is it running?",
                self.id,
                RECORD_TIMEOUT.as_secs()
            ),
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests;
