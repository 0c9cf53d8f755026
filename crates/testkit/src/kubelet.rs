//! A fake kubelet: writes pod statuses and completes pod deletions.
//!
//! No container ever runs. A pod becomes ready as soon as it is seen, unless a rule says otherwise. There is no
//! scheduler; only [`Kubelet::start_on_node`] binds pods to a node.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Binding, Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ObjectReference, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

/// How many pods are written concurrently.
const CONCURRENCY: usize = 16;

/// The state that a pod is put into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Play {
    /// Running and ready.
    Ready,
    /// Running, with a failing readiness probe.
    Unready,
    /// Not scheduled to any node.
    Unschedulable { message: String },
    /// Its containers are waiting, e.g. in `ImagePullBackOff` or `CrashLoopBackOff`.
    Waiting { reason: String, message: String },
    /// All containers exited with 0.
    Succeeded,
    /// All containers exited with this code.
    Failed { exit_code: i32 },
    /// Never updated and never deleted, as on a dead node.
    Ignored,
}

type Rule = Box<dyn Fn(&Pod) -> Option<Play> + Send + Sync>;

/// A running fake kubelet; it stops when dropped.
#[derive(Debug)]
pub struct Kubelet {
    player: Arc<Player>,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Starts it for one namespace, or for all.
    pub fn start(client: Client, namespace: Option<&str>) -> Self {
        let pods = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        Self::spawn(client, pods, None)
    }

    /// Like `start`; also binds pods to a node of this name, which the endpoint controllers require.
    pub fn start_on_node(client: Client, namespace: &str, node: &str) -> Self {
        let pods = Api::namespaced(client.clone(), namespace);
        Self::spawn(client, pods, Some(node.to_owned()))
    }

    fn spawn(client: Client, pods: Api<Pod>, node: Option<String>) -> Self {
        let player = Arc::new(Player { client, pods, node, rules: Mutex::default(), addresses: AtomicU32::new(1) });
        let task = tokio::spawn(Arc::clone(&player).play_watched());
        Self { player, task }
    }

    /// Adds a rule that takes precedence over all others, and applies it to existing pods.
    pub async fn rule(&self, rule: impl Fn(&Pod) -> Option<Play> + Send + Sync + 'static) -> Result<()> {
        self.player.rules.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(rule));
        for pod in self.player.pods.list(&ListParams::default()).await? {
            self.player.play(pod).await?;
        }
        Ok(())
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Player {
    client: Client,
    pods: Api<Pod>,
    node: Option<String>,
    rules: Mutex<Vec<Rule>>,
    addresses: AtomicU32,
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Player").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Player {
    async fn play_watched(self: Arc<Self>) {
        let seen = watcher(self.pods.clone(), watcher::Config::default()).default_backoff().applied_objects();
        // The watch recovers by itself. A pod that cannot be written has changed or gone, so another event follows.
        let pods = seen.filter_map(|pod| std::future::ready(pod.ok()));
        pods.for_each_concurrent(CONCURRENCY, |pod| async {
            let _ = self.play(pod).await;
        })
        .await;
    }

    async fn play(&self, pod: Pod) -> kube::Result<()> {
        let play = self.decide(&pod);
        if play == Play::Ignored {
            return Ok(());
        }
        let api = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
            let now = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            return api.delete(&name, &now).await.map(drop);
        }
        let unbound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
        if let Some(node) = self.node.as_ref().filter(|_| unbound && !matches!(play, Play::Unschedulable { .. })) {
            self.bind(&pod, node).await?;
        }
        let Some(status) = self.next_status(&pod, &play) else { return Ok(()) };
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await.map(drop)
    }

    fn decide(&self, pod: &Pod) -> Play {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter().rev().find_map(|rule| rule(pod)).unwrap_or(Play::Ready)
    }

    async fn bind(&self, pod: &Pod, node: &str) -> kube::Result<()> {
        let metadata = ObjectMeta { name: pod.metadata.name.clone(), ..ObjectMeta::default() };
        let target = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        let binding = Binding { metadata, target };
        let api = Api::<Pod>::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let _: serde_json::Value =
            api.create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding).await?;
        Ok(())
    }

    /// Returns the status to write, unless the pod already has it.
    fn next_status(&self, pod: &Pod, play: &Play) -> Option<PodStatus> {
        let old = pod.status.as_ref();
        let address = old.and_then(|status| status.pod_ip.clone()).unwrap_or_else(|| {
            let number = self.addresses.fetch_add(1, Ordering::Relaxed);
            format!("10.{}.{}.{}", 244 + number / 62_500 % 10, number / 250 % 250, number % 250 + 1)
        });
        let status = status_of(pod, play, &address, Timestamp::now());
        let same = old.is_some_and(|old| essence(old) == essence(&status));
        (!same).then_some(status)
    }
}

