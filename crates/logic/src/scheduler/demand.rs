//! How many Pods a gang has, and what they need together.

use crate::cluster::counts::{self, worker_counts};
use crate::cluster_spec;
use k8s_openapi::api::core::v1::PodSpec;
use manta_api::{RayClusterSpec, WorkerGroupSpec};
use manta_quantity::Quantity;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Amounts by the name of the resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Resources(BTreeMap<String, Quantity>);

impl Resources {
    /// What a Pod's containers ask for; neither init containers nor what the operator adds.
    pub(super) fn of_pod(pod: Option<&PodSpec>) -> Self {
        let mut sum = Self::default();
        for (name, amount) in counts::requests(pod) {
            sum.add(name, &amount);
        }
        sum
    }

    /// Reads amounts from an object; what is no amount is not there.
    pub(super) fn read(object: &Value) -> Self {
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

    /// As it stands in an object.
    pub(super) fn to_json(&self) -> Value {
        let amounts = self.0.iter().map(|(name, amount)| (name.clone(), amount.to_string().into()));
        Value::Object(amounts.collect::<Map<_, _>>())
    }

    /// The first amount keeps its text, as in Go.
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

/// What must be there at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Demand {
    pub(super) members: i32,
    pub(super) resources: Resources,
}

impl Demand {
    /// All Pods that a cluster should have.
    ///
    /// The count is within the bounds of each group, the resources follow `replicas` as written: KubeRay's sums.
    pub(super) fn desired(spec: &RayClusterSpec) -> Self {
        Self {
            members: worker_counts(spec).desired.saturating_add(1),
            resources: cluster_resources(spec, |group| group.replicas),
        }
    }

    /// The Pods without which a cluster is of no use: with the autoscaler on, the least of each group.
    pub(super) fn least(spec: &RayClusterSpec) -> Self {
        if !cluster_spec::is_autoscaling(spec) {
            return Self::desired(spec);
        }
        Self {
            members: worker_counts(spec).min.saturating_add(1),
            resources: cluster_resources(spec, |group| group.min_replicas),
        }
    }

    /// Whether the spec of a PodGroup says the same.
    pub(super) fn is_met_by(&self, spec: &Value) -> bool {
        spec["minMember"].as_i64().unwrap_or(0) == i64::from(self.members)
            && Resources::read(&spec["minResources"]) == self.resources
    }

    /// The two fields of a PodGroup's spec.
    pub(super) fn to_json(&self) -> Value {
        json!({"minMember": self.members, "minResources": self.resources.to_json()})
    }
}

fn cluster_resources(spec: &RayClusterSpec, replicas: impl Fn(&WorkerGroupSpec) -> Option<i32>) -> Resources {
    let mut sum = Resources::of_pod(spec.head_group_spec.template.spec.as_ref());
    for group in cluster_spec::worker_groups(spec).iter().filter(|group| !cluster_spec::is_suspended(group)) {
        let replicas = i64::from(replicas(group).unwrap_or(0));
        if replicas > 0 {
            sum.add_pods(group.template.spec.as_ref(), replicas.saturating_mul(cluster_spec::hosts(group).into()));
        }
    }
    sum
}
