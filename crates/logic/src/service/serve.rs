//! Serve on the two clusters: what is asked, what configuration each one should have, and whether it is ready.
//!
//! A configuration belongs to the revision of the cluster that it came with. Only a cluster that is what the spec
//! asks for gets the spec's configuration; the other one keeps its own, also after a restart of the operator.

use super::dashboard::{ClusterPoll, ClusterState, DesiredConfig, ServePoll};
use super::upgrade::{Match, compare, is_zero_downtime};
use super::{Planner, Side};
use super::{applications, capacity, serve_config, serve_labels};
use crate::action::{Action, Event, Kind, Step};
use crate::cluster_spec;
use crate::conditions::{self, HEAD_POD_READY};
use crate::dashboard::{DashboardEndpoint, RayRequest};
use crate::names;
use crate::reasons;
use jiff::SignedDuration;
use manta_api::RayCluster;

/// How long after an attempt to submit a configuration the next one is made.
const SUBMIT_AGAIN: SignedDuration = SignedDuration::from_secs(2);

/// Which clusters run all of their applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) active: bool,
    pub(super) pending: bool,
}

/// Selects what to poll, submits configurations, and copies the replies into the status.
pub(super) fn plan(planner: &mut Planner<'_>) -> Ready {
    let mut poll = ServePoll::default();
    let pending = plan_side(planner, Side::Pending, &mut poll);
    let active = plan_side(planner, Side::Active, &mut poll);
    planner.poll = Some(poll).filter(|poll| !poll.clusters.is_empty());
    Ready { active, pending }
}

/// Returns whether a cluster's head is ready.
pub(super) fn is_head_ready(planner: &Planner<'_>, cluster: &RayCluster) -> bool {
    if !planner.config.gates.ray_cluster_status_conditions {
        return planner.seen.head_of(cluster_spec::name(cluster)).is_some_and(|head| head.is_running_and_ready());
    }
    conditions::is_true(conditions::of_cluster(cluster), HEAD_POD_READY)
}

/// Returns whether the applications of a cluster are lost for good: its Serve has none, and it is not known what they were.
pub(super) fn has_lost_applications(planner: &Planner<'_>, cluster: &RayCluster) -> bool {
    let known = planner.seen.serve_of(cluster_spec::name(cluster)).filter(|known| known.submitted.is_none());
    known.and_then(ClusterState::details).is_some_and(|details| details.applications.is_empty())
        && is_head_ready(planner, cluster)
}

/// Returns whether a cluster runs all of its applications, as far as is known.
pub(super) fn may_serve(planner: &Planner<'_>, cluster: &RayCluster) -> bool {
    let known = planner.seen.serve_of(cluster_spec::name(cluster));
    let details = known.and_then(ClusterState::details);
    is_head_ready(planner, cluster) && details.is_none_or(|details| details.is_running())
}

fn plan_side(planner: &mut Planner<'_>, side: Side, poll: &mut ServePoll) -> bool {
    let Some(cluster) = planner.draft.cluster(side) else {
        planner.draft.slot(side).application_statuses = None;
        return false;
    };
    let name = cluster_spec::name(cluster);
    let proxy = serve_labels::proxy(planner, cluster);
    if !is_head_ready(planner, cluster) {
        planner.draft.slot(side).application_statuses = None;
        planner.wait_for(format!("the head of RayCluster {}", planner.seen.path(name)));
        // Polled even without a dashboard address, so that a restarting head does not lose the submitted configuration.
        poll.clusters.push(ClusterPoll { cluster: name.to_owned(), dashboard: None, proxy });
        return false;
    }
    let nothing = ClusterState::default();
    let known = planner.seen.serve_of(name).unwrap_or(&nothing);
    let endpoint = dashboard(planner, cluster);
    let config = configuration(planner, side, cluster, known);
    let is_submitted = config.as_ref().is_none_or(|config| !config.is_due(known));
    // A request that broke off may have put an earlier configuration in place of this one.
    let is_uncertain = known.confirm_at().is_some_and(|at| planner.reached_or_wake_at(at));
    if let Some(config) = config.filter(|_| !is_submitted || is_uncertain) {
        submit(planner, name, &endpoint, config, known);
    }
    if let Some(details) = known.details() {
        planner.draft.slot(side).application_statuses = applications::statuses(details);
    }
    poll.clusters.push(ClusterPoll { cluster: name.to_owned(), dashboard: Some(endpoint), proxy });
    is_submitted && known.details().is_some_and(|details| details.is_running())
}

