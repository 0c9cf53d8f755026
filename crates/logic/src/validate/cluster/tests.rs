//! Tables of every rule and its edge cases.

use super::*;
use crate::config::FeatureGates;
use crate::validate::fixtures::{Edit, cluster_spec, edited, everything};
use serde_json::{Value, json};

const DNS1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

const HEAD: &str = "/spec/headGroupSpec/template/spec";
const WORKER: &str = "/spec/workerGroupSpecs/0/template/spec";

fn cluster(edits: &[Edit<'_>]) -> RayCluster {
    let base = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "demo", "namespace": "ns"}, "spec": cluster_spec(),
    });
    serde_json::from_value(edited(base, edits)).unwrap()
}

fn outcome(edits: &[Edit<'_>], config: &Config) -> String {
    match ValidCluster::check(&cluster(edits), config) {
        Ok(_) => "ok".to_owned(),
        Err(invalid) => invalid.text,
    }
}

#[track_caller]
fn check(edits: &[Edit<'_>], expect: &str) {
    assert_eq!(outcome(edits, &everything()), expect, "{edits:?}");
}

#[track_caller]
fn check_gate(edits: &[Edit<'_>], switch: impl Fn(&mut FeatureGates), expect: &str) {
    let mut config = everything();
    switch(&mut config.gates);
    assert_eq!(outcome(edits, &config), expect, "{edits:?}");
}

/// Returns containers with these variables of the Ray container.
fn env(place: &str, variables: &[(&str, &str)]) -> (String, Value) {
    let variables: Vec<_> = variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    (format!("{place}/containers"), json!([{"name": "ray", "env": variables}]))
}

#[test]
fn names_are_short_dns_labels() {
    let check = |name: &str, expect: &str| check(&[("/metadata/name", json!(name))], expect);
    check(&"a".repeat(53), "ok");
    check(&"a".repeat(54), "RayCluster name should be no more than 53 characters");
    let invalid = format!("RayCluster name should be a valid DNS1035 label: [{DNS1035}]");
    check(&"1".repeat(53), &invalid);
    check("a.b", &invalid);
    check("", &invalid);
}

#[test]
fn every_group_needs_a_container() {
    check(&[], "ok");
    check(&[(&format!("{HEAD}/containers"), json!([]))], "headGroupSpec should have at least one container");
    check(&[(&format!("{WORKER}/containers"), json!([]))], "workerGroupSpec should have at least one container");
    check(&[("/spec/headGroupSpec", json!({}))], "headGroupSpec should have at least one container");
}

#[test]
fn resources_and_labels_are_set_in_one_field() {
    for (group, place) in [("Head", "/spec/headGroupSpec"), ("small", "/spec/workerGroupSpecs/0")] {
        let check = |params: Value, resources: Value, expect: &str| {
            let (p, r) = (format!("{place}/rayStartParams"), format!("{place}/resources"));
            check(&[(&p, params), (&r, resources)], expect);
        };
        let both = format!(
            "resource fields should not be set in both rayStartParams and Resources for {group} group; please use only \
             one"
        );
        for param in ["num-cpus", "num-gpus", "memory", "resources"] {
            check(json!({param: "1"}), json!({"CPU": "1"}), &both);
            check(json!({param: ""}), json!({"CPU": "1"}), "ok");
            check(json!({param: "1"}), json!({}), "ok");
        }
        check(json!({"block": "true"}), json!({"CPU": "1"}), "ok");
        let labels = format!(
            "rayStartParams['labels'] is not supported for {group} group; please use the top-level Labels field instead"
        );
        check(json!({"labels": ""}), json!({}), &labels);
    }
}

#[test]
fn group_labels_are_valid_labels() {
    let check = |labels: Value, expect: &str| check(&[("/spec/headGroupSpec/labels", labels)], expect);
    check(json!({"ray.io/market-type": "spot", "empty": ""}), "ok");
    let key = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
               alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
               '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    check(json!({"-bad": "v"}), &format!("invalid label key for Head group: '-bad', error: {key}"));
    check(json!({"k": "a b"}), &format!("invalid label value for key 'k' in Head group: 'a b', error: {value}"));
    check(
        json!({"-x": "ok", "k": "?"}),
        &format!(
            "invalid label key for Head group: '-x', error: {key}; invalid label value for key 'k' in Head group: '?', \
             error: {value}"
        ),
    );
}

#[test]
fn replica_bounds_are_consistent() {
    let check = |min: Value, max: Value, autoscaling: bool, expect: &str| {
        check(
            &[
                ("/spec/workerGroupSpecs/0/minReplicas", min),
                ("/spec/workerGroupSpecs/0/maxReplicas", max),
                ("/spec/enableInTreeAutoscaling", json!(autoscaling)),
            ],
            expect,
        );
    };
    let unset = "worker group small must set both minReplicas and maxReplicas when autoscaling is disabled";
    check(json!(2), json!(5), false, "ok");
    check(Value::Null, json!(5), false, unset);
    check(json!(0), Value::Null, false, unset);
    check(Value::Null, Value::Null, true, "ok");
    check(json!(-1), json!(5), false, "worker group small has negative minReplicas -1");
    check(json!(-2), json!(-1), true, "worker group small has negative minReplicas -2");
    check(json!(0), json!(-1), true, "worker group small has negative maxReplicas -1");
    check(json!(6), json!(5), false, "worker group small has minReplicas 6 greater than maxReplicas 5");
}

#[test]
fn group_idle_timeout_needs_autoscaler_v2() {
    let set = |seconds: i32| ("/spec/workerGroupSpecs/0/idleTimeoutSeconds", json!(seconds));
    let on = ("/spec/enableInTreeAutoscaling", json!(true));
    let v2 = ("/spec/autoscalerOptions", json!({"version": "v2"}));
    let v1 = ("/spec/autoscalerOptions", json!({"version": "v1"}));
    let missing = "worker group small: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set \
                   .spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to \
                   'true' in the head pod if using KubeRay < 1.4.0)";
    check(&[set(-1), on.clone(), v2.clone()], "worker group small: idleTimeoutSeconds must be non-negative, got -1");
    check(&[set(0), on.clone(), v2.clone()], "ok");
    check(&[set(60), v2], "ok");
    check(&[set(60), on.clone(), v1], missing);
    check(&[set(60)], missing);
    for (value, expect) in [("1", "ok"), ("true", "ok"), ("false", missing), ("True", missing)] {
        let (path, containers) = env(HEAD, &[("RAY_enable_autoscaler_v2", value)]);
        check(&[set(60), on.clone(), (&path, containers)], expect);
    }
}

#[test]
fn priority_needs_ray_2_56_and_autoscaler_v2() {
    let check = |priority: i32, version: &str, autoscaler: &str, expect: &str| {
        check(
            &[
                ("/spec/workerGroupSpecs/0/priority", json!(priority)),
                ("/spec/rayVersion", json!(version)),
                ("/spec/enableInTreeAutoscaling", json!(true)),
                ("/spec/autoscalerOptions", json!({"version": autoscaler})),
            ],
            expect,
        );
    };
    check(0, "", "v1", "ok");
    check(5, "2.56.0", "v2", "ok");
    check(-5, "2.56.0", "v2", "ok");
    check(
        5,
        "",
        "v2",
        "worker group small: priority is set, but RayVersion was not specified. Ray version 2.56.0 or later is required",
    );
    check(
        5,
        "invalid",
        "v2",
        "worker group small: priority is set, but RayVersion format is invalid: invalid, could not parse \"invalid\" as \
         version",
    );
    check(5, "2.55.1", "v2", "worker group small: priority is set, but minimum Ray version is 2.56.0, got 2.55.1");
    check(
        5,
        "2.56.0",
        "v1",
        "worker group small: priority is set to 5, but autoscaler v2 is not enabled. Priority is only supported with \
         autoscaler v2 enabled",
    );
}

#[test]
fn fault_tolerance_is_enabled_in_one_way() {
    let annotation = |value: &str| ("/metadata/annotations", json!({"ray.io/ft-enabled": value}));
    let options = || ("/spec/gcsFaultToleranceOptions", json!({"redisAddress": "redis:6379"}));
    let both = "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. Please use only \
                GcsFaultToleranceOptions to configure GCS fault tolerance";
    let implicit = "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but \
                    GcsFaultToleranceOptions is not set. Please set GcsFaultToleranceOptions to enable GCS fault \
                    tolerance";
    let (path, containers) = env(HEAD, &[("RAY_REDIS_ADDRESS", "redis:6379")]);
    let redis = || (path.as_str(), containers.clone());
    check(&[options()], "ok");
    check(&[("/spec/gcsFaultToleranceOptions", json!({}))], "ok");
    check(&[annotation("true"), options()], both);
    check(&[annotation("false"), options()], both);
    check(&[annotation(""), options()], "ok");
    check(&[redis()], implicit);
    check(&[annotation("false"), redis()], implicit);
    check(&[annotation("TRUE"), redis()], "ok");
    check(
        &[options(), redis()],
        "cannot set `RAY_REDIS_ADDRESS` env var in head Pod when GcsFaultToleranceOptions is enabled - use \
         GcsFaultToleranceOptions.RedisAddress instead",
    );
    let (path, containers) = env(HEAD, &[("REDIS_PASSWORD", "x")]);
    check(
        &[options(), (&path, containers)],
        "cannot set `REDIS_PASSWORD` env var in head Pod when GcsFaultToleranceOptions is enabled - use \
         GcsFaultToleranceOptions.RedisPassword instead",
    );
    check(
        &[options(), ("/spec/headGroupSpec/rayStartParams", json!({"redis-password": "x"}))],
        "cannot set `redis-password` in rayStartParams when GcsFaultToleranceOptions is enabled - use \
         GcsFaultToleranceOptions.RedisPassword instead",
    );
    check(
        &[options(), ("/metadata/annotations", json!({"ray.io/external-storage-namespace": "x"}))],
        "cannot set `ray.io/external-storage-namespace` annotation when GcsFaultToleranceOptions is enabled - use \
         GcsFaultToleranceOptions.ExternalStorageNamespace instead",
    );
}

#[test]
fn redis_usernames_are_set_in_options_only() {
    let refused = "cannot set redis username in rayStartParams or environment variables - use \
                   GcsFaultToleranceOptions.RedisUsername instead";
    let annotation = ("/metadata/annotations", json!({"ray.io/ft-enabled": "true"}));
    let (path, containers) = env(HEAD, &[("REDIS_USERNAME", "x")]);
    check(&[(&path, containers)], refused);
    check(&[annotation, ("/spec/headGroupSpec/rayStartParams", json!({"redis-username": "x"}))], refused);
    check(&[("/spec/headGroupSpec/rayStartParams", json!({"redis-username": ""}))], "ok");
    check(&[("/spec/gcsFaultToleranceOptions", json!({"redisUsername": {"value": "x"}}))], "ok");
}

#[test]
fn embedded_storage_excludes_redis_and_reserved_names() {
    let rocksdb = |options: Value| {
        let mut options = options;
        options["backend"] = json!("rocksdb");
        ("/spec/gcsFaultToleranceOptions", options)
    };
    check(&[rocksdb(json!({}))], "ok");
    check(&[rocksdb(json!({"storage": {"size": "2Gi"}}))], "ok");
    check(&[rocksdb(json!({"storage": {"claimName": "mine", "subPath": "x", "deletionPolicy": "Retain"}}))], "ok");
    check_gate(
        &[rocksdb(json!({"redisAddress": "x"}))],
        |gates| gates.gcs_fault_tolerance_embedded_storage = false,
        "the embedded RocksDB GCS fault tolerance backend (GcsFaultToleranceOptions.Backend: 'rocksdb') requires the \
         GCSFaultToleranceEmbeddedStorage feature gate to be enabled",
    );
    for (field, value, name) in [
        ("redisAddress", json!("x"), "RedisAddress"),
        ("redisUsername", json!({}), "RedisUsername"),
        ("redisPassword", json!({"value": "x"}), "RedisPassword"),
        ("externalStorageNamespace", json!("x"), "ExternalStorageNamespace"),
    ] {
        let expect = format!("cannot set GcsFaultToleranceOptions.{name} when backend is 'rocksdb'");
        check(&[rocksdb(json!({field: value}))], &expect);
    }
    for other in [
        json!({"size": "1Gi"}),
        json!({"storageClassName": "fast"}),
        json!({"storageClassName": ""}),
        json!({"accessModes": ["ReadWriteOnce"]}),
    ] {
        let mut storage = other;
        storage["claimName"] = json!("mine");
        check(
            &[rocksdb(json!({"storage": storage}))],
            "GcsFaultToleranceOptions.Storage.ClaimName is mutually exclusive with size, storageClassName, and \
             accessModes",
        );
    }
    for name in ["RAY_gcs_storage", "RAY_gcs_storage_path"] {
        let (path, containers) = env(HEAD, &[(name, "x")]);
        check(
            &[rocksdb(json!({})), (&path, containers)],
            "cannot set `RAY_gcs_storage` or `RAY_gcs_storage_path` env var in head Pod when the embedded GCS FT \
             backend is used - these are managed by KubeRay",
        );
    }
    let mounts = format!("{HEAD}/containers/0/volumeMounts");
    for mount in [json!({"name": "gcs-storage", "mountPath": "/x"}), json!({"name": "x", "mountPath": "/data/gcs"})] {
        check(
            &[rocksdb(json!({})), (&mounts, json!([mount]))],
            "cannot set a volume mount named \"gcs-storage\" or mounted at /data/gcs in the head container when the \
             embedded GCS FT backend is used - it is managed by KubeRay",
        );
    }
    check(
        &[rocksdb(json!({})), (&format!("{HEAD}/volumes"), json!([{"name": "gcs-storage", "emptyDir": {}}]))],
        "cannot set a volume named \"gcs-storage\" in the head Pod when the embedded GCS FT backend is used - it is \
         managed by KubeRay",
    );
    for backend in [Value::Null, json!("redis"), json!("")] {
        check(
            &[("/spec/gcsFaultToleranceOptions", json!({"backend": backend, "storage": {}}))],
            "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - it only applies to the 'rocksdb' \
             backend",
        );
    }
}

#[test]
fn groups_cannot_be_suspended_with_an_autoscaler() {
    let suspended = || ("/spec/workerGroupSpecs/0/suspend", json!(true));
    check(&[suspended()], "ok");
    check_gate(
        &[suspended()],
        |gates| gates.ray_job_deletion_policy = false,
        "worker group small can be suspended only when the RayJobDeletionPolicy feature gate is enabled",
    );
    check(
        &[suspended(), ("/spec/enableInTreeAutoscaling", json!(true))],
        "worker group small cannot be suspended with Autoscaler enabled",
    );
}

#[test]
fn the_autoscaler_version_is_set_in_one_way() {
    let on = || ("/spec/enableInTreeAutoscaling", json!(true));
    let version = |v: &str| ("/spec/autoscalerOptions", json!({"version": v}));
    for value in ["1", "true"] {
        let (path, containers) = env(HEAD, &[("RAY_enable_autoscaler_v2", value)]);
        check(
            &[(&path, containers.clone())],
            &format!(
                "environment variable RAY_enable_autoscaler_v2 cannot be set to '{value}' when enableInTreeAutoscaling \
                 is false. Please set enableInTreeAutoscaling: true to use autoscaler v2"
            ),
        );
        check(&[on(), (&path, containers)], "ok");
    }
    let (path, containers) = env(HEAD, &[("RAY_enable_autoscaler_v2", "false")]);
    check(&[(&path, containers.clone())], "ok");
    check(
        &[on(), version("v1"), (&path, containers)],
        "both .spec.autoscalerOptions.version and head Pod env var RAY_enable_autoscaler_v2 are set, please only use \
         the former",
    );
    let policy = |place: &str, policy: &str| (format!("{place}/restartPolicy"), json!(policy));
    for (place, who) in [(HEAD, "head Pod"), (WORKER, "worker group small")] {
        let (path, always) = policy(place, "Always");
        let expect = format!("restartPolicy for {who} should be Never or unset when using autoscaler V2");
        check(&[on(), version("v2"), (&path, always.clone())], &expect);
        check(&[on(), version("v1"), (&path, always.clone())], "ok");
        check(&[version("v2"), (&path, always)], "ok");
        check(&[on(), version("v2"), (&path, json!("Never"))], "ok");
    }
}

#[test]
fn autoscaler_options_are_always_checked() {
    check(
        &[("/spec/autoscalerOptions", json!({"idleTimeoutSeconds": -1}))],
        "autoscalerOptions.idleTimeoutSeconds must be non-negative, got -1",
    );
    check(&[("/spec/autoscalerOptions", json!({"idleTimeoutSeconds": 0}))], "ok");
    for options in [json!({}), json!({"args": ["x"]})] {
        let mut options = options;
        options["env"] = json!([{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": "x"}]);
        check(
            &[("/spec/autoscalerOptions", options)],
            "autoscalerOptions.env must not contain KUBERAY_GEN_AUTOSCALER_START_CMD: it is managed by KubeRay and \
             injected automatically into the autoscaler container",
        );
    }
}

#[test]
fn the_collector_needs_image_and_storage() {
    let history = |options: Value| ("/spec/historyServerOptions", options);
    let collector = |env: &[(&str, &str)]| {
        let env: Vec<_> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        history(json!({"collectorOptions": {"image": "collector", "env": env}}))
    };
    check_gate(
        &[history(json!({}))],
        |gates| gates.ray_cluster_history_server = false,
        "RayClusterHistoryServer feature gate is not enabled",
    );
    check(&[history(json!({}))], "historyServerOptions.collectorOptions must be set");
    for image in [Value::Null, json!("")] {
        check(
            &[history(json!({"collectorOptions": {"image": image}}))],
            "historyServerOptions.collectorOptions.image must be set",
        );
    }
    for name in history_server_reserved() {
        check(
            &[collector(&[(name, "x")])],
            &format!(
                "historyServerOptions.collectorOptions.env must not contain {name}: it is managed by KubeRay and \
                 injected automatically into the collector container"
            ),
        );
    }
    let backend = "STORAGE_BACKEND environment variable must be set with a literal string value in \
                   historyServerOptions.collectorOptions.env";
    check(&[collector(&[])], backend);
    check(&[collector(&[("STORAGE_BACKEND", "")])], backend);
    check(&[collector(&[("STORAGE_BACKEND", "unknown")])], "ok");

    let stored = |backend: &str, with: &[(&str, &str)], expect: &str| {
        let mut env = vec![("STORAGE_BACKEND", backend)];
        env.extend_from_slice(with);
        check(&[collector(&env)], expect);
    };
    stored("gcs", &[], "GCS_BUCKET environment variable must be set when STORAGE_BACKEND is GCS");
    stored("GCS", &[("GCS_BUCKET", "b")], "ok");
    stored("s3", &[("S3_REGION", "")], "S3_REGION environment variable must be set when STORAGE_BACKEND is S3");
    stored("S3", &[("S3_REGION", "r")], "ok");
    let oss = [("OSS_BUCKET", "b"), ("OSS_ENDPOINT", "e"), ("OSS_REGION", "r")];
    for (given, missing) in [(0, "OSS_BUCKET"), (1, "OSS_ENDPOINT"), (2, "OSS_REGION")] {
        let expect = format!("{missing} environment variable must be set when STORAGE_BACKEND is ALIYUNOSS");
        stored("AliyunOSS", &oss[..given], &expect);
    }
    stored("aliyunoss", &oss, "ok");

    let (connection, account, mode) =
        ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_URL", "AZURE_STORAGE_AUTH_MODE");
    let azure = |name: &str, mode: &str| {
        format!(
            "{name} environment variable must be set when STORAGE_BACKEND is AZUREBLOB and AZURE_STORAGE_AUTH_MODE is \
             {mode}"
        )
    };
    stored("azureblob", &[(mode, " Connection_String ")], &azure(connection, "connection_string"));
    stored("azureblob", &[(mode, "connection_string"), (connection, "c")], "ok");
    stored("azureblob", &[(mode, "workload_identity"), (connection, "c")], &azure(account, "workload_identity"));
    stored("azureblob", &[(mode, "default")], &azure(account, "default"));
    stored("azureblob", &[(mode, "default"), (account, "a")], "ok");
    let either = "either AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_URL environment variable must be set \
                  when STORAGE_BACKEND is AZUREBLOB";
    stored("azureblob", &[], either);
    stored("azureblob", &[(mode, "other"), (account, "a")], "ok");

    let from_secret = json!([
        {"name": "STORAGE_BACKEND", "value": "GCS"},
        {"name": "GCS_BUCKET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]);
    let by_reference = || history(json!({"collectorOptions": {"image": "c", "env": from_secret}}));
    check(&[by_reference()], "ok");
    for (place, who) in [(HEAD, "head"), (WORKER, "worker group small")] {
        let containers = json!([{"name": "ray"}, {"name": "ray-history-collector"}]);
        check(
            &[by_reference(), (&format!("{place}/containers"), containers)],
            &format!(
                "{who} pod template must not define a container with name 'ray-history-collector' when history server \
                 collector options are enabled"
            ),
        );
    }
}

fn history_server_reserved() -> [&'static str; 8] {
    [
        "POD_IP",
        "FQ_RAY_IP",
        "RAY_CLUSTER_NAME",
        "RAY_CLUSTER_NAMESPACE",
        "RAY_ROLE",
        "OWNER_KIND",
        "OWNER_NAME",
        "EVENTS_PORT",
    ]
}

#[test]
fn token_authentication_needs_a_supporting_ray_version() {
    let check = |auth: Value, version: &str, expect: &str| {
        check(&[("/spec/authOptions", auth), ("/spec/rayVersion", json!(version))], expect);
    };
    let token = || json!({"mode": "token"});
    check(json!({}), "", "ok");
    check(json!({"mode": "disabled"}), "", "ok");
    check(token(), "2.52.0", "ok");
    check(token(), "3.0.0", "ok");
    check(
        token(),
        "",
        "authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or later is required",
    );
    check(
        token(),
        "invalid",
        "authOptions.mode is 'token' but RayVersion format is invalid: invalid, could not parse \"invalid\" as version",
    );
    check(token(), "2.50.0", "authOptions.mode is 'token' but minimum Ray version is 2.52.0, got 2.50.0");
    let by_kubernetes = || json!({"mode": "token", "enableK8sTokenAuth": true});
    check(
        by_kubernetes(),
        "2.52.0",
        "authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got 2.52.0",
    );
    check(by_kubernetes(), "2.55.0", "ok");
    check(by_kubernetes(), "3.0.0", "ok");
    check(
        json!({"mode": "token", "enableK8sTokenAuth": true, "secretName": "s"}),
        "2.55.0",
        "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set",
    );
    for mode in [Value::Null, json!("disabled")] {
        check(
            json!({"mode": mode, "enableK8sTokenAuth": true}),
            "2.55.0",
            "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'",
        );
    }
}

#[test]
fn network_policies_have_no_rules_for_open_directions() {
    let policy = |policy: Value| ("/spec/networkPolicy", policy);
    check(&[policy(json!({}))], "ok");
    check(&[policy(json!({"mode": "DenyAllIngress"}))], "ok");
    check_gate(
        &[policy(json!({}))],
        |gates| gates.ray_cluster_network_policy = false,
        "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled",
    );
    let rules = json!({"ingressRules": [{}], "egressRules": [{}]});
    for section in ["head", "worker"] {
        check(&[policy(json!({"mode": "DenyAll", section: rules}))], "ok");
        check(&[policy(json!({section: rules}))], "ok");
        check(
            &[policy(json!({"mode": "DenyAllEgress", section: rules}))],
            &format!(
                "networkPolicy.{section}.ingressRules cannot be set when mode is \"DenyAllEgress\" (ingress is not \
                 restricted)"
            ),
        );
        check(
            &[policy(json!({"mode": "DenyAllIngress", section: rules}))],
            &format!(
                "networkPolicy.{section}.egressRules cannot be set when mode is \"DenyAllIngress\" (egress is not \
                 restricted)"
            ),
        );
    }
    let name = |name: &str| ("/spec/workerGroupSpecs/0/groupName", json!(name));
    let embedded = |name: &str, problem: &str| {
        format!(
            "worker group name \"{name}\" must be a valid DNS1123 label when networkPolicy is enabled (it is embedded \
             in the NetworkPolicy name): [{problem}]"
        )
    };
    check(&[policy(json!({})), name("a.b")], &embedded("a.b", "must not contain dots"));
    let long = "a".repeat(64);
    check(&[policy(json!({})), name(&long)], &embedded(&long, "must be no more than 63 characters"));
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    check(&[policy(json!({})), name("GPU")], &embedded("GPU", label));
    check(&[name("GPU")], "ok");
    check(&[policy(json!({"workerGroups": [{"groupName": "small", "ingressRules": [{}]}]}))], "ok");
    check(
        &[policy(json!({"mode": "DenyAllEgress", "workerGroups": [{"groupName": "other", "ingressRules": [{}]}]}))],
        "networkPolicy.workerGroups[\"other\"].ingressRules cannot be set when mode is \"DenyAllEgress\" (ingress is \
         not restricted)",
    );
    check(
        &[policy(json!({"workerGroups": [{"groupName": "other"}]}))],
        "networkPolicy.workerGroups[\"other\"] does not match any group name in workerGroupSpecs",
    );
}

#[test]
fn tls_settings_are_reserved() {
    let on = || ("/spec/tlsOptions", json!({"enabled": true}));
    let off = || ("/spec/tlsOptions", json!({"enabled": false}));
    check(&[on()], "ok");
    check(&[off()], "ok");
    for options in [on(), off()] {
        check_gate(
            &[options],
            |gates| gates.ray_cluster_mtls = false,
            "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled",
        );
    }
    let without_cert_manager = Config { platform: Default::default(), ..everything() };
    assert_eq!(
        outcome(&[on()], &without_cert_manager),
        "tlsOptions requires cert-manager, but cert-manager is not installed"
    );
    assert_eq!(outcome(&[off()], &without_cert_manager), "ok");

    for (place, who) in [(HEAD, "head Pod"), (WORKER, "worker group \"small\"")] {
        for name in ["RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"] {
            let (path, containers) = env(place, &[(name, "x")]);
            check(
                &[on(), (&path, containers.clone())],
                &format!(
                    "cannot set {name} environment variable in {who} when tlsOptions is set - the operator manages TLS \
                     configuration automatically"
                ),
            );
            check(&[off(), (&path, containers)], "ok");
        }
        let mounts = format!("{place}/containers/0/volumeMounts");
        let tail = format!("in {who} when tlsOptions is set - the operator manages TLS configuration automatically");
        check(
            &[on(), (&mounts, json!([{"name": "ray-tls", "mountPath": "/x"}]))],
            &format!("cannot use volume mount named \"ray-tls\" {tail}"),
        );
        check(
            &[on(), (&mounts, json!([{"name": "x", "mountPath": "/etc/ray/tls"}]))],
            &format!("cannot use volume mount at path \"/etc/ray/tls\" {tail}"),
        );
        check(&[on(), (&mounts, json!([{"name": "x", "mountPath": "/x"}]))], "ok");
    }
    check(
        &[on(), ("/spec/autoscalerOptions", json!({"env": [{"name": "RAY_USE_TLS", "value": "1"}]}))],
        "cannot set RAY_USE_TLS environment variable in autoscalerOptions.env when tlsOptions is set - the operator \
         manages TLS configuration for the autoscaler automatically",
    );
    check(
        &[on(), ("/spec/autoscalerOptions", json!({"volumeMounts": [{"name": "ray-tls", "mountPath": "/x"}]}))],
        "cannot use volume mount named \"ray-tls\" in autoscalerOptions.volumeMounts when tlsOptions is set - the \
         operator manages TLS configuration automatically",
    );
}

#[test]
fn upgrade_strategies_are_for_standalone_clusters() {
    let set = |kind: &str| ("/spec/upgradeStrategy", json!({"type": kind}));
    let from = |crd: &str| ("/metadata/labels", json!({"ray.io/originated-from-crd": crd}));
    check(&[set("Recreate")], "ok");
    check(&[set("None"), from("RayCluster")], "ok");
    check(&[("/spec/upgradeStrategy", json!({})), from("RayJob")], "ok");
    check(
        &[set("Rolling"), from("RayJob")],
        "The RayCluster spec is invalid: Spec.UpgradeStrategy.Type value Rolling is invalid, valid options are Recreate \
         or None",
    );
    for crd in ["RayJob", "RayService"] {
        let expect = format!("upgradeStrategy cannot be set when RayCluster is created by {crd}");
        check(&[set("None"), from(crd)], &expect);
    }
}

#[test]
fn the_first_broken_rule_wins() {
    let edits = [
        ("/spec/authOptions", json!({"mode": "token"})),
        ("/spec/rayVersion", json!("2.0.0")),
        ("/spec/workerGroupSpecs/0/minReplicas", json!(-1)),
        ("/spec/headGroupSpec/rayStartParams", json!({"labels": "x"})),
    ];
    let head =
        "rayStartParams['labels'] is not supported for Head group; please use the top-level Labels field instead";
    check(&edits, head);
    check(&edits[..3], "worker group small has negative minReplicas -1");
    check(&edits[..2], "authOptions.mode is 'token' but minimum Ray version is 2.52.0, got 2.0.0");
}

#[test]
fn a_status_cannot_be_suspending_and_suspended() {
    let conditions = |types: &[(&str, &str)]| {
        let time = "2024-01-01T00:00:00Z";
        let one = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": time});
        let conditions: Vec<_> = types.iter().map(one).collect();
        let cluster = cluster(&[("/status", json!({"conditions": conditions}))]);
        let valid = ValidCluster::check(&cluster, &everything()).unwrap();
        valid.check_status()
    };
    assert_eq!(conditions(&[]), Ok(()));
    assert_eq!(conditions(&[("RayClusterSuspending", "True"), ("RayClusterSuspended", "False")]), Ok(()));
    assert_eq!(conditions(&[("RayClusterSuspending", "False"), ("RayClusterSuspended", "True")]), Ok(()));
    let invalid = conditions(&[("RayClusterSuspending", "True"), ("RayClusterSuspended", "True")]).unwrap_err();
    assert_eq!(
        invalid.event("ns", "demo"),
        Event::warning(
            "InvalidRayClusterStatus",
            "Validate",
            "The RayCluster status is invalid ns/demo, invalid RayCluster State: rayv1.RayClusterSuspending and \
             rayv1.RayClusterSuspended conditions should not be both true"
        )
    );
}

#[test]
fn events_name_the_part() {
    let check = |edits: &[Edit<'_>], reason: &'static str, note: &str| {
        let cluster = cluster(edits);
        let invalid = ValidCluster::check(&cluster, &everything()).unwrap_err();
        assert_eq!(invalid.event("ns", "demo"), Event::warning(reason, "Validate", note));
    };
    check(
        &[("/metadata/name", json!("a".repeat(54)))],
        "InvalidRayClusterMetadata",
        "The RayCluster metadata is invalid ns/demo: RayCluster name should be no more than 53 characters",
    );
    check(
        &[("/spec/headGroupSpec", json!({}))],
        "InvalidRayClusterSpec",
        "The RayCluster spec is invalid ns/demo: headGroupSpec should have at least one container",
    );
    check(
        &[("/spec/upgradeStrategy", json!({"type": "X"}))],
        "InvalidRayClusterSpec",
        "The RayCluster UpgradeStrategy is invalid ns/demo: The RayCluster spec is invalid: Spec.UpgradeStrategy.Type \
         value X is invalid, valid options are Recreate or None",
    );
}

#[test]
fn restarting_workers_cause_a_warning_with_autoscaler_v1() {
    let warning = |version: Value, policy: &str, autoscaling: bool| {
        let group = cluster_spec()["workerGroupSpecs"][0].clone();
        let mut other = group.clone();
        other["groupName"] = json!("other");
        let policy_of = |i: usize| format!("/spec/workerGroupSpecs/{i}/template/spec/restartPolicy");
        let cluster = cluster(&[
            ("/spec/workerGroupSpecs", json!([group, other])),
            ("/spec/autoscalerOptions", json!({"version": version})),
            ("/spec/enableInTreeAutoscaling", json!(autoscaling)),
            (&policy_of(0), json!(policy)),
            (&policy_of(1), json!(policy)),
        ]);
        ValidCluster::check(&cluster, &everything()).unwrap().restart_policy_warning().map(|event| event.note)
    };
    assert_eq!(
        warning(json!("v1"), "Always", true).as_deref(),
        Some(
            "RayCluster spec warning ns/demo: restartPolicy for worker groups [small, other] should be Never or unset \
             when using autoscaler V1"
        )
    );
    assert_eq!(warning(json!("v1"), "Never", true), None);
    assert_eq!(warning(Value::Null, "Always", true), None);
    assert_eq!(warning(json!("v1"), "Always", false), None);
}
