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
use manta_testkit::FakeDashboard;
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

struct Fixture {
    executor: Executor,
    jobs: Arc<Pollers<JobPoll>>,
    in_flight: Arc<InFlightWrites>,
    permit: Permit,
    stores: Arc<Stores>,
}

impl Fixture {
    /// Creations in the namespace `full` are refused; the first one of a Pod called `last` comes with a new spec.
    async fn new() -> Self {
        let stores = Arc::new(Stores::default());
        see(&stores, 1);
        let changing = Arc::clone(&stores);
        let answer = move |method: Method, uri: axum::http::Uri, body: String| async move {
            let refused = json!({"kind": "Status", "code": 403, "message": "exceeded quota", "reason": "Forbidden"});
            if body.contains("last") {
                see(&changing, 2);
            }
            match method {
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
                limit: Arc::new(ConcurrencyLimit::new(WRITES)),
                in_flight: Arc::clone(&in_flight),
                random: Random::System,
                safeguards: Safeguards::default(),
            },
            ray: RayExecutor { dashboards, limit: ConcurrencyLimit::new(RAY_REQUESTS), jobs: Arc::clone(&jobs), serve },
        };
        Self { executor, jobs, in_flight, permit: ConcurrencyLimit::new(1).acquire().await, stores }
    }

    async fn execute(&self, steps: Vec<Step>) -> Vec<StepResult> {
        let (key, stores) = (owner(), &*self.stores);
        let pass = RunningPass { key: &key, reason: &WakeReason::RayReplied, generation: 1, stores };
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
    assert_eq!(results[39], StepResult::Skipped, "a quota that is used up is hit once");
}

#[tokio::test]
async fn a_new_spec_ends_a_stage() {
    let fixture = Fixture::new().await;
    let mut steps: Vec<Step> = (0..3).map(|number| create("ns", &format!("p{number}"))).collect();
    steps.push(create("ns", "last"));
    steps.extend((4..40).map(|number| create("ns", &format!("p{number}"))));
    let results = fixture.execute(steps).await;
    assert!(results[..4].iter().all(|result| *result == StepResult::Done));
    assert!(results[4..].iter().all(|result| *result == StepResult::Superseded));
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
