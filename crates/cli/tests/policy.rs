//! `manta policy`: the generated files in the repository, and the policies on a real kube-apiserver, which must reject
//! objects with the operator's messages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use manta_logic::action::Kind;
use manta_logic::admission::policy;
use manta_logic::admission::refuse::{AdmissionRequest, refuse};
use manta_logic::config::{Config, Platform};
use manta_testkit::{ControlPlane, eventually};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn deployed_policies_are_current() {
    let fresh = tempfile::tempdir().unwrap();
    let command = ["policy", "--dir", fresh.path().to_str().unwrap()];
    assert!(Command::new(env!("CARGO_BIN_EXE_manta")).args(command).status().unwrap().success());
    let names = |folder: &Path| -> Vec<_> {
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let deployed = PathBuf::from(ROOT).join("deploy/policy");
    assert_eq!(names(fresh.path()), names(&deployed));
    for name in names(fresh.path()) {
        assert!(
            std::fs::read(fresh.path().join(&name)).unwrap() == std::fs::read(deployed.join(&name)).unwrap(),
            "deploy/policy/{} is not current; run `cargo run -p manta -- policy --dir deploy/policy`",
            name.display()
        );
    }
}

/// Installs the policies for one namespace and waits until they are enforced.
async fn install(client: &Client, namespace: &str) -> Result<()> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    // The bindings are the same for all tests, which share a server; each test labels its own namespace.
    let enforced = ("manta-policy-test".to_owned(), "enforced".to_owned());
    let label = json!({"metadata": {"labels": {(enforced.0.as_str()): enforced.1}}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(label)).await?;
    let here = LabelSelector { match_labels: Some([enforced].into()), ..LabelSelector::default() };
    let params = PatchParams::apply("test").force();
    for mut both in policy::all() {
        let name = both.policy.metadata.name.clone().unwrap();
        policies.patch(&name, &params, &Patch::Apply(&both.policy)).await.context("cannot install a policy")?;
        let spec = &mut both.binding.spec;
        spec.match_resources =
            Some(MatchResources { namespace_selector: Some(here.clone()), ..MatchResources::default() });
        bindings.patch(&name, &params, &Patch::Apply(&both.binding)).await?;
    }
    until_enforced(client, namespace).await
}

fn api(client: &Client, namespace: &str, kind: Kind) -> Api<DynamicObject> {
    let resource = kind.resource();
    let gvk = GroupVersionKind::gvk(resource.group, resource.version, resource.kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&gvk, resource.plural))
}

