//! Starts and runs the operator.

use crate::clock::Clock;
use crate::concurrency_limit::{ConcurrencyLimit, Permit};
use crate::context::Context;
use crate::controllers;
use crate::dashboard::poller::Pollers;
use crate::dashboard::{self, Route};
use crate::events::Publisher;
use crate::execute::{self, Executor, KubernetesExecutor, RayExecutor};
use crate::existence_cache::ExistenceCache;
use crate::in_flight::InFlightWrites;
use crate::metrics::Telemetry;
use crate::queue::{Due, Queue, Requeue};
use crate::random::Random;
use crate::status_writer::StatusWriter;
use crate::watches::Watches;
use futures::FutureExt;
use kube::Client;
use manta_logic::config::Config;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
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
    /// The source of random names and tokens.
    pub random: Random,
}

/// Runs until stopped, and finishes running passes.
pub async fn run(client: Client, settings: Settings, stop: CancellationToken) {
    let term = Term::default();
    term.elected.cancel();
    run_as(client, settings, Telemetry::default(), term, stop).await;
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
    let context = Arc::new(start(client, settings, telemetry, &tasks, &stop));
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = term.elected.cancelled() => info!("reconciling"),
    }
    let passes = TaskTracker::new();
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
) -> Context {
    let Telemetry { stores, queue, metrics } = telemetry;
    let limit = Arc::new(ConcurrencyLimit::new(execute::WRITES));
    let safeguards = settings.config.safeguards;
    let in_flight = Arc::new(InFlightWrites::new(safeguards.in_flight_writes));
    let namespaces = settings.watch_namespaces;
    let watches =
        Watches::new(client.clone(), namespaces, Arc::clone(&stores), Arc::clone(&queue), tasks.clone(), stop.clone());
    watches.start(settings.config.gates.ray_cron_job);
    let dashboards = dashboard::Client::new(client.clone(), settings.dashboard_route)
        .with_metrics(Arc::clone(&metrics))
        .with_clock(settings.clock);
    let jobs = Arc::new(Pollers::new(dashboards.clone(), Arc::clone(&queue), tasks.clone(), stop.clone()));
    let serve = Arc::new(Pollers::new(dashboards.clone(), queue, tasks.clone(), stop.clone()));
    Context {
        executor: Executor {
            kubernetes: KubernetesExecutor {
                client: client.clone(),
                limit: Arc::clone(&limit),
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
        status: StatusWriter::new(client.clone(), limit, Arc::clone(&in_flight), safeguards.version_preconditions),
        publisher: Publisher::start(client.clone(), &settings.host, settings.clock, tasks),
        client,
        config: settings.config,
        clock: settings.clock,
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
