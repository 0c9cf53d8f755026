//! Scripts from seeds: a pure function.

use super::{Act, BatchScheduler, Fault, Feature, Foreign, RequestFault, Rules, Script, Timed};
use crate::rng::Rng;

/// The names that scripts use.
const NAMES: u64 = 2;
/// The time in which things happen, in milliseconds.
const ACTION: u64 = 120_000;

/// The kinds of objects. Most of what users do in one world concerns the same kind, so that acts meet.
pub(crate) const KINDS: u64 = 4;

/// Gives others choices of their own, so that worlds without them stay as they were.
const OTHERS: u64 = !124;
/// The same for what operators keep.
const RECORDS: u64 = !7;
/// The same for what is rarer than all that.
const RARITIES: u64 = !2_022;
/// The same for what goes wrong with reads and requests to Ray, and for objects of others.
const OUTAGES: u64 = !31_337;
/// The same for what was added last.
const ADDITIONS: u64 = !65_537;

impl Script {
    /// Returns the script of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let rng = Rng::new(seed);
        let elected = rng.percent(40);
        let skew = if rng.percent(20) { rng.within(0..120) as i64 - 60 } else { 0 };
        let theme = rng.within(0..KINDS);
        let mut acts = vec![Timed { at: rng.within(0..500), act: create(&rng, theme) }];
        for _ in 0..rng.within(1..12) {
            acts.push(Timed { at: rng.within(0..ACTION), act: any(&rng, theme) });
        }
        acts.sort_by_key(|timed| timed.at);
        let faults =
            (0..rng.within(0..6)).map(|_| RequestFault { number: rng.within(0..60), fault: fault(&rng) }).collect();
        let post_mortems = Rng::new(seed ^ RECORDS).percent(30);
        let script = Self { seed: rng.next(), elected, skew, post_mortems, acts, faults, ..Self::default() };
        let script = script.shared_with_others(&Rng::new(seed ^ OTHERS), theme);
        let script = script.with_rarities(&Rng::new(seed ^ RARITIES), theme);
        let script = script.with_outages(&Rng::new(seed ^ OUTAGES));
        script.with_additions(&Rng::new(seed ^ ADDITIONS))
    }

    /// Returns the script with writes that time out, services with volumes and replicas of four Pods, in some worlds.
    fn with_additions(mut self, rng: &Rng) -> Self {
        if rng.percent(60) {
            return self;
        }
        for timed in &mut self.acts {
            match &mut timed.act {
                Act::CreateService(service) if rng.percent(50) => timed.act = Act::CreateDurableService(*service),
                Act::CreateClusterWith { feature: feature @ Feature::MultiHost, .. } if rng.percent(50) => {
                    *feature = Feature::FourHosts;
                }
                _ => {}
            }
        }
        for fault in self.faults.iter_mut().chain(&mut self.ray_faults) {
            if rng.percent(25) {
                fault.fault = Fault::TimeOut;
            }
        }
        self
    }

    /// Returns the script with failing requests to Ray, failing reads, outages of the API server, and objects of others that
    /// look like the operator's, each in some worlds.
    fn with_outages(mut self, rng: &Rng) -> Self {
        if rng.percent(40) {
            let number = || rng.within(0..8);
            self.ray_faults =
                (0..rng.within(1..4)).map(|_| RequestFault { number: number(), fault: fault(rng) }).collect();
        }
        if rng.percent(30) {
            let seconds = rng.within(1..60) as u8;
            let act = if rng.percent(50) { Act::Outage(seconds) } else { Act::FailReads(seconds) };
            self.acts.push(Timed { at: rng.within(0..ACTION), act });
        }
        if rng.percent(30) {
            for _ in 0..rng.within(1..4) {
                let act = Act::CreateForeign { foreign: *rng.pick(&Foreign::ALL), name: small(rng) };
                // Mostly before the operator's own.
                let at = if rng.percent(60) { 0 } else { rng.within(0..ACTION) };
                self.acts.push(Timed { at, act });
            }
        }
        self.acts.sort_by_key(|timed| timed.at);
        self
    }

    /// Returns the script with things that are rarer, in every second world.
    fn with_rarities(mut self, rng: &Rng, theme: u64) -> Self {
        if rng.percent(50) {
            return self;
        }
        self.webhook = rng.percent(30);
        if rng.percent(25) {
            self.scheduler = Some(*rng.pick(&BatchScheduler::ALL));
        }
        for timed in &mut self.acts {
            timed.act = with_rarity(rng, timed.act.clone());
        }
        for _ in 0..rng.within(1..5) {
            self.acts.push(Timed { at: rng.within(0..ACTION), act: rarity(rng, theme) });
        }
        self.acts.sort_by_key(|timed| timed.at);
        self
    }

    /// Returns the script in a cluster that others share, in every second world.
    fn shared_with_others(mut self, rng: &Rng, theme: u64) -> Self {
        if rng.percent(50) {
            return self;
        }
        if rng.percent(30) {
            self.scheduler = Some(*rng.pick(&[BatchScheduler::Volcano, BatchScheduler::SchedulerPlugins]));
        }
        for timed in &mut self.acts {
            timed.act = with_others(rng, timed.act.clone());
        }
        for _ in 0..rng.within(0..4) {
            self.acts.push(Timed { at: rng.within(0..ACTION), act: of_others(rng, theme) });
        }
        self.acts.sort_by_key(|timed| timed.at);
        self
    }
}

