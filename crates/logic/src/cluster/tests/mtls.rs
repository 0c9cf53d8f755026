//! Certificates from cert-manager: created in order, kept up to date, and waited for before any Pod.

use super::world::{World, cluster};
use crate::action::{Action, Kind, ObjectKey};
use crate::plan::Wake;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

const CA: &str = "ray-ca-certificate-demo";
const HEAD: &str = "ray-head-cert-demo";
const WORKER: &str = "ray-worker-cert-demo";
const CERTIFICATES: [&str; 3] = [CA, HEAD, WORKER];
const HEAD_SECRET: &str = "ray-head-secret-demo";
const WORKER_SECRET: &str = "ray-worker-secret-demo";
const KEYS: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

/// Returns a cluster with one worker and TLS, where cert-manager is installed.
fn encrypted() -> World {
    let mut world = cluster(1);
    world.config.gates.ray_cluster_mtls = true;
    world.config.platform.cert_manager = true;
    world.edit(|spec| spec["tlsOptions"] = json!({"enabled": true}));
    world
}

fn key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey::new(kind, "ns", name)
}

fn certificate<'a>(world: &'a mut World, name: &str) -> &'a mut Value {
    world.api.objects.get_mut(&key(Kind::Certificate, name)).unwrap()
}

/// Issues a certificate as cert-manager does, with its Secret.
fn issue(world: &mut World, name: &str, expires: Timestamp) {
    if !world.api.objects.contains_key(&key(Kind::Certificate, name)) {
        return;
    }
    let live = certificate(world, name);
    let generation = live["metadata"]["generation"].as_i64().unwrap_or(1);
    live["metadata"]["generation"] = json!(generation);
    live["status"] = json!({
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": generation}],
        "notAfter": expires.to_string(),
    });
    let secret = live["spec"]["secretName"].as_str().unwrap().to_owned();
    let data = json!({"tls.crt": "Yw==", "tls.key": "aw==", "ca.crt": "YQ=="});
    match world.api.objects.get_mut(&key(Kind::Secret, &secret)) {
        Some(live) => live["data"] = data,
        None => {
            let object = json!({"metadata": {"name": secret, "namespace": "ns"}, "data": data});
            world.api.create(&key(Kind::Secret, &secret), object, world.now);
        }
    }
}

fn issue_all(world: &mut World) {
    let expires = world.now + SignedDuration::from_hours(2160);
    CERTIFICATES.iter().for_each(|name| issue(world, name, expires));
}

/// Runs passes, with cert-manager and the kubelet at work, until nothing is written.
fn settle(world: &mut World) {
    for _ in 0..20 {
        issue_all(world);
        world.run_pods();
        let (writes, status_writes) = (world.api.writes, world.status_writes);
        let plan = world.pass();
        if plan.halts.is_empty() && (writes, status_writes) == (world.api.writes, world.status_writes) {
            return;
        }
    }
    panic!("the cluster does not come to rest");
}

fn settled() -> World {
    let mut world = encrypted();
    settle(&mut world);
    world
}

/// Returns the addresses in a certificate.
fn addresses(world: &World, name: &str) -> Value {
    world.object(Kind::Certificate, name).unwrap()["spec"]["ipAddresses"].clone()
}

/// Stores an object that somebody else has created, without the cluster's label.
fn insert_foreign(world: &mut World, kind: Kind, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name, "namespace": "ns", "generation": 1}, "spec": spec});
    world.api.create(&key(kind, name), object, world.now);
}

#[test]
fn issuers_and_certificates_that_exist_are_reused() {
    let mut world = encrypted();
    insert_foreign(&mut world, Kind::Issuer, "ray-ca-issuer-demo", json!({"vault": {"path": "pki"}}));
    insert_foreign(&mut world, Kind::Certificate, CA, json!({"secretName": "company-ca"}));
    insert_foreign(&mut world, Kind::Certificate, HEAD, json!({"secretName": "other"}));
    settle(&mut world);
    assert!(world.api.notes("MTLSFailedToReconcile").is_empty(), "{:?}", world.api.events);
    assert_eq!(world.object(Kind::Issuer, "ray-ca-issuer-demo").unwrap()["spec"], json!({"vault": {"path": "pki"}}));
    assert_eq!(certificate(&mut world, CA)["spec"], json!({"secretName": "company-ca"}));
    assert_eq!(
        certificate(&mut world, HEAD)["spec"]["secretName"],
        HEAD_SECRET,
        "names and addresses are the cluster's"
    );
    assert_eq!(certificate(&mut world, HEAD)["metadata"]["labels"]["ray.io/cluster"], "demo");
    assert_eq!(world.pods().len(), 2);
}

