//! What a chaos run did and saw.

use super::plan::{Event, Server};
use crate::checker::Transitions;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What a chaos run did and saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub seed: u64,
    pub rounds: u64,
    /// How often an operator was killed.
    pub kills: u64,
    pub time: Duration,
    /// How often each other thing was done to operators and servers.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// How often users, nodes and Ray did each thing.
    pub(super) acts: BTreeMap<String, u64>,
    pub(super) requests: Requests,
    pub(super) transitions: Transitions,
    /// The longest time in which everything became as the specs ask.
    pub(super) slowest: Duration,
}

/// How many requests there were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    /// Writes of operators.
    pub(super) writes: u64,
    /// Requests to services that were answered.
    pub(super) answered: u64,
    /// Requests to services that failed while a node, Ray, a user or the control plane interrupted them.
    pub(super) interrupted: u64,
}

impl Report {
    pub(super) fn count(&mut self, event: &Event) {
        let fault = match event {
            Event::Act(act) => {
                let name = format!("{act:?}").split(['(', ' ']).next().unwrap_or_default().to_owned();
                *self.acts.entry(name).or_default() += 1;
                return;
            }
            // Counted when they happen.
            Event::Kill { .. } => return,
            Event::Pause { .. } => "operators paused",
            Event::Terminate { .. } => "operators terminated",
            Event::Stop { server: Server::ApiServer, .. } => "kube-apiserver killed",
            Event::Stop { server: Server::Etcd, .. } => "etcd killed",
        };
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Returns the sums so far in one line.
    pub(super) fn line(&self) -> String {
        let faults: Vec<String> = self.faults.iter().map(|(fault, count)| format!(", {count} {fault}")).collect();
        let Requests { writes, answered, interrupted } = self.requests;
        format!(
            "{} kills{}, {writes} writes, {answered} requests answered, {interrupted} interrupted, {:.0} s",
            self.kills,
            faults.concat(),
            self.time.as_secs_f64()
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acts: Vec<String> = self.acts.iter().map(|(act, count)| format!("{act} {count}")).collect();
        writeln!(formatter, "{}", acts.join(", "))?;
        write!(formatter, "{}", self.transitions)?;
        writeln!(formatter, "as the specs ask after at most {:.0} s", self.slowest.as_secs_f64())?;
        write!(formatter, "seed {}, {} rounds: {}", self.seed, self.rounds, self.line())
    }
}
