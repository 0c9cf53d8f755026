//! Gathers what is known about a RayService.

use super::{Observation, Observe, Sources};
use manta_api::RayService;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::build;
use manta_logic::cluster_spec;
use manta_logic::service::{Observed, watched_kinds};
use std::sync::Arc;

impl Observe for RayService {
    fn observe(sources: &Sources<'_>, key: &ObjectKey) -> Observation<Observed> {
        let stores = sources.stores;
        let Some(raw) = stores.services.get(key, &key.name) else { return Observation::Gone };
        // EndpointSlices are watched last: the other kinds say which slices are of interest.
        for kinds in [&[Kind::RayService, Kind::RayCluster, Kind::Pod, Kind::Service][..], &[Kind::EndpointSlice]] {
            let missing = sources.not_synced(kinds.iter().copied());
            if !missing.is_empty() {
                return Observation::NotSynced(missing);
            }
        }
        let Some(service) = raw.read() else { return Observation::Unreadable };
        let missing = sources.not_synced(watched_kinds(&service, sources.config));
        // An API that is not installed is not waited for: the plan says what is missing.
        if !missing.is_empty() && sources.config.platform.gateway_api {
            return Observation::NotSynced(missing);
        }
        if sources.in_flight.is_outdated(key, raw.version()) || sources.has_writes_in_flight(key) {
            return Observation::InFlight;
        }
        // A cluster that cannot be read must not look like one that is missing.
        let clusters = stores.clusters.of(key);
        let Some(clusters) = clusters.iter().map(|raw| raw.read().map(Arc::new)).collect::<Option<Vec<_>>>() else {
            return Observation::Unreadable;
        };
        let owners = clusters
            .iter()
            .map(|cluster| ObjectKey::new(Kind::RayCluster, &key.namespace, cluster_spec::name(cluster)));
        let owners: Vec<ObjectKey> = owners.collect();
        let mut services = stores.kube_services.of(key);
        services.extend(owners.iter().flat_map(|owner| stores.kube_services.of(owner)));
        let seen = Observed {
            pods: owners.iter().flat_map(|owner| stores.pods.of(owner)).collect(),
            services,
            slices: stores.slices.of(key),
            gateway: stores.related(Kind::Gateway).get(key, &build::gateway::gateway_name(&key.name)),
            http_route: stores.related(Kind::HttpRoute).get(key, &build::gateway::http_route_name(&key.name)),
            gateway_api: missing.is_empty(),
            serve: sources.serve.state(key).unwrap_or_default(),
            seed: sources.seed,
            clusters,
            service: Arc::new(service),
        };
        Observation::Ready { seen: Box::new(seen), not_synced: missing }
    }

    fn object(seen: &Observed) -> &Self {
        &seen.service
    }
}