fn any(rng: &Rng, theme: u64) -> Act {
    let kind = if rng.percent(75) { theme } else { rng.within(0..KINDS) };
    match rng.within(0..10) {
        0 => create(rng, kind),
        1..5 => change(rng, kind),
        5..7 => to_pods(rng),
        _ if kind == 1 && rng.percent(40) => late_deletions(rng),
        _ => to_operators(rng),
    }
}

/// Returns the creation of an object of a kind.
pub(crate) fn create(rng: &Rng, kind: u64) -> Act {
    match kind {
        0 => Act::CreateCluster {
            cluster: small(rng),
            workers: rng.within(0..4) as u8,
            token: rng.percent(40),
            autoscaled: rng.percent(30),
            tls: false,
            queue: false,
        },
        1 => Act::CreateJob {
            job: small(rng),
            http: rng.percent(40),
            fails: rng.percent(50),
            retries: rng.within(0..3) as u8,
            shutdown: rng.percent(50),
            queue: false,
        },
        2 => Act::CreateService(small(rng)),
        _ => Act::CreateCronJob(small(rng)),
    }
}

/// Returns something that users do to an object of a kind.
pub(crate) fn change(rng: &Rng, kind: u64) -> Act {
    match (kind, rng.within(0..8)) {
        (0, 0) => Act::Scale { cluster: small(rng), workers: rng.within(0..5) as u8 },
        (0, 1 | 2) => Act::Autoscale { cluster: small(rng), change: rng.within(0..5) as i8 - 2 },
        (0, 3) => Act::Suspend { cluster: small(rng), suspend: rng.percent(60) },
        (0, 4) => Act::DeleteSecret(small(rng)),
        (0, 5) => Act::DeleteHeadService(small(rng)),
        (0, 6) => Act::DeleteCluster(small(rng)),
        (0, _) => Act::RecreateCluster { cluster: small(rng), secret_stays: rng.percent(50) },
        (1, 0..4) => Act::SuspendJob { job: small(rng), suspend: rng.percent(60) },
        (1, 4 | 5) => Act::RecreateJob(small(rng)),
        (1, _) => Act::DeleteJob(small(rng)),
        (2, 0..5) => Act::UpgradeService(small(rng)),
        (2, 5 | 6) => Act::ReconfigureService(small(rng)),
        (2, _) => Act::DeleteService(small(rng)),
        (_, 0..6) => Act::SuspendCronJob { cron_job: small(rng), suspend: rng.percent(60) },
        (_, _) => Act::DeleteCronJob(small(rng)),
    }
}

/// Sometimes makes an object depend on others than the operator: Kueue, cert-manager, a gateway, a user who submits.
fn with_others(rng: &Rng, act: Act) -> Act {
    match act {
        Act::CreateCluster { cluster, workers, token, autoscaled, .. } => {
            Act::CreateCluster { cluster, workers, token, autoscaled, tls: rng.percent(30), queue: rng.percent(30) }
        }
        Act::CreateJob { job, .. } if rng.percent(15) => Act::CreateInteractiveJob(job),
        Act::CreateJob { job, http, fails, retries, shutdown, .. } => {
            Act::CreateJob { job, http, fails, retries, shutdown, queue: rng.percent(30) }
        }
        Act::CreateService(service) if rng.percent(60) => Act::CreateIncrementalService(service),
        act => act,
    }
}

