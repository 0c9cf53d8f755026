//! The weights of a route sum to 100, and only clusters that answer gain some.

use super::Checker;
use crate::gateway::{Backends, backends};
use crate::object::name;
use serde_json::Value;

impl Checker {
    pub(super) fn see_route(&self, earlier: Option<&Value>, route: &Value) -> Option<String> {
        let now = backends(route);
        let sum: i64 = now.iter().map(|(_, weight)| weight).sum();
        if sum != 100 {
            return Some(format!("the weights of {} sum to {sum}: {now:?}", name(route)));
        }
        let before = earlier.map(backends).unwrap_or_default();
        let gained = now.iter().filter(|(backend, weight)| weight_of(&before, backend) < *weight);
        let dead = gained.into_iter().find(|(backend, weight)| !self.can_take(backend, *weight));
        let (backend, weight) = dead.filter(|_| self.others.as_ref().is_some_and(|others| others.undisturbed))?;
        Some(format!("{} sends {weight} % of its requests to {backend}, which does not answer them", name(route)))
    }

    /// Returns whether the cluster behind a Service can take so much of the traffic.
    fn can_take(&self, service: &str, weight: i64) -> bool {
        let cluster = service.strip_suffix("-serve-svc").unwrap_or(service);
        self.ray.answering(cluster).is_some_and(|answering| answering.capacity >= weight)
    }
}

fn weight_of(backends: &Backends, name: &str) -> i64 {
    backends.iter().find(|(backend, _)| backend == name).map_or(0, |(_, weight)| *weight)
}
