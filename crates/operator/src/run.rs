//! Starts the operator and keeps it going.

use crate::act::{self, Actor};
use crate::clock::Clock;
use crate::controllers;
use crate::dashboard::poller::Pollers;
use crate::dashboard::{self, Route};
use crate::events::Publisher;
use crate::in_flight::InFlightWrites;
use crate::look_up::Memory;
use crate::metrics::{Metrics, Telemetry};
use crate::queue::{Next, Queue};
use crate::room::Room;
use crate::status_writer::StatusWriter;
use crate::stores::Stores;
use crate::watches::Watches;
use futures::FutureExt;
use kube::Client;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::config::Config;
use manta_logic::{job, service};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

/// Passes that may be under way at once, slow ones not counted: each holds a parsed object and what it wants made, and
/// has nothing to wait for but the API server. What is due meanwhile stays in the queue, where changes come together.
const PASSES: usize = 32;

/// How the operator is to run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub config: Config,
    /// Namespaces to look at; none means all.
    pub watch_namespaces: Vec<String>,
    /// Our name in events.
    pub host: String,
    /// The way to Ray's dashboards.
    pub dashboard_route: Route,
    /// The clock that decisions are made by.
    pub clock: Clock,
}

/// Everything that a pass needs.
pub struct Operator {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) stores: Arc<Stores>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) watches: Watches,
    pub(crate) in_flight: Arc<InFlightWrites>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) actor: Actor,
    pub(crate) status: StatusWriter,
    pub(crate) publisher: Publisher,
    /// The Ray jobs that are followed.
    pub(crate) ray_jobs: Pollers<job::dashboard::Watch>,
    /// The RayServices whose Serve is followed.
    pub(crate) serve: Pollers<service::dashboard::Watch>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Runs until told to stop; passes in hand are finished.
pub async fn run(client: Client, settings: Settings, stop: CancellationToken) {
    let term = Term::default();
    term.elected.cancel();
    run_as(client, settings, Telemetry::default(), term, stop).await;
}

/// When the operator may act.
#[derive(Clone, Default)]
pub(crate) struct Term {
    pub(crate) elected: CancellationToken,
    /// Passes in hand are dropped at once.
    pub(crate) lost: CancellationToken,
}

/// Like [`run`], but acts only while it may, and tells what it does.
pub(crate) async fn run_as(
    client: Client,
    settings: Settings,
    telemetry: Telemetry,
    term: Term,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    let Telemetry { stores, queue, metrics } = telemetry;
    let budget = act::budget();
    let in_flight = Arc::new(InFlightWrites::default());
    let memory = Arc::new(Memory::default());
    let publisher = Publisher::start(client.clone(), &settings.host, settings.clock, &tasks);
    let watches = Watches::new(
        client.clone(),
        settings.watch_namespaces,
        Arc::clone(&stores),
        Arc::clone(&queue),
        tasks.clone(),
        stop.clone(),
    );
    watches.start(settings.config.gates.ray_cron_job);
    let dashboards = dashboard::Client::new(client.clone(), settings.dashboard_route)
        .counted_by(Arc::clone(&metrics))
        .timed_by(settings.clock);
    let op = Arc::new(Operator {
        ray_jobs: Pollers::new(dashboards.clone(), Arc::clone(&queue), tasks.clone(), stop.clone()),
        serve: Pollers::new(dashboards, Arc::clone(&queue), tasks.clone(), stop.clone()),
        actor: Actor::new(
            client.clone(),
            Arc::clone(&budget),
            Arc::clone(&in_flight),
            Arc::clone(&memory),
            publisher.clone(),
        ),
        status: StatusWriter::new(client.clone(), budget, Arc::clone(&in_flight)),
        client,
        config: settings.config,
        clock: settings.clock,
        stores,
        queue,
        watches,
        in_flight,
        memory,
        publisher,
        metrics,
    });
    tokio::select! {
        () = stop.cancelled() => {}
        () = term.elected.cancelled() => info!("the operator runs"),
    }
    let passes = TaskTracker::new();
    let room = Room::new(PASSES);
    loop {
        let next = async {
            let place = room.enter().await;
            (place, op.queue.next().await)
        };
        tokio::select! {
            () = stop.cancelled() => break,
            (place, (key, waited)) = next => {
                let (op, lost) = (Arc::clone(&op), term.lost.clone());
                op.metrics.pass_begins(&key, waited);
                passes.spawn(async move {
                    let start = Instant::now();
                    let pass = lost.run_until_cancelled(guarded_pass(&op, &key));
                    let Some(next) = place.work(pass).await else { return };
                    op.metrics.pass_ends(&key, next, start.elapsed());
                    op.queue.done(&key, next);
                });
            }
        }
    }
    passes.close();
    passes.wait().await;
    drop(op);
    tasks.close();
    tasks.wait().await;
    info!("the operator has stopped");
}

/// A pass whose panic is an error like others: the object is tried again, and nobody else notices.
async fn guarded_pass(op: &Operator, key: &ObjectKey) -> Next {
    AssertUnwindSafe(pass(op, key)).catch_unwind().await.unwrap_or_else(|_| {
        op.metrics.pass_panicked(key);
        error!(kind = ?key.kind, namespace = key.namespace, name = key.name, "a pass panicked; it is tried again");
        Next::BackOff
    })
}

async fn pass(op: &Operator, key: &ObjectKey) -> Next {
    match key.kind {
        Kind::RayCluster => controllers::cluster::reconcile(op, key).await,
        Kind::RayJob => controllers::job::reconcile(op, key).await,
        Kind::RayService => controllers::service::reconcile(op, key).await,
        Kind::RayCronJob => controllers::cronjob::reconcile(op, key).await,
        _ => Next::Rest,
    }
}
