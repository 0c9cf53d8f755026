//! `upgradeStrategy: Recreate`: all Pods go when the spec has changed.
//!
//! An annotation of the head Pod holds the hash of the spec that the Pods were created from. The hash of another
//! version of the operator cannot be compared, so it is replaced without recreating Pods.

use super::Planner;
use super::suspend::{Because, delete_all_pods};
use crate::action::{Accept, Kind, Step};
use crate::config::KUBERAY_VERSION;
use crate::hash::cluster_hash;
use crate::labels::annotation;
use manta_api::UpgradeType;
use serde_json::json;

/// Deletes all Pods if the spec has changed. Returns whether Pods may be created.
pub(super) fn plan(planner: &mut Planner<'_>) -> bool {
    let seen = planner.seen;
    let strategy = seen.cluster.spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.type_.as_ref());
    if strategy != Some(&UpgradeType::Recreate) {
        return true;
    }
    let Some(head) = seen.head_pods().next() else { return true };
    let hash = cluster_hash(&seen.cluster.spec);
    let remembered = |key: &str| head.metadata.annotations.get(key).unwrap_or_default();
    let version = remembered(annotation::KUBERAY_VERSION);
    if !version.is_empty() && version != KUBERAY_VERSION {
        let patch = json!({"metadata": {
            "annotations": {annotation::RECREATE_HASH: hash, annotation::KUBERAY_VERSION: KUBERAY_VERSION},
        }});
        let why = "another version of the operator made this head Pod";
        planner.push(Step::merge(seen.key(Kind::Pod, &head.metadata.name), patch, why).accept(Accept::NotFound));
        return true;
    }
    let made_from = remembered(annotation::RECREATE_HASH);
    if made_from.is_empty() || made_from == hash {
        return true;
    }
    delete_all_pods(planner, Because::SpecChange);
    false
}
