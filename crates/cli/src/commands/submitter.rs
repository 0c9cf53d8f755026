//! `manta submitter`: submits a job to Ray, prints its log, and exits with its result.
//!
//! A drop-in replacement for KubeRay's light-weight submitter, for use in `submitterPodTemplate`. Address, id and token
//! come from the environment that the operator sets. Unlike KubeRay's, it asks Ray for the final status, so a failed
//! job exits with 1, and it reconnects when the log stream breaks while the job runs.

use crate::job::{EntrypointArgs, Job};
use anyhow::{Context, bail};
use manta_operator::dashboard::jobs::JobError;
use serde_json::{Map, Value};
use std::io::Write;
use std::process::ExitCode;

/// Submit a Ray job, print its log, and exit with its result
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The runtime environment, as JSON
    #[arg(long, value_name = "JSON")]
    runtime_env_json: Option<String>,
    #[command(flatten)]
    job: EntrypointArgs,
    /// The entrypoint
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    entrypoint: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let environment = |name: &str| std::env::var(name).ok();
    let result = runtime.block_on(submit_and_follow(&args, environment, &mut std::io::stdout()));
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            // Two spaces, as KubeRay prints them.
            let _ = writeln!(std::io::stderr(), "ERROR --  {error:#}");
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn submit_and_follow(
    args: &Args,
    environment: impl Fn(&str) -> Option<String>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let required = |name: &str| {
        let value = environment(name).filter(|value| !value.is_empty());
        value.with_context(|| format!("missing {name} in environment variables"))
    };
    let address = required("RAY_DASHBOARD_ADDRESS")?;
    let id = required("RAY_JOB_SUBMISSION_ID")?;
    let token = environment("RAY_AUTH_TOKEN").filter(|token| !token.is_empty());
    let body = body(args, &id)?;
    let job = Job::new(&address, &id, token);
    match job.submit(&body).await {
        Ok(_) => writeln!(out, "SUCC -- Job '{id}' submitted successfully")?,
        Err(JobError::IdTaken(_)) => {
            writeln!(out, "INFO -- Job '{id}' has already been submitted, tailing logs.")?;
        }
        Err(error) => return Err(error.into()),
    }
    writeln!(out, "INFO -- Tailing logs until the job finishes:")?;
    job.follow(out).await?;
    match job.terminal_info().await?.status.as_str() {
        "SUCCEEDED" => writeln!(out, "SUCC -- Job '{id}' succeeded")?,
        status => bail!("Job '{id}' ended with status {status}"),
    }
    Ok(())
}

/// Returns the body of the submission request.
fn body(args: &Args, id: &str) -> anyhow::Result<Value> {
    let text = args.runtime_env_json.as_deref().filter(|text| !text.is_empty());
    let env: Option<Map<String, Value>> =
        text.map(serde_json::from_str).transpose().context("--runtime-env-json is not a JSON object")?;
    args.job.body(&args.entrypoint.join(" "), id, env)
}

#[cfg(test)]
mod tests;
