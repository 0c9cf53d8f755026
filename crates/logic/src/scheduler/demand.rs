//! The number of Pods in a gang and the sum of their resources.

use crate::cluster::counts::{self, worker_counts};
use crate::cluster_spec;
use k8s_openapi::api::core::v1::PodSpec;
use manta_api::{RayClusterSpec, WorkerGroupSpec};
use manta_quantity::Quantity;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Quantities by resource name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Resources(BTreeMap<String, Quantity>);

impl Resources {
    /// Returns the requests of a Pod's containers, without init containers and the operator's additions.
    pub(super) fn of_pod(pod: Option<&PodSpec>) -> Self {
        let mut sum = Self::default();
        for (name, amount) in counts::requests(pod) {
            sum.add(name, &amount);
        }
        sum
    }

    /// Parses a resource list and skips invalid quantities.
    pub(super) fn parse(object: &Value) -> Self {
        let text = |amount: &Value| match amount {
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        let amounts = object.as_object().into_iter().flatten();
        Self(amounts.filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(&text(amount)).ok()?))).collect())
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            self.add(name, amount);
        }
    }

    /// Returns the resource list of an object.
    pub(super) fn to_json(&self) -> Value {
        let amounts = self.0.iter().map(|(name, amount)| (name.clone(), amount.to_string().into()));
        Value::Object(amounts.collect::<Map<_, _>>())
    }

    /// Adds a quantity; the first one keeps its text, as in Go.
    fn add(&mut self, name: &str, amount: &Quantity) {
        match self.0.get_mut(name) {
            Some(sum) => *sum += amount,
            None => {
                self.0.insert(name.to_owned(), amount.clone());
            }
        }
    }

    fn add_pods(&mut self, pod: Option<&PodSpec>, count: i64) {
        for (name, mut amount) in Self::of_pod(pod).0 {
            amount *= count;
            self.add(&name, &amount);
        }
    }
}

/// The minimum of a gang.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Demand {
    pub(super) members: i32,
    pub(super) resources: Resources,
}

impl Demand {
    /// Returns the demand of all Pods of a cluster. Unlike in KubeRay, the resources respect the bounds of each group
    /// as the count does: a queue would otherwise have to hold room for Pods that never exist.
    pub(super) fn desired(spec: &RayClusterSpec) -> Self {
        Self {
            members: worker_counts(spec).desired.saturating_add(1),
            resources: cluster_resources(spec, counts::desired_replicas),
        }
    }

    /// Returns the demand of the Pods that a cluster needs: with an autoscaler, the minimum of each group.
    pub(super) fn minimum(spec: &RayClusterSpec) -> Self {
        if !cluster_spec::is_autoscaling(spec) {
            return Self::desired(spec);
        }
        Self {
            members: worker_counts(spec).min.saturating_add(1),
            resources: cluster_resources(spec, |group| group.min_replicas.unwrap_or(0)),
        }
    }

    /// Returns whether the spec of a PodGroup has this demand.
    pub(super) fn is_met_by(&self, spec: &Value) -> bool {
        spec["minMember"].as_i64().unwrap_or(0) == i64::from(self.members)
            && Resources::parse(&spec["minResources"]) == self.resources
    }

    /// Returns the fields of a PodGroup's spec.
    pub(super) fn to_json(&self) -> Value {
        json!({"minMember": self.members, "minResources": self.resources.to_json()})
    }
}

/// Sums the resources of the head and all groups. As in KubeRay, a group without replicas adds its resources as zeros.
fn cluster_resources(spec: &RayClusterSpec, replicas: impl Fn(&WorkerGroupSpec) -> i32) -> Resources {
    let mut sum = Resources::of_pod(spec.head_group_spec.template.spec.as_ref());
    for group in cluster_spec::worker_groups(spec).iter().filter(|group| !cluster_spec::is_suspended(group)) {
        let pods = i64::from(replicas(group).max(0)) * i64::from(cluster_spec::hosts(group).max(0));
        sum.add_pods(group.template.spec.as_ref(), pods);
    }
    sum
}
