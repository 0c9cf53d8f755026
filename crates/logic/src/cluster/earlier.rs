//! What is left of an earlier cluster of the same name.

use super::Planner;
use super::auth;
use crate::action::Kind;
use crate::leftovers;
use crate::view::MetaView;

/// Deletes it, save for the claim of the embedded store, which the cluster [takes over](super::storage).
pub(super) fn plan(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    let secret = auth::known_secret(planner);
    let pods = seen.earlier_pods.iter().map(|pod| (Kind::Pod, &pod.metadata));
    let services = seen.services.iter().map(|service| (Kind::Service, &service.metadata));
    let jobs = seen.cleanup_jobs.iter().map(|job| (Kind::Job, &job.metadata));
    let related = seen.related.iter().map(|(kind, object)| (*kind, &object.metadata));
    let related = related.filter(|(kind, _)| *kind != Kind::PersistentVolumeClaim);
    let secret = secret.iter().map(|meta| (Kind::Secret, meta));
    let all = pods.chain(services).chain(jobs).chain(secret).chain(related);
    let stays = |(_, meta): &(Kind, &MetaView)| !seen.in_flight.deleting.contains(meta.uid.as_str());
    leftovers::plan(planner, &seen.key(Kind::RayCluster, seen.name()), seen.uid(), all.filter(stays));
}
