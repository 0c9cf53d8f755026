//! `manta submitter`: submits a job to Ray, prints its log, and exits with its result.
//!
//! A drop-in replacement for KubeRay's light-weight submitter, for use in `submitterPodTemplate`. Address, id and token
//! come from the environment that the operator sets. Unlike KubeRay's, it asks Ray for the final status, so a failed
//! job exits with 1, and it reconnects when the log stream breaks while the job runs.

use anyhow::{Context, bail};
use futures::StreamExt;
use manta_logic::dashboard::DashboardEndpoint;
use manta_operator::dashboard::jobs::{self, JobError};
use manta_operator::dashboard::Client;
use serde_json::{Map, Value};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a broken log stream is reopened.
const MAX_RECONNECTS: u32 = 5;
/// How often to ask, once a second, for the final status of a job whose log has ended.
const STATUS_ATTEMPTS: u32 = 30;

/// Submit a Ray job, print its log, and exit with its result
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The runtime environment, as JSON
    #[arg(long, value_name = "JSON")]
    runtime_env_json: Option<String>,
    /// Metadata of the job, as JSON
    #[arg(long, value_name = "JSON")]
    metadata_json: Option<String>,
    /// Custom resources of the entrypoint, as JSON
    #[arg(long, value_name = "JSON")]
    entrypoint_resources: Option<String>,
    /// CPUs of the entrypoint
    #[arg(long, default_value_t = 0.0, value_name = "NUMBER")]
    entrypoint_num_cpus: f32,
    /// GPUs of the entrypoint
    #[arg(long, default_value_t = 0.0, value_name = "NUMBER")]
    entrypoint_num_gpus: f32,
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
    let job = Job::new(&address, &id, token.clone());
    match jobs::submit(&job.client, &job.endpoint, &body).await {
        Ok(_) => writeln!(out, "SUCC -- Job '{id}' submitted successfully")?,
        Err(JobError::IdTaken(_)) => {
            writeln!(out, "INFO -- Job '{id}' has already been submitted, tailing logs.")?;
        }
        Err(error) => return Err(error.into()),
    }
    writeln!(out, "INFO -- Tailing logs until the job finishes:")?;
    follow(&job, &address, &id, token.as_deref(), out).await?;
    match terminal_status(&job).await?.as_str() {
        "SUCCEEDED" => writeln!(out, "SUCC -- Job '{id}' succeeded")?,
        status => bail!("Job '{id}' ended with status {status}"),
    }
    Ok(())
}

/// A submitted job and the dashboard to ask about it.
struct Job {
    client: Client,
    endpoint: DashboardEndpoint,
    id: String,
}

impl Job {
    fn new(address: &str, id: &str, token: Option<String>) -> Self {
        let endpoint = DashboardEndpoint {
            namespace: String::new(),
            address: address.to_owned(),
            service: String::new(),
            token_secret: None,
        };
        Self { client: Client::direct(token, REQUEST_TIMEOUT), endpoint, id: id.to_owned() }
    }

    async fn status(&self) -> Result<String, JobError> {
        jobs::info(&self.client, &self.endpoint, &self.id).await.map(|info| info.status)
    }
}

/// Returns the body of the submission request; flags that are not set are left out.
fn body(args: &Args, id: &str) -> anyhow::Result<Value> {
    let mut body = Map::new();
    body.insert("entrypoint".into(), args.entrypoint.join(" ").into());
    body.insert("submission_id".into(), id.into());
    let texts = [
        ("runtime_env", "--runtime-env-json", &args.runtime_env_json),
        ("metadata", "--metadata-json", &args.metadata_json),
        ("entrypoint_resources", "--entrypoint-resources", &args.entrypoint_resources),
    ];
    for (key, flag, text) in texts {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            let value: Map<String, Value> =
                serde_json::from_str(text).with_context(|| format!("{flag} is not a JSON object"))?;
            body.insert(key.into(), Value::Object(value));
        }
    }
    if let Some(resources) = body.get("entrypoint_resources").and_then(Value::as_object)
        && let Some((name, _)) = resources.iter().find(|(_, amount)| !amount.is_number())
    {
        bail!("--entrypoint-resources: {name} must be a number");
    }
    let numbers =
        [("entrypoint_num_cpus", args.entrypoint_num_cpus), ("entrypoint_num_gpus", args.entrypoint_num_gpus)];
    for (key, number) in numbers {
        if number != 0.0 {
            // Converted through text, so that 1.1 stays 1.1 as f64.
            body.insert(key.into(), serde_json::from_str(&number.to_string())?);
        }
    }
    Ok(Value::Object(body))
}

/// Prints the log until it ends, and reconnects if the stream breaks while the job runs.
async fn follow(job: &Job, address: &str, id: &str, token: Option<&str>, out: &mut impl Write) -> anyhow::Result<()> {
    let mut printed = 0;
    for attempt in 0..=MAX_RECONNECTS {
        match tail(address, id, token, &mut printed, out).await {
            Ok(()) => return Ok(()),
            Err(error) if attempt == MAX_RECONNECTS => return Err(error),
            Err(error) => {
                if job.status().await.is_ok_and(|status| is_terminal(&status)) {
                    return Ok(());
                }
                writeln!(out, "INFO -- Lost the log stream ({error:#}); reconnecting.")?;
                tokio::time::sleep(Duration::from_secs(1 << attempt.min(3))).await;
            }
        }
    }
    Ok(())
}

/// Prints the log stream until Ray closes it, and skips the bytes that were printed before.
async fn tail(
    address: &str,
    id: &str,
    token: Option<&str>,
    printed: &mut usize,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let host = address.trim_start_matches("http://");
    let mut request = format!("ws://{host}/api/jobs/{id}/logs/tail").into_client_request()?;
    if let Some(token) = token {
        request.headers_mut().insert("x-ray-authorization", format!("Bearer {token}").parse()?);
    }
    let config = WebSocketConfig::default().max_message_size(Some(64 << 20));
    let (mut stream, _) = tokio_tungstenite::connect_async_with_config(request, Some(config), false).await?;
    let mut received = 0;
    while let Some(message) = stream.next().await {
        let bytes = match message {
            Ok(Message::Text(text)) => text.as_bytes().to_vec(),
            Ok(Message::Binary(bytes)) => bytes.to_vec(),
            Ok(Message::Close(Some(frame))) if u16::from(frame.code) != 1000 => {
                bail!("the log stream was closed with code {}: {}", u16::from(frame.code), frame.reason)
            }
            Ok(Message::Close(_)) | Err(Error::ConnectionClosed) => return Ok(()),
            Ok(_) => continue,
            Err(error) => return Err(error.into()),
        };
        let fresh = bytes.len().saturating_sub(printed.saturating_sub(received).min(bytes.len()));
        out.write_all(&bytes[bytes.len() - fresh..])?;
        out.flush()?;
        received += bytes.len();
        *printed = received.max(*printed);
    }
    bail!("the log stream ended without a close frame")
}

/// Waits for the job's final status, which may lag behind its log.
async fn terminal_status(job: &Job) -> anyhow::Result<String> {
    let mut last = String::new();
    for _ in 0..STATUS_ATTEMPTS {
        match job.status().await {
            Ok(status) if is_terminal(&status) => return Ok(status),
            Ok(status) => last = status,
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bail!("the log has ended, but the job has not: {last}")
}

fn is_terminal(status: &str) -> bool {
    matches!(status, "SUCCEEDED" | "FAILED" | "STOPPED")
}

#[cfg(test)]
mod tests;
