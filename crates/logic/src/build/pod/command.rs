//! The `ray start` command and the shell that runs it.

use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use crate::cluster_spec;
use crate::config::Config;
use crate::labels::annotation;
use k8s_openapi::api::core::v1::Container;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Flags that Ray expects as `--flag=true` instead of a bare `--flag`.
const FLAGS_WITH_VALUE: [&str; 3] = ["log-color", "include-dashboard", "include-log-monitor"];

/// Returns the bash command that runs its first argument.
pub(in crate::build) fn shell(config: &Config) -> Vec<String> {
    let flags = if config.login_shell { "-cl" } else { "-c" };
    vec!["/bin/bash".to_owned(), flags.to_owned(), "--".to_owned()]
}

/// Returns the `ray start` command: flags sorted by name, each between blanks, with unquoted values.
pub(super) fn ray_start(node_type: NodeType, params: &BTreeMap<String, String>) -> String {
    let mut command = String::with_capacity(256);
    command.push_str(match node_type {
        NodeType::Head => "ray start --head ",
        NodeType::Worker => "ray start ",
    });
    for (key, value) in params {
        let is_switch = !FLAGS_WITH_VALUE.contains(&key.as_str());
        // Writing to a string cannot fail.
        let _ = match value {
            yes if is_switch && yes.eq_ignore_ascii_case("true") => write!(command, " --{key} "),
            no if is_switch && no.eq_ignore_ascii_case("false") => Ok(()),
            value => write!(command, " --{key}={value} "),
        };
    }
    command
}

/// Makes the Ray container start Ray after its own command, if it has one.
///
/// A container that starts Ray itself or is annotated to keep its command stays unchanged.
pub(super) fn set(context: &PodContext<'_>, builder: &mut PodBuilder, ray_start: &str) {
    let own = own_command(&builder.ray);
    let annotations = builder.metadata.annotations.as_ref();
    let keep = annotations.and_then(|all| all.get(annotation::OVERWRITE_CONTAINER_CMD)).map(String::as_str);
    if cluster_spec::is_true(keep) || own.contains("ray start") {
        return;
    }
    let and = if own.is_empty() { "" } else { " && " };
    let line = format!("{own}{and}ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {ray_start}");
    builder.ray.command = Some(shell(context.config));
    builder.ray.args = Some(vec![line]);
}

/// Returns command and arguments as one line.
///
/// Each word is between blanks, so `["ray", "start"]` does not read as `ray start`, as in KubeRay.
fn own_command(container: &Container) -> String {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.fold(String::new(), |mut line, word| {
        line.push(' ');
        line.push_str(word);
        line.push(' ');
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{arg, cluster, head, ray, worker};
    use serde_json::{Value, json};

    fn check_start(node_type: NodeType, params: &[(&str, &str)], expect: &str) {
        let params = params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(ray_start(node_type, &params), expect);
    }

    #[test]
    fn flags_are_sorted_and_switches_bare() {
        check_start(NodeType::Worker, &[("num-gpus", "1")], "ray start  --num-gpus=1 ");
        check_start(NodeType::Head, &[("b", "TRUE"), ("a", "x y")], "ray start --head  --a=x y  --b ");
        check_start(NodeType::Head, &[("b", "False"), ("block", "true")], "ray start --head  --block ");
        check_start(NodeType::Worker, &[("include-log-monitor", "false")], "ray start  --include-log-monitor=false ");
        check_start(NodeType::Worker, &[("include-log-monitor", "true")], "ray start  --include-log-monitor=true ");
        check_start(NodeType::Worker, &[("log-color", "true")], "ray start  --log-color=true ");
        check_start(NodeType::Worker, &[("include-dashboard", "False")], "ray start  --include-dashboard=False ");
    }

    /// Checks the command line of the head's Ray container before `ulimit`.
    fn check_own(container: Value, expect: Option<&str>) {
        let cluster = cluster(json!({"ray": container}));
        let pod = head(&cluster, &Config::default());
        match expect {
            Some(prefix) => {
                assert_eq!(ray(&pod).command.as_deref(), Some(&shell(&Config::default())[..]));
                assert_eq!(arg(ray(&pod)).split("ulimit -n").next(), Some(prefix), "{container}");
            }
            None => {
                assert_eq!(json!(ray(&pod).command), container["command"]);
                assert_eq!(json!(ray(&pod).args), container["args"]);
            }
        }
    }

    #[test]
    fn a_users_command_runs_first_unless_it_starts_ray() {
        check_own(json!({}), Some(""));
        check_own(json!({"command": ["python"], "args": ["/opt/code.py"]}), Some(" python  /opt/code.py  && "));
        check_own(json!({"args": ["sleep 1"]}), Some(" sleep 1  && "));
        check_own(json!({"command": ["bash", "-c"], "args": ["ray start --head"]}), None);
        check_own(json!({"command": ["ray", "start"]}), Some(" ray  start  && "));
    }

    #[test]
    fn an_annotation_keeps_the_users_command() {
        let own = json!({"command": ["I am head"], "args": ["I am head again"]});
        let annotation = json!({annotation::OVERWRITE_CONTAINER_CMD: "true"});
        let on_cluster = json!({"metadata": {"annotations": annotation}, "both": own});
        let template = json!({"template": {"metadata": {"annotations": annotation}}});
        let on_template = json!({"head": template, "worker": template, "both": own});
        for given in [on_cluster, on_template] {
            let cluster = cluster(given);
            for pod in [head(&cluster, &Config::default()), worker(&cluster, &Config::default())] {
                assert_eq!(json!({"command": ray(&pod).command, "args": ray(&pod).args}), own);
                let pod_annotations = pod.metadata.annotations.as_ref().unwrap();
                assert_eq!(pod_annotations[annotation::OVERWRITE_CONTAINER_CMD], "true");
                assert!(crate::build::testing::env(ray(&pod), "KUBERAY_GEN_RAY_START_CMD").is_some());
            }
        }
    }

    #[test]
    fn a_login_shell_can_be_enabled() {
        let config = Config { login_shell: true, ..Config::default() };
        let cluster = cluster(json!({"spec": {"enableInTreeAutoscaling": true}}));
        let (head, worker) = (head(&cluster, &config), worker(&cluster, &config));
        let waiting = crate::build::testing::container(&worker, "wait-gcs-ready");
        let autoscaler = crate::build::testing::container(&head, "autoscaler");
        for container in [ray(&head), autoscaler, ray(&worker), waiting] {
            assert_eq!(json!(container.command), json!(["/bin/bash", "-cl", "--"]), "{}", container.name);
        }
    }
}
