//! KAI: it groups Pods by their owners and needs only the name of their queue.
//!
//! A submitter joins the group of its RayJob after the cluster has been created, so all modes work. KubeRay refuses its
//! default, K8sJobMode.

use super::{GangOwner, SchedulerFields};

const SCHEDULER: &str = "kai-scheduler";
const QUEUE: &str = "kai.scheduler/queue";

pub(super) fn fields(owner: GangOwner<'_>) -> SchedulerFields {
    let mut fields = SchedulerFields { scheduler_name: Some(SCHEDULER), ..SchedulerFields::default() };
    fields.copy_label(owner, QUEUE, QUEUE);
    fields
}
