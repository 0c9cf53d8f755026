//! How server-side apply merges the lists and maps inside Kubernetes' own types.
//!
//! Schemas publish this as `x-kubernetes-list-type`, `-list-map-keys` and `-map-type`, but the Rust types do not carry
//! it. The table is keyed by the type's OpenAPI name, which is also its `schemars` name, and by field. It covers the API
//! groups whose types occur in the CRDs. A field that is not in it has no marker: its lists are atomic and its maps
//! merge key by key. A test compares the table with the OpenAPI document of the real kube-apiserver.

use Marker::{Atomic, AtomicMap, Keyed, Set};

/// The markers of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeMarkers {
    /// The OpenAPI name, for instance `io.k8s.api.core.v1.PodSpec`.
    pub name: &'static str,
    /// Whether objects of this type are replaced as a whole.
    pub atomic: bool,
    /// The marked fields, by name.
    pub fields: &'static [(&'static str, Marker)],
}

/// How one field merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A list that has one owner.
    Atomic,
    /// A list of scalars, each with its owners.
    Set,
    /// A list of objects with these fields as keys.
    Keyed(&'static [&'static str]),
    /// A map that has one owner.
    AtomicMap,
}

/// Returns the markers of a type by its OpenAPI name.
pub fn of(name: &str) -> Option<&'static TypeMarkers> {
    TABLE.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| &TABLE[at])
}

