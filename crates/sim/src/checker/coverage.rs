//! Which changes of phase worlds went through, of those that the specification knows.

use crate::object::{condition, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// What an object is before it has a status.
const NEW: &str = "new";

/// The phases that each phase can be followed by.
type Machine = &'static [(&'static str, &'static [&'static str])];

/// The phase machines of all kinds. An invalid RayJob is marked in every phase, and goes on from there once it is valid.
const MACHINES: [(&str, Machine); 3] = [
    ("RayCluster", &[(NEW, &["ready", "suspended"]), ("ready", &["suspended"]), ("suspended", &["ready"])]),
    (
        "RayJob",
        &[
            (NEW, &["Initializing", "ValidationFailed"]),
            ("Initializing", &["Waiting", "Running", "Suspending", "Retrying", "Failed", "ValidationFailed"]),
            ("Waiting", &["Running", "Retrying", "Failed", "ValidationFailed"]),
            ("Running", &["Complete", "Failed", "Retrying", "Suspending", "ValidationFailed"]),
            ("Retrying", &[NEW, "ValidationFailed"]),
            ("Suspending", &["Suspended", "ValidationFailed"]),
            ("Suspended", &[NEW, "ValidationFailed"]),
            ("Complete", &["ValidationFailed"]),
            ("Failed", &["ValidationFailed"]),
            (
                "ValidationFailed",
                &[
                    NEW,
                    "Initializing",
                    "Waiting",
                    "Running",
                    "Retrying",
                    "Suspending",
                    "Suspended",
                    "Complete",
                    "Failed",
                ],
            ),
        ],
    ),
    (
        "RayService",
        &[
            (NEW, &["not ready", "ready", "suspending"]),
            ("not ready", &["ready", "upgrading", "suspending"]),
            ("ready", &["not ready", "upgrading", "suspending"]),
            ("upgrading", &["not ready", "ready", "rolling back", "suspending"]),
            ("rolling back", &["not ready", "ready", "upgrading", "suspending"]),
            ("suspending", &["suspended"]),
            ("suspended", &["not ready", "ready"]),
        ],
    ),
];

/// How often each change of phase was seen, by kind, phase before and phase after.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transitions(BTreeMap<(&'static str, String, String), u64>);

impl Transitions {
    /// Counts a change of phase. Returns what is wrong with it.
    pub(super) fn note(
        &mut self,
        kind: &'static str,
        name: &str,
        before: Option<&Value>,
        after: &Value,
    ) -> Option<String> {
        let machine = machine(kind)?;
        let now = phase(kind, after);
        let then = before.map_or_else(|| NEW.to_owned(), |before| phase(kind, before));
        if then == now {
            return None;
        }
        let known = machine.iter().any(|(from, to)| *from == then && to.contains(&now.as_str()));
        // The phases of a service are read from several conditions, which do not change together.
        let violation = (!known && kind != "RayService").then(|| format!("{kind} {name} went from {then} to {now}"));
        *self.0.entry((kind, then, now)).or_default() += 1;
        violation
    }

    /// Adds those of another world.
    pub fn add(&mut self, other: &Self) {
        for (transition, count) in &other.0 {
            *self.0.entry(transition.clone()).or_default() += count;
        }
    }

    /// Returns how often a change of phase was seen.
    fn count(&self, kind: &'static str, from: &str, to: &str) -> u64 {
        self.0.get(&(kind, from.to_owned(), to.to_owned())).copied().unwrap_or_default()
    }

    /// Returns those that were seen and that no machine knows.
    fn unknown(&self) -> impl Iterator<Item = (&str, &str, &str, u64)> {
        let known = |kind: &str, from: &str, to: &str| {
            machine(kind).is_some_and(|machine| machine.iter().any(|(of, all)| *of == from && all.contains(&to)))
        };
        let all = self.0.iter().map(|((kind, from, to), count)| (*kind, from.as_str(), to.as_str(), *count));
        all.filter(move |(kind, from, to, _)| !known(kind, from, to))
    }
}

/// A table of all changes of phase that the specification knows, with those that were never seen.
impl fmt::Display for Transitions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, machine) in MACHINES {
            let all: Vec<_> = machine.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to))).collect();
            let reached = all.iter().filter(|(from, to)| self.count(kind, from, to) > 0).count();
            writeln!(formatter, "{kind}: {reached} of {} changes of phase", all.len())?;
            for (from, to) in all {
                match self.count(kind, from, to) {
                    0 => writeln!(formatter, "  {from:>16} → {to:<16}     never")?,
                    count => writeln!(formatter, "  {from:>16} → {to:<16} {count:>9}")?,
                }
            }
        }
        for (kind, from, to, count) in self.unknown() {
            writeln!(formatter, "{kind}: {from} → {to}, between two conditions of its status: {count}")?;
        }
        Ok(())
    }
}

fn machine(kind: &str) -> Option<Machine> {
    MACHINES.iter().find(|(known, _)| *known == kind).map(|(_, machine)| *machine)
}

fn phase(kind: &str, object: &Value) -> String {
    let status = &object["status"];
    let phase = match kind {
        "RayCluster" => text(&status["state"]),
        "RayJob" => text(&status["jobDeploymentStatus"]),
        _ => service_phase(object).to_owned(),
    };
    if phase.is_empty() { NEW.to_owned() } else { phase }
}

fn service_phase(service: &Value) -> &'static str {
    if service["status"]["conditions"].is_null() {
        return NEW;
    }
    let phases = [
        ("Suspending", "suspending"),
        ("Suspended", "suspended"),
        ("RollbackInProgress", "rolling back"),
        ("UpgradeInProgress", "upgrading"),
        ("Ready", "ready"),
    ];
    phases.into_iter().find(|(kind, _)| condition(service, kind)).map_or("not ready", |(_, phase)| phase)
}
