//! Carries out the stages of plans: one executor for the API server, one beside it for Ray.

mod kubernetes;
mod ray;

pub(crate) use kubernetes::KubernetesExecutor;
pub(crate) use ray::RayExecutor;

use crate::concurrency_limit::Permit;
use crate::queue::WakeReason;
use crate::stores::Stores;
use futures::future::{join, join_all};
use manta_logic::action::{ObjectKey, Stage, Step};
use manta_logic::pass::StepResult;

/// Requests to Ray that may be under way at once, slow ones not counted.
pub(crate) const RAY_REQUESTS: usize = 64;

/// The pass that a stage is part of.
pub(crate) struct RunningPass<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) reason: &'a WakeReason,
    /// The generation that was observed.
    pub(crate) generation: i64,
    pub(crate) stores: &'a Stores,
}

impl RunningPass<'_> {
    /// Returns whether the object has got another spec, is being deleted, or is gone: what was planned may be wrong now.
    pub(crate) fn is_superseded(&self) -> bool {
        self.stores.generation(self.key) != Some(self.generation)
    }
}

/// Carries out stages.
pub(crate) struct Executor {
    pub(crate) kubernetes: KubernetesExecutor,
    pub(crate) ray: RayExecutor,
}

impl Executor {
    /// Carries out a stage. Returns the results of its steps, in order. Steps that have not begun when the object changes
    /// are left out.
    ///
    /// The pass gives its permit back while it waits for Ray: dashboards that hang hold up no other object.
    pub(crate) async fn execute(&self, pass: &RunningPass<'_>, stage: &Stage, permit: &Permit) -> Vec<StepResult> {
        let (for_ray, for_kubernetes): (Vec<&Step>, Vec<&Step>) =
            stage.into_iter().partition(|step| step.action.is_ray());
        let writes = self.kubernetes.execute(pass, &for_kubernetes);
        if for_ray.is_empty() {
            return writes.await;
        }
        let requests = join_all(for_ray.iter().map(|step| self.ray.execute(pass, step)));
        let (writes, requests) = permit.released(join(writes, requests)).await;
        let (mut writes, mut requests) = (writes.into_iter(), requests.into_iter());
        let result = |step: &Step| if step.action.is_ray() { requests.next() } else { writes.next() };
        stage.into_iter().map(result).map(|result| result.unwrap_or(StepResult::Skipped)).collect()
    }
}

#[cfg(test)]
mod tests;
