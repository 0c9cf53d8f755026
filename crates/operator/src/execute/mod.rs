//! Carries out the stages of plans: one executor for the API server, one beside it for Ray.

mod kubernetes;
mod ray;

pub(crate) use kubernetes::KubernetesExecutor;
pub(crate) use ray::RayExecutor;

use crate::concurrency_limit::Permit;
use crate::queue::WakeReason;
use futures::future::{join, join_all};
use manta_logic::action::{ObjectKey, Stage, Step};
use manta_logic::pass::StepResult;

/// Writes that may be under way at once, over all objects. Each takes a connection, which costs memory.
pub(crate) const WRITES: usize = 32;
/// Requests to Ray that may be under way at once, slow ones not counted.
pub(crate) const RAY_REQUESTS: usize = 64;

/// Carries out stages.
pub(crate) struct Executor {
    pub(crate) kubernetes: KubernetesExecutor,
    pub(crate) ray: RayExecutor,
}

impl Executor {
    /// Carries out a stage for an object. Returns the results of its steps, in order.
    ///
    /// The pass gives its permit back while it waits for Ray: dashboards that hang hold up no other object.
    pub(crate) async fn execute(
        &self,
        owner: &ObjectKey,
        stage: &Stage,
        woken_by: &WakeReason,
        permit: &Permit,
    ) -> Vec<StepResult> {
        let (for_ray, for_kubernetes): (Vec<&Step>, Vec<&Step>) =
            stage.into_iter().partition(|step| step.action.is_ray());
        let writes = self.kubernetes.execute(owner, &for_kubernetes, woken_by);
        if for_ray.is_empty() {
            return writes.await;
        }
        let requests = join_all(for_ray.iter().map(|step| self.ray.execute(owner, step, woken_by)));
        let (writes, requests) = permit.released(join(writes, requests)).await;
        let (mut writes, mut requests) = (writes.into_iter(), requests.into_iter());
        let result = |step: &Step| if step.action.is_ray() { requests.next() } else { writes.next() };
        stage.into_iter().map(result).map(|result| result.unwrap_or(StepResult::Skipped)).collect()
    }
}

#[cfg(test)]
mod tests;
