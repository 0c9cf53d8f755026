//! Which changes of phase worlds went through.

use super::services::condition;
use super::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The phases of each kind, of which every one should be reached.
const PHASES: [(&str, &[&str]); 3] = [
    ("RayCluster", &["new", "ready", "suspended"]),
    (
        "RayJob",
        &[
            "new",
            "Initializing",
            "Waiting",
            "Running",
            "Retrying",
            "Suspending",
            "Suspended",
            "Complete",
            "Failed",
            "ValidationFailed",
        ],
    ),
    ("RayService", &["new", "not ready", "ready", "upgrading"]),
];

/// How often each change of phase was seen, by kind, phase before and phase after.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transitions(BTreeMap<(String, String, String), u64>);

impl Transitions {
    pub(super) fn note(&mut self, kind: &str, before: Option<&Value>, after: &Value) {
        let Some(now) = phase(kind, after) else { return };
        let then = before.and_then(|before| phase(kind, before)).unwrap_or_else(|| "none".to_owned());
        if then != now {
            *self.0.entry((kind.to_owned(), then, now)).or_default() += 1;
        }
    }

    /// Adds those of another world.
    pub fn add(&mut self, other: &Self) {
        for (transition, count) in &other.0 {
            *self.0.entry(transition.clone()).or_default() += count;
        }
    }

    /// Returns the phases that were never reached.
    pub fn unreached(&self) -> Vec<String> {
        let all = PHASES.iter().flat_map(|(kind, phases)| phases.iter().map(move |phase| (*kind, *phase)));
        all.filter(|(kind, phase)| !self.0.keys().any(|(of, _, to)| of == kind && to == phase))
            .map(|(kind, phase)| format!("{kind} {phase}"))
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

fn phase(kind: &str, object: &Value) -> Option<String> {
    let status = &object["status"];
    let phase = match kind {
        "RayCluster" => text(&status["state"]),
        "RayJob" => text(&status["jobDeploymentStatus"]),
        "RayService" => match () {
            () if status["conditions"].is_null() => String::new(),
            () if condition(object, "UpgradeInProgress") => "upgrading".to_owned(),
            () if condition(object, "Ready") => "ready".to_owned(),
            () => "not ready".to_owned(),
        },
        _ => return None,
    };
    Some(if phase.is_empty() { "new".to_owned() } else { phase })
}
