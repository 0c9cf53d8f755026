//! Serve on the two clusters: what is asked, what configuration each one should have, and whether it is ready.
//!
//! A configuration belongs to the revision of the cluster that it came with. Only a cluster that is what the spec
//! asks for gets the spec's configuration; the other one keeps its own, also after a restart of the operator.

use super::dashboard::{ClusterKnown, ClusterWatch, Put, Watch};
use super::plan::{Pass, Side};
use super::upgrade::{Match, compare, is_zero_downtime};
use super::{applications, capacity, serve_config, serve_labels};
use crate::action::Event;
use crate::build::cluster_facts as facts;
use crate::job::dashboard::DashboardEndpoint;
use crate::names;
use jiff::SignedDuration;
use manta_api::RayCluster;

/// For how long what came of a submission is news.
const NEWS: SignedDuration = SignedDuration::from_secs(60);

/// Which clusters run all of their applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) active: bool,
    pub(super) pending: bool,
}

/// Says what to follow, and takes over what was heard.
pub(super) fn plan(pass: &mut Pass<'_>) -> Ready {
    let mut watch = Watch::default();
    let pending = follow(pass, Side::Pending, &mut watch);
    let active = follow(pass, Side::Active, &mut watch);
    pass.watch = Some(watch).filter(|watch| !watch.clusters.is_empty());
    Ready { active, pending }
}

/// Whether a cluster's head is ready.
pub(super) fn is_head_ready(pass: &Pass<'_>, cluster: &RayCluster) -> bool {
    if !pass.config.gates.ray_cluster_status_conditions {
        return pass.seen.head_of(facts::name(cluster)).is_some_and(|head| head.is_running_and_ready());
    }
    let conditions = cluster.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "HeadPodReady" && condition.status == "True")
}

fn follow(pass: &mut Pass<'_>, side: Side, watch: &mut Watch) -> bool {
    let Some(cluster) = pass.cluster(side) else {
        pass.slot(side).application_statuses = None;
        return false;
    };
    let name = facts::name(cluster);
    let mut wanted = ClusterWatch {
        cluster: name.to_owned(),
        dashboard: None,
        put: None,
        proxy: serve_labels::proxy(pass, cluster),
    };
    if !is_head_ready(pass, cluster) {
        pass.slot(side).application_statuses = None;
        pass.wait_for(format!("the head of RayCluster {}", pass.seen.path(name)));
        // Also if there is nobody to ask: what it was given is not forgotten because its head starts again.
        watch.clusters.push(wanted);
        return false;
    }
    let nothing = ClusterKnown::default();
    let known = pass.seen.known(name).unwrap_or(&nothing);
    wanted.dashboard = Some(dashboard(pass, cluster));
    wanted.put = configuration(pass, side, cluster, known);
    tell(pass, name, known);
    if let Some(details) = known.details() {
        pass.slot(side).application_statuses = applications::statuses(details);
    }
    let is_submitted = wanted.put.as_ref().is_none_or(|put| !put.is_due(known));
    watch.clusters.push(wanted);
    is_submitted && known.details().is_some_and(|details| details.is_running())
}

/// The configuration that a cluster should have; none if it is to be left alone.
fn configuration(pass: &mut Pass<'_>, side: Side, cluster: &RayCluster, known: &ClusterKnown) -> Option<Put> {
    let capacity = pass.slot(side).target_capacity.filter(|_| pass.is_incremental);
    let text = if takes_spec(pass, side, cluster) {
        Some(pass.seen.service.spec.serve_config_v2.clone().unwrap_or_default())
    } else {
        known.submitted.as_ref().map(|submitted| submitted.text.clone())
    };
    let with_capacity = |capacity: Option<i32>| match &text {
        Some(text) => Some(serve_config::put(text, capacity)),
        None => serve_config::put_deployed(known.details()?, capacity?),
    };
    let now = text.is_some().then(|| with_capacity(capacity)).flatten();
    let Some(goal) = capacity::goal(pass, side) else { return now };
    let Some(next) = with_capacity(Some(goal)) else { return now };
    if known.submitted.as_ref() == Some(&next.config) {
        pass.slot(side).target_capacity = Some(goal);
        return Some(next);
    }
    // One step at a time: first what it should have by now.
    match now {
        Some(now) if now.is_due(known) => Some(now),
        _ => Some(next),
    }
}

/// Whether a cluster gets the configuration of the spec.
fn takes_spec(pass: &Pass<'_>, side: Side, cluster: &RayCluster) -> bool {
    let spec = &pass.seen.service.spec;
    let is_wanted = compare(pass, cluster);
    match side {
        // Where a change builds no new cluster, the one that is being built is the one that serves.
        Side::Pending => (is_wanted != Match::Other || !is_zero_downtime(spec, pass.config)) && !pass.is_rolling_back(),
        Side::Active if pass.has_pending_name() => is_wanted == Match::Same && pass.is_rolling_back(),
        Side::Active => is_wanted != Match::Other || !is_zero_downtime(spec, pass.config),
    }
}

/// Tells what came of the last submission.
fn tell(pass: &mut Pass<'_>, name: &str, known: &ClusterKnown) {
    let Some(put) = known.put.as_ref().filter(|put| pass.now.duration_since(put.at) < NEWS) else { return };
    let path = pass.seen.path(name);
    let event = match (&put.result, put.only_capacity) {
        (Ok(()), false) => Event::normal(
            "UpdatedServeApplications",
            "Update",
            format!("Updated serve applications to the RayCluster {path}"),
        ),
        (Err(error), false) => Event::warning(
            "FailedToUpdateServeApplications",
            "Update",
            format!("Failed to update serve applications to the RayCluster {path}: {error}"),
        ),
        (Ok(()), true) => Event::normal(
            "UpdatedServeTargetCapacity",
            "Update",
            format!("Updated target_capacity of serve applications to to the RayCluster {path}"),
        ),
        (Err(error), true) => Event::warning(
            "FailedToUpdateTargetCapacity",
            "Update",
            format!("Failed to update target_capacity of serve applications to the RayCluster {path}: {error}"),
        ),
    };
    pass.event(event);
}

fn dashboard(pass: &Pass<'_>, cluster: &RayCluster) -> DashboardEndpoint {
    let service = names::head_service(facts::name(cluster), &cluster.spec);
    let live = pass.seen.service(&service);
    let port = live.and_then(|live| live.spec.ports.iter().find(|port| port.name == "dashboard"));
    let port = port.map_or_else(|| facts::dashboard_port(&cluster.spec), |port| port.port);
    let host = names::fqdn(&service, pass.seen.namespace(), &pass.config.cluster_domain);
    DashboardEndpoint {
        namespace: pass.seen.namespace().to_owned(),
        address: format!("{host}:{port}"),
        service,
        token_secret: facts::is_token_auth(&cluster.spec).then(|| facts::auth_secret_name(cluster)),
    }
}