#[test]
fn issuers_and_certificates_are_created_in_order() {
    let order = [
        "Issuer ray-selfsigned-issuer-demo",
        "Certificate ray-ca-certificate-demo",
        "Issuer ray-ca-issuer-demo",
        "Certificate ray-head-cert-demo",
        "Certificate ray-worker-cert-demo",
    ];
    let words = ["self-signed issuer", "CA certificate", "CA issuer", "head certificate", "worker certificate"];
    let mut world = encrypted();
    world.pass();
    assert_eq!(world.api.created[..5], order);
    for (index, word) in words.into_iter().enumerate() {
        let mut world = encrypted();
        world.api.refuse = Box::new(move |step| {
            let action = &step.action;
            let name = format!("{} {}", action.key().kind.resource().kind, action.key().name);
            (name == order[index]).then(|| "denied".to_owned())
        });
        world.pass();
        let of_tls = |name: &&String| name.starts_with("Issuer") || name.starts_with("Certificate");
        let created: Vec<&String> = world.api.created.iter().filter(of_tls).collect();
        assert_eq!(created, order[..index].iter().collect::<Vec<_>>(), "later ones wait for {word}");
        let note = format!("Failed to reconcile mTLS {word}: denied");
        assert_eq!(world.api.notes("MTLSFailedToReconcile"), [note]);
    }
}

#[test]
fn a_certificate_in_flight_is_not_created_twice() {
    let mut world = encrypted();
    world.in_flight.creating.push((key(Kind::Certificate, CA), None));
    world.pass();
    assert_eq!(world.api.names(Kind::Certificate), [HEAD, WORKER]);
}

#[test]
fn clusters_without_tls_or_cert_manager_get_no_certificates() {
    let check = |change: fn(&mut World), pods: usize| {
        let mut world = encrypted();
        change(&mut world);
        for _ in 0..3 {
            world.pass();
        }
        assert!(world.api.names(Kind::Issuer).is_empty() && world.api.names(Kind::Certificate).is_empty());
        assert!(world.api.notes("MTLSCertsNotReady").is_empty());
        assert_eq!(world.pods().len(), pods);
    };
    check(|world| world.edit(|spec| spec["tlsOptions"] = json!({"enabled": false})), 2);
    check(|world| world.config.platform.cert_manager = false, 0);
    check(|world| world.config.gates.ray_cluster_mtls = false, 0);
    check(World::delete_cluster, 0);
    check(|world| world.edit(|spec| spec["managedBy"] = json!("kueue.x-k8s.io/multikueue")), 0);
}

#[test]
fn pods_wait_for_certificates_and_secrets() {
    let check = |change: fn(&mut World), error: &str| {
        let mut world = encrypted();
        world.pass();
        issue_all(&mut world);
        change(&mut world);
        let plan = world.pass();
        let halts: Vec<_> = plan.halts.iter().map(|halt| (halt.controller, halt.error.as_str())).collect();
        assert_eq!(halts, [("raycluster-controller", format!("mTLS secrets not ready: {error}").as_str())]);
        assert_eq!(plan.wake, Wake::BackOff);
        assert!(world.pods().is_empty(), "{error}");
        world.api.unreadable = false;
        settle(&mut world);
        assert_eq!(world.pods().len(), 2);
    };
    fn remove(world: &mut World, kind: Kind, name: &str) {
        world.api.objects.remove(&key(kind, name)).unwrap();
    }
    fn remove_key(world: &mut World, secret: &str, name: &str) {
        let secret = world.api.objects.get_mut(&key(Kind::Secret, secret)).unwrap();
        secret["data"].as_object_mut().unwrap().remove(name).unwrap();
    }
    let not_found =
        |name: &str| format!("certificate {name} not found: certificates.cert-manager.io \"{name}\" not found");
    check(|world| remove(world, Kind::Certificate, HEAD), &not_found(HEAD));
    check(|world| remove(world, Kind::Certificate, WORKER), &not_found(WORKER));
    let not_ready =
        |name: &str, generation: i64| format!("certificate {name} is not ready at current generation {generation}");
    check(|world| certificate(world, HEAD)["status"] = json!({}), &not_ready(HEAD, 1));
    check(
        |world| certificate(world, WORKER)["status"]["conditions"][0]["status"] = json!("False"),
        &not_ready(WORKER, 1),
    );
    check(
        |world| certificate(world, WORKER)["status"]["conditions"][0]["type"] = json!("Issuing"),
        &not_ready(WORKER, 1),
    );
    check(|world| certificate(world, HEAD)["metadata"]["generation"] = json!(2), &not_ready(HEAD, 2));
    let absent = |name: &str| format!("secret {name} not found: secrets \"{name}\" not found");
    check(|world| remove(world, Kind::Secret, HEAD_SECRET), &absent(HEAD_SECRET));
    check(|world| remove(world, Kind::Secret, WORKER_SECRET), &absent(WORKER_SECRET));
    check(|world| world.api.unreadable = true, &format!("secret {HEAD_SECRET} not found: forbidden"));
    check(
        |world| remove_key(world, HEAD_SECRET, KEYS[0]),
        &format!("secret {HEAD_SECRET} missing required key tls.crt"),
    );
    check(
        |world| remove_key(world, WORKER_SECRET, KEYS[1]),
        &format!("secret {WORKER_SECRET} missing required key tls.key"),
    );
    check(
        |world| remove_key(world, WORKER_SECRET, KEYS[2]),
        &format!("secret {WORKER_SECRET} missing required key ca.crt"),
    );
}

