//! The autoscaler sidecar of the head.

use super::builder::PodBuilder;
use super::command::shell;
use super::context::PodContext;
use super::resources::requirements;
use super::{auth, env, tls};
use crate::build::rbac;
use crate::cluster_spec;
use crate::labels;
use crate::names::reserved::{AUTOSCALER_START_COMMAND_ENV, AUTOSCALER_V2_ENV};
use k8s_openapi::api::core::v1::Container;
use manta_api::AutoscalerOptions;

/// The container's name.
pub(super) const AUTOSCALER: &str = "autoscaler";

const COMMAND: &str =
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)";

/// Adds the autoscaler and disables Ray's own monitor.
pub(super) fn add_to_head(context: &PodContext<'_>, builder: &mut PodBuilder) {
    let spec = &context.cluster.spec;
    if !cluster_spec::is_autoscaling(spec) {
        return;
    }
    builder.params.insert("no-monitor".to_owned(), "true".to_owned());
    builder.spec.service_account_name = Some(rbac::service_account_name(context.cluster));
    let mut container = container(context, builder);
    auth::configure_container(context.cluster, &mut container);
    tls::configure_container(context, &mut container);
    if let Some(options) = &spec.autoscaler_options {
        apply_options(options, &mut container);
    }
    builder.sidecars.push(container);
    if cluster_spec::is_autoscaler_v2(spec) {
        env::push(&mut builder.ray, [env::literal(AUTOSCALER_V2_ENV, "true")]);
        // Autoscaler v2 replaces Pods itself, so Kubernetes must not restart their containers.
        builder.spec.restart_policy = Some("Never".to_owned());
    } else if cluster_spec::is_autoscaler_v1(spec) {
        env::push(&mut builder.ray, [env::literal(AUTOSCALER_V2_ENV, "false")]);
    }
}

fn container(context: &PodContext<'_>, builder: &PodBuilder) -> Container {
    Container {
        name: AUTOSCALER.to_owned(),
        image: builder.ray.image.clone(),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(shell(context.config)),
        args: Some(vec![COMMAND.to_owned()]),
        env: Some(vec![
            env::from_label("RAY_CLUSTER_NAME", labels::CLUSTER),
            env::from_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            env::from_field("RAY_HEAD_POD_NAME", "metadata.name"),
            env::literal("KUBERAY_CRD_VER", "v1"),
            env::literal(AUTOSCALER_START_COMMAND_ENV, COMMAND),
        ]),
        resources: Some(requirements("500m", "512Mi")),
        ..Container::default()
    }
}

/// Applies the options: lists are appended, other values are replaced.
fn apply_options(options: &AutoscalerOptions, container: &mut Container) {
    replace(&mut container.resources, options.resources.as_ref());
    replace(&mut container.image, options.image.as_ref());
    replace(&mut container.image_pull_policy, options.image_pull_policy.as_ref());
    replace(&mut container.security_context, options.security_context.as_ref());
    replace(&mut container.command, options.command.as_ref().filter(|words| !words.is_empty()));
    replace(&mut container.args, options.args.as_ref().filter(|words| !words.is_empty()));
    append(&mut container.env, options.env.as_deref());
    append(&mut container.env_from, options.env_from.as_deref());
    append(&mut container.volume_mounts, options.volume_mounts.as_deref());
}

fn replace<T: Clone>(field: &mut Option<T>, given: Option<&T>) {
    if let Some(value) = given {
        *field = Some(value.clone());
    }
}

