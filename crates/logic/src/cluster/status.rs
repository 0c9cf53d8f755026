//! The status of a RayCluster after a pass.

use super::Plan;
use super::conditions;
use super::counts;
use super::observed::Observed;
use super::services::head_selector;
use crate::config::Config;
use crate::labels::{NODE_TYPE, WORKER};
use crate::plan::{Failure, Outcome, Reconciled};
use crate::view::{IntOrText, PodConditionView, PodView, ServiceView};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{HeadInfo, RayCluster, RayClusterStatus};
use manta_quantity::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

const READY: &str = "ready";
const SUSPENDED: &str = "suspended";

/// Returns the status after a pass, if it changes. Without exactly one head Service there is none.
pub(super) fn compute(
    seen: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    now: Timestamp,
    cfg: &Config,
) -> Option<RayClusterStatus> {
    let is_own = |controller: &str| controller == RayCluster::CONTROLLER;
    let halt = plan.halts.iter().find(|halt| is_own(halt.controller));
    let halted =
        halt.map(|halt| Failure { controller: RayCluster::CONTROLLER, reason: None, error: halt.error.clone() });
    let failure = outcome.failure_of(RayCluster::CONTROLLER).cloned().or(halted);
    // The observation predates the writes of this pass; the watch triggers the pass that counts them.
    if failure.is_none() && plan.stages.iter().any(|stage| is_own(stage.controller)) {
        return None;
    }
    let status = after_pass(seen, failure.as_ref(), now, cfg)?;
    needs_write(seen.cluster.status.as_ref(), &status).then_some(status)
}

fn after_pass(seen: &Observed, failure: Option<&Failure>, now: Timestamp, cfg: &Config) -> Option<RayClusterStatus> {
    let selector = head_selector(seen.name());
    let mut services = seen.services_with(&selector);
    let service = services.next()?;
    if services.next().is_some() || seen.head_pods().nth(1).is_some() {
        return None;
    }
    let spec = &seen.cluster.spec;
    let before = seen.cluster.status.as_ref();
    let mut status = before.cloned().unwrap_or_default();

    let counts = counts::worker_counts(spec);
    let workers = || seen.pods.iter().filter(|pod| pod.metadata.label(NODE_TYPE) == Some(WORKER));
    status.observed_generation = seen.cluster.metadata.generation;
    status.ready_worker_replicas = non_zero(workers().filter(|pod| pod.is_running_and_ready()).count());
    status.available_worker_replicas = non_zero(workers().filter(|pod| pod.status.phase == "Running").count());
    status.desired_worker_replicas = Some(counts.desired).filter(|count| *count != 0);
    status.min_worker_replicas = Some(counts.min).filter(|count| *count != 0);
    status.max_worker_replicas = Some(counts.max).filter(|count| *count != 0);

    let resources = counts::desired_resources(spec);
    status.desired_cpu = printed(&resources.cpu);
    status.desired_memory = printed(&resources.memory);
    status.desired_gpu = printed(&resources.gpu);
    status.desired_tpu = printed(&resources.tpu);

    if failure.is_none() && seen.pods.len() as i64 == i64::from(counts.desired) + 1 && all_running(&seen.pods) {
        status.state = Some(READY.to_owned());
        status.reason = None;
    }
    if cfg.gates.ray_cluster_status_conditions {
        status.conditions = Some(conditions::after_pass(seen, failure, now));
    }
    if spec.suspend == Some(true) && seen.pods.is_empty() {
        status.state = Some(SUSPENDED.to_owned());
    }
    status.endpoints = endpoints(service, status.endpoints.take());
    status.head = Some(head_info(seen, service));
    status.last_update_time = Some(Time(now));
    if status.state != before.and_then(|before| before.state.clone())
        && let Some(state) = &status.state
    {
        status.state_transition_times.get_or_insert_default().insert(state.clone(), Time(now));
    }
    Some(status)
}

/// Returns whether a new status differs from the old one in more than its time stamps.
fn needs_write(before: Option<&RayClusterStatus>, after: &RayClusterStatus) -> bool {
    let Some(before) = before else { return true };
    // Unlike in KubeRay, a new generation and new sums count too: they must not lag behind for ever.
    let compared = |status: &RayClusterStatus| RayClusterStatus {
        last_update_time: None,
        state_transition_times: None,
        conditions: Some(status.conditions.clone().unwrap_or_default()),
        endpoints: Some(status.endpoints.clone().unwrap_or_default()),
        head: Some(status.head.clone().unwrap_or_default()),
        ..status.clone()
    };
    compared(before) != compared(after)
}

/// Fills in the parts of a status that are not pointers in Go, so that KubeRay always writes them.
pub(crate) fn fill_go_zeroes(status: &mut RayClusterStatus) {
    let sums = [&mut status.desired_cpu, &mut status.desired_memory, &mut status.desired_gpu, &mut status.desired_tpu];
    for quantity in sums {
        quantity.get_or_insert_with(|| resource::Quantity("0".to_owned()));
    }
    status.head.get_or_insert_with(HeadInfo::default);
}

/// Returns whether there are Pods, all of them run, and none has a false Ready condition.
pub(super) fn all_running(pods: &[Arc<PodView>]) -> bool {
    let runs = |pod: &Arc<PodView>| {
        pod.status.phase == "Running" && pod.status.conditions.ready.as_ref().is_none_or(PodConditionView::is_true)
    };
    !pods.is_empty() && pods.iter().all(runs)
}

/// Returns the ports by name, as they are reached; names are added or changed, never removed.
fn endpoints(service: &ServiceView, known: Option<BTreeMap<String, String>>) -> Option<BTreeMap<String, String>> {
    let mut endpoints = known.unwrap_or_default();
    for port in &service.spec.ports {
        let target = match (&port.target_port, port.node_port) {
            (_, node_port) if node_port != 0 => Some(node_port.to_string()),
            (Some(IntOrText::Int(number)), _) if *number != 0 => Some(number.to_string()),
            (Some(IntOrText::Text(name)), _) if !name.is_empty() => Some(name.to_string()),
            _ => None,
        };
        if let Some(target) = target.filter(|_| !port.name.is_empty()) {
            endpoints.insert(port.name.to_string(), target);
        }
    }
    Some(endpoints).filter(|endpoints| !endpoints.is_empty())
}

fn head_info(seen: &Observed, service: &ServiceView) -> HeadInfo {
    let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let head = seen.head_pods().next();
    let pod_ip = head.and_then(|head| filled(&head.status.pod_ip));
    let service_ip = match service.spec.cluster_ip.as_str() {
        "None" => pod_ip.clone(),
        address => filled(address),
    };
    HeadInfo {
        pod_name: head.and_then(|head| filled(&head.metadata.name)),
        service_name: filled(&service.metadata.name),
        pod_ip,
        service_ip,
    }
}

fn non_zero(count: usize) -> Option<i32> {
    i32::try_from(count).ok().filter(|count| *count != 0)
}

fn printed(quantity: &Quantity) -> Option<resource::Quantity> {
    Some(resource::Quantity(quantity.to_string()))
}
