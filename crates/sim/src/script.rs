//! What happens in a world, and when: a pure function of the seed.

use crate::rng::Rng;
use std::fmt;

/// What users, nodes, networks and Ray do, in order of time, and what happens to single requests of the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Decides everything that the script leaves open: delays, names, order.
    pub seed: u64,
    pub acts: Vec<Timed>,
    pub faults: Vec<RequestFault>,
}

/// Something that happens at a time, in milliseconds since the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    pub at: u64,
    pub act: Act,
}

/// Something that happens. Names are small numbers, so that acts concern each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    CreateCluster {
        cluster: u8,
        workers: u8,
        token: bool,
    },
    Scale {
        cluster: u8,
        workers: u8,
    },
    Suspend {
        cluster: u8,
        suspend: bool,
    },
    DeleteCluster(u8),
    CreateJob {
        job: u8,
        http: bool,
        fails: bool,
        retries: u8,
        shutdown: bool,
    },
    SuspendJob {
        job: u8,
        suspend: bool,
    },
    DeleteJob(u8),
    /// The n-th Pod fails.
    FailPod(u8),
    /// The n-th Pod is deleted by hand.
    DeletePod(u8),
    /// The token Secret of a cluster is deleted by hand.
    DeleteSecret(u8),
    /// Ray's dashboards are silent for so many seconds.
    Silence(u8),
    /// All watches of the operator end.
    CutWatches,
    /// The next watches start over: their version is too old.
    ExpireWatches,
    /// Watches lag behind by so many milliseconds, for so many seconds.
    Lag {
        millis: u16,
        seconds: u8,
    },
    /// The operator dies and is back after so many milliseconds.
    Crash(u16),
}

/// What happens to a write of the operator, counted from the start.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFault {
    pub number: u64,
    pub fault: Fault,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server refuses it with this code.
    Refuse(u16),
    /// It takes effect, but its reply is lost.
    LoseReply,
    /// It never reaches the server.
    Lose,
    /// It takes this many milliseconds.
    Slow(u16),
    /// The operator dies before it is sent.
    CrashBefore,
    /// The operator dies after it took effect, before the reply.
    CrashAfter,
}

/// The names that scripts use.
const NAMES: u64 = 2;
/// The time in which things happen, in milliseconds.
const ACTION: u64 = 120_000;

impl Script {
    /// Returns the script of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let rng = Rng::new(seed);
        let mut acts = vec![Timed { at: rng.within(0..500), act: first(&rng) }];
        for _ in 0..rng.within(1..12) {
            acts.push(Timed { at: rng.within(0..ACTION), act: any(&rng) });
        }
        acts.sort_by_key(|timed| timed.at);
        let faults =
            (0..rng.within(0..6)).map(|_| RequestFault { number: rng.within(0..60), fault: fault(&rng) }).collect();
        Self { seed: rng.next(), acts, faults }
    }
}

fn first(rng: &Rng) -> Act {
    if rng.percent(60) { create_cluster(rng) } else { create_job(rng) }
}

fn create_cluster(rng: &Rng) -> Act {
    Act::CreateCluster { cluster: small(rng), workers: rng.within(0..4) as u8, token: rng.percent(30) }
}

fn create_job(rng: &Rng) -> Act {
    Act::CreateJob {
        job: small(rng),
        http: rng.percent(50),
        fails: rng.percent(30),
        retries: rng.within(0..2) as u8,
        shutdown: rng.percent(50),
    }
}

fn any(rng: &Rng) -> Act {
    match rng.within(0..15) {
        0 => create_cluster(rng),
        1 => Act::Scale { cluster: small(rng), workers: rng.within(0..5) as u8 },
        2 => Act::Suspend { cluster: small(rng), suspend: rng.percent(60) },
        3 => Act::DeleteCluster(small(rng)),
        4 => create_job(rng),
        5 => Act::SuspendJob { job: small(rng), suspend: rng.percent(60) },
        6 => Act::DeleteJob(small(rng)),
        7 => Act::FailPod(rng.within(0..6) as u8),
        8 => Act::DeletePod(rng.within(0..6) as u8),
        9 => Act::DeleteSecret(small(rng)),
        10 => Act::Silence(rng.within(1..40) as u8),
        11 => Act::CutWatches,
        12 => Act::ExpireWatches,
        13 => Act::Lag { millis: rng.within(100..8_000) as u16, seconds: rng.within(1..40) as u8 },
        _ => Act::Crash(rng.within(100..20_000) as u16),
    }
}

fn fault(rng: &Rng) -> Fault {
    match rng.within(0..6) {
        0 => Fault::Refuse(*rng.pick(&[409, 429, 500, 503])),
        1 => Fault::LoseReply,
        2 => Fault::Lose,
        3 => Fault::Slow(rng.within(50..9_000) as u16),
        4 => Fault::CrashBefore,
        _ => Fault::CrashAfter,
    }
}

fn small(rng: &Rng) -> u8 {
    rng.within(0..NAMES) as u8
}

impl fmt::Display for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Timed { at, act } in &self.acts {
            writeln!(formatter, "{:>9.3} s  {act:?}", *at as f64 / 1000.0)?;
        }
        for RequestFault { number, fault } in &self.faults {
            writeln!(formatter, "write {number:>3}  {fault:?}")?;
        }
        Ok(())
    }
}
