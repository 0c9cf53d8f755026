//! Which kinds the plan for a RayCluster reads beside Pods, Services and Jobs.

use super::ingress;
use crate::action::Kind;
use crate::cluster_spec;
use crate::config::Config;
use crate::scheduler;
use manta_api::RayCluster;

/// Returns the kinds that must be watched for this cluster, and whether the plan has to wait for each of them.
pub fn watched_kinds(cluster: &RayCluster, config: &Config) -> Vec<(Kind, bool)> {
    let spec = &cluster.spec;
    let mut kinds = Vec::new();
    if cluster_spec::is_autoscaling(spec) {
        kinds.extend([Kind::Role, Kind::RoleBinding]);
        if cluster_spec::head_service_account(spec).is_none() {
            kinds.push(Kind::ServiceAccount);
        }
    }
    if spec.head_group_spec.enable_ingress == Some(true) {
        kinds.push(ingress::kind(config));
    }
    if cluster_spec::is_gcs_storage_embedded(spec) {
        kinds.push(Kind::PersistentVolumeClaim);
    }
    if cluster_spec::is_tls_enabled(spec, &config.gates) && config.platform.cert_manager {
        kinds.extend([Kind::Issuer, Kind::Certificate]);
    }
    if cluster.metadata.deletion_timestamp.is_none() {
        kinds.extend(scheduler::cluster_kinds(cluster, config));
    }
    let mut kinds: Vec<_> = kinds.into_iter().map(|kind| (kind, true)).collect();
    if config.gates.ray_cluster_network_policy {
        // Policies of a removed field are deleted once they are seen, but no pass waits for them.
        kinds.push((Kind::NetworkPolicy, spec.network_policy.is_some()));
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::world::{World, cluster};
    use serde_json::{Value, json};

    fn check(edit: impl FnOnce(&mut Value), configure: impl FnOnce(&mut World), expect: &[(Kind, bool)]) {
        let mut world = cluster(1);
        world.config.gates.ray_cluster_network_policy = false;
        configure(&mut world);
        world.edit(edit);
        assert_eq!(watched_kinds(&world.cluster, &world.config), expect);
    }

    #[test]
    fn a_plain_cluster_needs_no_other_kinds() {
        check(|_| {}, |_| {}, &[]);
    }

    #[test]
    fn every_feature_names_the_kinds_that_it_reads() {
        let autoscaling = |spec: &mut Value| spec["enableInTreeAutoscaling"] = json!(true);
        check(autoscaling, |_| {}, &[(Kind::Role, true), (Kind::RoleBinding, true), (Kind::ServiceAccount, true)]);
        let named_account = |spec: &mut Value| {
            autoscaling(spec);
            spec["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = json!("mine");
        };
        check(named_account, |_| {}, &[(Kind::Role, true), (Kind::RoleBinding, true)]);
        let ingress = |spec: &mut Value| spec["headGroupSpec"]["enableIngress"] = json!(true);
        check(ingress, |_| {}, &[(Kind::Ingress, true)]);
        check(ingress, |world| world.config.platform.openshift = true, &[(Kind::Route, true)]);
    }

    #[test]
    fn policies_of_a_removed_field_are_not_waited_for() {
        let gate = |world: &mut World| world.config.gates.ray_cluster_network_policy = true;
        check(|_| {}, gate, &[(Kind::NetworkPolicy, false)]);
        check(|spec| spec["networkPolicy"] = json!({"mode": "DenyAll"}), gate, &[(Kind::NetworkPolicy, true)]);
    }

    #[test]
    fn certificates_are_watched_where_cert_manager_is_installed() {
        let tls = |spec: &mut Value| spec["tlsOptions"] = json!({"enabled": true});
        check(tls, |world| world.config.gates.ray_cluster_mtls = true, &[]);
        let with_cert_manager = |world: &mut World| {
            world.config.gates.ray_cluster_mtls = true;
            world.config.platform.cert_manager = true;
        };
        check(tls, with_cert_manager, &[(Kind::Issuer, true), (Kind::Certificate, true)]);
    }

    #[test]
    fn a_cluster_that_is_being_deleted_needs_no_scheduler_kinds() {
        let volcano = |world: &mut World| world.config.batch_scheduler = Some(crate::config::BatchScheduler::Volcano);
        let pod_groups = Kind::PodGroup(crate::action::PodGroupApi::Volcano);
        check(|_| {}, volcano, &[(pod_groups, true)]);
        let deleting = |world: &mut World| {
            volcano(world);
            world.delete_cluster();
        };
        check(|_| {}, deleting, &[]);
    }
}
