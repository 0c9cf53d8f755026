use super::world::cluster;
use crate::action::{Kind, ObjectKey, Stage};
use crate::labels::annotation;
use crate::plan::Wake;
use jiff::SignedDuration;
use serde_json::json;

#[test]
fn services_are_created_once() {
    let mut world = cluster(1);
    world.settle_ready();
    assert_eq!(world.api.names(Kind::Service), ["demo-head-svc"]);
    let first = ObjectKey::new(Kind::Service, "ns", "demo-head-svc");
    let twin = world.api.objects[&first].clone();
    world.api.objects.insert(ObjectKey::new(Kind::Service, "ns", "twin"), {
        let mut twin = twin;
        twin["metadata"]["name"] = json!("twin");
        twin
    });
    let plan = world.pass();
    assert_eq!(plan.halts[0].error, "2 head service found [demo-head-svc twin]");
}

#[test]
fn the_autoscaler_gets_a_service_account_role_and_binding() {
    let mut world = cluster(1);
    world.edit(|spec| spec["enableInTreeAutoscaling"] = json!(true));
    world.settle_ready();
    for kind in [Kind::ServiceAccount, Kind::Role, Kind::RoleBinding] {
        assert_eq!(world.api.names(kind), ["demo"]);
    }
    assert_eq!(world.api.notes("CreatedRoleBinding"), ["Created role binding ns/demo"]);
}

#[test]
fn a_role_is_created_before_its_binding() {
    let mut world = cluster(1);
    world.edit(|spec| spec["enableInTreeAutoscaling"] = json!(true));
    let plan = world.pass();
    let stage = |kind: Kind| {
        let creates = |stage: &Stage| stage.into_iter().any(|step| step.action.key().kind == kind);
        plan.stages.iter().position(creates).unwrap()
    };
    assert!(stage(Kind::Role) < stage(Kind::RoleBinding), "a binding to a Role that is not there is refused");
}

