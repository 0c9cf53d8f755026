//! KAI: groups Pods by their owners itself, and wants to know their queue.
//!
//! A submitter joins the group of its RayJob when the cluster is there already, so all modes work. KubeRay refuses
//! K8sJobMode, its default.

use super::{Marks, Parent};

const SCHEDULER: &str = "kai-scheduler";
const QUEUE: &str = "kai.scheduler/queue";

pub(super) fn marks(parent: Parent<'_>) -> Marks {
    let mut marks = Marks { scheduler_name: Some(SCHEDULER), ..Marks::default() };
    marks.copy_label(parent, QUEUE, QUEUE);
    marks
}
