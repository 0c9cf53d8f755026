//! The simulated Ray: one per head Pod, with its jobs.

use crate::rng::Rng;
use crate::transcript::Transcript;
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The Rays of all clusters.
#[derive(Clone)]
pub(crate) struct Ray(Arc<Mutex<State>>, Rng, Transcript);

struct State {
    start: Instant,
    /// The UID of the head Pod that answers, by namespace and head Service.
    heads: BTreeMap<(String, String), String>,
    jobs: BTreeMap<(String, String), Job>,
    silent_until: Instant,
}

struct Job {
    submitted: Instant,
    runs_for: Duration,
    fails: bool,
    stopped: Option<Instant>,
}

impl Ray {
    pub(crate) fn new(rng: Rng, transcript: Transcript) -> Self {
        let now = Instant::now();
        let state = State { start: now, heads: BTreeMap::new(), jobs: BTreeMap::new(), silent_until: now };
        Self(Arc::new(Mutex::new(state)), rng, transcript)
    }

    /// Sets whether a head Pod answers for a Service.
    pub(crate) fn set_head(&self, namespace: &str, service: &str, uid: &str, answers: bool) {
        let mut state = self.lock();
        let key = (namespace.to_owned(), service.to_owned());
        if answers {
            state.heads.insert(key, uid.to_owned());
        } else if state.heads.get(&key).is_some_and(|head| head == uid) {
            state.heads.remove(&key);
        }
    }

    /// Silences all dashboards.
    pub(crate) fn silence(&self, until: Instant) {
        self.lock().silent_until = until;
    }

    /// Submits a job, as a submitter does. Returns whether it was accepted.
    pub(crate) fn submit(&self, namespace: &str, service: &str, id: &str, fails: bool) -> bool {
        let runs_for = Duration::from_millis(self.1.within(500..30_000));
        let mut state = self.lock();
        let Some(head) = state.heads.get(&(namespace.to_owned(), service.to_owned())).cloned() else { return false };
        if state.jobs.contains_key(&(head.clone(), id.to_owned())) {
            return false;
        }
        let job = Job { submitted: Instant::now(), runs_for, fails, stopped: None };
        state.jobs.insert((head, id.to_owned()), job);
        drop(state);
        self.2.line("ray", format!("accepts {id}"));
        true
    }

    /// Returns a job's status, if the head knows it.
    pub(crate) fn status(&self, namespace: &str, service: &str, id: &str) -> Option<&'static str> {
        let state = self.lock();
        let head = state.heads.get(&(namespace.to_owned(), service.to_owned()))?;
        Some(state.jobs.get(&(head.clone(), id.to_owned()))?.status())
    }

    /// Replies to a request to the dashboard behind a Service.
    pub(crate) async fn reply(
        &self,
        namespace: &str,
        service: &str,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<Response<Body>, tower::BoxError> {
        let silent_until = self.lock().silent_until;
        if silent_until > Instant::now() {
            sleep_until(silent_until).await;
        }
        let key = (namespace.to_owned(), service.to_owned());
        if !self.lock().heads.contains_key(&key) {
            return text(503, "no endpoints available for service");
        }
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            ("POST", ["api", "jobs"]) => {
                let body: Value = serde_json::from_slice(body)?;
                let id = body["submission_id"].as_str().unwrap_or_default().to_owned();
                let fails = body["entrypoint"].as_str().is_some_and(|entrypoint| entrypoint.contains("fail"));
                if self.submit(namespace, service, &id, fails) {
                    json_reply(&json!({"job_id": id, "submission_id": id}))
                } else {
                    text(500, "Please use a different submission_id")
                }
            }
            ("GET", ["api", "jobs", id]) => match self.info(&key, id) {
                Some(info) => json_reply(&info),
                None => text(404, &format!("Job {id} does not exist")),
            },
            ("POST", ["api", "jobs", id, "stop"]) => {
                let mut state = self.lock();
                let head = state.heads.get(&key).cloned().unwrap_or_default();
                match state.jobs.get_mut(&(head, (*id).to_owned())) {
                    Some(job) => {
                        job.stopped.get_or_insert(Instant::now());
                        json_reply(&json!({"stopped": true}))
                    }
                    None => text(404, &format!("Job {id} does not exist")),
                }
            }
            _ => text(404, "not simulated"),
        }
    }

    fn info(&self, key: &(String, String), id: &str) -> Option<Value> {
        let state = self.lock();
        let job = state.jobs.get(&(state.heads.get(key)?.clone(), id.to_owned()))?;
        let millis = |at: Instant| 1_767_225_600_000 + (at - state.start).as_millis() as u64;
        let status = job.status();
        let over = !matches!(status, "PENDING" | "RUNNING");
        let message = if status == "FAILED" { "the entrypoint failed" } else { "" };
        Some(json!({
            "submission_id": id, "status": status, "message": message, "type": "SUBMISSION",
            "start_time": millis(job.submitted),
            "end_time": over.then(|| millis(job.stopped.unwrap_or(job.submitted + job.runs_for))),
        }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn status(&self) -> &'static str {
        let age = self.submitted.elapsed();
        match () {
            () if self.stopped.is_some_and(|at| at < self.submitted + self.runs_for) => "STOPPED",
            () if age >= self.runs_for && self.fails => "FAILED",
            () if age >= self.runs_for => "SUCCEEDED",
            () if age < Duration::from_millis(200) => "PENDING",
            () => "RUNNING",
        }
    }
}

fn json_reply(body: &Value) -> Result<Response<Body>, tower::BoxError> {
    Ok(Response::builder().header("content-type", "application/json").body(Body::from(body.to_string()))?)
}

fn text(status: u16, body: &str) -> Result<Response<Body>, tower::BoxError> {
    Ok(Response::builder().status(StatusCode::from_u16(status)?).body(Body::from(body.to_owned()))?)
}
