//! Observations from stores that are filled by hand.

use super::*;
use crate::dashboard::Route;
use crate::dashboard::jobs::tests::client;
use crate::queue::Queue;
use jiff::tz::TimeZone;
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::action::PodsOf;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Stores, writes in flight and pollers of an operator that does nothing.
struct Memory {
    stores: Stores,
    in_flight: InFlightWrites,
    jobs: Pollers<JobPoll>,
    serve: Pollers<ServePoll>,
    config: Config,
    local_zone: LocalZone,
}

impl Memory {
    /// Everything that is always watched has been listed; there is nothing.
    fn synced() -> Self {
        let (queue, tasks, stop) = (Arc::new(Queue::default()), TaskTracker::new(), CancellationToken::new());
        let memory = Self {
            stores: Stores::default(),
            in_flight: InFlightWrites::default(),
            jobs: Pollers::new(client(Route::Direct), Arc::clone(&queue), tasks.clone(), stop.clone()),
            serve: Pollers::new(client(Route::Direct), queue, tasks, stop),
            config: Config::default(),
            local_zone: LocalZone::Fixed(TimeZone::fixed(jiff::tz::offset(5))),
        };
        let stores = &memory.stores;
        list(&stores.clusters);
        list(&stores.jobs);
        list(&stores.services);
        list(&stores.cron_jobs);
        list(&stores.pods);
        list(&stores.kube_services);
        list(&stores.kube_jobs);
        memory
    }

    fn observe<K: Observe>(&self, key: &ObjectKey) -> Observation<K::Observed> {
        let Self { stores, in_flight, jobs, serve, config, local_zone } = self;
        let now = Timestamp::UNIX_EPOCH;
        let sources = Sources { stores, in_flight, jobs, serve, config, now, local_zone, seed: 1 };
        K::observe(&sources, key)
    }

    fn put_cluster(&self, spec: Value) -> ObjectKey {
        let key = ObjectKey::new(Kind::RayCluster, "ns", "demo");
        let object = json!({"metadata": {"name": "demo", "namespace": "ns", "resourceVersion": "7"}, "spec": spec});
        let object = Arc::new(serde_json::from_str(&object.to_string()).unwrap());
        self.stores.clusters.put(0, object, vec![key.clone()]);
        key
    }
}

fn list<V: crate::watched_object::View>(table: &crate::stores::Table<V>) {
    table.expect_listings(1);
    table.begin_listing(0);
    table.end_listing(0);
}

fn cluster_spec() -> Value {
    json!({"headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head"}]}}}})
}

#[tokio::test]
async fn an_object_that_is_not_there_is_gone() {
    let key = ObjectKey::new(Kind::RayCluster, "ns", "demo");
    assert!(matches!(Memory::synced().observe::<RayCluster>(&key), Observation::Gone));
}

#[tokio::test]
async fn kinds_that_a_spec_needs_are_named_until_they_are_listed() {
    let memory = Memory::synced();
    let mut spec = cluster_spec();
    spec["enableInTreeAutoscaling"] = json!(true);
    let key = memory.put_cluster(spec);
    let Observation::NotSynced(kinds) = memory.observe::<RayCluster>(&key) else { panic!("ready") };
    assert_eq!(kinds, [Kind::Role, Kind::RoleBinding, Kind::ServiceAccount]);
    for kind in kinds {
        list(&memory.stores.related(kind));
    }
    assert!(matches!(memory.observe::<RayCluster>(&key), Observation::Ready { .. }));
}

#[tokio::test]
async fn kinds_that_are_of_use_but_not_needed_are_named_too() {
    let mut memory = Memory::synced();
    memory.config.gates.ray_cluster_network_policy = true;
    let key = memory.put_cluster(cluster_spec());
    let Observation::Ready { not_synced, .. } = memory.observe::<RayCluster>(&key) else { panic!("not ready") };
    assert_eq!(not_synced, [Kind::NetworkPolicy]);
}

