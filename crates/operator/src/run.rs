//! Starts and runs the operator.

use crate::clock::{Clock, LocalZone};
use crate::concurrency_limit::{ConcurrencyLimit, Permit};
use crate::context::Context;
use crate::controllers;
use crate::dashboard::poller::Pollers;
use crate::dashboard::{self, Route};
use crate::events::Publisher;
use crate::evidence::Sources;
use crate::execute::{self, Executor, KubernetesExecutor, RayExecutor};
use crate::existence_cache::ExistenceCache;
use crate::in_flight::InFlightWrites;
use crate::metrics::Telemetry;
use crate::post_mortem::{self, DeletedObject, Recorder};
use crate::queue::{Due, Queue, Requeue};
use crate::random::Random;
use crate::status_writer::StatusWriter;
use crate::watches::Watches;
use crate::write_budget::WriteBudget;
use futures::FutureExt;
use kube::Client;
use manta_logic::config::Config;
use manta_logic::post_mortem::Limits;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

/// Concurrent passes, slow ones not counted: each holds a parsed object and the objects to create, and waits only for
/// the API server. Other due objects stay in the queue, where their changes coalesce.
const PASSES: usize = 32;

/// Settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub config: Config,
    /// Namespaces to watch; empty means all.
    pub watch_namespaces: Vec<String>,
    /// The name of this instance in events.
    pub host: String,
    /// The route to Ray's dashboards.
    pub dashboard_route: Route,
    /// The clock that decisions use.
    pub clock: Clock,
    /// The time zone of schedules that name none.
    pub local_zone: LocalZone,
    /// The source of random names and tokens.
    pub random: Random,
    /// How much is kept of objects that ended, failed or were deleted; nothing keeps nothing.
    pub post_mortems: Option<Limits>,
    /// The directory in which that is kept as files; nothing means ConfigMaps.
    pub post_mortem_directory: Option<PathBuf>,
}

/// Runs until stopped, and finishes running passes.
pub async fn run(client: Client, settings: Settings, stop: CancellationToken) {
    run_with_telemetry(client, settings, Telemetry::default(), stop).await;
}

/// Like [`run`], and reports what it does.
pub async fn run_with_telemetry(client: Client, settings: Settings, telemetry: Telemetry, stop: CancellationToken) {
    let term = Term::default();
    term.elected.cancel();
    run_as(client, settings, telemetry, term, stop).await;
}

/// When the operator may act.
#[derive(Clone, Default)]
pub(crate) struct Term {
    pub(crate) elected: CancellationToken,
    /// Cancels running passes at once.
    pub(crate) lost: CancellationToken,
}

/// Like [`run`], but acts only during its term, and reports telemetry.
pub(crate) async fn run_as(
    client: Client,
    settings: Settings,
    telemetry: Telemetry,
    term: Term,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    let queue = Arc::clone(&telemetry.queue);
    let (deleted, mut deletions) = post_mortem::deletions();
    let context = Arc::new(start(client, settings, telemetry, &tasks, &stop, deleted));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = term.elected.cancelled() => info!("reconciling"),
    }
    let passes = TaskTracker::new();
    if context.recorder.is_on() {
        let (context, stop, lost) = (Arc::clone(&context), stop.clone(), term.lost.clone());
        tasks.spawn(async move {
            let executor = &context.executor.kubernetes;
            let records = Box::pin(async {
                tokio::join!(
                    context.recorder.sweep(executor),
                    context.recorder.follow_deletions(executor, &mut deletions)
                );
            });
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = lost.cancelled() => {}
                () = records => {}
            }
        });
    }
    let limit = ConcurrencyLimit::new(PASSES);
    loop {
        let next = async {
            let permit = limit.acquire().await;
            (permit, queue.next().await)
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            (permit, due) = next => {
                let (context, queue, lost) = (Arc::clone(&context), Arc::clone(&queue), term.lost.clone());
                passes.spawn(async move {
                    lost.run_until_cancelled(pass(&context, &queue, &due, &permit)).await;
                });
            }
        }
    }
    passes.close();
    passes.wait().await;
    drop(context);
    tasks.close();
    tasks.wait().await;
    info!("stopped");
}

