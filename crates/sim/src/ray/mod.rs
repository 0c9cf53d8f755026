//! The simulated Ray: one per head Pod, with its jobs and applications.

mod job;
mod serve;

pub(crate) use serve::Answering;

use crate::rng::Rng;
use crate::transcript::Transcript;
use axum::body::Body;
use http::{Response, StatusCode};
use job::Job;
use serde_json::{Value, json};
use serve::Serve;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Three submissions of one job within this time are a flood.
const FLOOD: Duration = Duration::from_secs(2);

/// The Rays of all clusters.
#[derive(Clone)]
pub(crate) struct Ray(Arc<Mutex<State>>, Rng, Transcript);

struct State {
    start: Instant,
    /// The UID of the head Pod that answers, by head Service.
    heads: BTreeMap<String, String>,
    /// The UIDs of the last head Pod that answered and of the one before it, by head Service.
    latest: BTreeMap<String, (String, Option<String>)>,
    /// The jobs of each head Pod, by UID and submission ID.
    jobs: BTreeMap<(String, String), Job>,
    /// Serve on each head Pod, by UID.
    serve: BTreeMap<String, Serve>,
    /// The ID of the job that each cluster was given, by head Service, whichever head had it.
    submitted: BTreeMap<String, String>,
    /// What each cluster could take, in percent, and until when, by head Service.
    capacities: BTreeMap<String, Vec<(Instant, i64)>>,
    /// The IDs of all jobs that ever succeeded.
    succeeded: BTreeSet<String>,
    silent_until: Instant,
    /// Until then, dashboards reply with what the head before knew.
    lying_until: Instant,
    /// Until then, jobs are forgotten as soon as they are accepted.
    forgetful_until: Instant,
    /// When the requests that submitted each job were sent.
    posted: BTreeMap<String, Vec<Instant>>,
    /// When a dashboard last replied about a job.
    last_reply: Option<Instant>,
    violation: Option<String>,
}

impl Ray {
    pub(crate) fn new(rng: Rng, transcript: Transcript) -> Self {
        let now = Instant::now();
        let state = State {
            start: now,
            heads: BTreeMap::new(),
            latest: BTreeMap::new(),
            jobs: BTreeMap::new(),
            serve: BTreeMap::new(),
            submitted: BTreeMap::new(),
            capacities: BTreeMap::new(),
            succeeded: BTreeSet::new(),
            silent_until: now,
            lying_until: now,
            forgetful_until: now,
            posted: BTreeMap::new(),
            last_reply: None,
            violation: None,
        };
        Self(Arc::new(Mutex::new(state)), rng, transcript)
    }

    /// Makes a head Pod answer for a Service. It knows the applications of the one before if those are on a volume.
    pub(crate) fn start_head(&self, service: &str, uid: &str, has_volume: bool) {
        let mut state = self.lock();
        state.note_capacity(service);
        state.heads.insert(service.to_owned(), uid.to_owned());
        if let Some(serve) = state.serve.get_mut(uid) {
            serve.set_ended(false);
        }
        let before = state.latest.get(service).map(|(latest, _)| latest.clone()).filter(|latest| latest != uid);
        let Some(before) = before else {
            state.latest.entry(service.to_owned()).or_insert_with(|| (uid.to_owned(), None));
            return;
        };
        if has_volume && let Some(mut serve) = state.serve.remove(&before) {
            serve.set_ended(false);
            state.serve.insert(uid.to_owned(), serve);
        }
        state.latest.insert(service.to_owned(), (uid.to_owned(), Some(before)));
    }

    /// Makes a head Pod answer no more.
    pub(crate) fn stop_head(&self, service: &str, uid: &str) {
        let mut state = self.lock();
        if state.heads.get(service).is_some_and(|head| head == uid) {
            state.note_capacity(service);
            state.heads.remove(service);
        }
        if let Some(serve) = state.serve.get_mut(uid) {
            serve.set_ended(true);
        }
    }

    /// Makes dashboards reply with what the head before knew.
    pub(crate) fn lie(&self, until: Instant) {
        self.lock().lying_until = until;
    }

    /// Silences all dashboards.
    pub(crate) fn silence(&self, until: Instant) {
        self.lock().silent_until = until;
    }

