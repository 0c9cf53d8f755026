//! YuniKorn: it reads everything from labels and annotations of the Pods.
//!
//! Each Pod carries the list of the gang's task groups and the name of its own group. The submitter Pod of a RayJob
//! belongs to the gang, unless the RayJob runs on a selected cluster.

use super::demand::Resources;
use super::{GangOwner, SUBMITTER_GROUP, SchedulerFields, is_gang};
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

pub(super) fn fields(owner: GangOwner<'_>, group: &str) -> SchedulerFields {
    let mut fields = SchedulerFields { scheduler_name: Some(SCHEDULER), ..SchedulerFields::default() };
    fields.copy_label(owner, APP_ID, "applicationId");
    fields.copy_label(owner, QUEUE, "queue");
    if is_gang(owner)
        && let Some(spec) = owner.cluster_spec()
    {
        let groups = owner.filled_annotation(TASK_GROUPS).map(str::to_owned);
        fields.annotations.push((TASK_GROUPS, groups.unwrap_or_else(|| task_groups(owner, spec))));
        if !group.is_empty() {
            fields.annotations.push((TASK_GROUP_NAME, group.to_owned()));
        }
    }
    fields
}

/// Returns the task groups of the gang in the format of YuniKorn.
fn task_groups(owner: GangOwner<'_>, spec: &RayClusterSpec) -> String {
    let head = spec.head_group_spec.template.spec.as_ref();
    let mut groups = vec![task_group(HEAD_GROUP, head, 1)];
    for group in cluster_spec::worker_groups(spec) {
        let members = group.min_replicas.unwrap_or(0).saturating_mul(cluster_spec::hosts(group));
        groups.push(task_group(&group.group_name, group.template.spec.as_ref(), members));
    }
    if let GangOwner::Job(job) = owner {
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
