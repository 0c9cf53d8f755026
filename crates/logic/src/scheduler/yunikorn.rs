//! YuniKorn: everything it needs stands on the Pods.
//!
//! A gang is told as a list of task groups, with which each Pod names its own. A RayJob whose submitter is a Pod of
//! its own counts it in; on somebody else's cluster the submitter is no part of a gang.

use super::demand::Resources;
use super::{Marks, Parent, SUBMITTER_GROUP, is_gang};
use crate::build::submitter;
use crate::cluster_spec;
use crate::go::{Root, to_go_json};
use crate::labels::HEAD_GROUP;
use k8s_openapi::api::core::v1::PodSpec;
use manta_api::RayClusterSpec;
use serde_json::json;

const SCHEDULER: &str = "yunikorn";
const APP_ID: &str = "yunikorn.apache.org/app-id";
const QUEUE: &str = "yunikorn.apache.org/queue";
const TASK_GROUPS: &str = "yunikorn.apache.org/task-groups";
const TASK_GROUP_NAME: &str = "yunikorn.apache.org/task-group-name";

pub(super) fn marks(parent: Parent<'_>, group: &str) -> Marks {
    let mut marks = Marks { scheduler_name: Some(SCHEDULER), ..Marks::default() };
    marks.copy_label(parent, APP_ID, "applicationId");
    marks.copy_label(parent, QUEUE, "queue");
    if is_gang(parent)
        && let Some(spec) = parent.cluster_spec()
    {
        let groups = parent.filled_annotation(TASK_GROUPS).map(str::to_owned);
        marks.annotations.push((TASK_GROUPS, groups.unwrap_or_else(|| task_groups(parent, spec))));
        if !group.is_empty() {
            marks.annotations.push((TASK_GROUP_NAME, group.to_owned()));
        }
    }
    marks
}

/// The groups that must be placed at once, as YuniKorn reads them.
fn task_groups(parent: Parent<'_>, spec: &RayClusterSpec) -> String {
    let head = spec.head_group_spec.template.spec.as_ref();
    let mut groups = vec![task_group(HEAD_GROUP, head, 1)];
    for group in cluster_spec::worker_groups(spec) {
        let members = group.min_replicas.unwrap_or(0).saturating_mul(cluster_spec::hosts(group));
        groups.push(task_group(&group.group_name, group.template.spec.as_ref(), members));
    }
    if let Parent::Job(job) = parent {
        groups.push(task_group(SUBMITTER_GROUP, Some(&submitter::pod_without_command(job)), 1));
    }
    format!("[{}]", groups.join(","))
}

fn task_group(name: &str, pod: Option<&PodSpec>, members: i32) -> String {
    let group = json!({
        "minResource": Resources::of_pod(pod).to_json(),
        "nodeSelector": pod.and_then(|pod| pod.node_selector.as_ref()),
        "affinity": pod.and_then(|pod| pod.affinity.as_ref()),
        "name": name,
        "tolerations": pod.and_then(|pod| pod.tolerations.as_ref()),
        "minMember": members,
    });
    to_go_json(&group, Root::YunikornTaskGroup)
}