/// What these others do.
fn of_others(rng: &Rng, kind: u64) -> Act {
    match (kind, rng.within(0..5)) {
        (_, 4) => Act::FullNodes(rng.within(1..40) as u8),
        (0, 0) => Act::RenewCertificates,
        (0, 1) => Act::DeleteTlsSecret(small(rng)),
        (1, 0 | 1) => Act::NameJob(small(rng)),
        (0 | 1, 2) => Act::Evict(small(rng)),
        (2, 0 | 1) => Act::RevertService(small(rng)),
        (2, 2) => Act::SuspendService { service: small(rng), suspend: rng.percent(50) },
        _ => Act::TakeOver { millis: rng.within(100..20_000) as u16 },
    }
}

/// Sometimes makes an object ask for something rare.
fn with_rarity(rng: &Rng, act: Act) -> Act {
    match act {
        Act::CreateCluster { cluster, workers, tls: false, queue: false, .. } if rng.percent(60) => {
            Act::CreateClusterWith { cluster, workers, feature: *rng.pick(&Feature::CHOICES) }
        }
        Act::CreateJob { job, http, fails, queue: false, .. } if rng.percent(60) => {
            Act::CreateJobWithRules { job, http, fails, rules: *rng.pick(&Rules::ALL) }
        }
        act => act,
    }
}

/// What happens rarely.
fn rarity(rng: &Rng, kind: u64) -> Act {
    let pod = rng.within(0..6) as u8;
    match rng.within(0..16) {
        0 => Act::Invalidate { kind: kind as u8, name: small(rng) },
        1 => Act::Correct,
        2 => Act::EvictPod(pod),
        3 => Act::RelabelPod(pod),
        4 => Act::OrphanPod(pod),
        5 => Act::OrphanHeadService(small(rng)),
        6 => Act::OldDashboards(rng.within(1..60) as u8),
        7 | 8 => Act::RewindWatches(rng.within(1..40) as u8),
        9 | 10 => Act::LagKind {
            kind: rng.within(0..6) as u8,
            millis: rng.within(100..20_000) as u16,
            seconds: rng.within(1..60) as u8,
        },
        11 => Act::Deny(rng.within(1..40) as u8),
        12 => Act::ClockJump { operator: rng.within(0..2) as u8, seconds: rng.within(0..120) as i8 - 60 },
        13 | 14 if kind == 0 => Act::SuspendGroup { cluster: small(rng), suspend: rng.percent(60) },
        13 | 14 if kind == 2 => Act::SuspendService { service: small(rng), suspend: rng.percent(60) },
        13 if kind == 1 => Act::Invalidate { kind: 1, name: small(rng) },
        _ => change(rng, kind),
    }
}

fn to_pods(rng: &Rng) -> Act {
    match rng.within(0..9) {
        0 | 1 => Act::FailPod(rng.within(0..6) as u8),
        2 => Act::DeletePod(rng.within(0..6) as u8),
        3 => Act::Amnesia,
        4 => Act::LoseNode(rng.within(1..60) as u8),
        5 => Act::SlowEnds(rng.within(1..60) as u8),
        6 => Act::Quota(rng.within(1..40) as u8),
        7 => Act::Silence(rng.within(1..40) as u8),
        _ => Act::Forgetful(rng.within(1..400) as u16),
    }
}

fn to_operators(rng: &Rng) -> Act {
    match rng.within(0..9) {
        0 => Act::CutWatches,
        1 => Act::ExpireWatches,
        2 => Act::Lag { millis: rng.within(100..8_000) as u16, seconds: rng.within(1..40) as u8 },
        3 | 4 => Act::Partition { operator: rng.within(0..2) as u8, seconds: rng.within(5..40) as u8 },
        5 | 6 => late_deletions(rng),
        _ => Act::Crash { operator: rng.within(0..2) as u8, millis: rng.within(100..20_000) as u16 },
    }
}

/// Deletions matter most for jobs: a submitter has the same name in every attempt.
fn late_deletions(rng: &Rng) -> Act {
    Act::LateDeletions { millis: rng.within(8_000..25_000) as u16, seconds: rng.within(60..240) as u8 }
}

fn fault(rng: &Rng) -> Fault {
    match rng.within(0..7) {
        0 => Fault::Refuse(*rng.pick(&[403, 409, 429, 500, 503])),
        1 => Fault::LoseReply,
        2 => Fault::Lose,
        3 => Fault::Slow(rng.within(50..20_000) as u16),
        4 => Fault::Late(rng.within(50..30_000) as u16),
        5 => Fault::CrashBefore,
        _ => Fault::CrashAfter,
    }
}

/// Mostly the same name, so that acts concern each other.
fn small(rng: &Rng) -> u8 {
    if rng.percent(75) { 0 } else { rng.within(0..NAMES) as u8 }
}