/// Builds the context and starts the watches.
fn start(
    client: Client,
    settings: Settings,
    telemetry: Telemetry,
    tasks: &TaskTracker,
    stop: &CancellationToken,
    deleted: mpsc::Sender<DeletedObject>,
) -> Context {
    let Telemetry { stores, queue, metrics } = telemetry;
    let budget = Arc::new(WriteBudget::default());
    let safeguards = settings.config.safeguards;
    let in_flight = Arc::new(InFlightWrites::new(safeguards.in_flight_writes));
    let namespaces = settings.watch_namespaces;
    let deleted = settings.post_mortems.map(|_| deleted);
    let watches = Watches::new(
        client.clone(),
        namespaces.clone(),
        Arc::clone(&stores),
        Arc::clone(&queue),
        tasks.clone(),
        stop.clone(),
        deleted,
    )
    .with_streaming_lists(settings.config.platform.streaming_lists)
    .with_in_flight(Arc::clone(&in_flight));
    watches.start(settings.config.gates.ray_cron_job);
    let dashboards = dashboard::Client::new(client.clone(), settings.dashboard_route)
        .with_metrics(Arc::clone(&metrics))
        .with_clock(settings.clock);
    let jobs = Arc::new(Pollers::new(dashboards.clone(), Arc::clone(&queue), tasks.clone(), stop.clone()));
    let serve = Arc::new(Pollers::new(dashboards.clone(), queue, tasks.clone(), stop.clone()));
    let sources = Sources {
        client: client.clone(),
        dashboards: dashboards.clone(),
        cluster_domain: settings.config.cluster_domain.clone(),
        workloads: false,
    };
    let directory = settings.post_mortem_directory;
    let recorder = Recorder::new(sources, settings.post_mortems, directory, namespaces, settings.clock);
    Context {
        recorder,
        executor: Executor {
            kubernetes: KubernetesExecutor {
                client: client.clone(),
                budget: Arc::clone(&budget),
                in_flight: Arc::clone(&in_flight),
                random: settings.random.clone(),
                safeguards,
            },
            ray: RayExecutor {
                dashboards,
                limit: ConcurrencyLimit::new(execute::RAY_REQUESTS),
                jobs: Arc::clone(&jobs),
                serve: Arc::clone(&serve),
            },
        },
        status: StatusWriter::new(client.clone(), budget, Arc::clone(&in_flight), safeguards.version_preconditions),
        publisher: Publisher::start(&client, &settings.host, settings.clock, tasks),
        client,
        config: settings.config,
        clock: settings.clock,
        local_zone: settings.local_zone,
        random: settings.random,
        stores,
        watches,
        in_flight,
        existence: ExistenceCache::default(),
        jobs,
        serve,
        metrics,
    }
}

/// Runs and measures one pass over a due object.
async fn pass(context: &Context, queue: &Queue, due: &Due, permit: &Permit) {
    context.metrics.pass_started(&due.key, due.waited);
    let start = Instant::now();
    let requeue = permit.run(guarded(context, due, permit)).await;
    context.metrics.pass_ended(&due.key, &requeue, start.elapsed());
    queue.done(&due.key, requeue);
}

/// Runs a pass and treats a panic as an error: the object is retried, and no other object is affected.
async fn guarded(context: &Context, due: &Due, permit: &Permit) -> Requeue {
    let pass = controllers::reconcile(context, due, permit);
    AssertUnwindSafe(pass).catch_unwind().await.unwrap_or_else(|_| {
        let key = &due.key;
        context.metrics.pass_panicked(key);
        error!(kind = ?key.kind, namespace = key.namespace, name = key.name, "a pass panicked; retrying");
        Requeue::BackOff
    })
}