#[test]
fn a_service_account_named_in_the_spec_must_exist() {
    let mut world = cluster(1);
    world.edit(|spec| {
        spec["enableInTreeAutoscaling"] = json!(true);
        spec["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = json!("mine");
    });
    let plan = world.pass();
    assert_eq!(plan.wake, Wake::BackOff);
    assert!(world.api.notes("AutoscalerServiceAccountNotFound")[0].contains("ServiceAccount mine is not found"));
    assert!(world.pods().is_empty());
    world.api.objects.insert(ObjectKey::new(Kind::ServiceAccount, "ns", "mine"), json!({"metadata": {"name": "mine"}}));
    world.settle_ready();
    assert_eq!(world.pods().len(), 2);
    assert_eq!(world.api.names(Kind::ServiceAccount), ["mine"], "none is made beside it");
}

#[test]
fn the_ingress_follows_the_spec() {
    let mut world = cluster(0);
    world.edit(|spec| spec["headGroupSpec"]["enableIngress"] = json!(true));
    world.settle_ready();
    let key = ObjectKey::new(Kind::Ingress, "ns", "demo-head-ingress");
    assert_eq!(world.api.names(Kind::Ingress), ["demo-head-ingress"]);

    world.api.objects.get_mut(&key).unwrap()["spec"]["ingressClassName"] = json!("defaulted");
    world.settle();
    assert!(world.api.notes("UpdatedIngress").is_empty(), "a class set by admission is not removed");

    world.api.objects.get_mut(&key).unwrap()["spec"]["rules"][0]["http"]["paths"][0]["path"] = json!("/other");
    world.settle();
    assert_eq!(world.api.notes("UpdatedIngress"), ["Updated ingress ns/demo-head-ingress"]);
    assert_eq!(world.api.objects[&key]["spec"]["rules"][0]["http"]["paths"][0]["path"], "/");

    world.api.objects.get_mut(&key).unwrap()["metadata"]["labels"] = json!({});
    world.settle();
    assert_eq!(world.api.names(Kind::Ingress).len(), 1, "found by its name without labels");

    world.api.objects.get_mut(&key).unwrap()["metadata"]["ownerReferences"] = json!([]);
    world.api.objects.get_mut(&key).unwrap()["metadata"]["labels"] = json!({});
    world.settle();
    assert!(world.api.notes("FailedToCreateIngress")[0].contains("not owned by this RayCluster"));
}

#[test]
fn an_auth_token_is_generated_at_the_write() {
    let mut world = cluster(0);
    world.edit(|spec| spec["authOptions"] = json!({"mode": "token"}));
    world.settle_ready();
    let secret = &world.api.objects[&ObjectKey::new(Kind::Secret, "ns", "demo")];
    assert_eq!(secret["stringData"]["auth_token"], crate::action::DRAWN_WHEN_WRITTEN);
    for (options, made) in [
        (json!({"mode": "token", "secretName": "mine"}), false),
        (json!({"mode": "disabled"}), false),
        (json!({}), true),
    ] {
        let mut world = cluster(0);
        world.edit(|spec| spec["authOptions"] = options.clone());
        world.settle_ready();
        assert_eq!(world.api.names(Kind::Secret).len(), usize::from(made), "{options}");
    }
}

#[test]
fn a_token_that_was_deleted_is_made_again() {
    let mut world = cluster(0);
    world.edit(|spec| spec["authOptions"] = json!({"mode": "token"}));
    world.settle_ready();
    let plan = world.pass();
    assert_eq!(plan.wake, Wake::At(world.now + SignedDuration::from_mins(5)), "nothing else would show the loss");
    world.api.objects.remove(&ObjectKey::new(Kind::Secret, "ns", "demo")).unwrap();
    world.settle();
    assert_eq!(world.api.names(Kind::Secret), ["demo"]);
}

#[test]
fn the_token_of_an_earlier_cluster_is_not_used() {
    let key = ObjectKey::new(Kind::Secret, "ns", "demo");
    let owner = |kind: &str, name: &str, uid: &str| {
        let owner = json!({"apiVersion": "ray.io/v1", "kind": kind, "name": name, "uid": uid, "controller": true});
        json!({"name": "demo", "uid": "s-1", "ownerReferences": [owner]})
    };
    for (metadata, is_used) in [
        (owner("RayCluster", "demo", "earlier"), false),
        (json!({"deletionTimestamp": "2026-03-01T08:00:00Z"}), false),
        (owner("RayCluster", "other", "u"), true),
        (owner("Widget", "demo", "u"), true),
        (json!({}), true),
    ] {
        let mut world = cluster(0);
        world.edit(|spec| spec["authOptions"] = json!({"mode": "token"}));
        world.api.objects.insert(key.clone(), json!({"metadata": metadata}));
        let plan = world.pass();
        assert_eq!(plan.waiting_for.is_none(), is_used, "{metadata}");
        assert_eq!(world.pods().is_empty(), !is_used, "Pods would start with a token that is about to change");
        if !metadata["deletionTimestamp"].is_null() {
            world.api.objects.remove(&key);
        }
        world.settle_ready();
        assert_eq!(world.pods().len(), 1);
        assert_eq!(world.api.names(Kind::Secret), ["demo"]);
        let is_deleted = world.api.deleted == ["Secret demo"];
        assert_eq!(is_deleted, metadata["ownerReferences"][0]["uid"] == "earlier", "{metadata}");
    }
}

#[test]
fn embedded_storage_gets_a_claim() {
    let rocksdb = |storage: serde_json::Value| {
        let mut world = cluster(0);
        world.edit(|spec| {
            spec["gcsFaultToleranceOptions"] = json!({"backend": "rocksdb"});
            if !storage.is_null() {
                spec["gcsFaultToleranceOptions"]["storage"] = storage;
            }
        });
        world
    };
    let key = ObjectKey::new(Kind::PersistentVolumeClaim, "ns", "demo-gcs-pvc");
    let mut world = rocksdb(json!(null));
    world.settle_ready();
    assert_eq!(world.api.objects[&key]["metadata"]["ownerReferences"][0]["name"], "demo");

    world.edit(|spec| spec["gcsFaultToleranceOptions"]["storage"] = json!({"size": "5Gi"}));
    world.settle();
    assert!(
        world.api.notes("FailedToCreatePVC")[0]
            .contains("cannot be reconfigured in place (requested size 5Gi != current 1Gi)")
    );

    world.edit(|spec| spec["gcsFaultToleranceOptions"]["storage"] = json!({"deletionPolicy": "Retain"}));
    world.settle();
    assert_eq!(world.api.objects[&key]["metadata"]["ownerReferences"], json!([]));
    world.edit(|spec| spec["gcsFaultToleranceOptions"]["storage"] = json!({}));
    world.settle();
    assert_eq!(world.api.objects[&key]["metadata"]["ownerReferences"][0]["uid"], "u-1", "adopted again");

    let mut world = rocksdb(json!({"claimName": "mine"}));
    world.settle_ready();
    assert!(world.api.names(Kind::PersistentVolumeClaim).is_empty());
    assert!(world.api.notes("FailedToCreatePVC")[0].contains("\"mine\" not found in namespace ns"));
}

#[test]
fn no_pods_are_created_without_a_serve_port() {
    let mut world = cluster(0);
    world.annotate(annotation::ENABLE_SERVE_SERVICE, "true");
    world.edit(|spec| {
        spec["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] =
            json!([{"name": "dashboard", "containerPort": 8265}]);
    });
    let plan = world.pass();
    assert!(plan.halts[0].error.starts_with("Please specify a port named 'serve'"));
    assert!(world.pods().is_empty());
}

#[test]
fn clusters_managed_by_another_controller_are_ignored() {
    for manager in ["", "kueue.x-k8s.io/multikueue"] {
        let mut world = cluster(1);
        world.edit(|spec| spec["managedBy"] = json!(manager));
        let plan = world.pass();
        assert!(plan.stages.is_empty() && plan.events.is_empty(), "{manager:?}");
    }
    let mut world = cluster(1);
    world.edit(|spec| spec["managedBy"] = json!("ray.io/kuberay-operator"));
    world.settle_ready();
    assert_eq!(world.pods().len(), 2);
}

#[test]
fn an_invalid_spec_gives_one_warning_and_nothing_else() {
    let mut world = cluster(1);
    world.edit(|spec| spec["workerGroupSpecs"][0]["minReplicas"] = json!(-1));
    let plan = world.pass();
    assert!(plan.stages.is_empty());
    assert_eq!(plan.wake, Wake::OnChange, "no retry: only a change can help");
    assert_eq!(
        world.api.notes("InvalidRayClusterSpec"),
        ["The RayCluster spec is invalid ns/demo: worker group small has negative minReplicas -1"]
    );
    assert!(world.cluster.status.is_none());
}
