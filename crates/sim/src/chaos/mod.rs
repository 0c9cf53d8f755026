//! The same users, nodes, Ray and checker as in the simulation, on a real control plane, with operators that are real
//! processes and get killed.
//!
//! ```text
//! seed ─▶ rounds ─▶ users, nodes ──▶ kube-apiserver ──▶ etcd ──▶ checker
//!            │                            ▲
//!            └─ SIGKILL ─▶ operators ─▶ front ─▶ simulated Ray
//! ```
//!
//! What happens when is a function of the seed; what comes of it is not, since processes run as the machine lets them.

mod front;
mod plan;
mod process;
mod report;
mod round;
mod store;

pub use report::Report;

use crate::checker::Checker;
use crate::kubelet::{Gates, Known, Kubelet, NODE};
use crate::ray::Ray;
use crate::rng::Rng;
use crate::transcript::Transcript;
use crate::users::Users;
use anyhow::{Context, Result, bail};
use front::{Backend, Writes};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use manta_testkit::{ControlPlane, User, eventually};
use plan::Round;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use store::Store;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// What the keys of post-mortems contain.
const RECORD: &str = "/ray-post-mortem-";

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose operator is killed.
    pub manta: PathBuf,
    /// Decides what happens when.
    pub seed: u64,
    /// How often operators are killed, at least.
    pub kills: u64,
    /// The share of the usual time that a round takes, for a quick test.
    pub share: f64,
}

/// Runs rounds until operators were killed often enough, and reports the progress.
///
/// # Errors
///
/// If an invariant does not hold, or the control plane cannot be started.
pub fn run(options: &Options, progress: impl Fn(&str)) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let stage = Stage::set(options).await?;
        let start = Instant::now();
        let mut report = Report { seed: options.seed, ..Report::default() };
        while report.kills < options.kills {
            let number = report.rounds;
            let round = Round::new(options.seed, number, options.share);
            let played = round::play(&stage, &round, &mut report).await;
            report.time = start.elapsed();
            report.requests.writes = stage.backend.writes().count;
            if let Err(violation) = played {
                progress(&format!("{}\n{report}", stage.transcript.text()));
                let seed = options.seed;
                return Err(violation.context(format!("round {number} of seed {seed} failed; its transcript is above")));
            }
            report.rounds += 1;
            progress(&format!("round {number}: {}", report.line()));
            stage.transcript.clear();
        }
        report.transitions = stage.backend.checker.transitions();
        Ok(report)
    })
}

/// Everything that stays from one round to the next.
struct Stage {
    backend: Backend,
    kubelet: Kubelet,
    users: Users,
    store: Store,
    transcript: Transcript,
    manta: PathBuf,
    /// What is in the namespace before anything happens.
    before: BTreeSet<String>,
    plane: Arc<Mutex<ControlPlane>>,
    _players: [AbortOnDropHandle<()>; 2],
}

impl Stage {
    async fn set(options: &Options) -> Result<Self> {
        let json = manta_testkit::Options { json_storage: true, ..manta_testkit::Options::default() };
        let mut plane = tokio::task::spawn_blocking(move || ControlPlane::start_with(json)).await??;
        plane.install_ray_crds().await?;
        // Without it the Pods are no endpoints of Services.
        let node =
            Node { metadata: ObjectMeta { name: Some(NODE.to_owned()), ..ObjectMeta::default() }, ..Node::default() };
        Api::all(plane.client().await?).create(&PostParams::default(), &node).await?;
        let rng = Rng::new(options.seed);
        let transcript = Transcript::new();
        let ray = Ray::new(rng.clone(), transcript.clone());
        let checker = Checker::new(ray.clone(), transcript.clone());
        let store = Store::new(plane.etcd_address()?, checker.clone());
        let kubelet = Kubelet {
            client: plane.client_for(User::Kubelet).await?,
            ray: ray.clone(),
            rng,
            transcript: transcript.clone(),
            known: Arc::new(Mutex::new(Known::default())),
            addresses: Arc::default(),
            gates: Gates::default(),
        };
        let players = [
            AbortOnDropHandle::new(tokio::spawn(store.clone().follow())),
            AbortOnDropHandle::new(tokio::spawn(kubelet.clone().run())),
        ];
        // The last thing that a new control plane stores in the namespace.
        let account = "/registry/serviceaccounts/default/default";
        eventually("what etcd stores", async || {
            store.objects().contains(account).then_some(()).with_context(|| format!("no {account}"))
        })
        .await?;
        Ok(Self {
            backend: Backend {
                server: plane.client_for(User::Operator).await?,
                ray,
                checker: checker.clone(),
                transcript: transcript.clone(),
                writes: Arc::new(Mutex::new(Writes { count: 0, last: Instant::now() })),
            },
            kubelet,
            users: Users { client: plane.client().await?, checker, versions: Arc::default() },
            before: store.objects(),
            store,
            transcript,
            manta: options.manta.clone(),
            plane: Arc::new(Mutex::new(plane)),
            _players: players,
        })
    }

    /// Returns an error if an invariant does not hold, or if that can no longer be told.
    fn check(&self) -> Result<()> {
        if let Some(violation) = self.backend.checker.violation() {
            bail!("{violation}");
        }
        if let Some(failure) = self.store.failure() {
            bail!("{failure}");
        }
        Ok(())
    }

    /// Returns what is there beside what was there before. Records of what ended stay, bounded in count and age.
    fn left(&self) -> Vec<String> {
        let objects = self.store.objects();
        objects.difference(&self.before).filter(|key| !key.contains(RECORD)).cloned().collect()
    }

    /// Runs something that blocks with the control plane.
    async fn with_plane<T: Send + 'static>(
        plane: Arc<Mutex<ControlPlane>>,
        work: impl FnOnce(&mut ControlPlane) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        tokio::task::spawn_blocking(move || work(&mut plane.lock().unwrap_or_else(PoisonError::into_inner))).await?
    }
}
