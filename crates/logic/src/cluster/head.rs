//! The head Pod: there is one, or none while it must not be.

use super::observed::Observed;
use super::{Planner, mtls, pods, replace};
use crate::action::{Event, Kind, PodsOf, Step};
use crate::build::{self, HeadIdentity};
use crate::conditions;
use crate::hash::cluster_hash;
use crate::labels::{HEAD, annotation};
use crate::names::Suffixes;
use crate::reasons;
use crate::validate::ValidCluster;
use crate::view::PodView;
use std::sync::Arc;

/// Creates or replaces the head Pod. Returns whether workers may be planned in the same pass.
pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>, suffixes: &mut Suffixes) -> bool {
    let seen = planner.seen;
    if seen.in_flight.is_creating_head() {
        return true;
    }
    let heads: Vec<_> = seen.head_pods().collect();
    let lost: Vec<_> = heads.iter().filter(|head| pods::lost_or_wake(planner, head)).collect();
    match heads.as_slice() {
        [] => create(planner, valid, suffixes),
        _ if !lost.is_empty() => {
            for head in lost {
                planner.push(give_up(seen, head));
            }
            true
        }
        [head] => {
            if !seen.is_going(head) && replace::must_replace(head) {
                delete(planner, head);
                return false;
            }
            true
        }
        several if several.iter().all(|head| head.metadata.is_controlled_by(seen.uid())) => {
            keep_oldest(planner, several);
            false
        }
        several => {
            let names: Vec<&str> = several.iter().map(|head| head.metadata.name.as_str()).collect();
            planner.halt(format!(
                "{} head pods found [{}]. Please delete extra head pods",
                several.len(),
                names.join(" ")
            ));
            false
        }
    }
}

/// Deletes all heads but the oldest that lives, which most workers have joined.
fn keep_oldest(planner: &mut Planner<'_>, heads: &[&Arc<PodView>]) {
    let seen = planner.seen;
    let lives = |head: &&&Arc<PodView>| !seen.is_going(head) && !replace::must_replace(head);
    let age = |head: &&&Arc<PodView>| (head.metadata.creation_timestamp, head.metadata.name.clone());
    let kept = heads.iter().filter(lives).min_by_key(age).map(|head| head.metadata.name.as_str());
    for head in heads.iter().filter(|head| !seen.is_going(head) && Some(head.metadata.name.as_str()) != kept) {
        let path = seen.path(&head.metadata.name);
        let why = format!("{} head Pods found, {} is kept", heads.len(), kept.unwrap_or("none"));
        planner.push(
            seen.delete_pod(head, why.clone())
                .on_success(reasons::DELETED_HEAD_POD, format!("Deleted head Pod {path}; {why}"))
                .on_failure(reasons::FAILED_TO_DELETE_HEAD_POD, format!("Failed deleting head Pod {path}; {why}, "))
                .failure_reason(reasons::FAILED_DELETE_HEAD_POD),
        );
    }
    planner.wait_for("all head Pods but one to be deleted");
}

fn create(planner: &mut Planner<'_>, valid: &ValidCluster<'_>, suffixes: &mut Suffixes) -> bool {
    let seen = planner.seen;
    if seen.annotation(annotation::DISABLE_HEAD_RESTART) == Some("true") && was_provisioned(seen) {
        return false;
    }
    if !mtls::gate(planner) {
        return false;
    }
    let identity = HeadIdentity { suffix: &suffixes.draw(), spec_hash: &cluster_hash(&valid.spec) };
    let pod = build::head_pod(valid, planner.config, identity);
    let name = pod.metadata.name.clone().unwrap_or_default();
    planner.push(
        Step::create(seen.key(Kind::Pod, &name), &pod, "the cluster has no head Pod")
            .on_success(reasons::CREATED_HEAD_POD, format!("Created head Pod {}", seen.path(&name)))
            .on_failure(reasons::FAILED_TO_CREATE_HEAD_POD, format!("Failed to create head Pod {}, ", seen.path(&name)))
            .failure_reason(reasons::FAILED_CREATE_HEAD_POD)
            .counts_among(PodsOf::Head),
    );
    planner.end_stage();
    true
}

/// Deletes a head Pod that has ended; a later pass creates the next one.
fn delete(planner: &mut Planner<'_>, head: &Arc<PodView>) {
    let path = planner.seen.path(&head.metadata.name);
    let state = replace::state(head);
    let why = replace::reason(head, HEAD);
    planner.push(
        planner
            .seen
            .delete_pod(head, why.clone())
            .on_success(reasons::DELETED_HEAD_POD, format!("Deleted head Pod {path}; {state}"))
            .on_failure(reasons::FAILED_TO_DELETE_HEAD_POD, format!("Failed deleting head Pod {path}; {state}, "))
            .failure_reason(reasons::FAILED_DELETE_HEAD_POD),
    );
    planner.halt(why);
}

/// Removes a head Pod whose node will never confirm its end, so that there is never a second one.
fn give_up(seen: &Observed, head: &Arc<PodView>) -> Step {
    let path = seen.path(&head.metadata.name);
    let why = "the node has not ended this Pod long after its grace period";
    Step::force_delete(seen.key(Kind::Pod, &head.metadata.name), &head.metadata.uid, why).done(Event::warning(
        reasons::FORCE_DELETED_HEAD_POD,
        "Delete",
        format!("Force-deleted head Pod {path}, which its node did not end in time, to replace it"),
    ))
}

fn was_provisioned(seen: &Observed) -> bool {
    conditions::is_true(conditions::of_cluster(&seen.cluster), conditions::PROVISIONED)
}
