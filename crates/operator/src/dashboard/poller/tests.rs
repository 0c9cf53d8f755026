//! Pollers and dashboards that live, die and come back.

use super::*;
use crate::dashboard::client::Route;
use crate::dashboard::jobs::tests::{client, endpoint};
use crate::queue::Requeue;
use manta_logic::action::Kind;
use manta_logic::dashboard::RayRequest;
use manta_logic::job::dashboard::{JobAnswer, JobDashboard, JobPoll};
use manta_testkit::{DashboardMode as Mode, FakeDashboard};
use serde_json::json;

struct Fixture {
    pollers: Pollers<JobPoll>,
    queue: Arc<Queue>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Fixture {
    fn new() -> Self {
        let (queue, tasks, stop) = (Arc::new(Queue::default()), TaskTracker::new(), CancellationToken::new());
        let pollers = Pollers::new(client(Route::Direct), Arc::clone(&queue), tasks.clone(), stop.clone());
        Self { pollers, queue, stop, tasks }
    }

    /// Waits until a condition holds for what is known about an object; every change wakes the queue.
    async fn until(&self, owner: &ObjectKey, holds: impl Fn(&JobDashboard) -> bool) -> JobDashboard {
        let waiting = async {
            loop {
                if let Some(state) = self.pollers.state(owner).filter(|state| holds(state)) {
                    return state;
                }
                let due = self.queue.next().await;
                assert_eq!(due.reason, WakeReason::RayReplied);
                self.queue.done(&due.key, Requeue::OnChange);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it never came")
    }

    async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn owner(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::RayJob, "ns", name)
}

fn poll(dashboard: &FakeDashboard, id: &str) -> JobPoll {
    JobPoll { endpoint: endpoint(dashboard), job_id: id.to_owned(), fresher_than: None }
}

fn has_status<'a>(status: &'a str) -> impl Fn(&JobDashboard) -> bool + 'a {
    move |state| matches!(&state.last_reply, Some(reply) if matches!(&reply.answer, JobAnswer::Info(info) if info.status == status))
}

fn has_failed(state: &JobDashboard) -> bool {
    matches!(&state.last_reply, Some(reply) if matches!(reply.answer, JobAnswer::Failed(_)))
}

#[tokio::test]
async fn a_request_is_followed_by_a_reply_that_is_younger() {
    let (fixture, dashboard) = (Fixture::new(), FakeDashboard::start().await.unwrap());
    let train = owner("train");
    for _ in 0..3 {
        // Every pass says it again.
        fixture.pollers.follow(&train, Some(poll(&dashboard, "id")));
    }
    fixture
        .until(&train, |state| matches!(&state.last_reply, Some(reply) if reply.answer == JobAnswer::NotFound))
        .await;
    dashboard.set_job("id", &json!({"status": "PENDING"}));
    let request = RayRequest::SubmitJob { job_id: "id".into(), body: json!({}) };
    let asked = std::time::Instant::now();
    fixture.pollers.record(&train, |state| state.record(&request, &Ok(()), Timestamp::now()));
    assert_eq!(fixture.pollers.state(&train).unwrap().last_reply, None, "the old reply says nothing any more");
    fixture.until(&train, has_status("PENDING")).await;
    assert!(asked.elapsed() < QUICK, "it waited for its turn");
    fixture.pollers.follow(&train, None);
    assert_eq!((fixture.pollers.count(), fixture.pollers.state(&train)), (0, None));
    fixture.close().await;
}

#[tokio::test]
async fn a_dashboard_that_dies_and_comes_back_is_found_again() {
    let (fixture, mut dashboard) = (Fixture::new(), FakeDashboard::start().await.unwrap());
    let train = owner("train");
    fixture.pollers.follow(&train, Some(poll(&dashboard, "id")));
    dashboard.set_job("id", &json!({"status": "RUNNING"}));
    fixture.until(&train, has_status("RUNNING")).await;
    dashboard.kill().await;
    fixture.until(&train, has_failed).await;
    dashboard.revive().await.unwrap();
    fixture
        .until(&train, |state| matches!(&state.last_reply, Some(reply) if reply.answer == JobAnswer::NotFound))
        .await;
    fixture.close().await;
}

#[tokio::test]
async fn another_job_starts_with_nothing_known() {
    let (fixture, dashboard) = (Fixture::new(), FakeDashboard::start().await.unwrap());
    let train = owner("train");
    dashboard.set_job("first", &json!({"status": "FAILED"}));
    fixture.pollers.follow(&train, Some(poll(&dashboard, "first")));
    let first = fixture.until(&train, has_status("FAILED")).await;
    fixture.pollers.follow(&train, Some(poll(&dashboard, "second")));
    let second = fixture.pollers.state(&train).unwrap();
    assert_eq!(second.last_reply, None);
    assert!(second.polled_since >= first.polled_since);
    fixture.close().await;
}

#[tokio::test]
async fn a_fresh_reply_is_fetched_at_once() {
    let (fixture, dashboard) = (Fixture::new(), FakeDashboard::start().await.unwrap());
    let train = owner("train");
    dashboard.set_job("id", &json!({"status": "RUNNING"}));
    fixture.pollers.follow(&train, Some(poll(&dashboard, "id")));
    let first = fixture.until(&train, has_status("RUNNING")).await;
    let asked = std::time::Instant::now();
    let limit = Timestamp::now();
    let fresher = JobPoll { fresher_than: Some(limit), ..poll(&dashboard, "id") };
    fixture.pollers.follow(&train, Some(fresher));
    assert!(first.last_reply.unwrap().at < limit);
    fixture.until(&train, |state| state.last_reply.as_ref().is_some_and(|reply| reply.at >= limit)).await;
    assert!(asked.elapsed() < QUICK, "it waited for its turn");
    fixture.close().await;
}

#[tokio::test]
async fn a_thousand_silent_dashboards_delay_no_other() {
    let (fixture, silent) = (Fixture::new(), FakeDashboard::start().await.unwrap());
    silent.set_mode(Mode::Slow(Duration::from_secs(60)));
    for number in 0..1000 {
        fixture.pollers.follow(&owner(&format!("silent-{number}")), Some(poll(&silent, "id")));
    }
    let lively = FakeDashboard::start().await.unwrap();
    lively.set_job("id", &json!({"status": "RUNNING"}));
    let train = owner("train");
    fixture.pollers.follow(&train, Some(poll(&lively, "id")));
    // Asked one after the other, the silent ones would take half an hour; this waits for seconds.
    fixture.until(&train, has_status("RUNNING")).await;
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_pace_follows_the_replies() {
    let mut pace = Pace { spread: 1.0, ..Pace::new(&owner("train")) };
    pace.replied(&Round { reached: true, changed: true });
    assert_eq!(pace.wait(), QUICK);
    tokio::time::advance(Duration::from_secs(30)).await;
    pace.replied(&Round { reached: true, changed: false });
    assert_eq!(pace.wait(), Duration::from_secs(3));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(pace.wait(), STEADY);
    let waits: Vec<_> = (0..8)
        .map(|_| {
            pace.replied(&Round { reached: false, changed: false });
            (pace.wait().as_secs(), pace.is_open())
        })
        .collect();
    assert_eq!(waits[..3], [(1, false), (2, false), (4, true)]);
    assert_eq!(waits[7], (30, true));
    pace.replied(&Round { reached: true, changed: true });
    assert_eq!((pace.wait(), pace.is_open()), (QUICK, false));
}

#[tokio::test(start_paused = true)]
async fn every_object_is_polled_within_the_steady_interval_and_out_of_step() {
    let paces: Vec<Pace> = (0..100).map(|number| Pace::new(&owner(&format!("train-{number}")))).collect();
    tokio::time::advance(Duration::from_secs(3600)).await;
    let waits: std::collections::BTreeSet<Duration> = paces.iter().map(Pace::wait).collect();
    assert!(waits.iter().all(|wait| *wait <= STEADY), "{waits:?}");
    assert!(waits.len() > 10, "they differ: {waits:?}");
}
