use super::world::{World, cluster};
use crate::action::{Kind, ObjectKey};
use crate::labels::{annotation, finalizer};
use crate::plan::Wake;
use serde_json::json;

fn with_redis() -> World {
    let mut world = cluster(1);
    world.edit(|spec| spec["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis:6379"}));
    world
}

fn job_condition(world: &mut World, condition: serde_json::Value) {
    let key = ObjectKey::new(Kind::Job, "ns", "demo-redis-cleanup");
    world.api.objects.get_mut(&key).unwrap()["status"] = json!({"conditions": [condition]});
}

#[test]
fn the_redis_finalizer_is_added_before_the_first_pod() {
    let mut world = with_redis();
    world.pass();
    assert_eq!(world.finalizers(), [finalizer::REDIS_CLEANUP]);
    assert!(world.pods().is_empty());
    world.pass();
    assert_eq!(world.pods().len(), 2);

    let mut world = with_redis();
    world.config.redis_cleanup = false;
    world.pass();
    assert!(world.finalizers().is_empty());
    assert_eq!(world.pods().len(), 2);
}

#[test]
fn the_annotation_counts_like_the_options() {
    let mut world = cluster(1);
    world.annotate(annotation::FT_ENABLED, "TRUE");
    world.pass();
    assert_eq!(world.finalizers(), [finalizer::REDIS_CLEANUP]);
}

#[test]
fn embedded_storage_needs_no_finalizer() {
    let mut world = cluster(1);
    world.edit(|spec| spec["gcsFaultToleranceOptions"] = json!({"backend": "rocksdb"}));
    world.settle_ready();
    assert!(world.finalizers().is_empty());

    world.cluster.metadata.finalizers = Some(vec!["other".into(), finalizer::REDIS_CLEANUP.into()]);
    world.delete_cluster();
    world.pass();
    assert_eq!(world.finalizers(), ["other"]);
}

#[test]
fn deletion_removes_pods_then_cleans_redis_then_drops_the_finalizer() {
    let mut world = with_redis();
    world.settle_ready();
    world.api.slow_deletion = vec![Kind::Pod];
    world.delete_cluster();
    world.pass();
    world.pass();
    assert!(world.api.names(Kind::Job).is_empty(), "not while a head Pod is there");
    world.end_pods();
    world.pass();
    assert_eq!(world.api.names(Kind::Job), ["demo-redis-cleanup"]);
    assert_eq!(world.api.notes("CreatedRedisCleanupJob"), ["Created Redis cleanup Job ns/demo-redis-cleanup"]);
    let job = &world.api.objects[&ObjectKey::new(Kind::Job, "ns", "demo-redis-cleanup")];
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 300);
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["command"], json!(["/bin/bash", "-c", "--"]));
    let plan = world.pass();
    assert!(plan.stages.is_empty() && matches!(plan.wake, Wake::At(_)), "it waits, with the deadline in mind");
    assert_eq!(world.finalizers().len(), 1);
    job_condition(&mut world, json!({"type": "Complete", "status": "True"}));
    world.pass();
    assert!(world.finalizers().is_empty());
}

#[test]
fn a_cleanup_job_is_finished_by_its_conditions() {
    for (type_, status, finished) in [
        ("Complete", "True", true),
        ("Failed", "True", true),
        ("FailureTarget", "True", true),
        ("FailureTarget", "False", false),
        ("SuccessCriteriaMet", "True", false),
    ] {
        let mut world = with_redis();
        world.settle_ready();
        world.delete_cluster();
        world.pass();
        world.pass();
        job_condition(&mut world, json!({"type": type_, "status": status}));
        world.pass();
        assert_eq!(world.finalizers().is_empty(), finished, "{type_}={status}");
    }
}

#[test]
fn a_cleanup_job_that_cannot_be_created_is_reported() {
    let mut world = with_redis();
    world.settle_ready();
    world.delete_cluster();
    world.api.refuse = Box::new(|step| (step.action.key().kind == Kind::Job).then(|| "quota exceeded".to_owned()));
    world.pass();
    world.pass();
    assert_eq!(
        world.api.notes("FailedToCreateRedisCleanupJob"),
        ["Failed to create Redis cleanup Job ns/demo-redis-cleanup, quota exceeded"]
    );
    assert_eq!(world.finalizers().len(), 1);
}

#[test]
fn the_finalizer_is_removed_at_the_deadline() {
    let check = |timeout: Option<&str>, seconds: i64| {
        let mut world = with_redis();
        world.annotate(annotation::GCS_FT_DELETION_TIMEOUT, timeout.unwrap_or("not-a-number"));
        world.settle_ready();
        world.api.slow_deletion = vec![Kind::Pod]; // the head Pod never goes
        world.delete_cluster();
        world.advance(seconds - 1);
        world.pass();
        assert_eq!(world.finalizers().len(), 1, "{timeout:?}");
        world.advance(1);
        world.pass();
        assert!(world.finalizers().is_empty(), "{timeout:?}");
        assert!(world.api.notes("ForceDeletedStuckCluster")[0].starts_with("Force-removed GCS FT finalizer after "));
    };
    check(None, 300);
    check(Some("0"), 300);
    check(Some("-5"), 300);
    check(Some("120"), 120);
    check(Some("1"), 1);
}

#[test]
fn deletion_ends_where_redis_cannot_be_cleaned() {
    let check = |name: &str, prepare: fn(&mut World)| {
        let mut world = with_redis();
        world.settle_ready();
        prepare(&mut world);
        world.delete_cluster();
        world.pass();
        assert!(world.finalizers().is_empty(), "{name}");
        assert_eq!(world.api.notes("SkippedRedisCleanup").len(), 1, "{name}: a warning names what is left behind");
    };
    check("fault tolerance was removed", |world| {
        world.edit(|spec| {
            spec.as_object_mut().unwrap().remove("gcsFaultToleranceOptions");
        });
    });
    check("the clean-up was switched off", |world| world.config.redis_cleanup = false);
    check("no container is left", |world| {
        world.edit(|spec| spec["headGroupSpec"]["template"]["spec"]["containers"] = json!([]));
    });
}

#[test]
fn an_invalid_spec_is_cleaned_up_like_any_other() {
    let mut world = with_redis();
    world.settle_ready();
    world.edit(|spec| spec["workerGroupSpecs"][0]["minReplicas"] = json!(-1));
    world.delete_cluster();
    world.pass();
    world.pass();
    assert_eq!(world.api.names(Kind::Job), ["demo-redis-cleanup"]);
}

#[test]
fn without_our_finalizer_deletion_is_left_to_the_garbage_collector() {
    let mut world = cluster(2);
    world.settle_ready();
    world.delete_cluster();
    let plan = world.pass();
    assert!(plan.stages.is_empty() && plan.events.is_empty());
}
