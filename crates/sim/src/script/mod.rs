//! What happens in a world, and when.

pub mod exhaustive;
pub(crate) mod generate;

pub use crate::scheduler::BatchScheduler;

use serde::{Deserialize, Serialize};
use std::fmt;

/// What users, nodes, networks and Ray do, in order of time, and what happens to single requests of the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Decides everything that the script leaves open: delays, names, order.
    pub seed: u64,
    /// Two operators share the work by leader election.
    #[serde(default)]
    pub elected: bool,
    /// How many seconds the operators' clock is ahead of the API server's.
    #[serde(default)]
    pub skew: i64,
    /// The scheduler that operators are told to use for gangs.
    #[serde(default)]
    pub scheduler: Option<BatchScheduler>,
    /// The operators' admission webhook reviews what users write.
    #[serde(default)]
    pub webhook: bool,
    /// The operators keep records of objects that ended, failed or were deleted.
    #[serde(default)]
    pub post_mortems: bool,
    /// How many seconds after the last fault everything has to be as the specs ask, where that matters.
    #[serde(default)]
    pub patience: Option<u64>,
    pub acts: Vec<Timed>,
    #[serde(default)]
    pub faults: Vec<RequestFault>,
    /// What happens to requests to Ray that change something, which are counted apart from other writes.
    #[serde(default)]
    pub ray_faults: Vec<RequestFault>,
}

/// Something that happens at a time, in milliseconds since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    pub at: u64,
    pub act: Act,
}