/// Returns the configuration that a cluster should have; none if it must not be changed.
fn configuration(
    planner: &mut Planner<'_>,
    side: Side,
    cluster: &RayCluster,
    known: &ClusterState,
) -> Option<DesiredConfig> {
    let capacity = planner.draft.slot(side).target_capacity.filter(|_| planner.draft.is_incremental);
    let text = if takes_spec(planner, side, cluster) {
        Some(planner.seen.service.spec.serve_config_v2.clone().unwrap_or_default())
    } else {
        known.submitted.as_ref().map(|submitted| submitted.text.clone())
    };
    let with_capacity = |capacity: Option<i32>| match &text {
        Some(text) => Some(serve_config::desired(text, capacity)),
        None => serve_config::deployed(known.details()?, capacity?),
    };
    // After a restart it is not known whether the recorded capacity was the last one submitted.
    let now = with_capacity(capacity);
    let Some(goal) = capacity::goal(planner, side) else { return now };
    let Some(next) = with_capacity(Some(goal)) else {
        // A head that has lost its applications has nothing whose capacity could change.
        if known.details().is_some_and(|details| details.applications.is_empty()) {
            planner.draft.slot(side).target_capacity = Some(goal);
        }
        return now;
    };
    if known.submitted.as_ref() == Some(&next.config) {
        planner.draft.slot(side).target_capacity = Some(goal);
        return Some(next);
    }
    // One step at a time: first what it should have by now.
    match now {
        Some(now) if now.is_due(known) => Some(now),
        _ => Some(next),
    }
}

/// Returns why Serve on a cluster cannot have the configuration that it should, if it is not YAML or Ray refuses it.
pub(super) fn refusal(planner: &Planner<'_>, side: Side, cluster: &RayCluster) -> Option<String> {
    let text = planner.seen.service.spec.serve_config_v2.as_deref().unwrap_or_default();
    let takes_spec = takes_spec(planner, side, cluster);
    let refused = planner.seen.serve_of(cluster_spec::name(cluster)).and_then(|known| known.refused.as_ref());
    // What Ray said about another text says nothing about this one.
    let refused = refused.filter(|refused| !takes_spec || refused.config.text == text);
    let unreadable = || serve_config::desired(text, None).body.err().filter(|_| takes_spec);
    refused.map(|refused| refused.why.clone()).or_else(unreadable)
}

/// Returns why the last request to configure Serve on a cluster failed, if Ray has not refused it.
pub(super) fn lost_request(known: &ClusterState) -> Option<&str> {
    let failure = known.attempt.as_ref()?.result.as_ref().err()?;
    Some(failure.text.as_str()).filter(|_| failure.refusal.is_none())
}

/// What became of the configuration of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Acceptance {
    /// Nothing was sent yet, or Ray has not replied to it.
    Unknown,
    /// Ray has it, or the cluster keeps another one.
    Accepted,
    /// It is not YAML, or Ray gives this reason.
    Refused(String),
}

/// Returns whether Serve on a cluster has accepted the configuration of the spec.
pub(super) fn acceptance(planner: &Planner<'_>, side: Side) -> Acceptance {
    let Some(cluster) = planner.draft.cluster(side) else { return Acceptance::Unknown };
    if !takes_spec(planner, side, cluster) {
        return Acceptance::Accepted;
    }
    let text = planner.seen.service.spec.serve_config_v2.as_deref().unwrap_or_default();
    let submitted = planner.seen.serve_of(cluster_spec::name(cluster)).and_then(|known| known.submitted.as_ref());
    // One that Ray has taken is not refused when only its capacity is.
    if submitted.is_some_and(|submitted| submitted.text == text) {
        return Acceptance::Accepted;
    }
    refusal(planner, side, cluster).map_or(Acceptance::Unknown, Acceptance::Refused)
}

