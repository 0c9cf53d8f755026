//! One world: the API server with its controllers, the operators, nodes, Ray and users, on one thread and one clock.

use crate::api::Api;
use crate::cert_manager::CertManager;
use crate::checker::{Answer, Checker, Others, Transitions};
use crate::crds;
use crate::foreign;
use crate::gateway::Gateways;
use crate::kubelet::{Gates, Kubelet};
use crate::kueue::Kueue;
use crate::network::Network;
pub use crate::network::Sent;
use crate::operators::{Keeper, Orders};
use crate::panics;
use crate::ray::Ray;
use crate::review;
use crate::rng::Rng;
use crate::scheduler::{BatchScheduler, Scheduler};
use crate::script::{Act, Script, Timed};
use crate::takeover::leave_as_kuberay;
use crate::transcript::Transcript;
use crate::users::Users;
use anyhow::Result;
use jiff::Timestamp;
use manta_apiserver::{Options, Server};
use manta_logic::config::{Config, FeatureGates, Platform, Safeguards};
use manta_operator::clock::Clock;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// When every world begins, in seconds since 1970.
pub(crate) const BEGINNING: i64 = 1_767_225_600;
/// After the last act, faults go on for this time.
const AFTERMATH: Duration = Duration::from_secs(30);
/// Requests that are slow or late have arrived after this time.
const STRAGGLERS: Duration = Duration::from_secs(35);
/// Within this time after the last fault everything must be as the specs ask, unless the script is less patient.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// After everything is as it should be, this may still change something.
const SETTLING: Duration = Duration::from_secs(60);
/// At rest nothing is written for this time, which is longer than anything is remembered: an event, for ten minutes.
const REST: Duration = Duration::from_secs(700);
/// The same with an election, whose renewals take most of the time that such a world needs.
const SHORT_REST: Duration = Duration::from_secs(40);
/// How often services are asked.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Report {
    /// What went wrong, if anything did.
    pub violation: Option<String>,
    pub transcript: String,
    pub sent: Sent,
    /// How many requests services answered.
    pub answered: u64,
    pub transitions: Transitions,
    /// How much time passed in the world.
    pub time: Duration,
}

/// Runs the script in a world of its own.
///
/// # Errors
///
/// If the world cannot be set up.
pub fn run(script: &Script) -> Result<Report> {
    run_with(script, Safeguards::default())
}

/// Runs the script with operators that lack some safeguards.
///
/// # Errors
///
/// If the world cannot be set up.
pub fn run_with(script: &Script, safeguards: Safeguards) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    panics::watch();
    runtime.block_on(async {
        let mut world = World::start(script, safeguards).await?;
        let violation = world.play(script).await;
        let time = world.start.elapsed();
        let (sent, transitions) = (world.network.sent(), world.checker.transitions());
        Ok(Report { violation, transcript: world.transcript.text(), sent, answered: world.answered, transitions, time })
    })
}

struct World {
    start: Instant,
    transcript: Transcript,
    ray: Ray,
    network: Network,
    kubelet: Kubelet,
    scheduler: Scheduler,
    kueue: Kueue,
    cert_manager: CertManager,
    api: Api,
    users: Users,
    checker: Checker,
    orders: Vec<Arc<Orders>>,
    keepers: Vec<JoinHandle<()>>,
    answered: u64,
    /// Nothing but the operator can interrupt what is served.
    undisturbed: bool,
    patience: Duration,
    _server: Server,
}

