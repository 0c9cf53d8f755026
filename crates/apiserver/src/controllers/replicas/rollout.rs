//! How many pods each ReplicaSet of a Deployment gets, within the bounds of its strategy. Pure.

use serde_json::Value;

use super::super::int;

pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// The bounds of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) replicas: i64,
    pub(super) surge: i64,
    pub(super) unavailable: i64,
}

impl Bounds {
    pub(super) fn of(deployment: &Value) -> Bounds {
        let spec = &deployment["spec"];
        let replicas = spec["replicas"].as_i64().unwrap_or(1);
        if spec["strategy"]["type"] != "RollingUpdate" {
            return Bounds { replicas, surge: 0, unavailable: 0 };
        }
        let rolling = &spec["strategy"]["rollingUpdate"];
        let surge = share(&rolling["maxSurge"], replicas, true);
        let mut unavailable = share(&rolling["maxUnavailable"], replicas, false);
        // With both at zero nothing could ever move.
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Bounds { replicas, surge, unavailable: unavailable.min(replicas) }
    }

    pub(super) fn maximum(&self) -> i64 {
        self.replicas.saturating_add(self.surge)
    }

    fn minimum(&self) -> i64 {
        self.replicas - self.unavailable
    }

    /// Returns whether this many available pods are enough.
    pub(super) fn is_enough(&self, available: i64) -> bool {
        available >= self.minimum()
    }
}

/// Resolves a number or a percentage.
fn share(value: &Value, total: i64, round_up: bool) -> i64 {
    let percent = value.as_str().and_then(|text| text.trim_end_matches('%').parse::<i64>().ok());
    match percent {
        Some(percent) => {
            let exact = total.saturating_mul(percent);
            if round_up { exact.saturating_add(99) / 100 } else { exact / 100 }
        }
        None => int(value),
    }
}

/// A ReplicaSet as the decisions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// `spec.replicas`.
    pub(super) wanted: i64,
    /// `status.availableReplicas`.
    pub(super) available: i64,
    /// The annotation with the Deployment's maximum when the set was last scaled.
    pub(super) maximum: Option<i64>,
}

impl Size {
    pub(super) fn of(set: &Value) -> Size {
        let maximum = set["metadata"]["annotations"][MAXIMUM].as_str().and_then(|text| text.parse().ok());
        Size { wanted: int(&set["spec"]["replicas"]), available: int(&set["status"]["availableReplicas"]), maximum }
    }
}

/// Returns how many pods a new ReplicaSet starts or goes on with.
pub(super) fn grow(bounds: &Bounds, rolling: bool, new: i64, all: i64) -> i64 {
    if !rolling {
        return bounds.replicas;
    }
    if new >= bounds.replicas {
        return bounds.replicas;
    }
    let room = bounds.maximum() - all;
    if room <= 0 { new } else { new + room.min(bounds.replicas - new) }
}

/// Returns the sizes that the old ReplicaSets, oldest first, shrink to.
pub(super) fn shrink(bounds: &Bounds, new: &Size, old: &[Size]) -> Vec<i64> {
    let mut sizes: Vec<i64> = old.iter().map(|set| set.wanted).collect();
    let total = |sizes: &[i64]| sizes.iter().sum::<i64>() + new.wanted;
    let coming = (new.wanted - new.available).max(0);
    let spare = total(&sizes) - bounds.minimum() - coming;
    if spare <= 0 {
        return sizes;
    }
    // Pods that serve nobody go first.
    let mut cleaned = 0;
    for (size, set) in sizes.iter_mut().zip(old) {
        let unhealthy = (*size - set.available).max(0).min(spare - cleaned);
        *size -= unhealthy;
        cleaned += unhealthy;
    }
    let available: i64 = old.iter().map(|set| set.available).sum::<i64>() + new.available;
    let mut left = (available - bounds.minimum()).max(0);
    for size in &mut sizes {
        let less = (*size).min(left);
        *size -= less;
        left -= less;
    }
    sizes
}