/// A type whose fields merge one by one.
const fn granular(name: &'static str, fields: &'static [(&'static str, Marker)]) -> TypeMarkers {
    TypeMarkers { name, atomic: false, fields }
}

/// A type whose objects are replaced as a whole.
const fn atomic(name: &'static str, fields: &'static [(&'static str, Marker)]) -> TypeMarkers {
    TypeMarkers { name, atomic: true, fields }
}

/// All marked types, sorted by name.
pub const TABLE: &[TypeMarkers] = &[
    granular("io.k8s.api.core.v1.Capabilities", &[("add", Atomic), ("drop", Atomic)]),
    granular("io.k8s.api.core.v1.CephFSPersistentVolumeSource", &[("monitors", Atomic)]),
    granular("io.k8s.api.core.v1.CephFSVolumeSource", &[("monitors", Atomic)]),
    granular("io.k8s.api.core.v1.ComponentStatus", &[("conditions", Keyed(&["type"]))]),
    atomic("io.k8s.api.core.v1.ConfigMapKeySelector", &[]),
    granular("io.k8s.api.core.v1.ConfigMapProjection", &[("items", Atomic)]),
    granular("io.k8s.api.core.v1.ConfigMapVolumeSource", &[("items", Atomic)]),
    granular(
        "io.k8s.api.core.v1.Container",
        &[
            ("args", Atomic),
            ("command", Atomic),
            ("env", Keyed(&["name"])),
            ("envFrom", Atomic),
            ("ports", Keyed(&["containerPort", "protocol"])),
            ("resizePolicy", Atomic),
            ("restartPolicyRules", Atomic),
            ("volumeDevices", Keyed(&["devicePath"])),
            ("volumeMounts", Keyed(&["mountPath"])),
        ],
    ),
    granular("io.k8s.api.core.v1.ContainerImage", &[("names", Atomic)]),
    granular("io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes", &[("values", Set)]),
    granular(
        "io.k8s.api.core.v1.ContainerStatus",
        &[("allocatedResourcesStatus", Keyed(&["name"])), ("volumeMounts", Keyed(&["mountPath"]))],
    ),
    granular("io.k8s.api.core.v1.DownwardAPIProjection", &[("items", Atomic)]),
    granular("io.k8s.api.core.v1.DownwardAPIVolumeSource", &[("items", Atomic)]),
    atomic("io.k8s.api.core.v1.EndpointAddress", &[]),
    atomic("io.k8s.api.core.v1.EndpointPort", &[]),
    granular(
        "io.k8s.api.core.v1.EndpointSubset",
        &[("addresses", Atomic), ("notReadyAddresses", Atomic), ("ports", Atomic)],
    ),
    granular("io.k8s.api.core.v1.Endpoints", &[("subsets", Atomic)]),
    granular(
        "io.k8s.api.core.v1.EphemeralContainer",
        &[
            ("args", Atomic),
            ("command", Atomic),
            ("env", Keyed(&["name"])),
            ("envFrom", Atomic),
            ("ports", Keyed(&["containerPort", "protocol"])),
            ("resizePolicy", Atomic),
            ("restartPolicyRules", Atomic),
            ("volumeDevices", Keyed(&["devicePath"])),
            ("volumeMounts", Keyed(&["mountPath"])),
        ],
    ),
    granular("io.k8s.api.core.v1.ExecAction", &[("command", Atomic)]),
    granular("io.k8s.api.core.v1.FCVolumeSource", &[("targetWWNs", Atomic), ("wwids", Atomic)]),
    atomic("io.k8s.api.core.v1.FileKeySelector", &[]),
    granular("io.k8s.api.core.v1.HTTPGetAction", &[("httpHeaders", Atomic)]),
    granular("io.k8s.api.core.v1.HostAlias", &[("hostnames", Atomic)]),
    granular("io.k8s.api.core.v1.ISCSIPersistentVolumeSource", &[("portals", Atomic)]),
    granular("io.k8s.api.core.v1.ISCSIVolumeSource", &[("portals", Atomic)]),
    granular("io.k8s.api.core.v1.LimitRangeSpec", &[("limits", Atomic)]),
    granular("io.k8s.api.core.v1.LinuxContainerUser", &[("supplementalGroups", Atomic)]),
    granular("io.k8s.api.core.v1.LoadBalancerIngress", &[("ports", Atomic)]),
    granular("io.k8s.api.core.v1.LoadBalancerStatus", &[("ingress", Atomic)]),
    atomic("io.k8s.api.core.v1.LocalObjectReference", &[]),
    granular("io.k8s.api.core.v1.NamespaceSpec", &[("finalizers", Atomic)]),
    granular("io.k8s.api.core.v1.NamespaceStatus", &[("conditions", Keyed(&["type"]))]),
    granular("io.k8s.api.core.v1.NodeAffinity", &[("preferredDuringSchedulingIgnoredDuringExecution", Atomic)]),
    atomic("io.k8s.api.core.v1.NodeSelector", &[("nodeSelectorTerms", Atomic)]),
    granular("io.k8s.api.core.v1.NodeSelectorRequirement", &[("values", Atomic)]),
    atomic("io.k8s.api.core.v1.NodeSelectorTerm", &[("matchExpressions", Atomic), ("matchFields", Atomic)]),
    granular("io.k8s.api.core.v1.NodeSpec", &[("podCIDRs", Set), ("taints", Atomic)]),
    granular(
        "io.k8s.api.core.v1.NodeStatus",
        &[
            ("addresses", Keyed(&["type"])),
            ("conditions", Keyed(&["type"])),
            ("images", Atomic),
            ("runtimeHandlers", Atomic),
            ("volumesAttached", Atomic),
            ("volumesInUse", Atomic),
        ],
    ),
    atomic("io.k8s.api.core.v1.ObjectFieldSelector", &[]),
    atomic("io.k8s.api.core.v1.ObjectReference", &[]),
    granular("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &[("accessModes", Atomic)]),
    granular(
        "io.k8s.api.core.v1.PersistentVolumeClaimStatus",
        &[("accessModes", Atomic), ("conditions", Keyed(&["type"]))],
    ),
    granular("io.k8s.api.core.v1.PersistentVolumeSpec", &[("accessModes", Atomic), ("mountOptions", Atomic)]),
    granular(
        "io.k8s.api.core.v1.PodAffinity",
        &[
            ("preferredDuringSchedulingIgnoredDuringExecution", Atomic),
            ("requiredDuringSchedulingIgnoredDuringExecution", Atomic),
        ],
    ),
    granular(
        "io.k8s.api.core.v1.PodAffinityTerm",
        &[("matchLabelKeys", Atomic), ("mismatchLabelKeys", Atomic), ("namespaces", Atomic)],
    ),
    granular(
        "io.k8s.api.core.v1.PodAntiAffinity",
        &[
            ("preferredDuringSchedulingIgnoredDuringExecution", Atomic),
            ("requiredDuringSchedulingIgnoredDuringExecution", Atomic),
        ],
    ),
    granular("io.k8s.api.core.v1.PodDNSConfig", &[("nameservers", Atomic), ("options", Atomic), ("searches", Atomic)]),
    granular("io.k8s.api.core.v1.PodExtendedResourceClaimStatus", &[("requestMappings", Atomic)]),
    granular("io.k8s.api.core.v1.PodSecurityContext", &[("supplementalGroups", Atomic), ("sysctls", Atomic)]),
    granular(
        "io.k8s.api.core.v1.PodSpec",
        &[
            ("containers", Keyed(&["name"])),
            ("ephemeralContainers", Keyed(&["name"])),
            ("hostAliases", Keyed(&["ip"])),
            ("imagePullSecrets", Keyed(&["name"])),
            ("initContainers", Keyed(&["name"])),
            ("nodeSelector", AtomicMap),
            ("readinessGates", Atomic),
            ("resourceClaims", Keyed(&["name"])),
            ("schedulingGates", Keyed(&["name"])),
            ("tolerations", Atomic),
            ("topologySpreadConstraints", Keyed(&["topologyKey", "whenUnsatisfiable"])),
            ("volumes", Keyed(&["name"])),
        ],
    ),
    granular(
        "io.k8s.api.core.v1.PodStatus",
        &[
            ("conditions", Keyed(&["type"])),
            ("containerStatuses", Atomic),
            ("ephemeralContainerStatuses", Atomic),
            ("hostIPs", Atomic),
            ("initContainerStatuses", Atomic),
            ("podIPs", Keyed(&["ip"])),
            ("resourceClaimStatuses", Keyed(&["name"])),
        ],
    ),
    granular("io.k8s.api.core.v1.ProjectedVolumeSource", &[("sources", Atomic)]),
    granular("io.k8s.api.core.v1.RBDPersistentVolumeSource", &[("monitors", Atomic)]),
    granular("io.k8s.api.core.v1.RBDVolumeSource", &[("monitors", Atomic)]),
    granular("io.k8s.api.core.v1.ReplicationControllerSpec", &[("selector", AtomicMap)]),
    granular("io.k8s.api.core.v1.ReplicationControllerStatus", &[("conditions", Keyed(&["type"]))]),
    atomic("io.k8s.api.core.v1.ResourceFieldSelector", &[]),
    granular("io.k8s.api.core.v1.ResourceQuotaSpec", &[("scopes", Atomic)]),
    granular("io.k8s.api.core.v1.ResourceRequirements", &[("claims", Keyed(&["name"]))]),
    granular("io.k8s.api.core.v1.ResourceStatus", &[("resources", Keyed(&["resourceID"]))]),
    atomic("io.k8s.api.core.v1.ScopeSelector", &[("matchExpressions", Atomic)]),
    granular("io.k8s.api.core.v1.ScopedResourceSelectorRequirement", &[("values", Atomic)]),
    atomic("io.k8s.api.core.v1.SecretKeySelector", &[]),
    granular("io.k8s.api.core.v1.SecretProjection", &[("items", Atomic)]),
    atomic("io.k8s.api.core.v1.SecretReference", &[]),
    granular("io.k8s.api.core.v1.SecretVolumeSource", &[("items", Atomic)]),
    granular("io.k8s.api.core.v1.ServiceAccount", &[("imagePullSecrets", Atomic), ("secrets", Keyed(&["name"]))]),
    granular(
        "io.k8s.api.core.v1.ServiceSpec",
        &[
            ("clusterIPs", Atomic),
            ("externalIPs", Atomic),
            ("ipFamilies", Atomic),
            ("loadBalancerSourceRanges", Atomic),
            ("ports", Keyed(&["port", "protocol"])),
            ("selector", AtomicMap),
        ],
    ),
    granular("io.k8s.api.core.v1.ServiceStatus", &[("conditions", Keyed(&["type"]))]),
    granular("io.k8s.api.core.v1.TopologySelectorLabelRequirement", &[("values", Atomic)]),
    atomic("io.k8s.api.core.v1.TopologySelectorTerm", &[("matchLabelExpressions", Atomic)]),
    granular("io.k8s.api.core.v1.TopologySpreadConstraint", &[("matchLabelKeys", Atomic)]),
    atomic("io.k8s.api.core.v1.TypedLocalObjectReference", &[]),
    granular("io.k8s.api.networking.v1.HTTPIngressRuleValue", &[("paths", Atomic)]),
    granular("io.k8s.api.networking.v1.IPBlock", &[("except", Atomic)]),
    granular("io.k8s.api.networking.v1.IngressLoadBalancerIngress", &[("ports", Atomic)]),
    granular("io.k8s.api.networking.v1.IngressLoadBalancerStatus", &[("ingress", Atomic)]),
    granular("io.k8s.api.networking.v1.IngressSpec", &[("rules", Atomic), ("tls", Atomic)]),
    granular("io.k8s.api.networking.v1.IngressTLS", &[("hosts", Atomic)]),
    granular("io.k8s.api.networking.v1.NetworkPolicyEgressRule", &[("ports", Atomic), ("to", Atomic)]),
    granular("io.k8s.api.networking.v1.NetworkPolicyIngressRule", &[("from", Atomic), ("ports", Atomic)]),
    granular(
        "io.k8s.api.networking.v1.NetworkPolicySpec",
        &[("egress", Atomic), ("ingress", Atomic), ("policyTypes", Atomic)],
    ),
    atomic("io.k8s.api.networking.v1.ServiceBackendPort", &[]),
    granular("io.k8s.api.networking.v1.ServiceCIDRSpec", &[("cidrs", Atomic)]),
    granular("io.k8s.api.networking.v1.ServiceCIDRStatus", &[("conditions", Keyed(&["type"]))]),
    atomic("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", &[("matchExpressions", Atomic)]),
    granular("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement", &[("values", Atomic)]),
    granular(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        &[("finalizers", Set), ("managedFields", Atomic), ("ownerReferences", Keyed(&["uid"]))],
    ),
    atomic("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", &[]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_for_the_search() {
        assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
        for row in TABLE {
            assert!(row.fields.is_sorted_by(|a, b| a.0 < b.0), "fields of {}", row.name);
        }
    }

    #[test]
    fn types_are_found_by_name() {
        let container = of("io.k8s.api.core.v1.Container").unwrap();
        assert!(container.fields.contains(&("ports", Keyed(&["containerPort", "protocol"]))));
        assert_eq!(of("io.k8s.api.core.v1.Nothing"), None);
    }
}