#[test]
fn later_workers_wait_for_certificates_too() {
    for hosts in [1, 2] {
        let mut world = encrypted();
        world.edit(|spec| spec["workerGroupSpecs"][0]["numOfHosts"] = json!(hosts));
        settle(&mut world);
        let before = world.pods().len();
        world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(2));
        certificate(&mut world, WORKER)["status"] = json!({});
        let plan = world.pass();
        assert_eq!((plan.halts.len(), world.pods().len()), (1, before), "{hosts} hosts");
        settle(&mut world);
        assert_eq!(world.pods().len(), 1 + 2 * hosts);
    }
}

#[test]
fn certificates_follow_the_addresses_of_live_pods() {
    let world = settled();
    let head = world.pod_names("headgroup")[0].clone();
    let worker = world.pod_names("small")[0].clone();
    let ip = |world: &World, name: &str| world.object(Kind::Pod, name).unwrap()["status"]["podIP"].clone();
    assert_eq!(addresses(&world, HEAD), json!([ip(&world, &head), "127.0.0.1"]));
    assert_eq!(addresses(&world, WORKER), json!([ip(&world, &worker), "127.0.0.1"]));
    let head_ip = ip(&world, &head);
    let note = format!("Updated head certificate SANs (IPs: [{} 127.0.0.1])", head_ip.as_str().unwrap());
    assert!(world.api.notes("MTLSCertificatesUpdated").contains(&note.as_str()), "{:?}", world.api.events);

    let changes: [fn(&mut Value); 4] = [
        |pod| pod["status"]["podIP"] = json!(""),
        |pod| pod["status"]["phase"] = json!("Failed"),
        |pod| pod["status"]["phase"] = json!("Succeeded"),
        |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
    ];
    for change in changes {
        let mut world = settled();
        let worker = world.pod_names("small")[0].clone();
        world.change_pod(&worker, change);
        world.pass();
        assert_eq!(addresses(&world, WORKER), json!(["127.0.0.1"]));
        assert_eq!(addresses(&world, HEAD).as_array().unwrap().len(), 2);
    }

    let mut world = settled();
    world.api.refuse = Box::new(|step| (step.action.key().kind == Kind::Certificate).then(|| "denied".to_owned()));
    world.change_pod(&world.pod_names("small")[0].clone(), |pod| pod["status"]["podIP"] = json!("10.9.9.9"));
    world.pass();
    assert_eq!(world.api.notes("MTLSFailedToReconcile"), ["Failed to reconcile mTLS worker certificate: denied"]);
}

#[test]
fn the_ca_certificate_is_never_changed() {
    for (name, changed) in [(CA, false), (HEAD, true), (WORKER, true)] {
        let mut world = settled();
        certificate(&mut world, name)["metadata"]["labels"]["extra"] = json!("x");
        world.pass();
        let labels = &world.object(Kind::Certificate, name).unwrap()["metadata"]["labels"];
        assert_eq!(labels.get("extra").is_none(), changed, "{name}");
    }
}

