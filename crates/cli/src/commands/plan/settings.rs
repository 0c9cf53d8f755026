//! The operator's settings that a plan is made with.

use crate::commands::version::OPERATOR;
use crate::connect::Target;
use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use manta_logic::config::Config;
use manta_operator::Settings;
use manta_operator::args::Arguments;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Settings, and where they come from.
pub(super) struct Found {
    pub(super) config: Config,
    /// The namespaces that the operator watches; all, if none is named.
    pub(super) namespaces: Vec<String>,
    pub(super) origin: String,
}

/// Returns the settings that flags of the operator mean; files and variables are those of this machine.
pub(super) fn from_flags(flags: &[String]) -> anyhow::Result<Found> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let arguments = Arguments::read(flags.iter().cloned(), |name| std::env::var(name).ok(), read)
        .context("the operator's flags after -- cannot be used")?;
    let Settings { config, watch_namespaces: namespaces, .. } = arguments.settings;
    Ok(Found { config, namespaces, origin: "the flags after --".to_owned() })
}

/// Returns the operator's defaults.
pub(super) fn defaults(why: &str) -> Found {
    Found { config: Config::default(), namespaces: Vec::new(), origin: format!("the operator's defaults ({why})") }
}

/// Returns the settings of the operator that is installed in a cluster, or the defaults where there is none or it cannot
/// be read.
pub(super) async fn of_cluster(target: &Target) -> anyhow::Result<Found> {
    let deployments: Api<Deployment> = Api::all(target.client.clone());
    let found = match deployments.list(&ListParams::default().labels(OPERATOR)).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(defaults(&status.message)),
        Err(error) => return Err(target.failed("cannot list deployments", error)),
    };
    let Some(deployment) = found.items.first() else { return Ok(defaults("no operator is installed")) };
    let name = format!("{}/{}", deployment.namespace().unwrap_or_default(), deployment.name_any());
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let Some(pod) = pod else { return Ok(defaults("the operator's Deployment has no container")) };
    let files = mounted_files(target, &deployment.namespace().unwrap_or_default(), pod).await;
    match read(pod, &files) {
        Ok(Settings { config, watch_namespaces: namespaces, .. }) => {
            let unread = unread_variables(pod);
            let without = match unread.is_empty() {
                true => String::new(),
                false => format!(", but without {}; give those settings as flags after --", unread.join(", ")),
            };
            Ok(Found { config, namespaces, origin: format!("Deployment {name}{without}") })
        }
        Err(why) => Ok(defaults(&format!("those of Deployment {name} cannot be used: {why:#}"))),
    }
}

/// Reads the settings of the operator's container.
fn read(pod: &PodSpec, files: &HashMap<PathBuf, String>) -> anyhow::Result<Settings> {
    let container = pod.containers.first().context("it has no container")?;
    let command = container.command.iter().flatten().skip(1);
    let flags = command.chain(container.args.iter().flatten()).filter(|flag| *flag != "operator");
    let variables = container.env.as_deref().unwrap_or_default();
    let variable = |name: &str| variables.iter().find(|variable| variable.name == name)?.value.clone();
    let file = |path: &Path| files.get(path).cloned().ok_or_else(|| "no ConfigMap is mounted there".to_owned());
    Ok(Arguments::read(flags.cloned(), variable, file)?.settings)
}

/// Returns the variables of the operator's container that come from elsewhere, which are not looked up.
fn unread_variables(pod: &PodSpec) -> Vec<String> {
    let Some(container) = pod.containers.first() else { return Vec::new() };
    let single = container.env.iter().flatten().filter(|variable| {
        // What Kubernetes knows of the Pod itself, such as its namespace, is no setting.
        variable.value_from.as_ref().is_some_and(|from| from.config_map_key_ref.is_some() || from.secret_key_ref.is_some())
    });
    let single = single.map(|variable| format!("the variable {}", variable.name));
    let all = container.env_from.iter().flatten().filter_map(|from| {
        let map = from.config_map_ref.as_ref().map(|map| format!("the variables of ConfigMap {}", map.name));
        map.or_else(|| from.secret_ref.as_ref().map(|secret| format!("the variables of Secret {}", secret.name)))
    });
    single.chain(all).collect()
}

/// Returns the files of the ConfigMaps that are mounted into the operator's container, as far as they can be read.
async fn mounted_files(target: &Target, namespace: &str, pod: &PodSpec) -> HashMap<PathBuf, String> {
    let api: Api<ConfigMap> = Api::namespaced(target.client.clone(), namespace);
    let mut files = HashMap::new();
    let mounts = pod.containers.first().and_then(|container| container.volume_mounts.as_ref());
    for mount in mounts.into_iter().flatten() {
        let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let Some(source) = volume.and_then(|volume| volume.config_map.as_ref()) else { continue };
        if let Ok(Some(map)) = api.get_opt(&source.name).await {
            let data = map.data.unwrap_or_default().into_iter();
            files.extend(data.map(|(name, text)| (Path::new(&mount.mount_path).join(name), text)));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_from_elsewhere_are_named() {
        let pod: PodSpec = serde_json::from_value(json!({"containers": [{
            "name": "kuberay-operator",
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "more"}}],
        }]}))
        .unwrap();
        let expect = ["the variable B", "the variables of ConfigMap settings", "the variables of Secret more"];
        assert_eq!(unread_variables(&pod), expect);
    }

    #[test]
    fn settings_are_those_of_the_operators_container() {
        let pod: PodSpec = serde_json::from_value(json!({"containers": [{
            "name": "kuberay-operator", "command": ["/manager"],
            "args": ["--config", "/etc/kuberay/config.yaml", "--feature-gates=RayCronJob=false"],
            "env": [{"name": "ENABLE_PROBES_INJECTION", "value": "false"}],
        }]}))
        .unwrap();
        let file = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\nbatchScheduler: volcano\nwatchNamespace: team-a,team-b\n";
        let files = HashMap::from([(PathBuf::from("/etc/kuberay/config.yaml"), file.to_owned())]);
        let Settings { config, watch_namespaces: namespaces, .. } = read(&pod, &files).unwrap();
        assert_eq!(namespaces, ["team-a", "team-b"]);
        assert!(!config.inject_probes && !config.gates.ray_cron_job);
        assert_eq!(config.batch_scheduler, Some(manta_logic::config::BatchScheduler::Volcano));
        let error = format!("{:#}", read(&pod, &HashMap::new()).unwrap_err());
        assert!(error.contains("no ConfigMap is mounted there"), "{error}");
    }
}