/// Something that happens. Names are small numbers, so that acts concern each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Act {
    CreateCluster {
        cluster: u8,
        workers: u8,
        token: bool,
        autoscaled: bool,
        /// Its Pods talk to each other with certificates of cert-manager.
        #[serde(default)]
        tls: bool,
        /// Kueue decides when it runs.
        #[serde(default)]
        queue: bool,
    },
    /// A cluster that asks for something more.
    CreateClusterWith {
        cluster: u8,
        workers: u8,
        feature: Feature,
    },
    Scale {
        cluster: u8,
        workers: u8,
    },
    /// The workers of a cluster are suspended, or resumed, but not its head.
    SuspendGroup {
        cluster: u8,
        suspend: bool,
    },
    /// Ray's autoscaler asks for so many workers more, or removes so many, by name.
    Autoscale {
        cluster: u8,
        change: i8,
    },
    Suspend {
        cluster: u8,
        suspend: bool,
    },
    DeleteCluster(u8),
    /// A cluster is deleted and created again at once, under the same name. Its Secret may stay for a while.
    RecreateCluster {
        cluster: u8,
        secret_stays: bool,
    },
    /// The same, and the garbage collector never sees that the first one was deleted.
    RecreateClusterUnseen(u8),
    CreateJob {
        job: u8,
        http: bool,
        fails: bool,
        retries: u8,
        shutdown: bool,
        /// Kueue decides when it runs.
        #[serde(default)]
        queue: bool,
    },
    /// A job that says what is deleted after its end.
    CreateJobWithRules {
        job: u8,
        http: bool,
        fails: bool,
        rules: Rules,
    },
    /// A job that waits for a user to submit something.
    CreateInteractiveJob(u8),
    /// A user submits a job to the cluster of an interactive one, and names it.
    NameJob(u8),
    SuspendJob {
        job: u8,
        suspend: bool,
    },
    DeleteJob(u8),
    /// A job is deleted and created again at once, under the same name.
    RecreateJob(u8),
    /// The same, and the garbage collector never sees that the first one was deleted.
    RecreateJobUnseen(u8),
    CreateService(u8),
    /// A service whose clusters keep what a head knows on a volume, so that a new head goes on.
    CreateDurableService(u8),
    /// A service whose upgrades shift traffic in steps.
    CreateIncrementalService(u8),
    /// The cluster of a service changes, which needs an upgrade.
    UpgradeService(u8),
    /// The cluster of a service becomes what it was before the last upgrade.
    RevertService(u8),
    /// Only the configuration of Serve changes.
    ReconfigureService(u8),
    SuspendService {
        service: u8,
        suspend: bool,
    },
    DeleteService(u8),
    CreateCronJob(u8),
    SuspendCronJob {
        cron_job: u8,
        suspend: bool,
    },
    DeleteCronJob(u8),
    /// A user makes the spec of a RayCluster, a RayJob, a RayService or a RayCronJob invalid, or it is tried.
    Invalidate {
        kind: u8,
        name: u8,
    },
    /// A user corrects all specs that are invalid.
    Correct,
    /// The n-th Pod fails.
    FailPod(u8),
    /// The n-th Pod is evicted from its node.
    EvictPod(u8),
    /// The n-th Pod gets the label of another cluster by hand.
    RelabelPod(u8),
    /// The n-th Pod loses its owner by hand.
    OrphanPod(u8),
    /// The head Service of a cluster loses its owner by hand.
    OrphanHeadService(u8),
    /// Somebody creates an object that looks like an operator's, by its name or its labels.
    CreateForeign {
        foreign: Foreign,
        name: u8,
    },
    /// The n-th Pod is deleted by hand.
    DeletePod(u8),
    /// The token Secret of a cluster is deleted by hand.
    DeleteSecret(u8),
    /// The head Service of a cluster is deleted by hand.
    DeleteHeadService(u8),
    /// The Secret with the certificate of a cluster's head is deleted by hand.
    DeleteTlsSecret(u8),
    /// cert-manager renews all certificates.
    RenewCertificates,
    /// Kueue evicts the n-th object that it has admitted.
    Evict(u8),
    /// For so many seconds, the nodes have no room for further Pods.
    FullNodes(u8),
    /// Every second Pod is not ready for so many seconds, and does not end.
    LoseNode(u8),
    /// For so many seconds, Pods take a minute to end.
    SlowEnds(u8),
    /// For so many seconds, new Pods are refused: the quota is used up.
    Quota(u8),
    /// Ray's dashboards are silent for so many seconds.
    Silence(u8),
    /// All heads lose what they know: jobs and applications.
    Amnesia,
    /// For so many seconds, dashboards reply with what the head before this one knew.
    OldDashboards(u8),
    /// For so many seconds, heads accept jobs and forget them at once.
    Forgetful(u16),
    /// All watches of the operators end.
    CutWatches,
    /// All watches of the operators end and start over: their versions are too old.
    ExpireWatches,
    /// All watches of the operators end, and begin again so many revisions before the last one that they have seen.
    RewindWatches(u8),
    /// Watches lag behind by so many milliseconds, for so many seconds.
    Lag {
        millis: u16,
        seconds: u8,
    },
    /// Only the watch of one kind lags behind.
    LagKind {
        kind: u8,
        millis: u16,
        seconds: u8,
    },
    /// For so many seconds, operators do not reach the API server: their watches end, and all their requests fail.
    Outage(u8),
    /// For so many seconds, every second request with which operators read something fails.
    FailReads(u8),
    /// For so many seconds, somebody's webhook refuses whatever operators create.
    Deny(u8),
    /// For so many seconds, what an operator writes does not get through, though it sees everything; then all of it does
    /// that still waits.
    Partition {
        operator: u8,
        seconds: u8,
    },
    /// For so many seconds, operators are told that the connection broke when they delete something; it takes effect so many
    /// milliseconds later.
    LateDeletions {
        millis: u16,
        seconds: u8,
    },
    /// An operator dies and is back after so many milliseconds.
    Crash {
        operator: u8,
        millis: u16,
    },
    /// An operator dies and is back at once, with a clock that is so many seconds ahead.
    ClockJump {
        operator: u8,
        seconds: i8,
    },
    /// The operators go, what they leave becomes what KubeRay would have left, and after so many milliseconds new ones
    /// take over.
    TakeOver {
        millis: u16,
    },
}

impl Act {
    /// Returns whether this interrupts what a service serves, whatever the operator does.
    pub(crate) fn interrupts_serving(&self) -> bool {
        matches!(
            self,
            Self::DeleteService(_)
                | Self::SuspendService { .. }
                | Self::FailPod(_)
                | Self::EvictPod(_)
                | Self::DeletePod(_)
                | Self::RelabelPod(_)
                | Self::OrphanPod(_)
                | Self::OldDashboards(_)
                | Self::DeleteHeadService(_)
                | Self::LoseNode(_)
                | Self::Amnesia
        )
    }
}

/// What looks like an operator's, and is somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Foreign {
    /// A Pod with all labels of a worker, and another controller.
    Worker,
    /// A Pod that names the cluster, as one that talks to it may, and says nothing else.
    Client,
    HeadService,
    ServeService,
    Secret,
    ServiceAccount,
    Role,
    RoleBinding,
    Ingress,
    Submitter,
}

impl Foreign {
    /// Those that seeds create. `Worker` is not among them: like KubeRay, operators go by labels alone and delete it.
    pub(crate) const ALL: [Self; 9] = [
        Self::Client,
        Self::HeadService,
        Self::ServeService,
        Self::Secret,
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
        Self::Ingress,
        Self::Submitter,
    ];
}