#[tokio::test]
async fn endpoint_slices_come_after_the_kinds_that_select_them() {
    let memory = Memory::synced();
    let key = ObjectKey::new(Kind::RayService, "ns", "web");
    let object = json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": {"rayClusterConfig": cluster_spec()}});
    let object = Arc::new(serde_json::from_str(&object.to_string()).unwrap());
    memory.stores.services.put(0, object, vec![key.clone()]);
    memory.stores.pods.expect_listings(1);
    let Observation::NotSynced(kinds) = memory.observe::<RayService>(&key) else { panic!("ready") };
    assert_eq!(kinds, [Kind::Pod]);
    memory.stores.pods.end_listing(1);
    let Observation::NotSynced(kinds) = memory.observe::<RayService>(&key) else { panic!("ready") };
    assert_eq!(kinds, [Kind::EndpointSlice]);
    list(&memory.stores.slices);
    assert!(matches!(memory.observe::<RayService>(&key), Observation::Ready { .. }));
}

#[tokio::test]
async fn nothing_is_decided_from_a_version_that_a_status_was_written_onto() {
    let memory = Memory::synced();
    let key = memory.put_cluster(cluster_spec());
    memory.in_flight.wrote_status(&key, "7");
    assert!(matches!(memory.observe::<RayCluster>(&key), Observation::InFlight));
}

#[tokio::test]
async fn pods_in_flight_are_part_of_what_is_seen() {
    let memory = Memory::synced();
    let key = memory.put_cluster(cluster_spec());
    let pod = ObjectKey::new(Kind::Pod, "ns", "demo-head-x");
    memory.in_flight.created(&key, &pod, Some(PodsOf::Head), "1".into());
    let Observation::Ready { seen, .. } = memory.observe::<RayCluster>(&key) else { panic!("not ready") };
    assert!(seen.in_flight.is_creating_head() && seen.in_flight.expires.is_some());
}

#[tokio::test]
async fn a_job_waits_for_its_own_writes() {
    let memory = Memory::synced();
    let key = ObjectKey::new(Kind::RayJob, "ns", "train");
    let object = json!({"metadata": {"name": "train", "namespace": "ns"}, "spec": {}});
    memory.stores.jobs.put(0, Arc::new(serde_json::from_str(&object.to_string()).unwrap()), vec![key.clone()]);
    assert!(matches!(memory.observe::<RayJob>(&key), Observation::Ready { .. }));
    let cluster = ObjectKey::new(Kind::RayCluster, "ns", "train-x");
    memory.in_flight.created(&key, &cluster, None, "1".into());
    assert!(matches!(memory.observe::<RayJob>(&key), Observation::InFlight));
}

#[tokio::test]
async fn schedules_are_read_in_the_zone_of_the_settings() {
    let memory = Memory::synced();
    let key = ObjectKey::new(Kind::RayCronJob, "ns", "nightly");
    let spec = json!({"schedule": "0 3 * * *", "jobTemplate": {}});
    let object = json!({"metadata": {"name": "nightly", "namespace": "ns"}, "spec": spec});
    memory.stores.cron_jobs.put(0, Arc::new(serde_json::from_str(&object.to_string()).unwrap()), vec![key.clone()]);
    let Observation::Ready { seen, .. } = memory.observe::<RayCronJob>(&key) else { panic!("not ready") };
    assert_eq!(seen.local_zone, TimeZone::fixed(jiff::tz::offset(5)));
}

#[tokio::test]
async fn no_cluster_is_parsed_before_its_pods_are_listed() {
    let memory = Memory::synced();
    let key = memory.put_cluster(json!({"rayVersion": []}));
    memory.stores.pods.expect_listings(1);
    let Observation::NotSynced(kinds) = memory.observe::<RayCluster>(&key) else { panic!("it was parsed") };
    assert_eq!(kinds, [Kind::Pod]);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_left_alone() {
    let memory = Memory::synced();
    let key = memory.put_cluster(json!({"rayVersion": []}));
    assert!(matches!(memory.observe::<RayCluster>(&key), Observation::Unreadable));
}