/// Returns whether a cluster gets the configuration of the spec.
fn takes_spec(planner: &Planner<'_>, side: Side, cluster: &RayCluster) -> bool {
    let spec = &planner.seen.service.spec;
    let is_wanted = compare(planner, cluster);
    match side {
        // Where a change builds no new cluster, the one that is being built is the one that serves.
        Side::Pending => {
            (is_wanted != Match::Other || !is_zero_downtime(spec, planner.config)) && !planner.draft.is_rolling_back()
        }
        Side::Active if planner.draft.has_pending_name() => is_wanted == Match::Same && planner.draft.is_rolling_back(),
        Side::Active => is_wanted != Match::Other || !is_zero_downtime(spec, planner.config),
    }
}

/// Submits a configuration, once the dashboard replies.
fn submit(
    planner: &mut Planner<'_>,
    name: &str,
    endpoint: &DashboardEndpoint,
    desired: DesiredConfig,
    known: &ClusterState,
) {
    let path = planner.seen.path(name);
    let DesiredConfig { config, body, .. } = desired;
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            let note = format!("Failed to update serve applications to the RayCluster {path}: {error}");
            return planner.event(Event::warning(reasons::FAILED_TO_UPDATE_SERVE_APPLICATIONS, "Update", note));
        }
    };
    let again = known.attempt.as_ref().and_then(|attempt| attempt.at.checked_add(SUBMIT_AGAIN).ok());
    if known.details().is_none() || again.is_some_and(|again| !planner.reached_or_wake_at(again)) {
        return;
    }
    let only_capacity = known.submitted.as_ref().is_some_and(|before| before.text == config.text)
        && known.submitted.as_ref().is_some_and(|before| before.capacity != config.capacity);
    let action = Action::Ray {
        key: planner.seen.key(Kind::RayCluster, name),
        endpoint: endpoint.clone(),
        request: RayRequest::ConfigureServe { config, body },
    };
    let (done, failed, what) = match only_capacity {
        false => {
            (reasons::UPDATED_SERVE_APPLICATIONS, reasons::FAILED_TO_UPDATE_SERVE_APPLICATIONS, "serve applications")
        }
        true => (
            reasons::UPDATED_SERVE_TARGET_CAPACITY,
            reasons::FAILED_TO_UPDATE_TARGET_CAPACITY,
            "target_capacity of serve applications",
        ),
    };
    // KubeRay's event about a capacity has one "to" too many.
    let to = if only_capacity { "to to" } else { "to" };
    planner.finally(
        Step::new(action, "Serve has another configuration than it should")
            .on_success(done, format!("Updated {what} {to} the RayCluster {path}"))
            .on_failure(failed, format!("Failed to update {what} to the RayCluster {path}: ")),
    );
}

fn dashboard(planner: &Planner<'_>, cluster: &RayCluster) -> DashboardEndpoint {
    let service = names::head_service(cluster_spec::name(cluster), &cluster.spec);
    let live = planner.seen.service(&service);
    let port = live.and_then(|live| live.spec.ports.iter().find(|port| port.name == "dashboard"));
    let port = port.map_or_else(|| cluster_spec::dashboard_port(&cluster.spec), |port| port.port);
    let host = names::fqdn(&service, planner.seen.namespace(), &planner.config.cluster_domain);
    DashboardEndpoint {
        namespace: planner.seen.namespace().to_owned(),
        address: format!("{host}:{port}"),
        service,
        token_secret: cluster_spec::is_token_auth(&cluster.spec).then(|| cluster_spec::auth_secret_name(cluster)),
    }
}
