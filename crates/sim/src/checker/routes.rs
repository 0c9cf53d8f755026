//! The weights of a route sum to 100, and only clusters that answer gain some. Where something else than the operator can
//! interrupt a cluster, it must have answered shortly before.

use super::Checker;
use super::pods::STALE;
use crate::gateway::{Backends, backends};
use crate::object::name;
use serde_json::Value;
use std::time::Duration;

impl Checker {
    pub(super) fn see_route(&self, earlier: Option<&Value>, route: &Value) -> Option<String> {
        let now = backends(route);
        let sum: i64 = now.iter().map(|(_, weight)| weight).sum();
        if sum != 100 {
            return Some(format!("the weights of {} sum to {sum}: {now:?}", name(route)));
        }
        let before = earlier.map(backends).unwrap_or_default();
        let undisturbed = self.others.as_ref()?.undisturbed;
        // Requests have nowhere else to go, whatever became of the cluster since it was ready.
        if earlier.is_none() && now.len() == 1 && !undisturbed {
            return None;
        }
        let gained = now.iter().filter(|(backend, weight)| weight_of(&before, backend) < *weight);
        let within = if undisturbed { Duration::ZERO } else { STALE };
        let (backend, weight) =
            gained.into_iter().find(|(backend, weight)| !self.can_take(backend, *weight, within))?;
        Some(format!("{} sends {weight} % of its requests to {backend}, which does not answer them", name(route)))
    }

    /// Returns whether the cluster behind a Service can take so much of the traffic, or could within a time.
    fn can_take(&self, service: &str, weight: i64, within: Duration) -> bool {
        let cluster = service.strip_suffix("-serve-svc").unwrap_or(service);
        self.ray.recent_capacity(cluster, within).is_some_and(|capacity| capacity >= weight)
    }
}

fn weight_of(backends: &Backends, name: &str) -> i64 {
    backends.iter().find(|(backend, _)| backend == name).map_or(0, |(_, weight)| *weight)
}
