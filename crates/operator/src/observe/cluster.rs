//! Gathers what is known about a RayCluster.

use super::{Observation, Observe, Sources};
use manta_api::RayCluster;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::cluster::{Observed, watched_kinds};
use manta_logic::labels::{NODE_TYPE, REDIS_CLEANUP};
use std::sync::Arc;

impl Observe for RayCluster {
    fn observe(sources: &Sources<'_>, key: &ObjectKey) -> Observation<Observed> {
        let stores = sources.stores;
        let Some(raw) = stores.clusters.get(key, &key.name) else { return Observation::Gone };
        if sources.in_flight.is_outdated(key, raw.version()) {
            return Observation::InFlight;
        }
        let missing = sources.not_synced([Kind::Pod, Kind::Service, Kind::Job]);
        if !missing.is_empty() {
            return Observation::NotSynced(missing);
        }
        let Some(cluster) = raw.read() else { return Observation::Unreadable };
        let watched = watched_kinds(&cluster, sources.config);
        let required = watched.iter().filter(|(_, required)| *required).map(|(kind, _)| *kind);
        let missing = sources.not_synced(required);
        if !missing.is_empty() {
            return Observation::NotSynced(missing);
        }
        let kinds = || watched.iter().map(|(kind, _)| *kind);
        let related =
            kinds().flat_map(|kind| stores.related(kind).of(key).into_iter().map(move |object| (kind, object)));
        let cleanup_jobs = stores.kube_jobs.of(key).into_iter();
        let seen = Observed {
            pods: Vec::new(),
            earlier_pods: Vec::new(),
            services: stores.kube_services.of(key),
            cleanup_jobs: cleanup_jobs.filter(|job| job.metadata.label(NODE_TYPE) == Some(REDIS_CLEANUP)).collect(),
            related: related.collect(),
            in_flight: sources.in_flight.of(key, sources.now, |written| sources.shown(key, written)),
            seed: sources.seed,
            cluster: Arc::new(cluster),
        }
        .with_pods(stores.pods.of(key));
        Observation::Ready { seen: Box::new(seen), not_synced: sources.not_synced(kinds()) }
    }

    fn object(seen: &Observed) -> &Self {
        &seen.cluster
    }
}
