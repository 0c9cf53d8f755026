//! The operators of a world: one, or two that share the work by leader election. They die and come back.

use crate::api::NAMESPACE;
use crate::network::{Life, Network};
use crate::rng::Rng;
use crate::transcript::Transcript;
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use manta_logic::config::Config;
use manta_logic::post_mortem::Limits;
use manta_operator::Settings;
use manta_operator::clock::{Clock, LocalZone};
use manta_operator::dashboard::Route;
use manta_operator::leader::run_elected;
use manta_operator::random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long an operator is down that a fault killed, in milliseconds.
const DOWN: std::ops::Range<u64> = 50..5_000;

/// Keeps one operator running.
#[derive(Clone)]
pub(crate) struct Keeper {
    pub(crate) operator: usize,
    pub(crate) elected: bool,
    pub(crate) network: Network,
    /// The API server's time at the start of the world.
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) transcript: Transcript,
    pub(crate) config: Config,
    /// The operator keeps records of objects that ended.
    pub(crate) post_mortems: bool,
    pub(crate) orders: Arc<Orders>,
}

/// What becomes of an operator.
#[derive(Default)]
pub(crate) struct Orders {
    crash: tokio::sync::Notify,
    down_until: std::sync::Mutex<Option<Instant>>,
    /// How many seconds its clock is ahead.
    skew: AtomicI64,
}

impl Orders {
    /// Kills the operator, until a time.
    pub(crate) fn kill(&self, until: Instant) {
        *self.down_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(until);
        self.crash.notify_one();
    }

    /// Sets how many seconds the operator's clock is ahead from its next start on.
    pub(crate) fn set_clock(&self, seconds: i64) {
        self.skew.store(seconds, Ordering::Relaxed);
    }

    fn down_until(&self) -> Option<Instant> {
        *self.down_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Keeper {
    /// Starts the operator again whenever it died, until dropped.
    pub(crate) async fn run(self) {
        loop {
            let mut running = self.start();
            tokio::select! {
                biased;
                () = self.network.crash(self.operator) => {
                    drop(running);
                    sleep(Duration::from_millis(self.rng.within(DOWN))).await;
                }
                () = self.orders.crash.notified() => {
                    self.transcript.line("world", format!("operator {} dies", self.operator));
                    drop(running);
                    if let Some(until) = self.orders.down_until() {
                        sleep_until(until).await;
                    }
                }
                // It lost the election: Kubernetes restarts it.
                _ = &mut running.task => sleep(Duration::from_secs(1)).await,
            }
        }
    }

    fn start(&self) -> Running {
        self.transcript.line("world", format!("operator {} starts", self.operator));
        let life = Life { operator: self.operator, alive: Arc::new(AtomicBool::new(true)) };
        let stop = CancellationToken::new();
        let settings = Settings {
            config: self.config.clone(),
            host: format!("operator-{}", self.operator),
            dashboard_route: Route::ApiServerProxy,
            clock: self.clock.ahead(SignedDuration::from_secs(self.orders.skew.load(Ordering::Relaxed))),
            local_zone: LocalZone::Fixed(TimeZone::UTC),
            random: Random::seeded(self.rng.next()),
            // So few that old ones have to go.
            post_mortems: self.post_mortems.then(|| Limits { count: 3, ..Limits::default() }),
            ..Settings::default()
        };
        let (network, stopped, alive) = (self.network.clone(), stop.clone(), Arc::clone(&life.alive));
        let task = if self.elected {
            tokio::spawn(async move {
                let client = |fence| network.fenced_client(&life, &fence);
                let _ = run_elected(client, settings, NAMESPACE, stopped).await;
            })
        } else {
            tokio::spawn(manta_operator::run(network.client(&life), settings, stopped))
        };
        Running { alive, stop, task }
    }
}

/// One life of an operator, which ends when this is dropped.
struct Running {
    alive: Arc<AtomicBool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Relaxed);
        self.task.abort();
        self.stop.cancel();
    }
}