#[test]
fn secrets_are_owned_by_their_certificates() {
    let mut world = encrypted();
    world.pass();
    issue_all(&mut world);
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"});
    world.api.objects.get_mut(&key(Kind::Secret, HEAD_SECRET)).unwrap()["metadata"]["ownerReferences"] = json!([other]);
    let version = world.object(Kind::Secret, HEAD_SECRET).unwrap()["metadata"]["resourceVersion"].clone();
    let plan = world.pass();
    let patched = plan.stages.iter().flatten().find_map(|step| match &step.action {
        Action::Merge { key, patch, .. } if key.name == HEAD_SECRET => Some(&patch["metadata"]["resourceVersion"]),
        _ => None,
    });
    assert_eq!(patched, Some(&version), "owners added meanwhile are not overwritten");
    for (name, secret) in [(CA, "demo-ca-secret-u-1"), (HEAD, HEAD_SECRET), (WORKER, WORKER_SECRET)] {
        let uid = world.object(Kind::Certificate, name).unwrap()["metadata"]["uid"].clone();
        let owner = json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "name": name, "uid": uid});
        let expect = if name == HEAD { json!([other, owner]) } else { json!([owner]) };
        assert_eq!(world.object(Kind::Secret, secret).unwrap()["metadata"]["ownerReferences"], expect);
    }
    settle(&mut world);
    let writes = world.api.writes;
    world.pass();
    assert_eq!(world.api.writes, writes, "an owned Secret is not written again");

    let mut world = encrypted();
    world.pass();
    issue_all(&mut world);
    world.api.refuse = Box::new(|step| (step.action.key().kind == Kind::Secret).then(|| "denied".to_owned()));
    world.pass();
    assert_eq!(world.api.notes("MTLSFailedToReconcile"), ["Failed to reconcile mTLS CA certificate: denied"]);
}

#[test]
fn a_secret_that_could_not_be_read_is_looked_up_again() {
    let mut world = settled();
    world.api.objects.get_mut(&key(Kind::Secret, HEAD_SECRET)).unwrap()["metadata"]["ownerReferences"] = json!([]);
    world.api.unreadable = true;
    let plan = world.pass();
    assert_eq!((plan.wake, plan.halts), (Wake::BackOff, vec![]), "nothing else wakes the cluster");
    world.api.unreadable = false;
    let plan = world.pass();
    assert_ne!(plan.wake, Wake::BackOff);
    let uid = world.object(Kind::Certificate, HEAD).unwrap()["metadata"]["uid"].clone();
    assert_eq!(world.object(Kind::Secret, HEAD_SECRET).unwrap()["metadata"]["ownerReferences"][0]["uid"], uid);
}

#[test]
fn readiness_is_reported() {
    let (waiting, ready) = ("MTLSCertsNotReady", "MTLSPKIReady");
    let mut world = encrypted();
    world.pass();
    assert_eq!(world.api.notes(waiting), ["Waiting for cert-manager to issue mTLS certificates"]);
    assert!(world.api.notes(ready).is_empty());
    let expires = world.now + SignedDuration::from_hours(2160);
    issue(&mut world, HEAD, expires);
    world.pass();
    assert_eq!((world.api.notes(waiting).len(), world.api.notes(ready).len()), (2, 0), "one of two is not enough");
    issue(&mut world, WORKER, expires);
    world.pass();
    assert_eq!(world.api.notes(waiting).len(), 2);
    assert_eq!(world.api.notes(ready), ["mTLS PKI is ready: CA, head, and worker certificates issued"]);
}

#[test]
fn expiry_is_reported_a_day_before() {
    for name in CERTIFICATES {
        let mut world = settled();
        let expires = world.now + SignedDuration::from_hours(25);
        certificate(&mut world, name)["status"]["notAfter"] = json!(expires.to_string());
        let plan = world.pass();
        assert_eq!(plan.wake, Wake::At(world.now + SignedDuration::from_hours(1)), "{name}");
        assert!(world.api.notes("MTLSCertificateExpiringSoon").is_empty());
        world.advance(3600 + 1800);
        world.pass();
        let note = format!(
            "TLS certificate {name} expires in 23.5 hours; Ray does not hot-reload certs so a pod restart will be needed \
             after renewal"
        );
        assert_eq!(world.api.notes("MTLSCertificateExpiringSoon"), [note]);
    }
}

