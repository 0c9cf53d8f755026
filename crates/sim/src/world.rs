//! One world: the API server with its controllers, the operators, nodes, Ray and users, on one thread and one clock.

use crate::checker::{Answer, Checker, Transitions};
use crate::kubelet::{Known, Kubelet};
use crate::network::Network;
use crate::operators::{Keeper, Orders};
use crate::ray::Ray;
use crate::rng::Rng;
use crate::script::{Act, Script, Timed};
use crate::transcript::Transcript;
use crate::users::Users;
use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use manta_api::crd::{self, Versions};
use manta_apiserver::{Options, Server};
use manta_logic::config::Safeguards;
use manta_operator::clock::Clock;
use std::sync::{Arc, LazyLock};
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
/// At rest nothing is written for this time.
const REST: Duration = Duration::from_secs(400);
/// How often services are asked.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Report {
    /// What went wrong, if anything did.
    pub violation: Option<String>,
    pub transcript: String,
    /// How many writes operators sent.
    pub writes: u64,
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
    runtime.block_on(async {
        let mut world = World::start(script, safeguards).await?;
        let violation = world.play(script).await;
        let time = world.start.elapsed();
        let (writes, transitions) = (world.network.writes(), world.checker.transitions());
        Ok(Report {
            violation,
            transcript: world.transcript.text(),
            writes,
            answered: world.answered,
            transitions,
            time,
        })
    })
}

struct World {
    start: Instant,
    transcript: Transcript,
    ray: Ray,
    network: Network,
    kubelet: Kubelet,
    users: Users,
    checker: Checker,
    orders: Vec<Arc<Orders>>,
    keepers: Vec<JoinHandle<()>>,
    answered: u64,
    patience: Duration,
    _server: Server,
}

impl World {
    async fn start(script: &Script, safeguards: Safeguards) -> Result<Self> {
        let rng = Rng::new(script.seed);
        let clock = Clock::from_timers(Timestamp::from_second(BEGINNING)?);
        let ahead = Clock::from_timers(Timestamp::from_second(BEGINNING)? + SignedDuration::from_secs(script.skew));
        let transcript = Transcript::new();
        let options = Options {
            trust_everyone: true,
            clock: Some(manta_apiserver::clock::Clock::new(move || clock.now(), rng.next())),
            ..Options::default()
        };
        let server = Server::start(options).await?;
        let client = server.client();
        install_crds(&client).await?;
        let ray = Ray::new(rng.clone(), transcript.clone());
        let checker = Checker::new(ray.clone(), transcript.clone());
        let parts = (ray.clone(), checker.clone());
        let network = Network::new(client.clone(), parts, (rng.clone(), transcript.clone()), script.faults.clone());
        let kubelet = Kubelet {
            client: client.clone(),
            ray: ray.clone(),
            rng: rng.clone(),
            transcript: transcript.clone(),
            known: Arc::new(std::sync::Mutex::new(Known::default())),
            addresses: Arc::default(),
        };
        tokio::spawn(checker.clone().run(client.clone()));
        tokio::spawn(kubelet.clone().run());
        let count = if script.elected { 2 } else { 1 };
        let orders: Vec<Arc<Orders>> = (0..count).map(|_| Arc::default()).collect();
        let keepers = (0..count).map(|operator| {
            let keeper = Keeper {
                operator,
                elected: script.elected,
                network: network.clone(),
                clock: ahead,
                rng: rng.clone(),
                transcript: transcript.clone(),
                safeguards,
                orders: Arc::clone(&orders[operator]),
            };
            tokio::spawn(keeper.run())
        });
        let keepers = keepers.collect();
        Ok(Self {
            start: Instant::now(),
            users: Users { client, checker: checker.clone(), versions: Default::default() },
            transcript,
            ray,
            network,
            kubelet,
            checker,
            orders,
            keepers,
            answered: 0,
            patience: script.patience.map_or(PATIENCE, Duration::from_secs),
            _server: server,
        })
    }

    /// Plays the script to its end, and then waits for everything to be as it should. Returns what went wrong.
    async fn play(&mut self, script: &Script) -> Option<String> {
        let undisturbed = !script.acts.iter().any(|timed| timed.act.interrupts_serving());
        for Timed { at, act } in &script.acts {
            let moment = self.start + Duration::from_millis(*at);
            if let Some(violation) = self.pass_time(moment, undisturbed).await {
                return Some(violation);
            }
            self.transcript.line("world", format!("{act:?}"));
            self.act(act).await;
        }
        let aftermath = script.patience.map_or(AFTERMATH, |_| Duration::ZERO);
        if let Some(violation) = self.pass_time(Instant::now() + aftermath, undisturbed).await {
            return Some(violation);
        }
        self.network.heal();
        self.users.suspend_cron_jobs().await;
        self.transcript.line("world", "faults are over");
        let stragglers = script.patience.map_or(STRAGGLERS, |_| Duration::ZERO);
        if let Some(violation) = self.pass_time(Instant::now() + stragglers, undisturbed).await {
            return Some(violation);
        }
        let violation = self.settle(undisturbed).await;
        self.keepers.iter().for_each(JoinHandle::abort);
        violation
    }

