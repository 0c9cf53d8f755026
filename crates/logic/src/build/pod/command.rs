//! The `ray start` command and the shell that runs it.

use super::draft::{Draft, Node, Role};
use crate::build::cluster_facts as facts;
use crate::config::Config;
use crate::labels::annotation;
use k8s_openapi::api::core::v1::Container;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Flags that Ray wants as `--flag=true`, not as a bare `--flag`.
const FLAGS_WITH_VALUE: [&str; 3] = ["log-color", "include-dashboard", "include-log-monitor"];

/// Bash that runs its first argument.
pub(in crate::build) fn shell(config: &Config) -> Vec<String> {
    let flags = if config.login_shell { "-cl" } else { "-c" };
    vec!["/bin/bash".to_owned(), flags.to_owned(), "--".to_owned()]
}

/// The `ray start` command: flags in order of their names, each between blanks, values unquoted.
pub(super) fn ray_start(role: Role, params: &BTreeMap<String, String>) -> String {
    let mut command = String::with_capacity(256);
    command.push_str(match role {
        Role::Head => "ray start --head ",
        Role::Worker => "ray start ",
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

/// Has the Ray container start Ray, after its own command if it has one.
///
/// A container that starts Ray itself, or is told to keep its command, stays as it is.
pub(super) fn set(node: &Node<'_>, draft: &mut Draft, ray_start: &str) {
    let own = own_command(&draft.ray);
    let annotations = draft.metadata.annotations.as_ref();
    let keep = annotations.and_then(|all| all.get(annotation::OVERWRITE_CONTAINER_CMD)).map(String::as_str);
    if facts::is_true(keep) || own.contains("ray start") {
        return;
    }
    let and = if own.is_empty() { "" } else { " && " };
    let line = format!("{own}{and}ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {ray_start}");
    draft.ray.command = Some(shell(node.config));
    draft.ray.args = Some(vec![line]);
}

/// Command and arguments as one line. Each word stands between blanks, so `["ray", "start"]` does
/// not read as `ray start`: KubeRay does the same.
fn own_command(container: &Container) -> String {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.fold(String::new(), |mut line, word| {
        line.push(' ');
        line.push_str(word);
        line.push(' ');
        line
    })
}
