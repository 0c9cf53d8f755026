//! What an upgrade is waiting for, and whether that can come about by itself.

use super::Planner;
use super::{Side, endpoints, gateway, serve};
use crate::cluster_spec;
use crate::view::PodView;

/// How often a container may start again before it counts as failing.
const RESTARTS: i32 = 3;

/// Something in the way of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// Whether it fails by itself. What is only slow does not.
    pub(super) fails: bool,
    pub(super) text: String,
}

fn waits(text: impl Into<String>) -> Option<Obstacle> {
    Some(Obstacle { fails: false, text: text.into() })
}

fn fails(text: impl Into<String>) -> Option<Obstacle> {
    Some(Obstacle { fails: true, text: text.into() })
}

/// Returns what the upgrade is waiting for; nothing if no dashboard has replied yet.
pub(super) fn find(planner: &Planner<'_>) -> Option<Obstacle> {
    let pending = planner.draft.pending?;
    let name = cluster_spec::name(pending);
    if !serve::is_head_ready(planner, pending) {
        let pod = planner.seen.pods_of(name).find_map(|pod| Some((pod, why_failing(pod)?)));
        return match pod {
            Some((pod, why)) => fails(format!("Pod {} cannot start: {why}", pod.metadata.name)),
            None => waits(format!("the head of RayCluster {name} is not ready")),
        };
    }
    let known = planner.seen.serve_of(name)?;
    if let Some(error) = serve::refusal(planner, Side::Pending, pending) {
        return fails(format!("the Serve configuration is refused by RayCluster {name}: {error}"));
    }
    let Some(details) = known.last_reply.as_ref()?.answer.as_ref().ok() else {
        return waits(format!("the dashboard of RayCluster {name} does not answer"));
    };
    if !details.is_running() {
        let waiting = details.applications.iter().filter(|(_, app)| app.status != "RUNNING");
        let states: Vec<String> =
            waiting.clone().map(|(app, details)| format!("{app} is {}", details.status)).collect();
        let is_ill = |status: &str| ["DEPLOY_FAILED", "UNHEALTHY"].contains(&status);
        return match states.is_empty() {
            true => waits(match serve::lost_request(known) {
                Some(error) => format!("RayCluster {name} has not accepted the Serve configuration yet: {error}"),
                None => format!("RayCluster {name} has no Serve application"),
            }),
            false if waiting.clone().any(|(_, app)| is_ill(&app.status)) => {
                fails(format!("Serve application {}", states.join(", ")))
            }
            false => waits(format!("Serve application {}", states.join(", "))),
        };
    }
    if planner.draft.is_incremental && !planner.seen.gateway_api {
        return fails("the API server does not serve gateway.networking.k8s.io/v1; install the Gateway API");
    }
    if planner.draft.is_incremental && !gateway::is_open(planner) {
        return waits("the Gateway or the HTTPRoute is not ready");
    }
    if endpoints::of_cluster(planner.seen, name) == 0 {
        return waits(format!("no Serve proxy of RayCluster {name} answers"));
    }
    waits("the steps of the upgrade do not advance; see clusterUpgradeOptions")
}

/// Returns why a Pod cannot start on any node, if so.
fn why_failing(pod: &PodView) -> Option<String> {
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    statuses.into_iter().filter(|_| !pod.is_running_and_ready()).find_map(|status| {
        let waiting = status.state.waiting.as_ref().map(|waiting| waiting.reason.as_str()).unwrap_or_default();
        let is_ordinary = ["", "ContainerCreating", "PodInitializing"].contains(&waiting);
        match is_ordinary {
            false => Some(format!("{}: {waiting}", status.name)),
            true if status.restart_count > RESTARTS => {
                Some(format!("{}: started again {} times", status.name, status.restart_count))
            }
            true => None,
        }
    })
}
