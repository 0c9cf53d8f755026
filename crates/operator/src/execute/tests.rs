//! Stages that are carried out against a fake dashboard and a router in place of an API server.

use super::*;
use crate::concurrency_limit::ConcurrencyLimit;
use crate::dashboard::Client as Dashboards;
use crate::dashboard::Route;
use crate::dashboard::jobs::tests::endpoint;
use crate::dashboard::poller::Pollers;
use crate::in_flight::InFlightWrites;
use crate::queue::Queue;
use crate::random::Random;
use axum::Router;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use kube::Client;
use manta_logic::action::{Action, Kind};
use manta_logic::config::Safeguards;
use manta_logic::dashboard::RayRequest;
use manta_logic::job::dashboard::{JobPoll, StopAttempt};
use manta_logic::service::dashboard::{ClusterPoll, RefusedConfig, ServeConfig, ServePoll};
use manta_testkit::{DashboardMode, FakeDashboard};
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

struct Fixture {
    executor: Executor,
    jobs: Arc<Pollers<JobPoll>>,
    serve: Arc<Pollers<ServePoll>>,
    in_flight: Arc<InFlightWrites>,
    permit: Permit,
    stores: Arc<Stores>,
    /// Requests that were answered.
    answered: Arc<AtomicUsize>,
    /// Lets the creation of `slow` be answered.
    answer_slow: Arc<Notify>,
}

impl Fixture {
    /// Creations in the namespace `full` are refused, and the first three in `busy` put off for a second; the first one of a
    /// Pod called `last` comes with a new spec; that of `slow` is answered on demand.
    async fn new() -> Self {
        let stores = Arc::new(Stores::default());
        see(&stores, 1);
        let changing = Arc::clone(&stores);
        let (answered, answer_slow) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, slow) = (Arc::clone(&answered), Arc::clone(&answer_slow));
        let answer = move |method: Method, uri: axum::http::Uri, body: String| async move {
            let refused = json!({"kind": "Status", "code": 403, "message": "exceeded quota", "reason": "Forbidden"});
            let put_off = json!({"kind": "Status", "code": 429, "message": "too many requests",
                                 "reason": "TooManyRequests", "details": {"retryAfterSeconds": 1}});
            if body.contains("last") {
                see(&changing, 2);
            }
            if body.contains("slow") {
                slow.notified().await;
            }
            let number = count.fetch_add(1, Ordering::SeqCst);
            match method {
                Method::POST if uri.path().contains("/swamped/") || uri.path().contains("/busy/") && number < 3 => {
                    (StatusCode::TOO_MANY_REQUESTS, axum::Json(put_off)).into_response()
                }
                Method::POST if uri.path().contains("/full/") => {
                    (StatusCode::FORBIDDEN, axum::Json(refused)).into_response()
                }
                _ => axum::Json(json!({"metadata": {"uid": "u", "resourceVersion": "2"}})).into_response(),
            }
        };
        let client = Client::new(Router::new().fallback(answer), "ns");
        let (queue, tasks, stop) = (Arc::new(Queue::default()), TaskTracker::new(), CancellationToken::new());
        let dashboards = Dashboards::new(client.clone(), Route::Direct);
        let jobs = Arc::new(Pollers::new(dashboards.clone(), Arc::clone(&queue), tasks.clone(), stop.clone()));
        let serve = Arc::new(Pollers::new(dashboards.clone(), queue, tasks, stop));
        let in_flight = Arc::new(InFlightWrites::default());
        let executor = Executor {
            kubernetes: KubernetesExecutor {
                client,
                budget: Arc::default(),
                in_flight: Arc::clone(&in_flight),
                random: Random::System,
                safeguards: Safeguards::default(),
            },
            ray: RayExecutor {
                dashboards,
                limit: ConcurrencyLimit::new(RAY_REQUESTS),
                jobs: Arc::clone(&jobs),
                serve: Arc::clone(&serve),
            },
        };
        let permit = ConcurrencyLimit::new(1).acquire().await;
        Self { executor, jobs, serve, in_flight, permit, stores, answered, answer_slow }
    }

    async fn execute(&self, steps: Vec<Step>) -> Vec<StepResult> {
        self.execute_for(&owner(), steps).await
    }

    async fn execute_for(&self, key: &ObjectKey, steps: Vec<Step>) -> Vec<StepResult> {
        let stores = &*self.stores;
        let pass = RunningPass { key, reason: &WakeReason::RayReplied, generation: 1, stores };
        self.executor.execute(&pass, &Stage::new("test", steps), &self.permit).await
    }
}