impl World {
    async fn start(script: &Script, safeguards: Safeguards) -> Result<Self> {
        let rng = Rng::new(script.seed);
        let clock = Clock::from_timers(Timestamp::from_second(BEGINNING)?);
        let transcript = Transcript::new();
        let options = Options {
            keep_values: true,
            trust_everyone: true,
            reviewer: script.webhook.then(|| review::reviewer(settings(script, safeguards))),
            clock: Some(manta_apiserver::clock::Clock::new(move || clock.now(), rng.next())),
            ..Options::default()
        };
        let server = Server::start(options).await?;
        crds::install(server.cluster(), script)?;
        let api = Api::new(Arc::clone(server.cluster()));
        let gateways = Gateways::new(api.clone(), rng.clone(), transcript.clone());
        let cert_manager = CertManager::new(api.clone(), rng.clone(), transcript.clone());
        let scheduler = Scheduler::new(api.clone());
        let ray = Ray::new(rng.clone(), transcript.clone());
        let others = Others {
            api: api.clone(),
            gateways: gateways.clone(),
            cert_manager: cert_manager.clone(),
            scheduler: script.scheduler,
            undisturbed: is_undisturbed(script),
            webhook: script.webhook,
        };
        let checker = Checker::new(ray.clone(), transcript.clone()).with_others(others);
        let network = Network::new(
            server.client(),
            (ray.clone(), checker.clone()),
            (rng.clone(), transcript.clone()),
            (script.faults.clone(), script.ray_faults.clone()),
        );
        let kubelet = Kubelet {
            client: server.client(),
            ray: ray.clone(),
            gates: Gates { scheduler: Some(scheduler.clone()), cert_manager: Some(cert_manager.clone()) },
            rng: rng.clone(),
            transcript: transcript.clone(),
            known: Arc::default(),
            addresses: Arc::default(),
        };
        let kueue = Kueue {
            api: api.clone(),
            checker: checker.clone(),
            rng: rng.clone(),
            transcript: transcript.clone(),
            waiting: Arc::default(),
        };
        tokio::spawn(checker.clone().run(api.clone()));
        tokio::spawn(kubelet.clone().run());
        tokio::spawn(kueue.clone().run());
        tokio::spawn(gateways.run());
        tokio::spawn(cert_manager.clone().run());
        let count = if script.elected { 2 } else { 1 };
        let orders: Vec<Arc<Orders>> = (0..count).map(|_| Arc::default()).collect();
        // The second operator's clock is right.
        orders[0].set_clock(script.skew);
        let keepers = (0..count).map(|operator| {
            let keeper = Keeper {
                operator,
                elected: script.elected,
                network: network.clone(),
                clock,
                rng: rng.clone(),
                transcript: transcript.clone(),
                config: settings(script, safeguards),
                post_mortems: script.post_mortems,
                orders: Arc::clone(&orders[operator]),
            };
            tokio::spawn(keeper.run())
        });
        let keepers = keepers.collect();
        Ok(Self {
            start: Instant::now(),
            users: Users { client: server.client(), checker: checker.clone(), versions: Arc::default() },
            api,
            transcript,
            ray,
            network,
            kubelet,
            scheduler,
            kueue,
            cert_manager,
            checker,
            orders,
            keepers,
            answered: 0,
            undisturbed: is_undisturbed(script),
            patience: script.patience.map_or(PATIENCE, Duration::from_secs),
            _server: server,
        })
    }

    /// Plays the script to its end, and then waits for everything to be as it should. Returns what went wrong.
    async fn play(&mut self, script: &Script) -> Option<String> {
        for Timed { at, act } in &script.acts {
            let moment = self.start + Duration::from_millis(*at);
            if let Some(violation) = self.pass_time(moment).await {
                return Some(violation);
            }
            self.transcript.line("world", format!("{act:?}"));
            self.act(act).await;
        }
        let aftermath = script.patience.map_or(AFTERMATH, |_| Duration::ZERO);
        if let Some(violation) = self.pass_time(Instant::now() + aftermath).await {
            return Some(violation);
        }
        self.network.heal();
        foreign::delete_all(&self.api, &self.checker);
        self.users.correct().await;
        self.transcript.line("world", "faults are over");
        let stragglers = script.patience.map_or(STRAGGLERS, |_| Duration::ZERO);
        if let Some(violation) = self.pass_time(Instant::now() + stragglers).await {
            return Some(violation);
        }
        if let Some(violation) = self.keep_schedules().await {
            return Some(violation);
        }
        self.users.suspend_cron_jobs().await;
        let violation = self.settle().await;
        self.keepers.iter().for_each(JoinHandle::abort);
        violation
    }

    /// Lets time pass, in which services are asked. Returns what went wrong.
    async fn pass_time(&mut self, moment: Instant) -> Option<String> {
        loop {
            self.ask_services();
            if let Some(violation) = panics::violation().or_else(|| self.checker.violation()) {
                return Some(violation);
            }
            if Instant::now() >= moment {
                return None;
            }
            sleep_until(moment.min(Instant::now() + REQUEST_INTERVAL)).await;
        }
    }

    /// Sends a request to every service. Whatever fails counts, unless the script interrupts what serves.
    fn ask_services(&mut self) {
        for service in ["s0", "s1"] {
            match self.checker.request(service, self.undisturbed) {
                Answer::NotServing => {}
                Answer::Answered => self.answered += 1,
                Answer::Failed if self.undisturbed => self.checker.request_failed(service),
                Answer::Failed => {}
            }
        }
    }

    /// Waits until every schedule that users left running has made its runs.
    async fn keep_schedules(&mut self) -> Option<String> {
        let since = self.checker.last_runs();
        if since.is_empty() {
            return None;
        }
        self.until(|checker| checker.behind_schedule(&since), PATIENCE).await
    }

    /// Waits until everything is as it should, is at rest, and can be deleted.
    async fn settle(&mut self) -> Option<String> {
        if let Some(violation) = self.until(Checker::unsettled, self.patience).await {
            return Some(violation);
        }
        self.transcript.line("world", "everything is as it should be");
        sleep(SETTLING).await;
        let before = self.network.count_of_writes();
        sleep(if self.orders.len() == 1 { REST } else { SHORT_REST }).await;
        let writes = self.network.count_of_writes() - before;
        if writes > 0 {
            return Some(format!("{writes} writes at rest"));
        }
        self.users.delete_everything().await;
        self.transcript.line("world", "everything is deleted");
        let left = |checker: &Checker| {
            Some(checker.left()).filter(|left| !left.is_empty()).map(|left| format!("left: {left:?}"))
        };
        self.until(left, PATIENCE).await
    }

