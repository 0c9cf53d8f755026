//! Scripts from seeds: a pure function.

use super::{Act, Fault, RequestFault, Script, Timed};
use crate::rng::Rng;

/// The names that scripts use.
const NAMES: u64 = 2;
/// The time in which things happen, in milliseconds.
const ACTION: u64 = 120_000;

impl Script {
    /// Returns the script of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let rng = Rng::new(seed);
        let elected = rng.percent(25);
        let skew = if rng.percent(20) { rng.within(0..120) as i64 - 60 } else { 0 };
        let mut acts = vec![Timed { at: rng.within(0..500), act: create(&rng) }];
        for _ in 0..rng.within(1..12) {
            acts.push(Timed { at: rng.within(0..ACTION), act: any(&rng) });
        }
        acts.sort_by_key(|timed| timed.at);
        let faults =
            (0..rng.within(0..6)).map(|_| RequestFault { number: rng.within(0..60), fault: fault(&rng) }).collect();
        Self { seed: rng.next(), elected, skew, patience: None, acts, faults }
    }
}

fn create(rng: &Rng) -> Act {
    match rng.within(0..10) {
        0..4 => Act::CreateCluster {
            cluster: small(rng),
            workers: rng.within(0..4) as u8,
            token: rng.percent(30),
            autoscaled: rng.percent(30),
        },
        4..7 => Act::CreateJob {
            job: small(rng),
            http: rng.percent(50),
            fails: rng.percent(40),
            retries: rng.within(0..3) as u8,
            shutdown: rng.percent(50),
        },
        7..9 => Act::CreateService(small(rng)),
        _ => Act::CreateCronJob(small(rng)),
    }
}

fn any(rng: &Rng) -> Act {
    match rng.within(0..10) {
        0..2 => create(rng),
        2..6 => by_users(rng),
        6..8 => to_pods(rng),
        _ => to_operators(rng),
    }
}

fn by_users(rng: &Rng) -> Act {
    match rng.within(0..16) {
        0 => Act::Scale { cluster: small(rng), workers: rng.within(0..5) as u8 },
        1 | 2 => Act::Autoscale { cluster: small(rng), change: rng.within(0..5) as i8 - 2 },
        3 => Act::Suspend { cluster: small(rng), suspend: rng.percent(60) },
        4 => Act::DeleteCluster(small(rng)),
        5 => Act::RecreateCluster { cluster: small(rng), secret_stays: rng.percent(50) },
        6 => Act::SuspendJob { job: small(rng), suspend: rng.percent(60) },
        7 => Act::DeleteJob(small(rng)),
        8 | 9 => Act::UpgradeService(small(rng)),
        10 => Act::ReconfigureService(small(rng)),
        11 => Act::DeleteService(small(rng)),
        12 => Act::SuspendCronJob { cron_job: small(rng), suspend: rng.percent(60) },
        13 => Act::DeleteCronJob(small(rng)),
        14 => Act::RecreateJob(small(rng)),
        _ => Act::DeleteSecret(small(rng)),
    }
}

fn to_pods(rng: &Rng) -> Act {
    match rng.within(0..9) {
        0 | 1 => Act::FailPod(rng.within(0..6) as u8),
        2 => Act::DeletePod(rng.within(0..6) as u8),
        3 => Act::DeleteHeadService(small(rng)),
        4 => Act::LoseNode(rng.within(1..60) as u8),
        5 => Act::SlowEnds(rng.within(1..60) as u8),
        6 => Act::Quota(rng.within(1..40) as u8),
        7 => Act::Silence(rng.within(1..40) as u8),
        _ => Act::Amnesia,
    }
}

fn to_operators(rng: &Rng) -> Act {
    match rng.within(0..8) {
        0 => Act::CutWatches,
        1 => Act::ExpireWatches,
        2 => Act::Lag { millis: rng.within(100..8_000) as u16, seconds: rng.within(1..40) as u8 },
        3 | 4 => Act::Partition { operator: rng.within(0..2) as u8, seconds: rng.within(5..40) as u8 },
        5 => Act::LateDeletions { millis: rng.within(100..30_000) as u16, seconds: rng.within(10..120) as u8 },
        _ => Act::Crash { operator: rng.within(0..2) as u8, millis: rng.within(100..20_000) as u16 },
    }
}

fn fault(rng: &Rng) -> Fault {
    match rng.within(0..7) {
        0 => Fault::Refuse(*rng.pick(&[409, 429, 500, 503])),
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
