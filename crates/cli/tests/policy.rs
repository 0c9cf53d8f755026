//! `manta policy`: the files that it has written into the repository, and the policies on a real kube-apiserver, which
//! must refuse in the words of the operator.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking and says what it skips")]

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
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
use tokio::sync::OnceCell;

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

/// Puts the policies into force in one namespace.
async fn install(client: &Client, namespace: &str) -> Result<()> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let here = LabelSelector {
        match_labels: Some([("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())].into()),
        ..LabelSelector::default()
    };
    let params = PatchParams::apply("test").force();
    for mut both in policy::all() {
        let name = both.policy.metadata.name.clone().unwrap();
        policies.patch(&name, &params, &Patch::Apply(&both.policy)).await.context("a policy is refused")?;
        let spec = &mut both.binding.spec;
        spec.match_resources =
            Some(MatchResources { namespace_selector: Some(here.clone()), ..MatchResources::default() });
        bindings.patch(&name, &params, &Patch::Apply(&both.binding)).await?;
    }
    Ok(())
}

/// Returns a client, and a namespace in which the policies are in force.
async fn installed() -> Result<(Client, String)> {
    // The policies are cluster-wide and their bindings select one namespace, so the tests share it.
    static NAMESPACE: OnceCell<String> = OnceCell::const_new();
    let plane = ControlPlane::shared();
    let client = plane.client().await?;
    let prepare = async || {
        plane.install_ray_crds().await?;
        let namespace = plane.namespace("policy").await?;
        install(&client, &namespace).await?;
        until_in_force(&client, &namespace).await?;
        anyhow::Ok(namespace)
    };
    let namespace = NAMESPACE.get_or_try_init(prepare).await?.clone();
    Ok((client, namespace))
}

fn config() -> Config {
    Config { platform: Platform { cert_manager: true, ..Platform::default() }, ..Config::default() }
}

fn api(client: &Client, namespace: &str, kind: Kind) -> Api<DynamicObject> {
    let resource = kind.resource();
    let gvk = GroupVersionKind::gvk(resource.group, resource.version, resource.kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&gvk, resource.plural))
}

/// What the server would make of an object, or says to it; it is not stored.
async fn ask(api: &Api<DynamicObject>, kind: Kind, object: &Value) -> Result<Value, String> {
    let mut object = object.clone();
    object["apiVersion"] = json!("ray.io/v1");
    object["kind"] = json!(kind.resource().kind);
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&params, &serde_json::from_value(object).unwrap()).await {
        Ok(taken) => Ok(serde_json::to_value(taken).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits until a policy of every kind is in force; the server takes a moment.
async fn until_in_force(client: &Client, namespace: &str) -> Result<()> {
    for kind in KINDS {
        let mut object = object(kind);
        object["metadata"]["name"] = json!("a".repeat(60));
        let api = api(client, namespace, kind);
        eventually("the policies in force", async || {
            ensure!(ask(&api, kind, &object).await.is_err(), "a bad name was taken");
            Ok(())
        })
        .await?;
    }
    Ok(())
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

/// Puts values at paths like `a.0.b`; `~` stands for a dot in a name.
fn with(mut object: Value, edits: &[(&str, Value)]) -> Value {
    for (path, value) in edits {
        let mut place = &mut object;
        for part in path.split('.').map(|part| part.replace('~', ".")) {
            place = match part.parse::<usize>() {
                Ok(index) if place.is_array() => &mut place[index],
                _ => &mut place[part],
            };
        }
        *place = value.clone();
    }
    object
}

/// Changes to a cluster's spec, each of which breaks one rule.
fn broken_clusters() -> Vec<Vec<(&'static str, Value)>> {
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

fn broken_objects() -> Vec<(Kind, Value)> {
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
    for edits in broken_clusters() {
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
async fn the_policies_refuse_in_the_operators_words() -> Result<()> {
    let (client, namespace) = installed().await?;
    for kind in KINDS {
        ask(&api(&client, &namespace, kind), kind, &object(kind)).await.unwrap();
    }
    let config = config();
    let mut wrong = Vec::new();
    let (mut refused, mut by_schema) = (0, 0);
    for (kind, object) in broken_objects() {
        let expect = refuse(&AdmissionRequest { kind, object: &object, old: None }, &config);
        let message = &expect.first().with_context(|| format!("the operator takes {object}"))?.message;
        match ask(&api(&client, &namespace, kind), kind, &object).await {
            Err(said) if said.contains(message.as_str()) => refused += 1,
            // The schema says some of it already, in its own words.
            Err(said) if said.contains("denied request") => wrong.push(format!("{message}\n  but {said}")),
            Err(_) => by_schema += 1,
            Ok(_) => wrong.push(format!("{message}\n  was not refused: {object}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), refused + by_schema + wrong.len(), wrong.join("\n"));
    assert!(by_schema < 20 && refused > 120, "{refused} refused by policy, {by_schema} by schema");
    Ok(())
}

#[tokio::test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
async fn recorded_objects_are_refused_only_if_the_operator_refuses_them() -> Result<()> {
    let (client, namespace) = installed().await?;
    let config = config();
    let folder = std::fs::read_dir(Path::new(ROOT).join("../shared/parity/cases"))?;
    // CEL cannot say these.
    let beyond = ["case-invalid-cron-schedule"];
    let mut refused = 0;
    for entry in folder {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let case: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        for document in case["docs"].as_array().into_iter().flatten() {
            let Some(kind) = KINDS.into_iter().find(|kind| document["kind"] == kind.resource().kind) else { continue };
            let problems = |object: &Value| refuse(&AdmissionRequest { kind, object, old: None }, &config);
            match ask(&api(&client, &namespace, kind), kind, document).await {
                Ok(taken) => {
                    let problems = problems(&taken);
                    let known = problems.is_empty() || beyond.contains(&name.as_str());
                    anyhow::ensure!(known, "{name}: the policy takes what the operator does not: {problems:?}");
                }
                Err(said) if said.contains("denied request") => {
                    let expected = problems(document).iter().any(|refusal| said.contains(&refusal.message));
                    anyhow::ensure!(expected, "{name}: the policy says {said}, the operator {:?}", problems(document));
                    refused += 1;
                }
                // Refused by the schema, as it was when KubeRay was recorded.
                Err(_) => {}
            }
        }
    }
    anyhow::ensure!(refused > 12, "only {refused} recorded cases were refused");
    Ok(())
}