    /// Waits until nothing is wrong any more, for as long as is acceptable. Returns what is wrong then.
    async fn until(&mut self, wrong: impl Fn(&Checker) -> Option<String>, patience: Duration) -> Option<String> {
        let end = Instant::now() + patience;
        loop {
            let next = Instant::now() + Duration::from_secs(1);
            if let Some(violation) = self.pass_time(next).await {
                return Some(violation);
            }
            match wrong(&self.checker) {
                None => return None,
                Some(wrong) if Instant::now() > end => return Some(wrong),
                Some(_) => {}
            }
        }
    }

    async fn act(&self, act: &Act) {
        let after = |seconds: u8| Instant::now() + Duration::from_secs(seconds.into());
        match act {
            Act::FailPod(number) => {
                if let Some(pod) = self.users.pod(*number).await {
                    self.kubelet.fail(&pod).await;
                }
            }
            Act::EvictPod(number) => {
                if let Some(pod) = self.users.pod(*number).await {
                    self.kubelet.evict(&pod).await;
                }
            }
            Act::LoseNode(seconds) => self.kubelet.lose_node(after(*seconds)).await,
            Act::FullNodes(seconds) => self.scheduler.fill(after(*seconds)),
            Act::Evict(number) => self.kueue.evict(*number),
            Act::RenewCertificates => self.cert_manager.renew(),
            Act::SlowEnds(seconds) => self.kubelet.slow_ends(after(*seconds)),
            Act::Quota(seconds) => self.network.refuse_pods(after(*seconds)),
            Act::Silence(seconds) => self.ray.silence(after(*seconds)),
            Act::OldDashboards(seconds) => self.ray.lie(after(*seconds)),
            Act::Amnesia => self.ray.forget(),
            Act::Forgetful(seconds) => {
                self.ray.forget_until(Instant::now() + Duration::from_secs((*seconds).into()));
            }
            Act::CutWatches => self.network.cut(),
            Act::ExpireWatches => self.network.expire(self.api.revision()),
            Act::Lag { millis, seconds } => {
                self.network.lag(Duration::from_millis((*millis).into()), after(*seconds));
            }
            Act::LagKind { kind, millis, seconds } => {
                self.network.lag_kind(*kind, Duration::from_millis((*millis).into()), after(*seconds));
            }
            Act::RewindWatches(revisions) => self.network.rewind(*revisions),
            Act::Outage(seconds) => self.network.fail(after(*seconds)),
            Act::FailReads(seconds) => self.network.fail_reads(after(*seconds)),
            Act::Deny(seconds) => self.network.deny(after(*seconds)),
            Act::Partition { operator, seconds } => self.network.partition((*operator).into(), after(*seconds)),
            Act::LateDeletions { millis, seconds } => self.network.delay_deletions(*millis, after(*seconds)),
            Act::Crash { operator, millis } => {
                if let Some(orders) = self.orders.get(usize::from(*operator)) {
                    orders.kill(Instant::now() + Duration::from_millis((*millis).into()));
                }
            }
            Act::ClockJump { operator, seconds } => {
                if let Some(orders) = self.orders.get(usize::from(*operator)) {
                    orders.set_clock((*seconds).into());
                    orders.kill(Instant::now());
                }
            }
            Act::CreateForeign { foreign, name } => foreign::create(&self.api, &self.checker, *foreign, *name),
            Act::TakeOver { millis } => {
                let until = Instant::now() + Duration::from_millis((*millis).into());
                self.orders.iter().for_each(|orders| orders.kill(until));
                leave_as_kuberay(&self.api);
            }
            by_users => self.users.act(by_users).await,
        }
    }
}

/// Returns whether nothing but the operator can interrupt what is served.
fn is_undisturbed(script: &Script) -> bool {
    !script.acts.iter().any(|timed| timed.act.interrupts_serving())
}

/// Returns the settings of the operators.
fn settings(script: &Script, safeguards: Safeguards) -> Config {
    let batch_scheduler = script.scheduler.map(BatchScheduler::setting);
    let workloads = script.scheduler == Some(BatchScheduler::KubernetesWorkloads);
    let platform = Platform {
        cert_manager: script.has_certificates(),
        gateway_api: script.has_gateways(),
        workload_api: workloads,
        ..Platform::default()
    };
    let gates = FeatureGates { kubernetes_was: workloads, ..FeatureGates::default() };
    Config { batch_scheduler, platform, safeguards, gates, ..Config::default() }
}
