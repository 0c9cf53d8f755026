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

    /// Returns the changes of phase that were never seen.
    pub fn unreached(&self) -> Vec<String> {
        let all = MACHINES.iter().flat_map(|(kind, machine)| {
            machine.iter().flat_map(move |(from, to)| to.iter().map(move |to| (*kind, *from, *to)))
        });
        all.filter(|(kind, from, to)| !self.0.contains_key(&(*kind, (*from).to_owned(), (*to).to_owned())))
            .map(|(kind, from, to)| format!("{kind} {from} → {to}"))
            .collect()
    }
}

impl fmt::Display for Transitions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((kind, from, to), count) in &self.0 {
            writeln!(formatter, "{kind:<12} {from:>16} → {to:<16} {count:>9}")?;
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
