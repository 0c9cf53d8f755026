//! Gathers what is known about one object, from memory alone.

use crate::in_flight::Shown;
use crate::run::Operator;
use crate::token;
use manta_api::RayCluster;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::build::cluster_facts as facts;
use manta_logic::cluster::{LookedUp, Observed};
use manta_logic::config::Config;
use manta_logic::labels::{HEAD, NODE_TYPE, REDIS_CLEANUP};
use manta_logic::validate::service::is_incremental_upgrade;
use manta_logic::view::{MetaView, PodView};
use manta_logic::{build, job, names, scheduler, service};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known, or why nothing can be decided.
pub(crate) enum Observation {
    Gone,
    /// A watch that this object needs is not complete yet; it wakes the object when it is.
    Waiting,
    /// The cache does not show yet the status that was written.
    InFlight,
    Ready(Box<Observed>),
}

/// Gathers what is known about a RayCluster.
pub(crate) fn cluster(op: &Operator, key: &ObjectKey, looked_up: BTreeMap<ObjectKey, LookedUp>) -> Observation {
    let stores = &op.stores;
    let Some(kept) = stores.clusters.get(key, &key.name) else { return Observation::Gone };
    if op.in_flight.is_outdated(key, kept.version()) {
        return Observation::InFlight;
    }
    let Some(cluster) = kept.read() else { return Observation::Waiting };
    let mut synced = stores.pods.is_synced_for(key);
    synced &= stores.kube_services.is_synced_for(key);
    synced &= stores.kube_jobs.is_synced_for(key);
    let mut related = Vec::new();
    for kind in related_kinds(&cluster, &op.config) {
        op.watches.need(kind);
        let table = stores.related(kind);
        // Policies of a field that was removed are worth looking for, but not worth waiting for.
        let optional = kind == Kind::NetworkPolicy && cluster.spec.network_policy.is_none();
        synced &= optional || table.is_synced_for(key);
        related.extend(table.of(key).into_iter().map(|object| (kind, object)));
    }
    if !synced {
        return Observation::Waiting;
    }
    let cleanup_jobs = stores.kube_jobs.of(key);
    let in_flight = op.in_flight.of(key, |written| shown(op, key, written));
    Observation::Ready(Box::new(Observed {
        pods: stores.pods.of(key),
        services: stores.kube_services.of(key),
        cleanup_jobs: cleanup_jobs
            .into_iter()
            .filter(|job| job.metadata.label(NODE_TYPE) == Some(REDIS_CLEANUP))
            .collect(),
        related,
        looked_up,
        in_flight,
        seed: token::seed(),
        cluster: Arc::new(cluster),
    }))
}

/// What is known about a RayJob, or why nothing can be decided.
pub(crate) enum JobObservation {
    Gone,
    /// A watch is not complete yet.
    Waiting,
    /// The caches do not show yet what was written for this object.
    InFlight,
    Ready(Box<job::Observed>),
}

/// Gathers what is known about a RayJob.
pub(crate) fn job(op: &Operator, key: &ObjectKey) -> JobObservation {
    let stores = &op.stores;
    let Some(kept) = stores.jobs.get(key, &key.name) else { return JobObservation::Gone };
    let mut synced = stores.clusters.is_synced_for(key);
    synced &= stores.pods.is_synced_for(key);
    synced &= stores.kube_services.is_synced_for(key);
    synced &= stores.kube_jobs.is_synced_for(key);
    if !synced {
        return JobObservation::Waiting;
    }
    if op.in_flight.is_outdated(key, kept.version()) {
        return JobObservation::InFlight;
    }
    let in_flight = op.in_flight.of(key, |written| shown(op, key, written));
    if !in_flight.creating.is_empty() || !in_flight.deleting.is_empty() {
        return JobObservation::InFlight;
    }
    let Some(job) = kept.read() else { return JobObservation::Waiting };
    // A RayJob that goes asks for nothing any more.
    let pod_group = scheduler::job_pod_group(&key.name, &op.config);
    let pod_group = pod_group.filter(|_| job.metadata.deletion_timestamp.is_none());
    if let Some((kind, _)) = &pod_group {
        op.watches.need(*kind);
        if !stores.related(*kind).is_synced_for(key) {
            return JobObservation::Waiting;
        }
    }
    let name = job.status.as_ref().and_then(|status| status.ray_cluster_name.clone()).unwrap_or_default();
    let owner = ObjectKey::new(Kind::RayCluster, &key.namespace, &name);
    // A cluster that cannot be read must not look like one that is missing.
    let cluster = match stores.clusters.get(&owner, &name).map(|kept| kept.read()) {
        Some(None) => return JobObservation::Waiting,
        found => found.flatten(),
    };
    let head_service = cluster.as_ref().map(|cluster| names::head_service(&name, &cluster.spec));
    let is_head = |pod: &&Arc<PodView>| pod.metadata.label(NODE_TYPE) == Some(HEAD);
    JobObservation::Ready(Box::new(job::Observed {
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
        dashboard: op.ray_jobs.known(key).unwrap_or_default(),
        seed: token::seed(),
        cluster,
        job,
    }))
}

/// What is known about a RayService, or why nothing can be decided.
pub(crate) enum ServiceObservation {
    Gone,
    /// A watch is not complete yet.
    Waiting,
    /// The caches do not show yet what was written for this object.
    InFlight,
    Ready(Box<service::Observed>),
}

