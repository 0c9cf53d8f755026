//! What happens in each round of a chaos run: a pure function of the seed.

use crate::rng::Rng;
use crate::script::Act;
use crate::script::generate::{KINDS, change, create};
use std::time::Duration;

/// The time in which things happen in a round, in milliseconds.
const ACTION: u64 = 120_000;
/// With leader election everything takes longer: a Lease expires 15 s after its holder died.
const ELECTED_ACTION: u64 = 150_000;
/// At rest nothing is written for this time, or in a quick test for the shortest that shows a write every few seconds.
const REST: Duration = Duration::from_secs(10);
const SHORTEST_REST: Duration = Duration::from_secs(4);
/// The sorts of rounds. They take turns.
const SORTS: u64 = 6;

/// One round.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Round {
    /// Two operators share the work by leader election.
    pub(super) elected: bool,
    /// At rest nothing is written for this time.
    pub(super) rest: Duration,
    /// What happens, with times in milliseconds since the start, in order.
    pub(super) events: Vec<(u64, Event)>,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// Users, nodes or Ray do this.
    Act(Act),
    /// An operator is killed, and started again after so many milliseconds.
    Kill { operator: usize, moment: Moment, down: u64 },
    /// An operator does not run for so many seconds, which is longer than its Lease.
    Pause { operator: usize, seconds: u64 },
    /// An operator is asked to end, as in an upgrade. It releases its Lease, and is started again.
    Terminate { operator: usize },
    /// A server is killed, and started again after so many seconds.
    Stop { server: Server, seconds: u64 },
}

/// When an operator is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Now,
    /// Instead of its n-th write from now.
    BeforeWrite(u64),
    /// When its n-th write from now has taken effect, and before it gets the reply.
    AfterWrite(u64),
}

/// A part of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Server {
    ApiServer,
    Etcd,
}

impl Round {
    /// Returns the n-th round of a seed, in which this share of the usual time passes.
    pub(super) fn new(seed: u64, number: u64, share: f64) -> Self {
        let rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let sort = number % SORTS;
        let elected = sort % 3 == 2;
        let action = if elected { ELECTED_ACTION } else { ACTION };
        let action = (action as f64 * share) as u64;
        let mut events = Vec::new();
        for kind in 0..KINDS {
            events.push((rng.within(0..3_000), Event::Act(create(&rng, kind))));
        }
        let disturbed = sort != 0;
        for at in times(&rng, 1_000..4_000, action) {
            events.push((at, Event::Act(if disturbed { act(&rng) } else { undisturbing(&rng) })));
        }
        let between = if elected { 4_000..20_000 } else { 500..4_000 };
        for at in times(&rng, between, action) {
            events.push((at, to_operator(&rng, elected)));
        }
        if sort % 2 == 1 {
            for server in [Server::ApiServer, Server::Etcd] {
                let seconds = rng.within(1..15);
                events.push((rng.within(action / 8..action), Event::Stop { server, seconds }));
            }
        }
        events.sort_by_key(|(at, _)| *at);
        let rest = REST.mul_f64(share).max(SHORTEST_REST);
        Self { elected, rest, events }
    }

    /// Returns whether nothing but an operator can make a request to a service fail.
    pub(super) fn is_undisturbed(&self) -> bool {
        !self.events.iter().any(|(_, event)| match event {
            Event::Act(act) => act.interrupts_serving(),
            // The endpoints of a Service follow late when the API server was away.
            Event::Stop { .. } => true,
            Event::Kill { .. } | Event::Pause { .. } | Event::Terminate { .. } => false,
        })
    }
}

/// Returns times with random distances.
fn times(rng: &Rng, between: std::ops::Range<u64>, end: u64) -> Vec<u64> {
    let mut times = Vec::new();
    let mut at = rng.within(between.clone());
    while at < end {
        times.push(at);
        at += rng.within(between.clone());
    }
    times
}

fn act(rng: &Rng) -> Act {
    match rng.within(0..10) {
        0 => Act::FailPod(rng.within(0..6) as u8),
        1 => Act::DeletePod(rng.within(0..6) as u8),
        2 if rng.percent(50) => Act::Amnesia,
        2 => Act::Silence(rng.within(1..10) as u8),
        _ => by_users(rng),
    }
}

/// Returns something that does not interrupt what a service serves.
fn undisturbing(rng: &Rng) -> Act {
    loop {
        let act = by_users(rng);
        if !act.interrupts_serving() {
            return act;
        }
    }
}

fn by_users(rng: &Rng) -> Act {
    let kind = rng.within(0..KINDS);
    let act = if rng.percent(30) { create(rng, kind) } else { change(rng, kind) };
    match act {
        // Such a Secret returns within five minutes, and a slow garbage collector needs an API server that is there.
        Act::DeleteSecret(cluster) => Act::Suspend { cluster, suspend: rng.percent(40) },
        Act::RecreateCluster { cluster, .. } => Act::RecreateCluster { cluster, secret_stays: false },
        act => act,
    }
}

fn to_operator(rng: &Rng, elected: bool) -> Event {
    let operator = if elected { rng.within(0..2) as usize } else { 0 };
    match rng.within(0..10) {
        0 if elected => Event::Pause { operator, seconds: rng.within(11..22) },
        1 | 2 if elected => Event::Terminate { operator },
        _ => Event::Kill { operator, moment: moment(rng), down: rng.within(50..1_200) },
    }
}

fn moment(rng: &Rng) -> Moment {
    let number = rng.within(0..6);
    match rng.within(0..4) {
        0 => Moment::BeforeWrite(number),
        1 => Moment::AfterWrite(number),
        _ => Moment::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_depend_on_the_seed_alone_and_differ() {
        let all: Vec<Round> = (0..SORTS).map(|number| Round::new(7, number, 1.0)).collect();
        assert_eq!(all[1], Round::new(7, 1, 1.0));
        assert_ne!(all[0], all[1]);
        assert_ne!(all[0], Round::new(8, 0, 1.0));
        assert!(all[0].is_undisturbed() && !all[1].is_undisturbed());
        let has =
            |wanted: fn(&Event) -> bool| all.iter().flat_map(|round| &round.events).any(|(_, event)| wanted(event));
        assert!(has(|event| matches!(event, Event::Kill { moment: Moment::AfterWrite(_), .. })));
        assert!(has(|event| matches!(event, Event::Stop { server: Server::Etcd, .. })));
        assert!(has(|event| matches!(event, Event::Terminate { .. })));
        let times = all.iter().all(|round| round.events.is_sorted_by_key(|(at, _)| *at));
        assert!(times, "events are in order");
    }
}