fn owner() -> ObjectKey {
    ObjectKey::new(Kind::RayJob, "ns", "train")
}

/// Shows the owner at this generation.
fn see(stores: &Stores, generation: i64) {
    let text = json!({"metadata": {"name": "train", "namespace": "ns", "generation": generation}}).to_string();
    stores.jobs.put(0, Arc::new(serde_json::from_str(&text).unwrap()), vec![owner()]);
}

fn create(namespace: &str, name: &str) -> Step {
    let key = ObjectKey::new(Kind::Pod, namespace, name);
    Step::create(key, &json!({"metadata": {"name": name}}), "a test")
}

fn ray(dashboard: &FakeDashboard, request: RayRequest) -> Step {
    let key = ObjectKey::new(Kind::RayCluster, "ns", "train-x");
    Step::new(Action::Ray { key, endpoint: endpoint(dashboard), request }, "a test")
}

#[tokio::test]
async fn the_first_refusal_ends_a_stage() {
    let fixture = Fixture::new().await;
    let mut steps: Vec<Step> = (0..4).map(|number| create("ns", &format!("p{number}"))).collect();
    steps.push(create("full", "p4"));
    steps.extend((5..40).map(|number| create("ns", &format!("p{number}"))));
    let results = fixture.execute(steps).await;
    assert!(results[..4].iter().all(|result| *result == StepResult::Done));
    assert_eq!(results[4], StepResult::Failed("exceeded quota".to_owned()));
    assert!(
        results[12..].iter().all(|result| *result == StepResult::Skipped),
        "a quota that is used up ends the stage"
    );
}

