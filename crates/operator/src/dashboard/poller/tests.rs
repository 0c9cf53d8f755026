//! Pollers and dashboards that live, die and come back.

use super::*;
use crate::dashboard::client::Route;
use crate::dashboard::jobs::tests::{client, endpoint};
use crate::queue::Next;
use manta_logic::action::Kind;
use manta_logic::job::dashboard::{Answer, Ask, Dashboard, Stop, Watch};
use manta_testkit::{DashboardMode as Mode, FakeDashboard};
use serde_json::json;

struct Desk {
    pollers: Pollers<Watch>,
    queue: Arc<Queue>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Desk {
    fn new() -> Self {
        let (queue, tasks, stop) = (Arc::new(Queue::default()), TaskTracker::new(), CancellationToken::new());
        let pollers = Pollers::new(client(Route::Direct), Arc::clone(&queue), tasks.clone(), stop.clone());
        Self { pollers, queue, stop, tasks }
    }

    /// Waits until what is known about an object fulfils a condition; every answer wakes the queue.
    async fn until(&self, owner: &ObjectKey, come: impl Fn(&Dashboard) -> bool) -> Dashboard {
        let waiting = async {
            loop {
                if let Some(known) = self.pollers.known(owner).filter(|known| come(known)) {
                    return known;
                }
                let (woken, _) = self.queue.next().await;
                self.queue.done(&woken, Next::Rest);
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

fn watch(dashboard: &FakeDashboard, id: &str, ask: Ask) -> Watch {
    Watch { endpoint: endpoint(dashboard), job_id: id.to_owned(), ask, fresher_than: None }
}

fn has_status<'a>(status: &'a str) -> impl Fn(&Dashboard) -> bool + 'a {
    move |known| matches!(&known.heard, Some(heard) if matches!(&heard.answer, Answer::Info(info) if info.status == status))
}

fn has_failed(known: &Dashboard) -> bool {
    matches!(&known.heard, Some(heard) if matches!(heard.answer, Answer::Failed(_)))
}

#[tokio::test]
async fn a_job_is_submitted_once_followed_and_stopped() {
    let (desk, dashboard) = (Desk::new(), FakeDashboard::start().await.unwrap());
    let train = owner("train");
    let body = json!({"entrypoint": "x", "submission_id": "id"});
    let submit = watch(&dashboard, "id", Ask::InfoOrSubmit(body));
    for _ in 0..3 {
        // Every pass says it again.
        desk.pollers.follow(&train, Some(submit.clone()));
    }
    desk.until(&train, has_status("PENDING")).await;
    dashboard.set_job("id", &json!({"status": "RUNNING"}));
    desk.until(&train, has_status("RUNNING")).await;
    desk.pollers.follow(&train, Some(Watch { ask: Ask::Stop, ..submit }));
    let known = desk.until(&train, |known| known.stop.is_some()).await;
    assert_eq!(known.stop, Some(Stop::Done));
    let writes: Vec<_> = dashboard.writes().into_iter().map(|asked| asked.path).collect();
    assert_eq!(writes, ["/api/jobs/", "/api/jobs/id/stop"]);
    desk.pollers.follow(&train, None);
    assert_eq!((desk.pollers.count(), desk.pollers.known(&train)), (0, None));
    desk.close().await;
}

#[tokio::test]
async fn a_dashboard_that_dies_and_comes_back_is_found_again() {
    let (desk, mut dashboard) = (Desk::new(), FakeDashboard::start().await.unwrap());
    let train = owner("train");
    desk.pollers.follow(&train, Some(watch(&dashboard, "id", Ask::Info)));
    dashboard.set_job("id", &json!({"status": "RUNNING"}));
    desk.until(&train, has_status("RUNNING")).await;
    dashboard.kill().await;
    desk.until(&train, has_failed).await;
    dashboard.revive().await.unwrap();
    desk.until(&train, |known| matches!(&known.heard, Some(heard) if heard.answer == Answer::NotFound)).await;
    desk.close().await;
}

#[tokio::test]
async fn another_job_starts_with_nothing_known() {
    let (desk, dashboard) = (Desk::new(), FakeDashboard::start().await.unwrap());
    let train = owner("train");
    dashboard.set_job("first", &json!({"status": "FAILED"}));
    desk.pollers.follow(&train, Some(watch(&dashboard, "first", Ask::Info)));
    let first = desk.until(&train, has_status("FAILED")).await;
    desk.pollers.follow(&train, Some(watch(&dashboard, "second", Ask::Info)));
    let second = desk.pollers.known(&train).unwrap();
    assert_eq!(second.heard, None);
    assert!(second.asked_since >= first.asked_since);
    desk.close().await;
}

#[tokio::test]
async fn a_fresh_answer_is_fetched_at_once() {
    let (desk, dashboard) = (Desk::new(), FakeDashboard::start().await.unwrap());
    let train = owner("train");
    dashboard.set_job("id", &json!({"status": "RUNNING"}));
    desk.pollers.follow(&train, Some(watch(&dashboard, "id", Ask::Info)));
    let first = desk.until(&train, has_status("RUNNING")).await;
    let asked = std::time::Instant::now();
    let limit = Timestamp::now();
    let fresher = Watch { fresher_than: Some(limit), ..watch(&dashboard, "id", Ask::Info) };
    desk.pollers.follow(&train, Some(fresher));
    assert!(first.heard.unwrap().at < limit);
    desk.until(&train, |known| known.heard.as_ref().is_some_and(|heard| heard.at >= limit)).await;
    assert!(asked.elapsed() < QUICK, "it waited for its turn");
    desk.close().await;
}

#[tokio::test]
async fn a_thousand_silent_dashboards_delay_no_other() {
    let (desk, silent) = (Desk::new(), FakeDashboard::start().await.unwrap());
    silent.set_mode(Mode::Slow(Duration::from_secs(60)));
    for number in 0..1000 {
        desk.pollers.follow(&owner(&format!("silent-{number}")), Some(watch(&silent, "id", Ask::Info)));
    }
    let lively = FakeDashboard::start().await.unwrap();
    lively.set_job("id", &json!({"status": "RUNNING"}));
    let train = owner("train");
    desk.pollers.follow(&train, Some(watch(&lively, "id", Ask::Info)));
    // Asked one after the other, the silent ones would take half an hour; this waits for seconds.
    desk.until(&train, has_status("RUNNING")).await;
    desk.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_pace_follows_what_is_heard() {
    let mut pace = Pace { spread: 1.0, ..Pace::new(&owner("train")) };
    pace.heard(true, true);
    assert_eq!(pace.wait(), QUICK);
    tokio::time::advance(Duration::from_secs(30)).await;
    pace.heard(true, false);
    assert_eq!(pace.wait(), Duration::from_secs(3));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(pace.wait(), STEADY);
    let waits: Vec<_> = (0..8)
        .map(|_| {
            pace.heard(false, false);
            (pace.wait().as_secs(), pace.is_open())
        })
        .collect();
    assert_eq!(waits[..3], [(1, false), (2, false), (4, true)]);
    assert_eq!(waits[7], (30, true));
    pace.heard(true, true);
    assert_eq!((pace.wait(), pace.is_open()), (QUICK, false));
}
