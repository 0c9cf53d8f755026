//! The recordings with a batch scheduler: which scheduler a case uses, and how operator and replay are configured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::case_name;

/// The directory with these recordings.
pub(super) const FOLDER: &str = "schedulers";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheduler {
    Kai,
    Coscheduling,
    Volcano,
    Yunikorn,
}

impl Scheduler {
    const ALL: [Self; 4] = [Self::Kai, Self::Coscheduling, Self::Volcano, Self::Yunikorn];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kai => "kai-scheduler",
            Self::Coscheduling => "scheduler-plugins",
            Self::Volcano => "volcano",
            Self::Yunikorn => "yunikorn",
        }
    }

    /// Returns the operator's flag.
    pub(super) fn flag(self) -> String {
        format!("--batch-scheduler={}", self.name())
    }

    /// Returns the environment variable of the replay, which expects Volcano's PodGroups by default.
    pub(super) fn variable(self) -> Option<(&'static str, &'static str)> {
        (self == Self::Coscheduling).then_some(("PODGROUP_API", "scheduling.x-k8s.io/v1alpha1"))
    }

    /// Returns the scheduler that a case's name starts with.
    fn of(case: &str) -> Option<Self> {
        let is_prefix =
            |scheduler: &Self| case.strip_prefix(scheduler.name()).is_some_and(|rest| rest.starts_with('-'));
        Self::ALL.into_iter().find(is_prefix)
    }
}

/// Groups the cases by scheduler.
pub(super) fn group(cases: Vec<PathBuf>) -> Result<BTreeMap<Scheduler, Vec<PathBuf>>> {
    let mut groups: BTreeMap<Scheduler, Vec<PathBuf>> = BTreeMap::new();
    for case in cases {
        let name = case_name(&case);
        let scheduler = Scheduler::of(&name).with_context(|| format!("{name} names no batch scheduler"))?;
        groups.entry(scheduler).or_default().push(case);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_is_taken_from_the_case_name() {
        for (case, expect) in [
            ("volcano-job", Some(Scheduler::Volcano)),
            ("kai-scheduler-cluster-autoscaler", Some(Scheduler::Kai)),
            ("scheduler-plugins-cluster", Some(Scheduler::Coscheduling)),
            ("yunikorn-cluster", Some(Scheduler::Yunikorn)),
            ("volcanoes", None),
            ("case-scale-up", None),
        ] {
            assert_eq!(Scheduler::of(case), expect, "{case}");
        }
    }
}