fn append<T: Clone>(list: &mut Option<Vec<T>>, more: Option<&[T]>) {
    match more {
        Some(more) if !more.is_empty() => list.get_or_insert_default().extend_from_slice(more),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{arg, cluster, container, env, env_names, head, mounts, ray, volumes, worker};
    use crate::config::Config;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    fn scaling(options: Value) -> Value {
        json!({"spec": {"enableInTreeAutoscaling": true, "autoscalerOptions": options}})
    }

    fn head_of(given: Value) -> Pod {
        head(&cluster(given), &Config::default())
    }

    #[test]
    fn the_autoscaler_shares_the_logs_and_disables_the_monitor() {
        let pod = head_of(scaling(json!(null)));
        assert!(arg(ray(&pod)).contains(" --no-monitor "));
        assert_eq!(volumes(&pod), ["shared-mem", "ray-logs"]);
        assert_eq!(mounts(ray(&pod)), ["/dev/shm", "/tmp/ray"]);
        let expect = json!({
            "name": "autoscaler",
            "image": "rayproject/ray:2.52.0",
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/bash", "-c", "--"],
            "args": [COMMAND],
            "env": [
                {"name": "RAY_CLUSTER_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}}},
                {"name": "RAY_CLUSTER_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "RAY_HEAD_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "KUBERAY_CRD_VER", "value": "v1"},
                {"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": COMMAND},
            ],
            "resources": {
                "limits": {"cpu": "500m", "memory": "512Mi"},
                "requests": {"cpu": "500m", "memory": "512Mi"},
            },
            "volumeMounts": [{"name": "ray-logs", "mountPath": "/tmp/ray"}],
        });
        assert_eq!(json!(container(&pod, AUTOSCALER)), expect);
    }

    #[test]
    fn options_replace_values_and_extend_lists() {
        let pod = head_of(scaling(json!({
            "image": "mine",
            "imagePullPolicy": "Always",
            "resources": {"limits": {"cpu": "1"}},
            "securityContext": {"runAsUser": 7},
            "env": [{"name": "A", "value": "b"}],
            "envFrom": [{"configMapRef": {"name": "c"}}],
            "volumeMounts": [{"name": "d", "mountPath": "/d"}],
        })));
        let made = container(&pod, AUTOSCALER);
        assert_eq!(made.image.as_deref(), Some("mine"));
        assert_eq!(made.image_pull_policy.as_deref(), Some("Always"));
        assert_eq!(json!(made.resources), json!({"limits": {"cpu": "1"}}));
        assert_eq!(json!(made.security_context), json!({"runAsUser": 7}));
        assert_eq!(env_names(made).last(), Some(&"A"));
        assert_eq!(made.env.as_ref().unwrap().len(), 6);
        assert_eq!(json!(made.env_from), json!([{"configMapRef": {"name": "c"}}]));
        assert_eq!(mounts(made), ["/d", "/tmp/ray"]);
        // Empty objects replace, empty lists do not extend.
        let pod = head_of(scaling(json!({"resources": {}, "env": [], "envFrom": [], "command": [], "args": []})));
        let made = container(&pod, AUTOSCALER);
        assert_eq!(json!(made.resources), json!({}));
        assert_eq!((made.env.as_ref().unwrap().len(), &made.env_from), (5, &None));
        assert_eq!(arg(made), COMMAND);
    }

    #[test]
    fn options_replace_the_command() {
        let options = json!({"command": ["sh"], "args": ["-c", "x"], "env": [{"name": "A", "value": "b"}]});
        let pod = head_of(scaling(options));
        let made = container(&pod, AUTOSCALER);
        assert_eq!(json!([made.command, made.args]), json!([["sh"], ["-c", "x"]]));
        assert_eq!(env(made, "KUBERAY_GEN_AUTOSCALER_START_CMD"), Some(COMMAND));
    }

    #[test]
    fn the_version_sets_restart_policy_and_variable() {
        let check =
            |given: Value, containers: usize, switch: Option<&str>, restart: Option<&str>, of_worker: Option<&str>| {
                let mut given = given;
                let pod = head_of(given.clone());
                let spec = pod.spec.as_ref().unwrap();
                assert_eq!(spec.containers.len(), containers);
                assert_eq!(env(ray(&pod), "RAY_enable_autoscaler_v2"), switch);
                assert_eq!(spec.restart_policy.as_deref(), restart);
                given["workerPod"] = json!({"restartPolicy": "Always"});
                let pod = worker(&cluster(given), &Config::default());
                assert_eq!(pod.spec.unwrap().restart_policy.as_deref(), of_worker);
            };
        check(json!({}), 1, None, None, Some("Always"));
        check(json!({"spec": {"autoscalerOptions": {"version": "v2"}}}), 1, None, None, Some("Always"));
        check(scaling(json!(null)), 2, None, None, Some("Always"));
        check(scaling(json!({"version": "v1"})), 2, Some("false"), None, Some("Always"));
        check(scaling(json!({"version": "v2"})), 2, Some("true"), Some("Never"), Some("Never"));
    }

    #[test]
    fn the_version_variable_follows_those_of_the_user() {
        for (version, value) in [("v1", "false"), ("v2", "true")] {
            let mut given = scaling(json!({"version": version}));
            given["ray"] = json!({"env": [{"name": "papal", "value": "conclave"}]});
            let pod = head_of(given);
            assert_eq!(env_names(ray(&pod))[..2], ["papal", "RAY_enable_autoscaler_v2"]);
            assert_eq!(env(ray(&pod), "RAY_enable_autoscaler_v2"), Some(value));
        }
    }

    #[test]
    fn the_service_account_defaults_to_the_clusters() {
        let check = |mut given: Value, user: Option<&str>, expect: Option<&str>| {
            given["pod"] = json!({"serviceAccountName": user});
            assert_eq!(head_of(given).spec.unwrap().service_account_name.as_deref(), expect);
        };
        check(json!({}), None, None);
        check(json!({}), Some("mine"), Some("mine"));
        check(scaling(json!(null)), Some("mine"), Some("mine"));
        check(scaling(json!(null)), None, Some("test-cluster"));
        let mut long = scaling(json!(null));
        long["metadata"] = json!({"name": format!("{}{}", "a".repeat(150), "b".repeat(50))});
        check(long, None, Some(&"b".repeat(50)));
    }

    #[test]
    fn the_autoscaler_comes_after_user_sidecars_and_before_default_sidecars() {
        let sidecar = Container { name: "operators".to_owned(), ..Container::default() };
        let config = Config { head_sidecars: vec![sidecar], ..Config::default() };
        let mut given = scaling(json!(null));
        given["pod"] = json!({"sidecars": [{"name": "users"}]});
        let pod = head(&cluster(given), &config);
        let names: Vec<_> = pod.spec.unwrap().containers.into_iter().map(|container| container.name).collect();
        assert_eq!(names, ["ray", "users", "autoscaler", "operators"]);
    }
}
