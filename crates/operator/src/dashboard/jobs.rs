//! Ray's job API: info, submit, stop, delete, logs.
//!
//! An answer with an error status is an error, whatever its body looks like: KubeRay takes a 500 with a
//! JSON object for a job without status and wipes what it knew.

use super::client::{Answered, Client, NoAnswer};
use super::poller::{Round, Subject};
use http::Method;
use jiff::Timestamp;
use manta_logic::job::dashboard::{Answer, Ask, Dashboard, DashboardEndpoint, Heard, JobInfo, Stop, Watch};
use serde::Deserialize;
use serde_json::Value;

/// What a rejected submission says if the id is taken.
const ID_TAKEN: &str = "Please use a different submission_id";

/// Why a request to the job API failed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
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

/// How a job stands.
pub async fn info(client: &Client, endpoint: &DashboardEndpoint, id: &str) -> Result<JobInfo, JobError> {
    let answered = client.send(endpoint, Method::GET, &path(id, ""), None).await?;
    if is_unknown_job(&answered) {
        return Err(JobError::NotFound(id.to_owned()));
    }
    if !is_success(answered.status) {
        return Err(JobError::Info(with_status(&answered)));
    }
    match serde_json::from_str::<JobInfo>(&answered.body) {
        Ok(info) if !info.status.is_empty() => Ok(info),
        _ => Err(JobError::Info(answered.body)),
    }
}

/// Hands a job to Ray; answers its id.
pub async fn submit(client: &Client, endpoint: &DashboardEndpoint, body: &Value) -> Result<String, JobError> {
    #[derive(Deserialize)]
    struct Submitted {
        job_id: String,
    }
    let answered = client.send(endpoint, Method::POST, "/api/jobs/", Some(body)).await?;
    if answered.status == 500 && answered.body.contains(ID_TAKEN) {
        return Err(JobError::IdTaken(body["submission_id"].as_str().unwrap_or_default().to_owned()));
    }
    if !is_success(answered.status) {
        return Err(JobError::Submit(with_status(&answered)));
    }
    let submitted: Result<Submitted, _> = serde_json::from_str(&answered.body);
    submitted.map(|submitted| submitted.job_id).map_err(|_| JobError::Submit(answered.body))
}

/// Stops a job; one that has ended, or that nobody knows, counts as stopped.
pub async fn stop(client: &Client, endpoint: &DashboardEndpoint, id: &str) -> Result<(), JobError> {
    #[derive(Deserialize)]
    struct Stopped {
        stopped: bool,
    }
    let answered = client.send(endpoint, Method::POST, &path(id, "/stop"), None).await?;
    if is_unknown_job(&answered) {
        return Ok(());
    }
    match serde_json::from_str::<Stopped>(&answered.body) {
        Ok(Stopped { stopped: true }) => Ok(()),
        Ok(Stopped { stopped: false }) => match info(client, endpoint, id).await {
            Ok(info) if is_over(&info.status) => Ok(()),
            Ok(info) => Err(JobError::Stop(format!("its status is {}", info.status))),
            Err(error) => Err(JobError::Stop(error.to_string())),
        },
        Err(_) => Err(JobError::Stop(with_status(&answered))),
    }
}

/// Removes a job that has ended from Ray's list; one that nobody knows is removed.
pub async fn delete(client: &Client, endpoint: &DashboardEndpoint, id: &str) -> Result<(), JobError> {
    let answered = client.send(endpoint, Method::DELETE, &path(id, ""), None).await?;
    if is_success(answered.status) || is_unknown_job(&answered) {
        return Ok(());
    }
    Err(JobError::Refused(format!("cannot delete job {id}: {}", with_status(&answered))))
}

