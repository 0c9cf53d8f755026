//! The environment variables that the operator reads once, at start.

use manta_logic::config::Config;
use std::time::Duration;

/// Returns the configuration from the environment; `env` looks up a variable.
pub(super) fn config(env: &impl Fn(&str) -> Option<String>) -> Config {
    let lower = |name: &str| env(name).unwrap_or_default().to_lowercase();
    let on_unless_false = |name: &str| lower(name) != "false";
    let off_unless_true = |name: &str| lower(name) == "true";
    let seconds = |name: &str| env(name).and_then(|text| text.parse::<i64>().ok());
    Config {
        cluster_domain: env("CLUSTER_DOMAIN")
            .filter(|domain| !domain.is_empty())
            .unwrap_or_else(|| "cluster.local".to_owned()),
        inject_init_container: on_unless_false("ENABLE_INIT_CONTAINER_INJECTION"),
        inject_probes: on_unless_false("ENABLE_PROBES_INJECTION"),
        login_shell: off_unless_true("ENABLE_LOGIN_SHELL"),
        deterministic_head_pod_name: off_unless_true("ENABLE_DETERMINISTIC_HEAD_POD_NAME"),
        head_cluster_ip_service: off_unless_true("ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"),
        ingress_on_openshift: off_unless_true("USE_INGRESS_ON_OPENSHIFT"),
        redis_cleanup: on_unless_false("ENABLE_GCS_FT_REDIS_CLEANUP"),
        random_pod_delete: off_unless_true("ENABLE_RANDOM_POD_DELETE"),
        zero_downtime: on_unless_false("ENABLE_ZERO_DOWNTIME"),
        delete_rayjob_after_finish: off_unless_true("DELETE_RAYJOB_CR_AFTER_JOB_FINISHES"),
        rayjob_transition_grace_seconds: seconds("RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS")
            .unwrap_or(300),
        rayjob_status_check_timeout: Duration::from_secs(
            seconds("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS").filter(|seconds| *seconds > 0).unwrap_or(300).unsigned_abs(),
        ),
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Config {
        config(&|asked: &str| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn switches_are_case_insensitive() {
        type Read = fn(&Config) -> bool;
        let on_unless_false: [(&str, Read); 4] = [
            ("ENABLE_INIT_CONTAINER_INJECTION", |config| config.inject_init_container),
            ("ENABLE_PROBES_INJECTION", |config| config.inject_probes),
            ("ENABLE_GCS_FT_REDIS_CLEANUP", |config| config.redis_cleanup),
            ("ENABLE_ZERO_DOWNTIME", |config| config.zero_downtime),
        ];
        let off_unless_true: [(&str, Read); 6] = [
            ("ENABLE_RANDOM_POD_DELETE", |config| config.random_pod_delete),
            ("ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", |config| config.head_cluster_ip_service),
            ("USE_INGRESS_ON_OPENSHIFT", |config| config.ingress_on_openshift),
            ("DELETE_RAYJOB_CR_AFTER_JOB_FINISHES", |config| config.delete_rayjob_after_finish),
            ("ENABLE_LOGIN_SHELL", |config| config.login_shell),
            ("ENABLE_DETERMINISTIC_HEAD_POD_NAME", |config| config.deterministic_head_pod_name),
        ];
        for (values, switches, default, switched) in [
            (["False", "FALSE"], on_unless_false.as_slice(), true, false),
            (["True", "TRUE"], off_unless_true.as_slice(), false, true),
        ] {
            for (name, read) in switches {
                assert_eq!(read(&with("", "")), default, "{name} unset");
                for other in ["", "no", "1", "0"] {
                    assert_eq!(read(&with(name, other)), default, "{name}={other}");
                }
                for value in values {
                    assert_eq!(read(&with(name, value)), switched, "{name}={value}");
                }
            }
        }
    }

    #[test]
    fn numbers_and_texts_have_defaults() {
        assert_eq!(config(&|_| None), Config::default());
        for (value, expect) in [("abc.com", "abc.com"), ("", "cluster.local")] {
            assert_eq!(with("CLUSTER_DOMAIN", value).cluster_domain, expect);
        }
        for (value, grace, check) in [("7", 7, 7), ("-3", -3, 300), ("0", 0, 300), ("x", 300, 300), ("", 300, 300)] {
            let grace_name = "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS";
            assert_eq!(with(grace_name, value).rayjob_transition_grace_seconds, grace, "{value}");
            let check_name = "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS";
            assert_eq!(with(check_name, value).rayjob_status_check_timeout.as_secs(), check, "{value}");
        }
    }
}