#[tokio::test]
async fn no_write_waits_for_the_slowest_one() {
    let fixture = Fixture::new().await;
    let mut steps = vec![create("ns", "slow")];
    steps.extend((1..100).map(|number| create("ns", &format!("p{number}"))));
    let mut stage = pin!(fixture.execute(steps));
    let others = async {
        while fixture.answered.load(Ordering::SeqCst) < 99 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        results = &mut stage => panic!("the slow write is not answered yet: {results:?}"),
        others = timeout(Duration::from_secs(30), others) => others.expect("the others are written meanwhile"),
    }
    fixture.answer_slow.notify_one();
    assert!(stage.await.iter().all(|result| *result == StepResult::Done));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_server_puts_off_is_sent_again() {
    let fixture = Fixture::new().await;
    let start = tokio::time::Instant::now();
    let results = fixture.execute((0..8).map(|number| create("busy", &format!("p{number}"))).collect()).await;
    assert_eq!(results, vec![StepResult::Done; 8]);
    assert_eq!(fixture.answered.load(Ordering::SeqCst), 8 + 3);
    assert!(start.elapsed() >= Duration::from_secs(1), "as late as the server says");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_put_off_again_and_again_fails() {
    let fixture = Fixture::new().await;
    let results = fixture.execute(vec![create("swamped", "p")]).await;
    assert_eq!(results, [StepResult::Failed("too many requests".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_put_off_is_not_sent_for_an_old_spec() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.execute(vec![create("swamped", "last")]).await, [StepResult::Superseded]);
    assert_eq!(fixture.answered.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_new_spec_ends_a_stage() {
    let fixture = Fixture::new().await;
    let mut steps: Vec<Step> = (0..3).map(|number| create("ns", &format!("p{number}"))).collect();
    steps.push(create("ns", "last"));
    steps.extend((4..40).map(|number| create("ns", &format!("p{number}"))));
    let results = fixture.execute(steps).await;
    assert!(results[..4].iter().all(|result| *result == StepResult::Done));
    assert!(results[12..].iter().all(|result| *result == StepResult::Superseded));
    let dashboard = FakeDashboard::start().await.unwrap();
    let stop = ray(&dashboard, RayRequest::StopJob { job_id: "id".into() });
    assert_eq!(fixture.execute(vec![stop]).await, [StepResult::Superseded]);
    assert!(dashboard.writes().is_empty());
}

#[tokio::test]
async fn creations_are_in_flight() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.execute(vec![create("ns", "p")]).await, [StepResult::Done]);
    let in_flight = fixture.in_flight.of(&owner(), jiff::Timestamp::UNIX_EPOCH, |_| crate::in_flight::Shown::Absent);
    assert!(in_flight.is_creating(Kind::Pod, "p"));
}

#[tokio::test]
async fn requests_to_ray_are_carried_out_beside_writes_and_recorded() {
    let (fixture, dashboard) = (Fixture::new().await, FakeDashboard::start().await.unwrap());
    let poll = JobPoll { endpoint: endpoint(&dashboard), job_id: "id".into(), fresher_than: None };
    fixture.jobs.follow(&owner(), Some(poll));
    let submit = || {
        let body = json!({"entrypoint": "x", "submission_id": "id"});
        ray(&dashboard, RayRequest::SubmitJob { job_id: "id".into(), body })
    };
    let results = fixture.execute(vec![submit(), create("ns", "p")]).await;
    assert_eq!(results, [StepResult::Done, StepResult::Done]);
    assert_eq!(fixture.execute(vec![submit()]).await, [StepResult::Done], "a job that Ray knows counts as submitted");
    let stop = ray(&dashboard, RayRequest::StopJob { job_id: "id".into() });
    assert_eq!(fixture.execute(vec![stop]).await, [StepResult::Done]);
    assert_eq!(fixture.jobs.state(&owner()).unwrap().stop, Some(StopAttempt::Done));
    let writes: Vec<_> = dashboard.writes().into_iter().map(|asked| asked.path).collect();
    assert_eq!(writes, ["/api/jobs/", "/api/jobs/", "/api/jobs/id/stop"]);
}

#[tokio::test]
async fn a_request_that_ray_cannot_take_is_recorded_too() {
    let (fixture, mut dashboard) = (Fixture::new().await, FakeDashboard::start().await.unwrap());
    let poll = JobPoll { endpoint: endpoint(&dashboard), job_id: "id".into(), fresher_than: None };
    fixture.jobs.follow(&owner(), Some(poll));
    let stop = ray(&dashboard, RayRequest::StopJob { job_id: "id".into() });
    dashboard.kill().await;
    assert!(matches!(fixture.execute(vec![stop]).await[..], [StepResult::Failed(_)]));
    assert!(matches!(fixture.jobs.state(&owner()).unwrap().stop, Some(StopAttempt::Failed { .. })));
}

#[tokio::test]
async fn only_a_configuration_that_ray_refuses_is_recorded_as_refused() {
    let (fixture, mut dashboard) = (Fixture::new().await, FakeDashboard::start().await.unwrap());
    let key = ObjectKey::new(Kind::RayService, "ns", "web");
    let text = json!({"metadata": {"name": "web", "namespace": "ns", "generation": 1}}).to_string();
    fixture.stores.services.put(0, Arc::new(serde_json::from_str(&text).unwrap()), vec![key.clone()]);
    let cluster = ClusterPoll { cluster: "train-x".into(), dashboard: None, proxy: None };
    fixture.serve.follow(&key, Some(ServePoll { clusters: vec![cluster] }));
    let config = |text: &str| ServeConfig { text: text.into(), capacity: None };
    let configure = async |dashboard: &FakeDashboard, text: &str| {
        let request = RayRequest::ConfigureServe { config: config(text), body: json!({}) };
        let results = fixture.execute_for(&key, vec![ray(dashboard, request)]).await;
        assert!(matches!(results[..], [StepResult::Failed(_)]), "{results:?}");
        fixture.serve.state(&key).unwrap()["train-x"].refused.clone()
    };
    dashboard.set_mode(DashboardMode::Answers(503, "no healthy upstream".into()));
    assert_eq!(configure(&dashboard, "a").await, None);
    dashboard.set_mode(DashboardMode::Answers(400, "no such field".into()));
    let why = "UpdateDeployments fail: 400 Bad Request no such field".to_owned();
    let refused = Some(RefusedConfig { config: config("b"), why });
    assert_eq!(configure(&dashboard, "b").await, refused);
    dashboard.kill().await;
    assert_eq!(configure(&dashboard, "c").await, refused, "what Ray said last");
}