/// What a cluster asks for beside its Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Feature {
    /// An Ingress to its dashboard.
    Ingress,
    /// A volume for what its head knows, which goes with the cluster.
    Storage,
    /// A volume that stays.
    RetainedStorage,
    /// Replicas of two Pods each.
    MultiHost,
    /// Replicas of four Pods each.
    FourHosts,
    /// NetworkPolicies.
    Isolation,
    /// Nothing: another controller takes care of it.
    ManagedElsewhere,
}

impl Feature {
    /// Those that seeds choose from. Some of those with two hosts get four, see `Script::from_seed`.
    pub(crate) const CHOICES: [Self; 6] =
        [Self::Ingress, Self::Storage, Self::RetainedStorage, Self::MultiHost, Self::Isolation, Self::ManagedElsewhere];

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::CHOICES.into_iter().chain([Self::FourHosts])
    }
}

/// What is deleted after the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rules {
    /// The workers, after a while.
    Workers,
    /// The cluster, after a while.
    Cluster,
    /// The job itself, after a while.
    Itself,
    /// First the workers, then the cluster, then the job itself.
    Staged,
    /// The cluster of a job that succeeded, the workers of one that failed; in the older form.
    ByOutcome,
}

impl Rules {
    pub(crate) const ALL: [Self; 5] = [Self::Workers, Self::Cluster, Self::Itself, Self::Staged, Self::ByOutcome];
}

/// What happens to a write of an operator, or to its request to Ray, counted from the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestFault {
    pub number: u64,
    pub fault: Fault,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The server refuses it with this code.
    Refuse(u16),
    /// It takes effect, but its reply is lost.
    LoseReply,
    /// It takes effect, but the server replies that it ran out of time (504).
    TimeOut,
    /// Its sender is told that the connection broke, but it takes effect so many milliseconds later.
    Late(u16),
    /// It never reaches the server.
    Lose,
    /// It takes this many milliseconds.
    Slow(u16),
    /// The operator dies before it is sent.
    CrashBefore,
    /// The operator dies after it took effect, before the reply.
    CrashAfter,
}

impl Fault {
    /// One of each sort.
    pub const ALL: [Self; 12] = [
        Self::Refuse(403),
        Self::Refuse(409),
        Self::Refuse(429),
        Self::Refuse(500),
        Self::Refuse(503),
        Self::LoseReply,
        Self::TimeOut,
        Self::Late(5_000),
        Self::Lose,
        Self::Slow(9_000),
        Self::CrashBefore,
        Self::CrashAfter,
    ];
}

impl Script {
    /// Returns whether anybody asks for a gateway.
    pub(crate) fn has_gateways(&self) -> bool {
        self.acts.iter().any(|timed| matches!(timed.act, Act::CreateIncrementalService(_)))
    }

    /// Returns whether anybody asks for certificates.
    pub(crate) fn has_certificates(&self) -> bool {
        self.acts.iter().any(|timed| matches!(timed.act, Act::CreateCluster { tls: true, .. }))
    }

    /// Returns the script with one more fault of a request to Ray.
    #[must_use]
    pub fn with_ray_fault(&self, number: u64, fault: Fault) -> Self {
        let mut script = self.clone();
        script.ray_faults.push(RequestFault { number, fault });
        script
    }

    /// Returns the script with one more fault of a write.
    #[must_use]
    pub fn with_fault(&self, number: u64, fault: Fault) -> Self {
        let mut script = self.clone();
        script.faults.push(RequestFault { number, fault });
        script
    }
}

impl fmt::Display for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.elected {
            writeln!(formatter, "two operators")?;
        }
        if self.skew != 0 {
            writeln!(formatter, "the operators' clock is {} s ahead", self.skew)?;
        }
        if let Some(scheduler) = self.scheduler {
            writeln!(formatter, "gangs by {scheduler:?}")?;
        }
        if self.webhook {
            writeln!(formatter, "with the admission webhook")?;
        }
        if self.post_mortems {
            writeln!(formatter, "with post-mortems")?;
        }
        for Timed { at, act } in &self.acts {
            writeln!(formatter, "{:>9.3} s  {act:?}", *at as f64 / 1000.0)?;
        }
        for RequestFault { number, fault } in &self.faults {
            writeln!(formatter, "write {number:>3}  {fault:?}")?;
        }
        for RequestFault { number, fault } in &self.ray_faults {
            writeln!(formatter, "request {number} to Ray  {fault:?}")?;
        }
        Ok(())
    }
}
