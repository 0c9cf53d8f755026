//! Gathers what is known about a RayJob.

use super::{Observation, Observe, Sources};
use manta_api::RayJob;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::job::Observed;
use manta_logic::labels::{HEAD, NODE_TYPE};
use manta_logic::view::PodView;
use manta_logic::{names, scheduler};
use std::sync::Arc;

impl Observe for RayJob {
    fn observe(sources: &Sources<'_>, key: &ObjectKey) -> Observation<Observed> {
        let stores = sources.stores;
        let Some(raw) = stores.jobs.get(key, &key.name) else { return Observation::Gone };
        let missing = sources.not_synced([Kind::RayCluster, Kind::Pod, Kind::Service, Kind::Job]);
        if !missing.is_empty() {
            return Observation::NotSynced(missing);
        }
        if sources.in_flight.is_outdated(key, raw.version()) || sources.has_writes_in_flight(key) {
            return Observation::InFlight;
        }
        let Some(job) = raw.read() else { return Observation::Unreadable };
        // A RayJob that is being deleted asks for nothing any more.
        let pod_group = scheduler::job_pod_group(&key.name, sources.config);
        let pod_group = pod_group.filter(|_| job.metadata.deletion_timestamp.is_none());
        let missing = sources.not_synced(pod_group.iter().map(|(kind, _)| *kind));
        if !missing.is_empty() {
            return Observation::NotSynced(missing);
        }
        let name = job.status.as_ref().and_then(|status| status.ray_cluster_name.clone()).unwrap_or_default();
        let owner = ObjectKey::new(Kind::RayCluster, &key.namespace, &name);
        // A cluster that cannot be read must not look like one that is missing.
        let cluster = match stores.clusters.get(&owner, &name).map(|raw| raw.read()) {
            Some(None) => return Observation::Unreadable,
            found => found.flatten(),
        };
        let head_service = cluster.as_ref().map(|cluster| names::head_service(&name, &cluster.spec));
        let is_head = |pod: &&Arc<PodView>| pod.metadata.label(NODE_TYPE) == Some(HEAD);
        Observation::ready(Observed {
            clusters: stores.clusters.of(key).iter().filter_map(|raw| raw.metadata()).collect(),
            cluster_head_service: head_service
                .and_then(|service| stores.kube_services.get(&owner, &service))
                .map(|service| (*service).clone()),
            head_service: stores
                .kube_services
                .get(key, &names::owner_head_service(&key.name))
                .map(|service| (*service).clone()),
            pod_group: pod_group
                .and_then(|(kind, name)| stores.related(kind).get(key, &name))
                .map(|group| (*group).clone()),
            submitter: stores.kube_jobs.get(key, &key.name).map(|job| (*job).clone()),
            head_pods: stores.pods.of(&owner).iter().filter(is_head).map(|pod| (**pod).clone()).collect(),
            dashboard: sources.jobs.state(key).unwrap_or_default(),
            seed: sources.seed,
            cluster,
            job,
        })
    }

    fn object(seen: &Observed) -> &Self {
        &seen.job
    }
}