/// Returns the parts of a status that matter, without times.
fn essence(status: &PodStatus) -> (Option<&str>, Vec<(&str, &str)>, Vec<String>) {
    let conditions = status.conditions.iter().flatten().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    let states = status.container_statuses.iter().flatten().filter_map(|container| {
        let state = container.state.as_ref()?;
        let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
        let code = state.terminated.as_ref().map(|terminated| terminated.exit_code);
        Some(format!("{} {} {waiting:?} {code:?}", container.name, container.ready))
    });
    (status.phase.as_deref(), conditions, states.collect())
}

/// Returns the status that a kubelet would write.
fn status_of(pod: &Pod, play: &Play, address: &str, now: Timestamp) -> PodStatus {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let condition = |kind: &str, holds: bool| PodCondition {
        type_: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        last_transition_time: Some(now.clone()),
        ..PodCondition::default()
    };
    if let Play::Unschedulable { message } = play {
        let reason = Some("Unschedulable".to_owned());
        let scheduled = PodCondition { reason, message: Some(message.clone()), ..condition("PodScheduled", false) };
        return PodStatus {
            phase: Some("Pending".to_owned()),
            conditions: Some(vec![scheduled]),
            ..PodStatus::default()
        };
    }
    let ready = *play == Play::Ready;
    let started = !matches!(play, Play::Waiting { .. });
    let phase = match play {
        Play::Waiting { .. } => "Pending",
        Play::Succeeded => "Succeeded",
        Play::Failed { .. } => "Failed",
        _ => "Running",
    };
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let inits = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let init_play = if started { &Play::Succeeded } else { play };
    PodStatus {
        phase: Some(phase.to_owned()),
        host_ip: Some("10.0.0.1".to_owned()),
        pod_ip: started.then(|| address.to_owned()),
        pod_ips: started.then(|| vec![PodIP { ip: address.to_owned() }]),
        start_time: Some(now.clone()),
        conditions: Some(vec![
            condition("PodScheduled", true),
            condition("Initialized", started),
            condition("ContainersReady", ready),
            condition("Ready", ready),
        ]),
        container_statuses: Some(containers.iter().map(|container| container_status(container, play, &now)).collect()),
        init_container_statuses: (!inits.is_empty())
            .then(|| inits.iter().map(|container| container_status(container, init_play, &now)).collect()),
        ..PodStatus::default()
    }
}

fn container_status(container: &Container, play: &Play, now: &Time) -> ContainerStatus {
    let ended = |exit_code: i32| ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code,
            reason: Some(if exit_code == 0 { "Completed" } else { "Error" }.to_owned()),
            started_at: Some(now.clone()),
            finished_at: Some(now.clone()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
    let state = match play {
        Play::Succeeded => ended(0),
        Play::Failed { exit_code } => ended(*exit_code),
        Play::Waiting { reason, message } => ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some(reason.clone()), message: Some(message.clone()) }),
            ..ContainerState::default()
        },
        _ => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(now.clone()) }),
            ..ContainerState::default()
        },
    };
    let ready = *play == Play::Ready;
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: "fake".to_owned(),
        ready,
        started: Some(ready),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"initContainers": [{"name": "wait"}], "containers": [{"name": "ray", "image": "ray:1"}, {"name": "side"}]},
        }))
        .unwrap()
    }

    fn check(play: Play, phase: &str, ready: Option<&str>, state_of_first: &str) {
        let status = status_of(&pod(), &play, "10.244.0.2", Timestamp::UNIX_EPOCH);
        let conditions = status.conditions.clone().unwrap();
        let found =
            conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status.as_str());
        assert_eq!((status.phase.as_deref(), found), (Some(phase), ready), "{play:?}");
        let state = status.container_statuses.iter().flatten().next().and_then(|first| first.state.as_ref());
        let state = serde_json::to_value(state).unwrap();
        let kind = state.as_object().and_then(|state| state.keys().next().cloned()).unwrap_or_default();
        assert_eq!(kind, state_of_first, "{play:?}");
    }

    #[test]
    fn each_state_has_its_status() {
        check(Play::Ready, "Running", Some("True"), "running");
        check(Play::Unready, "Running", Some("False"), "running");
        check(Play::Succeeded, "Succeeded", Some("False"), "terminated");
        check(Play::Failed { exit_code: 3 }, "Failed", Some("False"), "terminated");
        check(
            Play::Waiting { reason: "ErrImagePull".into(), message: String::new() },
            "Pending",
            Some("False"),
            "waiting",
        );
        check(Play::Unschedulable { message: "no node".into() }, "Pending", None, "");
    }

    #[test]
    fn an_unchanged_status_is_not_written_again() {
        let plays =
            [Play::Ready, Play::Unready, Play::Succeeded, Play::Failed { exit_code: 1 }, Play::Failed { exit_code: 2 }];
        for (first, play) in plays.iter().enumerate() {
            let earlier = status_of(&pod(), play, "10.244.0.2", Timestamp::UNIX_EPOCH);
            for (second, other) in plays.iter().enumerate() {
                let later = status_of(&pod(), other, "10.244.0.2", Timestamp::MAX);
                assert_eq!(essence(&earlier) == essence(&later), first == second, "{play:?} then {other:?}");
            }
        }
    }
}