    /// Lets time pass, in which services are asked. Returns what went wrong.
    async fn pass_time(&mut self, moment: Instant, undisturbed: bool) -> Option<String> {
        loop {
            self.ask_services(undisturbed);
            if let Some(violation) = self.checker.violation() {
                return Some(violation);
            }
            if Instant::now() >= moment {
                return None;
            }
            sleep_until(moment.min(Instant::now() + REQUEST_INTERVAL)).await;
        }
    }

    /// Sends a request to every service. Whatever fails counts, unless the script interrupts what serves.
    fn ask_services(&mut self, undisturbed: bool) {
        for service in ["s0", "s1"] {
            match self.checker.request(service) {
                Answer::NotServing => {}
                Answer::Answered => self.answered += 1,
                Answer::Failed if undisturbed => self.checker.request_failed(service),
                Answer::Failed => {}
            }
        }
    }

    /// Waits until everything is as it should, is at rest, and can be deleted.
    async fn settle(&mut self, undisturbed: bool) -> Option<String> {
        if let Some(violation) = self.until(Checker::unsettled, self.patience, undisturbed).await {
            return Some(violation);
        }
        self.transcript.line("world", "everything is as it should be");
        sleep(SETTLING).await;
        let before = self.network.writes();
        sleep(REST).await;
        let writes = self.network.writes() - before;
        if writes > 0 {
            return Some(format!("{writes} writes at rest"));
        }
        self.users.delete_everything().await;
        self.transcript.line("world", "everything is deleted");
        let left = |checker: &Checker| {
            Some(checker.left()).filter(|left| !left.is_empty()).map(|left| format!("left: {left:?}"))
        };
        self.until(left, PATIENCE, false).await
    }

    /// Waits until nothing is wrong any more, for as long as is acceptable. Returns what is wrong then.
    async fn until(
        &mut self,
        wrong: impl Fn(&Checker) -> Option<String>,
        patience: Duration,
        undisturbed: bool,
    ) -> Option<String> {
        let end = Instant::now() + patience;
        loop {
            let next = Instant::now() + Duration::from_secs(1);
            if let Some(violation) = self.pass_time(next, undisturbed).await {
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
            Act::LoseNode(seconds) => self.kubelet.lose_node(after(*seconds)).await,
            Act::SlowEnds(seconds) => self.kubelet.slow_ends(after(*seconds)),
            Act::Quota(seconds) => self.network.refuse_pods(after(*seconds)),
            Act::Silence(seconds) => self.ray.silence(after(*seconds)),
            Act::Amnesia => self.ray.forget(),
            Act::Forgetful(seconds) => {
                self.ray.forget_until(Instant::now() + Duration::from_secs((*seconds).into()));
            }
            Act::CutWatches => self.network.cut(),
            Act::ExpireWatches => self.network.expire(),
            Act::Lag { millis, seconds } => {
                self.network.lag(Duration::from_millis((*millis).into()), after(*seconds));
            }
            Act::Partition { operator, seconds } => self.network.partition((*operator).into(), after(*seconds)),
            Act::LateDeletions { millis, seconds } => self.network.delay_deletions(*millis, after(*seconds)),
            Act::Crash { operator, millis } => {
                if let Some(orders) = self.orders.get(usize::from(*operator)) {
                    orders.kill(Instant::now() + Duration::from_millis((*millis).into()));
                }
            }
            by_users => self.users.act(by_users).await,
        }
    }
}

async fn install_crds(client: &Client) -> Result<()> {
    static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(crds);
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in CRDS.iter() {
        api.create(&PostParams::default(), crd).await.with_context(|| format!("cannot create {}", crd.name_any()))?;
    }
    Ok(())
}

/// Returns the CRDs with schemas that accept everything: the real ones take longer to compile than a world lasts, and what
/// they refuse is tested elsewhere.
fn crds() -> Vec<CustomResourceDefinition> {
    let anything = JSONSchemaProps {
        type_: Some("object".to_owned()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    let mut crds = crd::all(Versions::V1);
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        version.schema = Some(CustomResourceValidation { open_api_v3_schema: Some(anything.clone()) });
    }
    crds
}