/// Creates an object as a dry run and returns it as the server would store it, or the error message.
async fn dry_run(api: &Api<DynamicObject>, kind: Kind, object: &Value) -> Result<Value, String> {
    let mut object = object.clone();
    object["apiVersion"] = json!("ray.io/v1");
    object["kind"] = json!(kind.resource().kind);
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&params, &serde_json::from_value(object).unwrap()).await {
        Ok(stored) => Ok(serde_json::to_value(stored).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits until the policy of every kind is enforced, which takes the server a moment.
async fn until_enforced(client: &Client, namespace: &str) -> Result<()> {
    for kind in KINDS {
        let mut object = object(kind);
        object["metadata"]["name"] = json!("a".repeat(60));
        let api = api(client, namespace, kind);
        eventually("enforcing the policies", async || {
            ensure!(dry_run(&api, kind, &object).await.is_err(), "an invalid name was accepted");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The configuration of an operator on a cluster with cert-manager.
fn config() -> Config {
    Config { platform: Platform { cert_manager: true, ..Platform::default() }, ..Config::default() }
}

const KINDS: [Kind; 4] = [Kind::RayCluster, Kind::RayJob, Kind::RayService, Kind::RayCronJob];

fn cluster_spec() -> Value {
    let template = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.56.0"}]}});
    let group = |name: &str| {
        json!({"groupName": name, "replicas": 1, "minReplicas": 0, "maxReplicas": 5, "numOfHosts": 1,
               "rayStartParams": {}, "template": template("ray-worker")})
    };
    json!({
        "rayVersion": "2.56.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
        "workerGroupSpecs": [group("fine"), group("small")],
    })
}

fn object(kind: Kind) -> Value {
    let job = json!({"entrypoint": "x", "rayClusterSpec": cluster_spec()});
    let spec = match kind {
        Kind::RayCluster => cluster_spec(),
        Kind::RayJob => job,
        Kind::RayService => json!({"rayClusterConfig": cluster_spec()}),
        _ => json!({"schedule": "0 3 * * *", "jobTemplate": job}),
    };
    json!({"metadata": {"name": "demo"}, "spec": spec})
}

/// Sets values at paths like `a.0.b`; `~` stands for a dot in a name.
fn with(mut object: Value, edits: &[(&str, Value)]) -> Value {
    for (path, value) in edits {
        let mut target = &mut object;
        for part in path.split('.').map(|part| part.replace('~', ".")) {
            target = match part.parse::<usize>() {
                Ok(index) if target.is_array() => &mut target[index],
                _ => &mut target[part],
            };
        }
        *target = value.clone();
    }
    object
}

/// Changes to a cluster's spec, each of which violates one rule.
fn invalid_clusters() -> Vec<Vec<(&'static str, Value)>> {
    let head = "headGroupSpec.template.spec.containers.0.env";
    let env = |name: &str| json!([{"name": name, "value": "true"}]);
    let auto = ("enableInTreeAutoscaling", json!(true));
    let v2 = ("autoscalerOptions", json!({"version": "v2"}));
    let ft = ("gcsFaultToleranceOptions", json!({"redisAddress": "redis:6379"}));
    let rocksdb =
        |more: (&'static str, Value)| vec![("gcsFaultToleranceOptions", with(json!({"backend": "rocksdb"}), &[more]))];
    let token = ("authOptions.mode", json!("token"));
    let by_kubernetes = ("authOptions.enableK8sTokenAuth", json!(true));
    let peers = || json!([{"from": [{"podSelector": {}}]}]);
    vec![
        vec![("headGroupSpec.template.spec.containers", json!([]))],
        vec![("headGroupSpec.rayStartParams.num-cpus", json!("1")), ("headGroupSpec.resources", json!({"CPU": "1"}))],
        vec![("headGroupSpec.rayStartParams.labels", json!("a=b"))],
        vec![("workerGroupSpecs.1.template.spec.containers", json!([]))],
        vec![("workerGroupSpecs.1.minReplicas", json!(-1))],
        vec![("workerGroupSpecs.1.maxReplicas", json!(-1)), ("workerGroupSpecs.1.minReplicas", json!(0))],
        vec![("workerGroupSpecs.1.minReplicas", json!(9))],
        vec![
            ("workerGroupSpecs.1.rayStartParams.memory", json!("1")),
            ("workerGroupSpecs.1.resources", json!({"CPU": "1"})),
        ],
        vec![("workerGroupSpecs.1.rayStartParams.labels", json!("a=b"))],
        vec![auto.clone(), v2.clone(), ("workerGroupSpecs.1.idleTimeoutSeconds", json!(-1))],
        vec![("workerGroupSpecs.1.idleTimeoutSeconds", json!(5))],
        vec![("workerGroupSpecs.1.priority", json!(5)), ("rayVersion", json!("2.55.9"))],
        vec![("workerGroupSpecs.1.priority", json!(5)), ("rayVersion", json!(""))],
        vec![("workerGroupSpecs.1.priority", json!(5))],
        vec![auto.clone(), ("workerGroupSpecs.1.suspend", json!(true))],
        vec![(head, env("RAY_enable_autoscaler_v2"))],
        vec![auto.clone(), v2.clone(), (head, env("RAY_enable_autoscaler_v2"))],
        vec![auto.clone(), v2.clone(), ("headGroupSpec.template.spec.restartPolicy", json!("Always"))],
        vec![auto, v2, ("workerGroupSpecs.1.template.spec.restartPolicy", json!("Always"))],
        vec![("autoscalerOptions", json!({"idleTimeoutSeconds": -3}))],
        vec![("autoscalerOptions", json!({"env": env("KUBERAY_GEN_AUTOSCALER_START_CMD")}))],
        vec![(head, env("RAY_REDIS_ADDRESS"))],
        vec![ft.clone(), ("headGroupSpec.rayStartParams.redis-password", json!("x"))],
        vec![ft.clone(), (head, env("REDIS_PASSWORD"))],
        vec![ft.clone(), (head, env("RAY_REDIS_ADDRESS"))],
        vec![ft, ("gcsFaultToleranceOptions.storage", json!({"size": "1Gi"}))],
        rocksdb(("redisAddress", json!("x"))),
        rocksdb(("redisPassword", json!({"value": "x"}))),
        rocksdb(("redisUsername", json!({"value": "x"}))),
        rocksdb(("externalStorageNamespace", json!("x"))),
        vec![("headGroupSpec.rayStartParams.redis-username", json!("x"))],
        vec![(head, env("REDIS_USERNAME"))],
        vec![("authOptions", json!({"mode": "disabled", "enableK8sTokenAuth": true}))],
        vec![token.clone(), ("rayVersion", json!(""))],
        vec![token.clone(), ("rayVersion", json!("2.51.7"))],
        vec![token.clone(), by_kubernetes.clone(), ("rayVersion", json!("2.54.0"))],
        vec![token, by_kubernetes, ("authOptions.secretName", json!("x"))],
        vec![("networkPolicy", json!({"mode": "DenyAllEgress", "head": {"ingressRules": peers()}}))],
        vec![("networkPolicy", json!({"mode": "DenyAllIngress", "worker": {"egressRules": [{}]}}))],
    ]
}

fn invalid_objects() -> Vec<(Kind, Value)> {
    let mut objects = Vec::new();
    let mut add = |kind: Kind, edits: &[(&str, Value)]| objects.push((kind, with(object(kind), edits)));
    for kind in KINDS {
        add(kind, &[("metadata.name", json!("a".repeat(60)))]);
    }
    for kind in [Kind::RayCluster, Kind::RayJob, Kind::RayService] {
        add(kind, &[("metadata.name", json!("a.b"))]);
    }
    add(Kind::RayCluster, &[("spec.workerGroupSpecs.1.groupName", json!("fine"))]);
    let ft = ("spec.gcsFaultToleranceOptions", json!({"redisAddress": "x"}));
    add(Kind::RayCluster, &[ft.clone(), ("metadata.annotations", json!({"ray.io/ft-enabled": "true"}))]);
    add(Kind::RayCluster, &[ft, ("metadata.annotations", json!({"ray.io/external-storage-namespace": "x"}))]);
    add(
        Kind::RayCluster,
        &[
            ("spec.upgradeStrategy", json!({"type": "Recreate"})),
            ("metadata.labels", json!({"ray.io/originated-from-crd": "RayJob"})),
        ],
    );
    let selector = ("spec.clusterSelector", json!({"ray.io/cluster": "x"}));
    let sidecar = ("spec.submissionMode", json!("SidecarMode"));
    let template = json!({"spec": {"containers": [{"name": "x"}]}});
    let rules = json!([{"policy": "DeleteSelf", "condition": {"jobStatus": "SUCCEEDED"}}]);
    for edits in [
        vec![("spec.suspend", json!(true))],
        vec![("spec.ttlSecondsAfterFinished", json!(-1)), ("spec.shutdownAfterJobFinishes", json!(true))],
        vec![("spec.ttlSecondsAfterFinished", json!(5))],
        vec![
            ("spec.shutdownAfterJobFinishes", json!(true)),
            ("spec.deletionStrategy", json!({"deletionRules": rules})),
        ],
        vec![selector.clone(), ("spec.suspend", json!(true)), ("spec.shutdownAfterJobFinishes", json!(true))],
        vec![("spec.clusterSelector", json!({"x": "y"}))],
        vec![selector.clone(), sidecar.clone()],
        vec![selector, ("spec.backoffLimit", json!(2))],
        vec![("spec.submissionMode", json!("InteractiveMode")), ("spec.backoffLimit", json!(2))],
        vec![sidecar.clone(), ("spec.submitterPodTemplate", template)],
        vec![sidecar.clone(), ("spec.submitterConfig", json!({"backoffLimit": 1}))],
        vec![sidecar, ("spec.rayClusterSpec.headGroupSpec.template.spec.restartPolicy", json!("Always"))],
        vec![("spec.rayClusterSpec.authOptions", json!({"mode": "token", "enableK8sTokenAuth": true}))],
        vec![("spec.activeDeadlineSeconds", json!(0))],
        vec![("spec.preRunningDeadlineSeconds", json!(0))],
        vec![("spec.backoffLimit", json!(-1))],
    ] {
        add(Kind::RayJob, &edits);
    }
    let steps = |edits: &[(&str, Value)]| {
        let options =
            json!({"maxSurgePercent": 50, "stepSizePercent": 10, "intervalSeconds": 5, "gatewayClassName": "x"});
        let strategy =
            json!({"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": with(options, edits)});
        vec![("spec.upgradeStrategy", strategy), ("spec.rayClusterConfig.enableInTreeAutoscaling", json!(true))]
    };
    for edits in [
        vec![("spec.rayClusterConfig.authOptions", json!({"mode": "token", "enableK8sTokenAuth": true}))],
        vec![("spec.rayClusterConfig.headGroupSpec.headService", json!({"metadata": {"name": "x"}}))],
        vec![("spec.upgradeStrategy", json!({"type": "Sometimes"}))],
        vec![("spec.rayClusterDeletionDelaySeconds", json!(-1))],
        vec![("spec.upgradeStrategy", json!({"type": "NewClusterWithIncrementalUpgrade"}))],
        steps(&[("maxSurgePercent", json!(101))]),
        steps(&[("stepSizePercent", json!(-1))]),
        steps(&[("stepSizePercent", json!(60))]),
        steps(&[("intervalSeconds", json!(0))]),
        steps(&[("gatewayClassName", json!(""))]),
    ] {
        add(Kind::RayService, &edits);
    }
    add(Kind::RayCronJob, &[("spec.schedule", json!("TZ=UTC * * * * *"))]);
    add(Kind::RayCronJob, &[("spec.timeZone", json!(""))]);
    add(Kind::RayCronJob, &[("spec.jobTemplate.backoffLimit", json!(-1))]);
    for edits in invalid_clusters() {
        for (kind, path) in [
            (Kind::RayCluster, "spec"),
            (Kind::RayJob, "spec.rayClusterSpec"),
            (Kind::RayService, "spec.rayClusterConfig"),
        ] {
            let paths: Vec<_> = edits.iter().map(|(field, value)| (format!("{path}.{field}"), value.clone())).collect();
            let edits: Vec<_> = paths.iter().map(|(path, value)| (path.as_str(), value.clone())).collect();
            add(kind, &edits);
        }
    }
    objects
}

#[tokio::test]
async fn policies_reject_with_the_operators_messages() -> Result<()> {
    let plane = ControlPlane::shared();
    plane.install_ray_crds().await?;
    let client = plane.client().await?;
    let namespace = plane.namespace("policy").await?;
    install(&client, &namespace).await?;

    for kind in KINDS {
        dry_run(&api(&client, &namespace, kind), kind, &object(kind)).await.unwrap();
    }
    let config = config();
    let mut wrong = Vec::new();
    let (mut rejected, mut by_schema) = (0, 0);
    for (kind, object) in invalid_objects() {
        let expect = refuse(&AdmissionRequest { kind, object: &object, old: None }, &config);
        let message = &expect.first().with_context(|| format!("the operator accepts {object}"))?.message;
        match dry_run(&api(&client, &namespace, kind), kind, &object).await {
            Err(error) if error.contains(message.as_str()) => rejected += 1,
            // The schema already checks some of it, with messages of its own.
            Err(error) if error.contains("denied request") => wrong.push(format!("{message}\n  but {error}")),
            Err(_) => by_schema += 1,
            Ok(_) => wrong.push(format!("{message}\n  was not rejected: {object}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rejected + by_schema + wrong.len(), wrong.join("\n"));
    assert!(by_schema < 20 && rejected > 120, "{rejected} rejected by policy, {by_schema} by schema");
    Ok(())
}

/// The manifests of KubeRay's recordings: valid ones are accepted, invalid ones are not.
#[tokio::test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
async fn policies_agree_with_the_operator_on_recorded_manifests() -> Result<()> {
    let plane = ControlPlane::shared();
    plane.install_ray_crds().await?;
    let client = &plane.client().await?;
    let namespace = &plane.namespace("policy-recorded").await?;
    install(client, namespace).await?;
    let config = &config();
    // CEL cannot express these.
    let beyond = ["case-invalid-cron-schedule"];
    let mut rejected = 0;
    for entry in std::fs::read_dir(Path::new(ROOT).join("../shared/parity/cases"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let case: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        for document in case["docs"].as_array().into_iter().flatten() {
            let Some(kind) = KINDS.into_iter().find(|kind| document["kind"] == kind.resource().kind) else { continue };
            let problems = |object: &Value| refuse(&AdmissionRequest { kind, object, old: None }, config);
            match dry_run(&api(client, namespace, kind), kind, document).await {
                Ok(stored) => {
                    let problems = problems(&stored);
                    let known = problems.is_empty() || beyond.contains(&name.as_str());
                    anyhow::ensure!(known, "{name}: the policy accepts what the operator rejects: {problems:?}");
                }
                Err(error) if error.contains("denied request") => {
                    let expected = problems(document).iter().any(|refusal| error.contains(&refusal.message));
                    anyhow::ensure!(expected, "{name}: the policy says {error}, the operator {:?}", problems(document));
                    rejected += 1;
                }
                // Rejected by the schema, as in the recording.
                Err(_) => {}
            }
        }
    }
    anyhow::ensure!(rejected > 12, "only {rejected} recorded cases were rejected");
    Ok(())
}
