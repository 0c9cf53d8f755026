//! Jobs of a Ray cluster, by Ray's own API: submit, follow, stop.

mod entrypoint;
mod ignore;
mod interactive;
mod log;
mod reach;
mod runtime_env;
mod working_dir;
mod zip;

pub(crate) use entrypoint::{EntrypointArgs, command_line};
pub(crate) use interactive::{Interactive, Interrupted, Started, generate_id};
pub(crate) use log::{config as log_config, follow_log, log_path};
pub(crate) use reach::Dashboard;
pub(crate) use runtime_env::{RuntimeEnv, RuntimeEnvArgs};

use anyhow::bail;
use http::HeaderMap;
use manta_logic::dashboard::DashboardEndpoint;
use manta_logic::job::dashboard::JobInfo;
use manta_operator::dashboard::Client;
use manta_operator::dashboard::jobs::{self, JobError};
use serde_json::Value;
use std::time::Duration;

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to ask, once a second, for the final status of a job whose log has ended.
const STATUS_ATTEMPTS: u32 = 30;

/// A job, and the dashboard to ask about it.
#[derive(Clone)]
pub(crate) struct Job {
    client: Client,
    endpoint: DashboardEndpoint,
    id: String,
    token: Option<String>,
    headers: HeaderMap,
}

impl Job {
    /// Returns the job with this id on the dashboard at an address, which need not exist yet.
    pub(crate) fn new(address: &str, id: &str, token: Option<String>) -> Self {
        let client = Client::direct(token.clone(), REQUEST_TIMEOUT);
        Self { client, endpoint: endpoint(address), id: id.to_owned(), token, headers: HeaderMap::new() }
    }

    /// Returns the job with these headers on every request.
    pub(crate) fn with_headers(self, headers: HeaderMap) -> Self {
        Self { client: self.client.with_headers(headers.clone()), headers, ..self }
    }

    /// Submits it. Returns its id.
    pub(crate) async fn submit(&self, body: &Value) -> Result<String, JobError> {
        jobs::submit(&self.client, &self.endpoint, body).await
    }

    /// Asks Ray to stop it; one that has ended counts as stopped.
    pub(crate) async fn stop(&self) -> Result<(), JobError> {
        jobs::stop(&self.client, &self.endpoint, &self.id).await
    }

    /// Returns what it has printed so far.
    pub(crate) async fn logs(&self) -> Result<String, JobError> {
        jobs::logs(&self.client, &self.endpoint, &self.id).await
    }

    pub(crate) async fn info(&self) -> Result<JobInfo, JobError> {
        jobs::info(&self.client, &self.endpoint, &self.id).await
    }

    /// Waits for the job's final state, which may lag behind its log.
    pub(crate) async fn terminal_info(&self) -> anyhow::Result<JobInfo> {
        let mut last = String::new();
        for _ in 0..STATUS_ATTEMPTS {
            match self.info().await {
                Ok(info) if is_terminal(&info.status) => return Ok(info),
                Ok(info) => last = info.status,
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        bail!("the log has ended, but the job has not: {last}")
    }
}

/// Returns whether a job with this status has ended.
pub(crate) fn is_terminal(status: &str) -> bool {
    matches!(status, "SUCCEEDED" | "FAILED" | "STOPPED")
}

/// Returns where a dashboard at an address is reached.
pub(crate) fn endpoint(address: &str) -> DashboardEndpoint {
    DashboardEndpoint {
        namespace: String::new(),
        address: address.trim_end_matches('/').to_owned(),
        service: String::new(),
        token_secret: None,
    }
}