/// Gathers what is known about a RayService.
pub(crate) fn service(op: &Operator, key: &ObjectKey, looked_up: BTreeMap<ObjectKey, LookedUp>) -> ServiceObservation {
    let stores = &op.stores;
    let Some(kept) = stores.services.get(key, &key.name) else { return ServiceObservation::Gone };
    let mut synced = stores.services.is_synced_for(key);
    synced &= stores.clusters.is_synced_for(key);
    synced &= stores.pods.is_synced_for(key);
    synced &= stores.kube_services.is_synced_for(key);
    if !synced {
        return ServiceObservation::Waiting;
    }
    let Some(service) = kept.read() else { return ServiceObservation::Waiting };
    op.watches.need_slices();
    synced &= stores.slices.is_synced_for(key);
    let mut gateway_api = true;
    if is_incremental_upgrade(&service.spec, &op.config) {
        for kind in [Kind::Gateway, Kind::HttpRoute] {
            op.watches.need(kind);
            gateway_api &= stores.related(kind).is_synced_for(key);
        }
    }
    // An API that is not there is not waited for: the plan says what is missing.
    if !synced || (!gateway_api && op.config.platform.gateway_api) {
        return ServiceObservation::Waiting;
    }
    if op.in_flight.is_outdated(key, kept.version()) {
        return ServiceObservation::InFlight;
    }
    let in_flight = op.in_flight.of(key, |written| shown(op, key, written));
    if !in_flight.creating.is_empty() || !in_flight.deleting.is_empty() {
        return ServiceObservation::InFlight;
    }
    // A cluster that cannot be read must not look like one that is missing.
    let clusters = stores.clusters.of(key);
    let Some(clusters) = clusters.iter().map(|kept| kept.read().map(Arc::new)).collect::<Option<Vec<_>>>() else {
        return ServiceObservation::Waiting;
    };
    let owners: Vec<ObjectKey> =
        clusters.iter().map(|cluster| ObjectKey::new(Kind::RayCluster, &key.namespace, facts::name(cluster))).collect();
    let mut services = stores.kube_services.of(key);
    services.extend(owners.iter().flat_map(|owner| stores.kube_services.of(owner)));
    ServiceObservation::Ready(Box::new(service::Observed {
        pods: owners.iter().flat_map(|owner| stores.pods.of(owner)).collect(),
        services,
        slices: stores.slices.of(key),
        gateway: stores.related(Kind::Gateway).get(key, &build::gateway::gateway_name(&key.name)),
        http_route: stores.related(Kind::HttpRoute).get(key, &build::gateway::http_route_name(&key.name)),
        gateway_api,
        serve: op.serve.known(key).unwrap_or_default(),
        looked_up,
        seed: token::seed(),
        clusters,
        service: Arc::new(service),
    }))
}

/// The kinds that the plans for this cluster read beside Pods, Services and Jobs.
fn related_kinds(cluster: &RayCluster, cfg: &Config) -> Vec<Kind> {
    let spec = &cluster.spec;
    let mut kinds = Vec::new();
    if facts::is_autoscaling(spec) {
        kinds.extend([Kind::Role, Kind::RoleBinding]);
        if facts::head_service_account(spec).is_none() {
            kinds.push(Kind::ServiceAccount);
        }
    }
    if spec.head_group_spec.enable_ingress == Some(true) {
        let as_route = cfg.platform.openshift && !cfg.ingress_on_openshift;
        kinds.push(if as_route { Kind::Route } else { Kind::Ingress });
    }
    if facts::is_gcs_storage_embedded(spec) {
        kinds.push(Kind::PersistentVolumeClaim);
    }
    if cfg.gates.ray_cluster_network_policy {
        kinds.push(Kind::NetworkPolicy); // also those of a field that was removed while nobody looked
    }
    if facts::is_tls_enabled(spec, &cfg.gates) && cfg.platform.cert_manager {
        kinds.extend([Kind::Issuer, Kind::Certificate]);
    }
    if cluster.metadata.deletion_timestamp.is_none() {
        kinds.extend(scheduler::cluster_kinds(cluster, cfg));
    }
    kinds
}

/// What the caches show of something that we wrote.
fn shown(op: &Operator, owner: &ObjectKey, written: &ObjectKey) -> Shown {
    let stores = &op.stores;
    let name = &written.name;
    let by_meta = |meta: Option<&MetaView>| match meta {
        None => Shown::Absent,
        Some(meta) if meta.deletion_timestamp.is_some() => Shown::Leaving,
        Some(meta) => Shown::Alive(meta.uid.clone()),
    };
    match written.kind {
        Kind::Pod => by_meta(stores.pods.get(owner, name).as_ref().map(|object| &object.metadata)),
        // A RayService also makes Services that belong to its clusters.
        Kind::Service => {
            by_meta(stores.kube_services.find(&owner.namespace, name).as_ref().map(|object| &object.metadata))
        }
        Kind::Job => by_meta(stores.kube_jobs.get(owner, name).as_ref().map(|object| &object.metadata)),
        Kind::RayCluster => {
            let found = stores.clusters.get(&ObjectKey::new(Kind::RayCluster, &written.namespace, name), name);
            match found {
                None => Shown::Absent,
                Some(kept) if kept.is_leaving() => Shown::Leaving,
                Some(kept) => Shown::Alive(kept.uid().to_owned()),
            }
        }
        // Never watched: its creation is remembered instead, and needs no waiting for.
        Kind::Secret => Shown::Leaving,
        kind => by_meta(stores.related(kind).get(owner, name).as_ref().map(|object| &object.metadata)),
    }
}
