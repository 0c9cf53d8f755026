//! The scheduler: binds Pods to nodes, those of a gang only once the whole gang is there.

use crate::api::Api;
use crate::object::{is_alive, label, text};
use k8s_openapi::api::core::v1::Pod;
use manta_logic::config;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// The annotation of Volcano, and the label of scheduler-plugins, that name the PodGroup of a Pod.
const VOLCANO_GROUP: &str = "scheduling.k8s.io/group-name";
const PLUGINS_GROUP: &str = "scheduling.x-k8s.io/pod-group";

/// Asks scheduler-plugins for a gang. To others the label means nothing.
pub(crate) const GANG: &str = "ray.io/gang-scheduling-enabled";

/// The schedulers with gangs that an operator can be told to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchScheduler {
    Volcano,
    SchedulerPlugins,
    /// It groups Pods by their owners.
    Kai,
    /// It reads everything from annotations of Pods.
    Yunikorn,
    /// The scheduler of Kubernetes, with Workloads.
    KubernetesWorkloads,
}

impl BatchScheduler {
    pub(crate) const ALL: [Self; 5] =
        [Self::Volcano, Self::SchedulerPlugins, Self::Kai, Self::Yunikorn, Self::KubernetesWorkloads];

    /// Returns the setting of operators.
    pub(crate) fn setting(self) -> config::BatchScheduler {
        match self {
            Self::Volcano => config::BatchScheduler::Volcano,
            Self::SchedulerPlugins => config::BatchScheduler::SchedulerPlugins,
            Self::Kai => config::BatchScheduler::Kai,
            Self::Yunikorn => config::BatchScheduler::Yunikorn,
            Self::KubernetesWorkloads => config::BatchScheduler::KubernetesWorkloads,
        }
    }

    /// Returns the name by which Pods ask for the scheduler, where all of them have to.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Volcano => Some("volcano"),
            Self::Kai => Some("kai-scheduler"),
            Self::Yunikorn => Some("yunikorn"),
            Self::SchedulerPlugins | Self::KubernetesWorkloads => None,
        }
    }
}

/// The scheduler.
#[derive(Clone)]
pub(crate) struct Scheduler {
    api: Api,
    /// Until then, all nodes are full.
    full_until: Arc<Mutex<Option<Instant>>>,
}

impl Scheduler {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, full_until: Arc::default() }
    }

    /// Leaves no room for further Pods.
    pub(crate) fn fill(&self, until: Instant) {
        *self.full_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Returns whether a Pod can be bound to a node now.
    pub(crate) fn has_room(&self, pod: &Pod) -> bool {
        let full_until = *self.full_until.lock().unwrap_or_else(PoisonError::into_inner);
        if full_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        pod_group(&json!(pod)).is_none_or(|group| self.is_complete(&group))
    }

    /// Returns whether all Pods of a gang are there, and says so.
    fn is_complete(&self, group: &str) -> bool {
        let Some(found) = self.api.get("PodGroup", group) else { return false };
        let gang = &found["spec"]["schedulingPolicy"]["gang"]["minCount"];
        let needed = found["spec"]["minMember"].as_i64().or_else(|| gang.as_i64()).unwrap_or_default();
        let pods = self.api.list("Pod");
        let members = pods.iter().filter(|pod| is_alive(pod) && pod_group(pod).as_deref() == Some(group)).count();
        let complete = i64::try_from(members).is_ok_and(|members| members >= needed);
        let phase = if complete { "Running" } else { "Pending" };
        if found["status"]["phase"] != phase {
            self.api.patch_status("PodGroup", group, &json!({"phase": phase}));
        }
        complete
    }
}

/// Returns the PodGroup of a Pod, if it is scheduled with others.
pub(crate) fn pod_group(pod: &Value) -> Option<String> {
    let volcano = text(&pod["metadata"]["annotations"][VOLCANO_GROUP]);
    let plugins = label(pod, PLUGINS_GROUP);
    let workloads = text(&pod["spec"]["schedulingGroup"]["podGroupName"]);
    [volcano, plugins, workloads].into_iter().find(|group| !group.is_empty())
}