/// Distributes a changed number of replicas over several ReplicaSets in proportion to their sizes; they come in the order
/// in which they are served, and the first takes what is left over.
pub(super) fn scale(bounds: &Bounds, current: i64, sets: &[Size]) -> Vec<i64> {
    let total: i64 = sets.iter().map(|set| set.wanted).sum();
    let allowed = if bounds.replicas > 0 { bounds.maximum() } else { 0 };
    let change = allowed - total;
    let mut moved = 0;
    let mut sizes: Vec<i64> = sets
        .iter()
        .map(|set| {
            if set.wanted == 0 || change == moved {
                return set.wanted;
            }
            let part = fraction(bounds, set, current);
            let part = if change > 0 { part.min(change - moved) } else { part.max(change - moved) };
            moved += part;
            set.wanted + part
        })
        .collect();
    if let Some(first) = sizes.first_mut() {
        *first = (*first + change - moved).max(0);
    }
    sizes
}

fn fraction(bounds: &Bounds, set: &Size, current: i64) -> i64 {
    if bounds.replicas == 0 {
        return -set.wanted;
    }
    let before = set.maximum.filter(|maximum| *maximum > 0).unwrap_or(current.max(1));
    let exact = set.wanted as f64 * bounds.maximum() as f64 / before as f64;
    exact.round() as i64 - set.wanted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn size(wanted: i64, available: i64) -> Size {
        Size { wanted, available, maximum: None }
    }

    #[test]
    fn bounds_follow_the_strategy() {
        let check = |replicas: i64, rolling: Value, expect: (i64, i64)| {
            let deployment = json!({"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}});
            let bounds = Bounds::of(&deployment);
            assert_eq!((bounds.surge, bounds.unavailable), expect, "{rolling}");
        };
        check(10, json!({"maxSurge": "25%", "maxUnavailable": "25%"}), (3, 2));
        check(1, json!({"maxSurge": "25%", "maxUnavailable": "25%"}), (1, 0));
        check(2, json!({"maxSurge": 0, "maxUnavailable": 0}), (0, 1));
        check(2, json!({"maxSurge": 1, "maxUnavailable": 5}), (1, 2));
    }

    #[test]
    fn a_rollout_never_drops_below_the_minimum() {
        let bounds = Bounds { replicas: 10, surge: 3, unavailable: 2 };
        assert_eq!(grow(&bounds, true, 0, 10), 3);
        assert_eq!(shrink(&bounds, &size(3, 0), &[size(10, 10)]), [8]);
        assert_eq!(grow(&bounds, true, 3, 11), 5);
        assert_eq!(shrink(&bounds, &size(5, 0), &[size(8, 8)]), [8], "no new pod is available yet");
        assert_eq!(shrink(&bounds, &size(5, 5), &[size(8, 8)]), [3]);
        let careful = Bounds { replicas: 1, surge: 1, unavailable: 0 };
        assert_eq!(shrink(&careful, &size(1, 0), &[size(1, 1)]), [1]);
        assert_eq!(shrink(&careful, &size(1, 1), &[size(1, 1)]), [0]);
    }

    #[test]
    fn unavailable_pods_of_old_sets_go_first() {
        let bounds = Bounds { replicas: 4, surge: 1, unavailable: 1 };
        assert_eq!(shrink(&bounds, &size(1, 1), &[size(2, 2), size(2, 0)]), [2, 0]);
    }

    #[test]
    fn scaling_during_a_rollout_is_proportional() {
        let bounds = Bounds { replicas: 30, surge: 3, unavailable: 2 };
        let sets = [Size { maximum: Some(13), ..size(8, 8) }, Size { maximum: Some(13), ..size(5, 0) }];
        assert_eq!(scale(&bounds, 13, &sets), [20, 13]);
        let none = Bounds { replicas: 0, surge: 0, unavailable: 0 };
        assert_eq!(scale(&none, 13, &sets), [0, 0]);
    }
}