/// What a job has printed so far; nothing if nobody knows it.
pub async fn logs(client: &Client, endpoint: &DashboardEndpoint, id: &str) -> Result<String, JobError> {
    #[derive(Deserialize)]
    struct Logs {
        #[serde(default)]
        logs: String,
    }
    let answered = client.send(endpoint, Method::GET, &path(id, "/logs"), None).await?;
    if is_unknown_job(&answered) {
        return Ok(String::new());
    }
    let logs: Option<Logs> = serde_json::from_str(&answered.body).ok().filter(|_| is_success(answered.status));
    logs.map(|logs| logs.logs)
        .ok_or_else(|| JobError::Refused(format!("cannot read the log of job {id}: {}", with_status(&answered))))
}

impl Subject for Watch {
    type Known = Dashboard;

    fn is_about_the_same(&self, other: &Self) -> bool {
        self.job_id == other.job_id && self.endpoint == other.endpoint
    }

    fn is_urgent(&self, other: &Self) -> bool {
        matches!(self.ask, Ask::Stop) != matches!(other.ask, Ask::Stop)
    }

    fn fresher_than(&self) -> Option<Timestamp> {
        self.fresher_than
    }

    fn start(now: Timestamp) -> Dashboard {
        Dashboard { asked_since: Some(now), ..Dashboard::default() }
    }

    async fn ask(&self, client: &Client, known: Dashboard) -> Round<Dashboard> {
        match &self.ask {
            Ask::Stop => try_to_stop(self, client, known).await,
            Ask::Info => follow(self, client, known, None).await,
            Ask::InfoOrSubmit(body) => follow(self, client, known, Some(body)).await,
        }
    }
}

async fn follow(watch: &Watch, client: &Client, mut known: Dashboard, submission: Option<&Value>) -> Round<Dashboard> {
    let mut found = info(client, &watch.endpoint, &watch.job_id).await;
    if let (Err(JobError::NotFound(_)), Some(body)) = (&found, submission) {
        found = match submit(client, &watch.endpoint, body).await {
            // Somebody was faster, or the answer to an earlier try was lost.
            Ok(_) | Err(JobError::IdTaken(_)) => info(client, &watch.endpoint, &watch.job_id).await,
            Err(error) => Err(error),
        };
    }
    let answer = match found {
        Ok(info) => Answer::Info(info),
        Err(JobError::NotFound(_)) => Answer::NotFound,
        Err(error) => Answer::Failed(error.to_string()),
    };
    let reached = !matches!(answer, Answer::Failed(_));
    let news = known.heard.as_ref().is_none_or(|heard| heard.answer != answer);
    if let (Answer::Failed(error), true) = (&answer, news) {
        tracing::info!(job = watch.job_id, address = watch.endpoint.address, error, "a dashboard gave no answer");
    }
    known.heard = Some(Heard { job_id: watch.job_id.clone(), at: client.now(), answer });
    Round { known, reached, news, over: false }
}

async fn try_to_stop(watch: &Watch, client: &Client, mut known: Dashboard) -> Round<Dashboard> {
    match stop(client, &watch.endpoint, &watch.job_id).await {
        Ok(()) => {
            known.stop = Some(Stop::Done);
            Round { known, reached: true, news: true, over: true }
        }
        Err(error) => {
            tracing::info!(job = watch.job_id, error = %error, "a Ray job could not be stopped");
            let news = known.stop.is_none();
            known.stop.get_or_insert(Stop::Failed { since: client.now() });
            Round { known, reached: false, news, over: false }
        }
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

/// A 404 of Ray, not one of an API server that has no such Service.
fn is_unknown_job(answered: &Answered) -> bool {
    #[derive(Deserialize)]
    struct Status {
        kind: String,
    }
    answered.status == 404
        && serde_json::from_str::<Status>(&answered.body).map_or(true, |status| status.kind != "Status")
}

pub(super) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

fn is_over(status: &str) -> bool {
    matches!(status, "STOPPED" | "SUCCEEDED" | "FAILED")
}

pub(super) fn with_status(answered: &Answered) -> String {
    let code = http::StatusCode::from_u16(answered.status).ok();
    let reason = code.and_then(|code| code.canonical_reason()).unwrap_or_default();
    format!("{} {reason} {}", answered.status, answered.body)
}

#[cfg(test)]
pub(crate) mod tests;
