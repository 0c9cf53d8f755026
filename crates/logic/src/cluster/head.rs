//! The head Pod: there is one, or none while it must not be.

use super::observed::Observed;
use super::plan::{Draft, Halt};
use super::{mtls, pods, replace};
use crate::action::{Accept, Action, Event, Kind, Step, create as create_pod};
use crate::build::{self, HeadIdentity};
use crate::config::Config;
use crate::hash::cluster_hash;
use crate::labels::{HEAD, annotation};
use crate::names::Suffixes;
use crate::validate::ValidCluster;
use crate::view::PodView;
use jiff::Timestamp;
use std::sync::Arc;

/// The name of the head's group among writes in flight; no worker group can have it.
pub(super) const IN_FLIGHT_GROUP: &str = "";

/// Whether workers are looked at in the same pass.
#[derive(PartialEq, Eq)]
pub(super) enum Next {
    Workers,
    Nothing,
}

pub(super) fn plan(
    seen: &Observed,
    valid: &ValidCluster<'_>,
    now: Timestamp,
    cfg: &Config,
    suffixes: &mut Suffixes,
    draft: &mut Draft,
) -> Next {
    if seen.in_flight.is_creating_in(IN_FLIGHT_GROUP) {
        return Next::Workers;
    }
    let heads: Vec<_> = seen.head_pods().collect();
    let lost: Vec<_> = heads.iter().filter(|head| pods::is_lost(head, now, draft)).collect();
    match heads.as_slice() {
        [] => create(seen, valid, cfg, suffixes, draft),
        _ if !lost.is_empty() => {
            for head in lost {
                draft.push(give_up(seen, head));
            }
            Next::Workers
        }
        [head] => {
            if !seen.is_going(head) && replace::must_replace(head) {
                delete(seen, head, draft);
                return Next::Nothing;
            }
            Next::Workers
        }
        several => {
            let names: Vec<&str> = several.iter().map(|head| head.metadata.name.as_str()).collect();
            draft.halt(format!(
                "{} head pods found [{}]. Please delete extra head pods",
                several.len(),
                names.join(" ")
            ));
            Next::Nothing
        }
    }
}

fn create(seen: &Observed, valid: &ValidCluster<'_>, cfg: &Config, suffixes: &mut Suffixes, draft: &mut Draft) -> Next {
    if seen.annotation(annotation::DISABLE_HEAD_RESTART) == Some("true") && was_provisioned(seen) {
        return Next::Nothing;
    }
    if !mtls::gate(seen, cfg, draft) {
        return Next::Nothing;
    }
    let identity = HeadIdentity { suffix: &suffixes.draw(), spec_hash: &cluster_hash(&valid.spec) };
    let pod = build::head_pod(valid, cfg, identity);
    let name = pod.metadata.name.clone().unwrap_or_default();
    draft.push(
        Step::new(create_pod(seen.key(Kind::Pod, &name), &pod), "the cluster has no head Pod")
            .done(Event::normal("CreatedHeadPod", "Create", format!("Created head Pod {}", seen.path(&name))))
            .failed(Event::warning(
                "FailedToCreateHeadPod",
                "Create",
                // The name says nothing yet, and KubeRay has none at this point.
                format!("Failed to create head Pod {}/, ", seen.namespace()),
            ))
            .failure_reason("FailedCreateHeadPod")
            .in_group(IN_FLIGHT_GROUP),
    );
    draft.end_stage();
    Next::Workers
}

/// Deletes a head Pod that has ended; its successor is made when it is gone.
fn delete(seen: &Observed, head: &Arc<PodView>, draft: &mut Draft) {
    let path = seen.path(&head.metadata.name);
    let state = replace::state(head);
    let why = replace::reason(head, HEAD);
    draft.push(
        Step::new(
            Action::Delete {
                key: seen.key(Kind::Pod, &head.metadata.name),
                uid: head.metadata.uid.clone(),
                force: false,
            },
            why.clone(),
        )
        .done(Event::normal("DeletedHeadPod", "Delete", format!("Deleted head Pod {path}; {state}")))
        .failed(Event::warning(
            "FailedToDeleteHeadPod",
            "Delete",
            format!("Failed deleting head Pod {path}; {state}, "),
        ))
        .failure_reason("FailedDeleteHeadPod")
        .accept(Accept::NotFound),
    );
    draft.halt = Some(Halt { reason: None, error: why });
}

/// Removes a head Pod whose node will never confirm its end, so that there is never a second one.
fn give_up(seen: &Observed, head: &Arc<PodView>) -> Step {
    let path = seen.path(&head.metadata.name);
    Step::new(
        Action::Delete { key: seen.key(Kind::Pod, &head.metadata.name), uid: head.metadata.uid.clone(), force: true },
        "the node has not ended this Pod long after its grace period",
    )
    .done(Event::warning(
        "ForceDeletedHeadPod",
        "Delete",
        format!("Force-deleted head Pod {path}, which its node did not end in time, to replace it"),
    ))
    .accept(Accept::NotFound)
}

fn was_provisioned(seen: &Observed) -> bool {
    let conditions = seen.cluster.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "RayClusterProvisioned" && condition.status == "True")
}
