//! Rules for RayServices: metadata with annotations, then the spec.

use super::cluster::{check_name, validate_cluster_spec};
use super::job::MAX_NAME;
use super::{Invalid, Part, invalid};
use crate::cluster_spec::{is_autoscaling, is_k8s_token_auth};
use crate::config::Config;
use crate::go::duration;
use crate::labels::annotation::{INITIALIZING_TIMEOUT, UPGRADE_TIMEOUT};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayService, RayServiceSpec};
use std::collections::BTreeMap;

/// The upgrade strategy that shifts traffic in steps.
pub const INCREMENTAL_UPGRADE: &str = "NewClusterWithIncrementalUpgrade";

/// Checks metadata and spec of a RayService.
pub fn validate_service(service: &RayService, config: &Config) -> Result<(), Invalid> {
    let metadata = &service.metadata;
    check_metadata(metadata).map_err(invalid(Part::ServiceMetadata))?;
    check_spec(&service.spec, metadata.annotations.as_ref(), config)
        .map_err(|text| invalid(Part::ServiceSpec)(format!("The RayService spec is invalid: {text}")))
}

/// Checks the name and the annotations of a RayService.
fn check_metadata(metadata: &ObjectMeta) -> Result<(), String> {
    let name = check_name("RayService", metadata.name.as_deref().unwrap_or_default(), MAX_NAME);
    let outcome = name.and_then(|()| {
        let annotations = metadata.annotations.as_ref();
        let timeouts = initializing_timeout(annotations).and_then(|_| upgrade_timeout(annotations));
        timeouts.map(|_| ()).map_err(|text| format!("RayService annotations is invalid: {text}"))
    });
    outcome.map_err(|text| format!("The RayService metadata is invalid: {text}"))
}

/// Returns how long a service may take until it serves, if there is a limit.
pub fn initializing_timeout(annotations: Option<&BTreeMap<String, String>>) -> Result<Option<SignedDuration>, String> {
    let text = annotations.and_then(|all| all.get(INITIALIZING_TIMEOUT)).filter(|text| !text.is_empty());
    text.map(|text| positive_duration(INITIALIZING_TIMEOUT, text)).transpose()
}

/// How long an upgrade may take without progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeTimeout {
    /// The annotation is not set.
    Default,
    /// There is no limit.
    Never,
    After(SignedDuration),
}

/// Returns how long an upgrade may take without progress.
pub fn upgrade_timeout(annotations: Option<&BTreeMap<String, String>>) -> Result<UpgradeTimeout, String> {
    match annotations.and_then(|all| all.get(UPGRADE_TIMEOUT)).map(String::as_str) {
        None | Some("") => Ok(UpgradeTimeout::Default),
        Some("0") => Ok(UpgradeTimeout::Never),
        Some(text) => positive_duration(UPGRADE_TIMEOUT, text).map(UpgradeTimeout::After),
    }
}

fn positive_duration(annotation: &str, text: &str) -> Result<SignedDuration, String> {
    if let Ok(timeout) = duration::parse(text) {
        return if timeout > SignedDuration::ZERO {
            Ok(timeout)
        } else {
            Err(format!("annotation {annotation} must be a positive duration, got: {text}"))
        };
    }
    match text.parse::<i64>() {
        Ok(seconds) if seconds > 0 => Ok(SignedDuration::from_secs(seconds)),
        Ok(_) => Err(format!("annotation {annotation} must be a positive integer (seconds), got: {text}")),
        Err(_) => Err(format!(
            "annotation {annotation} has invalid format: {text}. Expected Go duration format (e.g., '5m', '1h') or \
             positive integer seconds"
        )),
    }
}

/// Returns whether incremental upgrades are requested and enabled.
pub fn is_incremental_upgrade(spec: &RayServiceSpec, config: &Config) -> bool {
    let strategy = spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    config.gates.ray_service_incremental_upgrade && strategy == Some(INCREMENTAL_UPGRADE)
}

fn check_spec(
    spec: &RayServiceSpec,
    annotations: Option<&BTreeMap<String, String>>,
    config: &Config,
) -> Result<(), String> {
    let cluster = &spec.ray_cluster_config;
    if is_k8s_token_auth(cluster) {
        return Err("K8s token auth mode is currently not supported for RayService".to_owned());
    }
    validate_cluster_spec(cluster, annotations, config)?;
    let head_service = cluster.head_group_spec.head_service.as_ref();
    if head_service.and_then(|service| service.metadata.name.as_ref()).is_some_and(|name| !name.is_empty()) {
        return Err("spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set".to_owned());
    }
    let strategy = spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    if let Some(other) = strategy.filter(|strategy| !["None", "NewCluster", INCREMENTAL_UPGRADE].contains(strategy)) {
        return Err(format!(
            "Spec.UpgradeStrategy.Type value {other} is invalid, valid options are NewClusterWithIncrementalUpgrade, \
             NewCluster, or None"
        ));
    }
    if let Some(delay) = spec.ray_cluster_deletion_delay_seconds.filter(|delay| *delay < 0) {
        return Err(format!("Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got {delay}"));
    }
    if is_incremental_upgrade(spec, config) { check_incremental_upgrade(spec) } else { Ok(()) }
}