/// Something that happens between passes.
#[derive(Clone, Debug)]
enum Happening {
    Issue(usize),
    IssueAll,
    Revoke(usize),
    RemoveCertificate(usize),
    RemoveSecret(usize),
    RemoveKey { secret: usize, key: usize },
    RunPods,
    LosePod(usize),
    Scale(i32),
    Unreadable(bool),
    Refuse(bool),
    TimePasses(i64),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0..3usize).prop_map(Happening::Issue),
        Just(Happening::IssueAll),
        (0..3usize).prop_map(Happening::Revoke),
        (0..3usize).prop_map(Happening::RemoveCertificate),
        (0..2usize).prop_map(Happening::RemoveSecret),
        (0..2usize, 0..3usize).prop_map(|(secret, key)| Happening::RemoveKey { secret, key }),
        Just(Happening::RunPods),
        (0..4usize).prop_map(Happening::LosePod),
        (0..4i32).prop_map(Happening::Scale),
        any::<bool>().prop_map(Happening::Unreadable),
        any::<bool>().prop_map(Happening::Refuse),
        (0..200_000i64).prop_map(Happening::TimePasses),
    ]
}

fn happen(world: &mut World, happening: &Happening) {
    let secrets = [HEAD_SECRET, WORKER_SECRET];
    match happening {
        Happening::Issue(index) => {
            let expires = world.now + SignedDuration::from_hours(48);
            issue(world, CERTIFICATES[*index], expires);
        }
        Happening::IssueAll => issue_all(world),
        Happening::Revoke(index) => {
            if let Some(live) = world.api.objects.get_mut(&key(Kind::Certificate, CERTIFICATES[*index])) {
                live["status"] = json!({});
            }
        }
        Happening::RemoveCertificate(index) => {
            world.api.objects.remove(&key(Kind::Certificate, CERTIFICATES[*index]));
        }
        Happening::RemoveSecret(index) => drop(world.api.objects.remove(&key(Kind::Secret, secrets[*index]))),
        Happening::RemoveKey { secret, key: name } => {
            if let Some(live) = world.api.objects.get_mut(&key(Kind::Secret, secrets[*secret])) {
                live["data"].as_object_mut().unwrap().remove(KEYS[*name]);
            }
        }
        Happening::RunPods => world.run_pods(),
        Happening::LosePod(index) => {
            if let Some(pod) = world.pods().get(*index) {
                world.remove_pod(&pod.metadata.name);
            }
        }
        Happening::Scale(replicas) => world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(replicas)),
        Happening::Unreadable(unreadable) => world.api.unreadable = *unreadable,
        Happening::Refuse(refuse) => {
            let refuse = *refuse;
            world.api.refuse = Box::new(move |_| refuse.then(|| "denied".to_owned()));
        }
        Happening::TimePasses(seconds) => world.advance(*seconds),
    }
}

/// Returns whether both certificates are issued and their Secrets complete.
fn may_create_pods(world: &World) -> bool {
    let issued = [HEAD, WORKER].into_iter().all(|name| {
        world.object(Kind::Certificate, name).is_some_and(|live| {
            let condition = &live["status"]["conditions"][0];
            condition["status"] == "True" && condition["observedGeneration"] == live["metadata"]["generation"]
        })
    });
    let complete = [HEAD_SECRET, WORKER_SECRET].into_iter().all(|name| {
        let secret = world.object(Kind::Secret, name);
        secret.is_some_and(|secret| KEYS.iter().all(|key| secret["data"].get(key).is_some()))
    });
    issued && complete && !world.api.unreadable
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_pod_is_created_before_its_certificate(
        happenings in proptest::collection::vec(any_happening(), 0..16),
        begun: bool,
    ) {
        let mut world = if begun { settled() } else { encrypted() };
        for happening in &happenings {
            happen(&mut world, happening);
            let may_create = may_create_pods(&world);
            let plan = world.pass();
            let creates_pods = plan.stages.iter().flatten().any(|step| {
                step.action.key().kind == Kind::Pod && matches!(step.action, Action::Create { .. })
            });
            prop_assert!(may_create || !creates_pods, "a Pod without its certificate after {happening:?}");
        }
        world.api.refuse = Box::new(|_| None);
        world.api.unreadable = false;
        settle(&mut world);
        let writes = world.api.writes;
        world.pass();
        prop_assert_eq!(world.api.writes, writes, "rest means no writes");
        prop_assert!(may_create_pods(&world) && !world.pod_names("headgroup").is_empty());
    }
}