    /// Makes all heads forget their jobs and applications.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.note_successes();
        let services: Vec<String> = state.heads.keys().cloned().collect();
        services.iter().for_each(|service| state.note_capacity(service));
        state.jobs.clear();
        state.serve.clear();
    }

    /// Makes heads accept jobs and forget them at once.
    pub(crate) fn forget_until(&self, until: Instant) {
        self.lock().forgetful_until = until;
    }

    /// Returns how long no dashboard has replied about a job.
    pub(crate) fn silent_for(&self) -> Duration {
        let state = self.lock();
        state.last_reply.unwrap_or(state.start).elapsed()
    }

    /// Returns the first thing that Ray should never have been asked.
    pub(crate) fn violation(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    /// Returns whether a job with this ID ever succeeded.
    pub(crate) fn has_succeeded(&self, id: &str) -> bool {
        let mut state = self.lock();
        state.note_successes();
        state.succeeded.contains(id)
    }

    /// Returns what answers requests to a cluster, if anything does.
    pub(crate) fn answering(&self, cluster: &str) -> Option<Answering> {
        self.lock().answering(&format!("{cluster}-head-svc"))
    }

    /// Returns the largest capacity of a cluster, in percent, now and as long ago as given. A dashboard that lies shows what
    /// was there at any time.
    pub(crate) fn recent_capacity(&self, cluster: &str, within: Duration) -> Option<i64> {
        let state = self.lock();
        let service = format!("{cluster}-head-svc");
        let lied = !within.is_zero() && Instant::now() < state.lying_until + within;
        let earlier = state.capacities.get(&service).into_iter().flatten();
        let recent = earlier.filter(|(until, _)| lied || until.elapsed() < within).map(|(_, capacity)| *capacity);
        recent.chain(state.answering(&service).map(|answering| answering.capacity)).max()
    }

    /// Submits a job. Returns whether it was accepted.
    pub(crate) fn submit(&self, service: &str, id: &str, fails: bool) -> bool {
        let runs_for = Duration::from_millis(self.1.within(500..30_000));
        let mut state = self.lock();
        let Some(head) = state.heads.get(service).cloned() else { return false };
        if state.jobs.contains_key(&(head.clone(), id.to_owned())) {
            return false;
        }
        state.note_submission(service, id);
        if Instant::now() >= state.forgetful_until {
            state.jobs.insert((head, id.to_owned()), Job::new(runs_for, fails));
        }
        drop(state);
        self.2.line("ray", format!("accepts {id}"));
        true
    }

    /// Returns a job's status, if the head knows it.
    pub(crate) fn status(&self, service: &str, id: &str) -> Option<&'static str> {
        let state = self.lock();
        let head = state.heads.get(service)?;
        Some(state.jobs.get(&(head.clone(), id.to_owned()))?.status())
    }

    /// Replies to a request to the dashboard behind a Service.
    pub(crate) async fn reply(
        &self,
        service: &str,
        (method, path): (&str, &str),
        body: &[u8],
        sent: Instant,
    ) -> Result<Response<Body>, tower::BoxError> {
        let silent_until = self.lock().silent_until;
        if silent_until > Instant::now() {
            sleep_until(silent_until).await;
        }
        let Some(head) = self.lock().head_that_replies(service, method) else {
            return text(503, "no endpoints available for service");
        };
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            ("POST", ["api", "jobs"]) => {
                let body: Value = serde_json::from_slice(body)?;
                let id = body["submission_id"].as_str().unwrap_or_default().to_owned();
                let fails = body["entrypoint"].as_str().is_some_and(|entrypoint| entrypoint.contains("fail"));
                if self.submit(service, &id, fails) {
                    self.lock().note_post(&id, sent);
                    json_reply(&json!({"job_id": id, "submission_id": id}))
                } else {
                    text(500, "Please use a different submission_id")
                }
            }
            ("GET", ["api", "jobs", id]) => {
                let mut state = self.lock();
                state.last_reply = Some(Instant::now());
                match state.jobs.get(&(head, (*id).to_owned())) {
                    Some(job) => json_reply(&job.info(id, state.start)),
                    None => text(404, &format!("Job {id} does not exist")),
                }
            }
            ("POST", ["api", "jobs", id, "stop"]) => match self.lock().jobs.get_mut(&(head, (*id).to_owned())) {
                Some(job) => {
                    job.stop();
                    json_reply(&json!({"stopped": true}))
                }
                None => text(404, &format!("Job {id} does not exist")),
            },
            ("PUT", ["api", "serve", "applications"]) => {
                let starts_for = Duration::from_millis(self.1.within(500..20_000));
                let mut state = self.lock();
                let serve = Serve::configure(state.serve.get(&head), serde_json::from_slice(body)?, starts_for);
                state.note_capacity(service);
                state.serve.insert(head, serve);
                json_reply(&json!({}))
            }
            ("GET", ["api", "serve", "applications"]) => {
                let none = || json!({"applications": {}});
                json_reply(&self.lock().serve.get(&head).map_or_else(none, Serve::details))
            }
            _ => text(404, "not simulated"),
        }
    }

    /// Returns whether the head with this UID has started Serve, whose proxy then answers.
    pub(crate) fn has_serve(&self, uid: &str) -> bool {
        self.lock().serve.contains_key(uid)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the UID of the head that replies to a request: the one before, while dashboards lie.
    fn head_that_replies(&self, service: &str, method: &str) -> Option<String> {
        let head = self.heads.get(service)?;
        let lies = method == "GET" && Instant::now() < self.lying_until;
        let before = self.latest.get(service).and_then(|(_, before)| before.as_ref()).filter(|_| lies);
        Some(before.unwrap_or(head).clone())
    }

    /// An attempt has a cluster of its own, which gets one job: another head of it may get the same one again, and a cluster
    /// of another attempt may not.
    fn note_submission(&mut self, service: &str, id: &str) {
        let first = self.submitted.entry(service.to_owned()).or_insert_with(|| id.to_owned());
        let violation = if first != id {
            format!("two jobs were submitted for one attempt: {first} and {id}")
        } else if let Some((other, _)) = self.submitted.iter().find(|(other, known)| *other != service && *known == id)
        {
            format!("{id} was submitted to two clusters: {other} and {service}")
        } else {
            return;
        };
        self.violation.get_or_insert(violation);
    }

    /// Returns what answers requests to the cluster of a head Service.
    fn answering(&self, service: &str) -> Option<Answering> {
        self.serve.get(self.heads.get(service)?)?.answering()
    }

    /// Remembers what the cluster of a head Service can take until now, when that is about to change.
    fn note_capacity(&mut self, service: &str) {
        if let Some(answering) = self.answering(service) {
            self.capacities.entry(service.to_owned()).or_default().push((Instant::now(), answering.capacity));
        }
    }

    /// An operator does not flood a head that forgets its jobs.
    fn note_post(&mut self, id: &str, sent: Instant) {
        let posted = self.posted.entry(id.to_owned()).or_default();
        posted.push(sent);
        // Several that were late may arrive at once.
        posted.sort();
        if posted.windows(3).any(|sent| sent[2] - sent[0] < FLOOD) {
            self.violation.get_or_insert(format!("{id} was submitted three times within {FLOOD:?}"));
        }
    }

    fn note_successes(&mut self) {
        let succeeded = self.jobs.iter().filter(|(_, job)| job.status() == "SUCCEEDED").map(|((_, id), _)| id.clone());
        self.succeeded.extend(succeeded);
    }
}