fn check_incremental_upgrade(spec: &RayServiceSpec) -> Result<(), String> {
    const PERCENT: std::ops::RangeInclusive<i32> = 0..=100;
    if !is_autoscaling(&spec.ray_cluster_config) {
        return Err("Ray Autoscaler is required for NewClusterWithIncrementalUpgrade".to_owned());
    }
    let options = spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.cluster_upgrade_options.as_ref());
    let Some(options) = options else {
        return Err("ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade".to_owned());
    };
    let surge = options.max_surge_percent.unwrap_or(100);
    if !PERCENT.contains(&surge) {
        return Err("maxSurgePercent must be between 0 and 100".to_owned());
    }
    let Some(step) = options.step_size_percent.filter(|step| PERCENT.contains(step)) else {
        return Err("stepSizePercent must be between 0 and 100".to_owned());
    };
    if step > surge {
        return Err("stepSizePercent must be less than or equal to maxSurgePercent".to_owned());
    }
    if options.interval_seconds.is_none_or(|interval| interval <= 0) {
        return Err("intervalSeconds must be greater than 0".to_owned());
    }
    if options.gateway_class_name.is_empty() {
        return Err("gatewayClassName is required for NewClusterWithIncrementalUpgrade".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::fixtures::{Edit, cluster_spec, edited, everything};
    use serde_json::{Value, json};

    fn outcome(edits: &[Edit<'_>], config: &Config) -> Result<(), Invalid> {
        let base = json!({"metadata": {"name": "web"}, "spec": {"rayClusterConfig": cluster_spec()}});
        let service: RayService = serde_json::from_value(edited(base, edits)).unwrap();
        validate_service(&service, config)
    }

    #[track_caller]
    fn check(edits: &[Edit<'_>], expect: &str) {
        let text = outcome(edits, &everything()).map_or_else(|invalid| invalid.text, |()| "ok".to_owned());
        assert_eq!(text, expect, "{edits:?}");
    }

    #[test]
    fn names_are_short_dns_labels() {
        let check = |name: &str, expect: &str| check(&[("/metadata/name", json!(name))], expect);
        check(&"s".repeat(47), "ok");
        check(
            &"s".repeat(48),
            "The RayService metadata is invalid: RayService name should be no more than 47 characters",
        );
        let label = "The RayService metadata is invalid: RayService name should be a valid DNS1035 label: [a DNS-1035 \
                     label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                     character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]";
        check(&"1".repeat(47), label);
        check("invalid.name", label);
    }

    #[test]
    fn initializing_timeouts_are_positive() {
        let check = |text: &str, expect: &str| {
            let expect = match expect {
                "ok" => expect.to_owned(),
                text => {
                    format!("The RayService metadata is invalid: RayService annotations is invalid: annotation {text}")
                }
            };
            check(&[("/metadata/annotations", json!({"ray.io/initializing-timeout": text}))], &expect);
        };
        check("", "ok");
        check("5m", "ok");
        check("300", "ok");
        check("0", "ray.io/initializing-timeout must be a positive duration, got: 0");
        check("-5m", "ray.io/initializing-timeout must be a positive duration, got: -5m");
        check("-100", "ray.io/initializing-timeout must be a positive integer (seconds), got: -100");
        check(
            "invalid",
            "ray.io/initializing-timeout has invalid format: invalid. Expected Go duration format (e.g., '5m', '1h') or \
             positive integer seconds",
        );
        let timeout = |text: &str| {
            let annotations = BTreeMap::from([(INITIALIZING_TIMEOUT.to_owned(), text.to_owned())]);
            initializing_timeout(Some(&annotations)).unwrap()
        };
        assert_eq!(timeout("5m"), Some(SignedDuration::from_mins(5)));
        assert_eq!(timeout("300"), Some(SignedDuration::from_mins(5)));
        assert_eq!(timeout(""), None);
    }

    #[test]
    fn upgrade_timeouts_are_positive_or_zero() {
        let timeout = |text: &str| {
            let annotations = BTreeMap::from([(UPGRADE_TIMEOUT.to_owned(), text.to_owned())]);
            upgrade_timeout(Some(&annotations))
        };
        assert_eq!(upgrade_timeout(None), Ok(UpgradeTimeout::Default));
        assert_eq!(timeout(""), Ok(UpgradeTimeout::Default));
        assert_eq!(timeout("0"), Ok(UpgradeTimeout::Never));
        assert_eq!(timeout("2h"), Ok(UpgradeTimeout::After(SignedDuration::from_hours(2))));
        assert_eq!(timeout("90"), Ok(UpgradeTimeout::After(SignedDuration::from_secs(90))));
        check(
            &[("/metadata/annotations", json!({"ray.io/upgrade-timeout": "-1h"}))],
            "The RayService metadata is invalid: RayService annotations is invalid: annotation ray.io/upgrade-timeout \
             must be a positive duration, got: -1h",
        );
    }

    #[test]
    fn broken_rules_of_the_spec_are_reported() {
        let cluster = "/spec/rayClusterConfig";
        let check = |edits: &[Edit<'_>], expect: &str| {
            let expect =
                if expect == "ok" { expect.to_owned() } else { format!("The RayService spec is invalid: {expect}") };
            check(edits, &expect);
        };
        check(&[], "ok");
        check(
            &[(&format!("{cluster}/authOptions"), json!({"enableK8sTokenAuth": true}))],
            "K8s token auth mode is currently not supported for RayService",
        );
        check(
            &[(&format!("{cluster}/headGroupSpec/template/spec/containers"), json!([]))],
            "headGroupSpec should have at least one container",
        );
        check(
            &[
                ("/metadata/annotations", json!({"ray.io/ft-enabled": "true"})),
                (&format!("{cluster}/gcsFaultToleranceOptions"), json!({})),
            ],
            "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. Please use only \
             GcsFaultToleranceOptions to configure GCS fault tolerance",
        );
        let head_service = format!("{cluster}/headGroupSpec/headService");
        check(
            &[(&head_service, json!({"metadata": {"name": "x"}}))],
            "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set",
        );
        check(&[(&head_service, json!({"metadata": {"name": ""}}))], "ok");
        for kind in ["None", "NewCluster"] {
            check(&[("/spec/upgradeStrategy", json!({"type": kind}))], "ok");
        }
        for kind in ["", "Canary"] {
            let expect = format!(
                "Spec.UpgradeStrategy.Type value {kind} is invalid, valid options are NewClusterWithIncrementalUpgrade, \
                 NewCluster, or None"
            );
            check(&[("/spec/upgradeStrategy", json!({"type": kind}))], &expect);
        }
        check(
            &[("/spec/rayClusterDeletionDelaySeconds", json!(-1))],
            "Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got -1",
        );
        check(&[("/spec/rayClusterDeletionDelaySeconds", json!(0))], "ok");
        // The rules for the cluster refuse this later.
        check(&[(&format!("{cluster}/upgradeStrategy"), json!({"type": "Recreate"}))], "ok");
    }

    #[test]
    fn incremental_upgrades_need_valid_options() {
        let base =
            json!({"maxSurgePercent": 50, "stepSizePercent": 10, "intervalSeconds": 30, "gatewayClassName": "istio"});
        let check = |changes: Value, expect: &str| {
            let mut options = base.clone();
            for (key, value) in changes.as_object().unwrap() {
                options[key] = value.clone();
            }
            let expect =
                if expect == "ok" { expect.to_owned() } else { format!("The RayService spec is invalid: {expect}") };
            check(
                &[
                    ("/spec/upgradeStrategy", json!({"type": INCREMENTAL_UPGRADE, "clusterUpgradeOptions": options})),
                    ("/spec/rayClusterConfig/enableInTreeAutoscaling", json!(true)),
                ],
                &expect,
            );
        };
        check(json!({}), "ok");
        check(json!({"maxSurgePercent": null}), "ok");
        check(json!({"maxSurgePercent": 0, "stepSizePercent": 0}), "ok");
        for surge in [-1, 101] {
            check(json!({"maxSurgePercent": surge}), "maxSurgePercent must be between 0 and 100");
        }
        for step in [json!(null), json!(-1), json!(101)] {
            check(json!({"stepSizePercent": step}), "stepSizePercent must be between 0 and 100");
        }
        check(json!({"stepSizePercent": 51}), "stepSizePercent must be less than or equal to maxSurgePercent");
        for interval in [json!(null), json!(0)] {
            check(json!({"intervalSeconds": interval}), "intervalSeconds must be greater than 0");
        }
        check(json!({"gatewayClassName": ""}), "gatewayClassName is required for NewClusterWithIncrementalUpgrade");
        let without_options = ("/spec/upgradeStrategy", json!({"type": INCREMENTAL_UPGRADE}));
        super::tests::check(
            std::slice::from_ref(&without_options),
            "The RayService spec is invalid: Ray Autoscaler is required for NewClusterWithIncrementalUpgrade",
        );
        super::tests::check(
            &[without_options.clone(), ("/spec/rayClusterConfig/enableInTreeAutoscaling", json!(true))],
            "The RayService spec is invalid: ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade",
        );
        let mut gate_off = everything();
        gate_off.gates.ray_service_incremental_upgrade = false;
        assert_eq!(outcome(&[without_options], &gate_off), Ok(()));
    }

    #[test]
    fn events_name_the_part() {
        let invalid = outcome(&[("/metadata/name", json!("a.b"))], &everything()).unwrap_err();
        assert_eq!(invalid.event("ns", "a.b").reason, "InvalidRayServiceMetadata");
        let invalid = outcome(&[("/spec/upgradeStrategy", json!({"type": "X"}))], &everything()).unwrap_err();
        let event = invalid.event("ns", "web");
        assert_eq!((event.reason, event.action), ("InvalidRayServiceSpec", "Validate"));
        assert!(event.note.starts_with("ns/web: The RayService spec is invalid: Spec.UpgradeStrategy.Type value X"));
    }
}
