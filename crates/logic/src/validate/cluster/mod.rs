//! Rules for RayClusters in the order in which they are checked.
//!
//! A cluster whose metadata, spec or upgrade options are invalid is not reconciled until it changes. The rule for the
//! status is separate, because it is retried.

mod auth;
mod autoscaler;
mod fault_tolerance;
mod groups;
mod history_server;
mod network_policy;
mod pod;
mod problems;
#[cfg(test)]
mod tests;
mod tls;

use super::kubernetes_names::dns1035_label;
use super::{Invalid, Part, ensure, invalid};
use crate::action::Event;
use crate::cluster_spec::{self, Creator, is_autoscaling};
use crate::config::Config;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayCluster, RayClusterSpec, UpgradeType};
use std::collections::BTreeMap;

pub(super) use pod::may_restart;
pub use problems::{cluster_problems, cluster_spec_problems};

/// The maximum length of names, which leaves space for the suffixes of Services.
pub(crate) const MAX_NAME: usize = 53;

/// A RayCluster that has passed validation, so that builders cannot fail.
#[derive(Clone, Copy, Debug)]
pub struct ValidCluster<'a> {
    cluster: &'a RayCluster,
}

impl<'a> ValidCluster<'a> {
    /// Checks metadata and spec.
    pub fn check(cluster: &'a RayCluster, config: &Config) -> Result<Self, Invalid> {
        let metadata = &cluster.metadata;
        check_cluster_name(metadata).map_err(invalid(Part::ClusterMetadata))?;
        validate_cluster_spec(&cluster.spec, metadata.annotations.as_ref(), config)
            .map_err(invalid(Part::ClusterSpec))?;
        if cluster_spec::is_tls_enabled(&cluster.spec, &config.gates) && !config.platform.cert_manager {
            let text = "tlsOptions requires cert-manager, but cert-manager is not installed".to_owned();
            return Err(invalid(Part::ClusterSpec)(text));
        }
        upgrade_options(cluster).map_err(invalid(Part::ClusterUpgradeStrategy))?;
        Ok(Self { cluster })
    }

    /// Returns a cluster of a test as a valid one.
    #[cfg(test)]
    pub(crate) fn assume(cluster: &'a RayCluster) -> Self {
        Self { cluster }
    }

    /// Checks that the status does not contradict itself.
    pub fn check_status(&self) -> Result<(), Invalid> {
        let conditions = self.cluster.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_true: Vec<_> = conditions.filter(|c| c.status == "True").map(|c| c.type_.as_str()).collect();
        if is_true.contains(&"RayClusterSuspending") && is_true.contains(&"RayClusterSuspended") {
            let text = "invalid RayCluster State: rayv1.RayClusterSuspending and rayv1.RayClusterSuspended conditions \
                        should not be both true";
            return Err(Invalid { part: Part::ClusterStatus, text: text.to_owned() });
        }
        Ok(())
    }

    /// Returns the warning about restarting worker Pods, which autoscaler v1 does not expect.
    pub fn restart_policy_warning(&self) -> Option<Event> {
        let spec = &self.cluster.spec;
        if !is_autoscaling(spec) || !cluster_spec::is_autoscaler_v1(spec) {
            return None;
        }
        let groups = cluster_spec::worker_groups(spec).iter().filter(|group| pod::may_restart(&group.template));
        let groups: Vec<_> = groups.map(|group| group.group_name.as_str()).collect();
        let (namespace, name) = (cluster_spec::namespace(self.cluster), cluster_spec::name(self.cluster));
        (!groups.is_empty()).then(|| {
            let note = format!(
                "RayCluster spec warning {namespace}/{name}: restartPolicy for worker groups [{}] should be Never or \
                 unset when using autoscaler V1",
                groups.join(", ")
            );
            Event::warning("InvalidRayClusterSpec", "Validate", note)
        })
    }
}

impl std::ops::Deref for ValidCluster<'_> {
    type Target = RayCluster;

    fn deref(&self) -> &RayCluster {
        self.cluster
    }
}

/// Checks the spec of a cluster with the annotations of its object, and returns the first broken rule.
pub fn validate_cluster_spec(
    spec: &RayClusterSpec,
    annotations: Option<&BTreeMap<String, String>>,
    config: &Config,
) -> Result<(), String> {
    SPEC_CHECKS.iter().try_for_each(|check| check(spec, annotations, config))
}

/// A group of rules, which returns the first broken one.
type SpecCheck = fn(&RayClusterSpec, Option<&BTreeMap<String, String>>, &Config) -> Result<(), String>;

const SPEC_CHECKS: &[SpecCheck] = &[
    |spec, _, _| groups::check(spec),
    |spec, annotations, config| fault_tolerance::check(spec, annotations, &config.gates),
    |spec, _, config| autoscaler::check(spec, &config.gates),
    |spec, _, config| history_server::check(spec, &config.gates),
    |spec, _, _| auth::check(spec),
    |spec, _, config| network_policy::check(spec, &config.gates),
    |spec, _, config| tls::check(spec, &config.gates),
];

/// Checks the name of a RayCluster.
pub(super) fn check_cluster_name(metadata: &ObjectMeta) -> Result<(), String> {
    check_name("RayCluster", metadata.name.as_deref().unwrap_or_default(), MAX_NAME)
}

/// Checks that a name is not too long and a DNS-1035 label.
pub(super) fn check_name(kind: &str, name: &str, max: usize) -> Result<(), String> {
    if name.len() > max {
        return Err(format!("{kind} name should be no more than {max} characters"));
    }
    let problems = dns1035_label(name);
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{kind} name should be a valid DNS1035 label: [{}]", problems.join(" ")))
}

fn upgrade_options(cluster: &RayCluster) -> Result<(), String> {
    let strategy = cluster.spec.upgrade_strategy.as_ref();
    let Some(upgrade) = strategy.and_then(|strategy| strategy.type_.as_ref()) else { return Ok(()) };
    if let UpgradeType::Other(other) = upgrade {
        return Err(format!(
            "The RayCluster spec is invalid: Spec.UpgradeStrategy.Type value {other} is invalid, valid options are \
             Recreate or None"
        ));
    }
    match cluster_spec::creator(cluster) {
        Creator::RayCluster => Ok(()),
        creator => Err(format!("upgradeStrategy cannot be set when RayCluster is created by {}", creator.as_str())),
    }
}
