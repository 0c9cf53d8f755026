//! Ray's job API: info, submit, stop, delete, logs.
//!
//! A response with an error status is an error, whatever its body: KubeRay takes a 500 with a JSON object for a job
//! without status and clears the recorded one.

use super::client::{Client, RequestError, Response};
use super::poller::{Poll, Round};
use http::Method;
use jiff::Timestamp;
use manta_logic::dashboard::DashboardEndpoint;
use manta_logic::job::dashboard::{JobAnswer, JobDashboard, JobInfo, JobPoll, JobReply};
use serde::Deserialize;
use serde_json::Value;

/// Part of Ray's error when the submission id is taken.
const ID_TAKEN: &str = "Please use a different submission_id";

/// Why a request to the job API failed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("Job {0} does not exist on the cluster")]
    NotFound(String),
    #[error("GetJobInfo fail: {0}")]
    Info(String),
    #[error("SubmitJob fail: {0}")]
    Submit(String),
    #[error("submission ID '{0}' already used, {ID_TAKEN}")]
    IdTaken(String),
    #[error("failed to stop job: {0}")]
    Stop(String),
    #[error("{0}")]
    Refused(String),
}

/// Returns the state of a job.
pub async fn info(client: &Client, endpoint: &DashboardEndpoint, id: &str) -> Result<JobInfo, JobError> {
    let response = client.send(endpoint, Method::GET, &path(id, ""), None).await?;
    if is_unknown_job(&response) {
        return Err(JobError::NotFound(id.to_owned()));
    }
    if !is_success(response.status) {
        return Err(JobError::Info(with_status(&response)));
    }
    match serde_json::from_str::<JobInfo>(&response.body) {
        Ok(info) if !info.status.is_empty() => Ok(info),
        _ => Err(JobError::Info(response.body)),
    }
}

/// Submits a job. Returns its id.
pub async fn submit(client: &Client, endpoint: &DashboardEndpoint, body: &Value) -> Result<String, JobError> {
    #[derive(Deserialize)]
    struct Submitted {
        job_id: String,
    }
    let response = client.send(endpoint, Method::POST, "/api/jobs/", Some(body)).await?;
    if response.status == 500 && response.body.contains(ID_TAKEN) {
        return Err(JobError::IdTaken(body["submission_id"].as_str().unwrap_or_default().to_owned()));
    }
    if !is_success(response.status) {
        return Err(JobError::Submit(with_status(&response)));
    }
    let submitted: Result<Submitted, _> = serde_json::from_str(&response.body);
    submitted.map(|submitted| submitted.job_id).map_err(|_| JobError::Submit(response.body))
}

/// Stops a job; one that has ended, or that Ray does not know, counts as stopped.
pub async fn stop(client: &Client, endpoint: &DashboardEndpoint, id: &str) -> Result<(), JobError> {
    #[derive(Deserialize)]
    struct Stopped {
        stopped: bool,
    }
    let response = client.send(endpoint, Method::POST, &path(id, "/stop"), None).await?;
    if is_unknown_job(&response) {
        return Ok(());
    }
    match serde_json::from_str::<Stopped>(&response.body) {
        Ok(Stopped { stopped: true }) => Ok(()),
        Ok(Stopped { stopped: false }) => match info(client, endpoint, id).await {
            Ok(info) if is_over(&info.status) => Ok(()),
            Ok(info) => Err(JobError::Stop(format!("its status is {}", info.status))),
            Err(error) => Err(JobError::Stop(error.to_string())),
        },
        Err(_) => Err(JobError::Stop(with_status(&response))),
    }
}

/// Removes a job that has ended from Ray's list; one that Ray does not know counts as removed.
pub async fn delete(client: &Client, endpoint: &DashboardEndpoint, id: &str) -> Result<(), JobError> {
    let response = client.send(endpoint, Method::DELETE, &path(id, ""), None).await?;
    if is_success(response.status) || is_unknown_job(&response) {
        return Ok(());
    }
    Err(JobError::Refused(format!("cannot delete job {id}: {}", with_status(&response))))
}

/// Returns what a job has printed so far; nothing if Ray does not know it.
pub async fn logs(client: &Client, endpoint: &DashboardEndpoint, id: &str) -> Result<String, JobError> {
    #[derive(Deserialize)]
    struct Logs {
        #[serde(default)]
        logs: String,
    }
    let response = client.send(endpoint, Method::GET, &path(id, "/logs"), None).await?;
    if is_unknown_job(&response) {
        return Ok(String::new());
    }
    let logs: Option<Logs> = serde_json::from_str(&response.body).ok().filter(|_| is_success(response.status));
    logs.map(|logs| logs.logs)
        .ok_or_else(|| JobError::Refused(format!("cannot read the log of job {id}: {}", with_status(&response))))
}

impl Poll for JobPoll {
    type State = JobDashboard;
    type Reply = JobReply;

    fn is_about_the_same(&self, other: &Self) -> bool {
        self.job_id == other.job_id && self.endpoint == other.endpoint
    }

    fn is_urgent(&self, _: &Self) -> bool {
        false
    }

    fn fresher_than(&self) -> Option<Timestamp> {
        self.fresher_than
    }

    fn start(now: Timestamp) -> JobDashboard {
        JobDashboard { polled_since: Some(now), ..JobDashboard::default() }
    }

    async fn ask(&self, client: &Client) -> JobReply {
        let answer = match info(client, &self.endpoint, &self.job_id).await {
            Ok(info) => JobAnswer::Info(info),
            Err(JobError::NotFound(_)) => JobAnswer::NotFound,
            Err(error) => JobAnswer::Failed(error.to_string()),
        };
        JobReply { job_id: self.job_id.clone(), at: client.now(), answer }
    }

    fn observe(&self, state: &mut JobDashboard, reply: JobReply) -> Round {
        let failure = match &reply.answer {
            JobAnswer::Failed(error) => Some(error.clone()),
            _ => None,
        };
        let changed = state.observe(reply);
        if let (Some(error), true) = (&failure, changed) {
            tracing::info!(job = self.job_id, address = self.endpoint.address, error, "dashboard did not reply");
        }
        Round { reached: failure.is_none(), changed }
    }
}

fn path(id: &str, rest: &str) -> String {
    let mut path = "/api/jobs/".to_owned();
    for byte in id.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(char::from(byte)),
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path + rest
}

/// Returns whether this is Ray's own 404, not that of an API server without the Service.
fn is_unknown_job(response: &Response) -> bool {
    response.status == 404 && !is_from_api_server(response)
}

/// Returns whether this is an error of the API server, not of the Ray behind its proxy.
pub(super) fn is_from_api_server(response: &Response) -> bool {
    #[derive(Deserialize)]
    struct Status {
        kind: String,
    }
    serde_json::from_str::<Status>(&response.body).is_ok_and(|status| status.kind == "Status")
}

pub(super) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

fn is_over(status: &str) -> bool {
    matches!(status, "STOPPED" | "SUCCEEDED" | "FAILED")
}

pub(super) fn with_status(response: &Response) -> String {
    let code = http::StatusCode::from_u16(response.status).ok();
    let reason = code.and_then(|code| code.canonical_reason()).unwrap_or_default();
    format!("{} {reason} {}", response.status, response.body)
}

#[cfg(test)]
pub(crate) mod tests;