/// Replies to a request to the Serve proxy of a Pod.
pub(crate) fn proxy_reply(healthy: bool) -> Result<Response<Body>, tower::BoxError> {
    if healthy { text(200, "success") } else { text(503, "unavailable") }
}

fn json_reply(body: &Value) -> Result<Response<Body>, tower::BoxError> {
    Ok(Response::builder().header("content-type", "application/json").body(Body::from(body.to_string()))?)
}

fn text(status: u16, body: &str) -> Result<Response<Body>, tower::BoxError> {
    Ok(Response::builder().status(StatusCode::from_u16(status)?).body(Body::from(body.to_owned()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn ray_with_heads(services: &[&str]) -> Ray {
        let ray = Ray::new(Rng::new(1), Transcript::new());
        services.iter().for_each(|service| ray.start_head(service, &format!("head of {service}"), false));
        ray
    }

    #[tokio::test(start_paused = true)]
    async fn another_head_may_get_the_same_job_again_and_no_other() {
        let ray = ray_with_heads(&["a-head-svc"]);
        assert!(ray.submit("a-head-svc", "one", false));
        ray.start_head("a-head-svc", "another head", false);
        assert!(ray.submit("a-head-svc", "one", false));
        assert_eq!(ray.violation(), None);
        ray.start_head("a-head-svc", "a third head", false);
        assert!(ray.submit("a-head-svc", "two", false));
        assert_eq!(ray.violation().as_deref(), Some("two jobs were submitted for one attempt: one and two"));
    }

    #[tokio::test(start_paused = true)]
    async fn no_other_cluster_may_get_the_same_job() {
        let ray = ray_with_heads(&["a-head-svc", "b-head-svc"]);
        assert!(ray.submit("a-head-svc", "one", false) && ray.submit("b-head-svc", "one", false));
        let expected = "one was submitted to two clusters: a-head-svc and b-head-svc";
        assert_eq!(ray.violation().as_deref(), Some(expected));
    }

    #[tokio::test(start_paused = true)]
    async fn capacity_is_remembered_for_as_long_as_asked() {
        let ray = ray_with_heads(&["a-head-svc"]);
        let config = br#"{"applications": [{"name": "app", "import_path": "app:v1"}], "target_capacity": 40}"#;
        ray.reply("a-head-svc", ("PUT", "/api/serve/applications/"), config, Instant::now()).await.expect("a reply");
        let capacity = |seconds| ray.recent_capacity("a", Duration::from_secs(seconds));
        assert_eq!(capacity(60), None, "nothing has started");
        advance(Duration::from_secs(30)).await;
        assert_eq!(capacity(0), Some(40));
        ray.stop_head("a-head-svc", "head of a-head-svc");
        advance(Duration::from_secs(30)).await;
        assert_eq!((capacity(0), capacity(20), capacity(60)), (None, None, Some(40)));
    }
}
