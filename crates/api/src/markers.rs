//! How lists and maps inside Kubernetes' own types merge: one table for the CRDs and for servers.
//!
//! The Rust types do not carry this knowledge, yet two callers need it. Schemas publish it as
//! `x-kubernetes-list-type`, `-list-map-keys` and `-map-type`, which decide how server-side apply
//! merges; and a server that takes strategic merge patches needs the merge keys.
//!
//! The table is keyed by the type's OpenAPI name, which is also its `schemars` name, and by field.
//! It covers the types that the embedded API server offers, and knows nothing of Ray. A field that
//! is not in it has no marker: its lists are atomic and its maps merge key by key. A test compares
//! it with the OpenAPI document of the real kube-apiserver.

/// What the table says of one type.
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
pub struct Marker {
    /// In server-side apply.
    pub apply: Apply,
    /// In a strategic merge patch.
    pub patch: Patch,
}

/// How server-side apply merges a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// As its type says.
    Unmarked,
    /// A list that has one owner.
    Atomic,
    /// A list of scalars, each with its owners.
    Set,
    /// A list of objects that these fields tell apart.
    Keyed(&'static [&'static str]),
    /// A map that has one owner.
    AtomicMap,
}

/// What a strategic merge patch does to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Puts a new list in place of the old, and merges maps, as for unmarked fields.
    Plain,
    /// Puts the new value in place of the old, even if it is a map.
    Replace,
    /// Merges a list of objects by this field.
    Merge(&'static str),
    /// Merges a list of scalars.
    MergeScalars,
    /// Merges a list of objects by this field; an item keeps only the keys that `$retainKeys` names.
    MergeRetainingKeys(&'static str),
    /// Merges a map that keeps only the keys that `$retainKeys` names.
    RetainKeys,
}

/// The markers of a type, by its OpenAPI name.
pub fn of(name: &str) -> Option<&'static TypeMarkers> {
    TABLE.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| &TABLE[at])
}

impl TypeMarkers {
    /// The marker of a field.
    pub fn field(&self, name: &str) -> Option<Marker> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, marker)| *marker)
    }
}

const ATOMIC: Marker = Marker { apply: Apply::Atomic, patch: Patch::Plain };
const ATOMIC_MAP: Marker = Marker { apply: Apply::AtomicMap, patch: Patch::Plain };
const SET: Marker = Marker { apply: Apply::Set, patch: Patch::Plain };
const SET_MERGED: Marker = Marker { apply: Apply::Set, patch: Patch::MergeScalars };

/// A list of objects that both ways of merging tell apart; patches look at the first key only.
const fn keyed(keys: &'static [&'static str]) -> Marker {
    Marker { apply: Apply::Keyed(keys), patch: Patch::Merge(keys[0]) }
}

/// The same, with `$retainKeys`.
const fn keyed_retaining(keys: &'static [&'static str]) -> Marker {
    Marker { apply: Apply::Keyed(keys), patch: Patch::MergeRetainingKeys(keys[0]) }
}

/// A list of objects that server-side apply merges and patches replace.
const fn keyed_in_apply(keys: &'static [&'static str]) -> Marker {
    Marker { apply: Apply::Keyed(keys), patch: Patch::Plain }
}

/// A list of objects that patches merge and server-side apply replaces.
const fn keyed_in_patch(key: &'static str) -> Marker {
    Marker { apply: Apply::Atomic, patch: Patch::Merge(key) }
}

/// A type whose fields merge one by one.
const fn parts(name: &'static str, fields: &'static [(&'static str, Marker)]) -> TypeMarkers {
    TypeMarkers { name, atomic: false, fields }
}

/// A type whose objects are replaced as a whole.
const fn whole(name: &'static str, fields: &'static [(&'static str, Marker)]) -> TypeMarkers {
    TypeMarkers { name, atomic: true, fields }
}

/// All marked types, sorted by name.
pub const TABLE: &[TypeMarkers] = &[
    whole(
        "io.k8s.api.admissionregistration.v1.MatchResources",
        &[("excludeResourceRules", ATOMIC), ("resourceRules", ATOMIC)],
    ),
    parts(
        "io.k8s.api.admissionregistration.v1.MutatingWebhook",
        &[("admissionReviewVersions", ATOMIC), ("matchConditions", keyed(&["name"])), ("rules", ATOMIC)],
    ),
    parts("io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration", &[("webhooks", keyed(&["name"]))]),
    whole(
        "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
        &[
            ("apiGroups", ATOMIC),
            ("apiVersions", ATOMIC),
            ("operations", ATOMIC),
            ("resourceNames", ATOMIC),
            ("resources", ATOMIC),
        ],
    ),
    whole("io.k8s.api.admissionregistration.v1.ParamKind", &[]),
    whole("io.k8s.api.admissionregistration.v1.ParamRef", &[]),
    parts(
        "io.k8s.api.admissionregistration.v1.RuleWithOperations",
        &[("apiGroups", ATOMIC), ("apiVersions", ATOMIC), ("operations", ATOMIC), ("resources", ATOMIC)],
    ),
    parts("io.k8s.api.admissionregistration.v1.TypeChecking", &[("expressionWarnings", ATOMIC)]),
    parts("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", &[("validationActions", SET)]),
    parts(
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        &[
            ("auditAnnotations", ATOMIC),
            ("matchConditions", keyed(&["name"])),
            ("validations", ATOMIC),
            ("variables", keyed(&["name"])),
        ],
    ),
    parts(
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyStatus",
        &[("conditions", keyed_in_apply(&["type"]))],
    ),
    parts(
        "io.k8s.api.admissionregistration.v1.ValidatingWebhook",
        &[("admissionReviewVersions", ATOMIC), ("matchConditions", keyed(&["name"])), ("rules", ATOMIC)],
    ),
    parts("io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration", &[("webhooks", keyed(&["name"]))]),
    whole("io.k8s.api.admissionregistration.v1.Variable", &[]),
    parts("io.k8s.api.apps.v1.DaemonSetStatus", &[("conditions", keyed(&["type"]))]),
    parts(
        "io.k8s.api.apps.v1.DeploymentSpec",
        &[("strategy", Marker { apply: Apply::Unmarked, patch: Patch::RetainKeys })],
    ),
    parts("io.k8s.api.apps.v1.DeploymentStatus", &[("conditions", keyed(&["type"]))]),
    parts("io.k8s.api.apps.v1.ReplicaSetStatus", &[("conditions", keyed(&["type"]))]),
    parts("io.k8s.api.apps.v1.StatefulSetSpec", &[("volumeClaimTemplates", ATOMIC)]),
    parts("io.k8s.api.apps.v1.StatefulSetStatus", &[("conditions", keyed(&["type"]))]),
    parts("io.k8s.api.authentication.v1.TokenRequestSpec", &[("audiences", ATOMIC)]),
    parts("io.k8s.api.authentication.v1.TokenReviewSpec", &[("audiences", ATOMIC)]),
    parts("io.k8s.api.authentication.v1.TokenReviewStatus", &[("audiences", ATOMIC)]),
    parts("io.k8s.api.authentication.v1.UserInfo", &[("groups", ATOMIC)]),
    parts("io.k8s.api.authorization.v1.FieldSelectorAttributes", &[("requirements", ATOMIC)]),
    parts("io.k8s.api.authorization.v1.LabelSelectorAttributes", &[("requirements", ATOMIC)]),
    parts("io.k8s.api.authorization.v1.NonResourceRule", &[("nonResourceURLs", ATOMIC), ("verbs", ATOMIC)]),
    parts(
        "io.k8s.api.authorization.v1.ResourceRule",
        &[("apiGroups", ATOMIC), ("resourceNames", ATOMIC), ("resources", ATOMIC), ("verbs", ATOMIC)],
    ),
    parts("io.k8s.api.authorization.v1.SubjectAccessReviewSpec", &[("groups", ATOMIC)]),
    parts(
        "io.k8s.api.authorization.v1.SubjectRulesReviewStatus",
        &[("nonResourceRules", ATOMIC), ("resourceRules", ATOMIC)],
    ),
    whole("io.k8s.api.autoscaling.v1.CrossVersionObjectReference", &[]),
    parts("io.k8s.api.batch.v1.CronJobStatus", &[("active", ATOMIC)]),
    parts("io.k8s.api.batch.v1.JobStatus", &[("conditions", keyed_in_patch("type"))]),
    parts("io.k8s.api.batch.v1.PodFailurePolicy", &[("rules", ATOMIC)]),
    parts("io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement", &[("values", SET)]),
    parts("io.k8s.api.batch.v1.PodFailurePolicyRule", &[("onPodConditions", ATOMIC)]),
    parts("io.k8s.api.batch.v1.SuccessPolicy", &[("rules", ATOMIC)]),
    parts("io.k8s.api.batch.v1.UncountedTerminatedPods", &[("failed", SET), ("succeeded", SET)]),
    parts("io.k8s.api.core.v1.Capabilities", &[("add", ATOMIC), ("drop", ATOMIC)]),
    parts("io.k8s.api.core.v1.CephFSPersistentVolumeSource", &[("monitors", ATOMIC)]),
    parts("io.k8s.api.core.v1.CephFSVolumeSource", &[("monitors", ATOMIC)]),
    parts("io.k8s.api.core.v1.ComponentStatus", &[("conditions", keyed(&["type"]))]),
    whole("io.k8s.api.core.v1.ConfigMapKeySelector", &[]),
    parts("io.k8s.api.core.v1.ConfigMapProjection", &[("items", ATOMIC)]),
    parts("io.k8s.api.core.v1.ConfigMapVolumeSource", &[("items", ATOMIC)]),
    parts(
        "io.k8s.api.core.v1.Container",
        &[
            ("args", ATOMIC),
            ("command", ATOMIC),
            ("env", keyed(&["name"])),
            ("envFrom", ATOMIC),
            ("ports", keyed(&["containerPort", "protocol"])),
            ("resizePolicy", ATOMIC),
            ("restartPolicyRules", ATOMIC),
            ("volumeDevices", keyed(&["devicePath"])),
            ("volumeMounts", keyed(&["mountPath"])),
        ],
    ),
    parts("io.k8s.api.core.v1.ContainerImage", &[("names", ATOMIC)]),
    parts("io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes", &[("values", SET)]),
    parts(
        "io.k8s.api.core.v1.ContainerStatus",
        &[("allocatedResourcesStatus", keyed(&["name"])), ("volumeMounts", keyed(&["mountPath"]))],
    ),
    parts("io.k8s.api.core.v1.DownwardAPIProjection", &[("items", ATOMIC)]),
    parts("io.k8s.api.core.v1.DownwardAPIVolumeSource", &[("items", ATOMIC)]),
    whole("io.k8s.api.core.v1.EndpointAddress", &[]),
    whole("io.k8s.api.core.v1.EndpointPort", &[]),
    parts(
        "io.k8s.api.core.v1.EndpointSubset",
        &[("addresses", ATOMIC), ("notReadyAddresses", ATOMIC), ("ports", ATOMIC)],
    ),
    parts("io.k8s.api.core.v1.Endpoints", &[("subsets", ATOMIC)]),
    parts(
        "io.k8s.api.core.v1.EphemeralContainer",
        &[
            ("args", ATOMIC),
            ("command", ATOMIC),
            ("env", keyed(&["name"])),
            ("envFrom", ATOMIC),
            ("ports", keyed(&["containerPort", "protocol"])),
            ("resizePolicy", ATOMIC),
            ("restartPolicyRules", ATOMIC),
            ("volumeDevices", keyed(&["devicePath"])),
            ("volumeMounts", keyed(&["mountPath"])),
        ],
    ),
    parts("io.k8s.api.core.v1.ExecAction", &[("command", ATOMIC)]),
    parts("io.k8s.api.core.v1.FCVolumeSource", &[("targetWWNs", ATOMIC), ("wwids", ATOMIC)]),
    whole("io.k8s.api.core.v1.FileKeySelector", &[]),
    parts("io.k8s.api.core.v1.HTTPGetAction", &[("httpHeaders", ATOMIC)]),
    parts("io.k8s.api.core.v1.HostAlias", &[("hostnames", ATOMIC)]),
    parts("io.k8s.api.core.v1.ISCSIPersistentVolumeSource", &[("portals", ATOMIC)]),
    parts("io.k8s.api.core.v1.ISCSIVolumeSource", &[("portals", ATOMIC)]),
    parts("io.k8s.api.core.v1.LimitRangeSpec", &[("limits", ATOMIC)]),
    parts("io.k8s.api.core.v1.LinuxContainerUser", &[("supplementalGroups", ATOMIC)]),
    parts("io.k8s.api.core.v1.LoadBalancerIngress", &[("ports", ATOMIC)]),
    parts("io.k8s.api.core.v1.LoadBalancerStatus", &[("ingress", ATOMIC)]),
    whole("io.k8s.api.core.v1.LocalObjectReference", &[]),
    parts("io.k8s.api.core.v1.NamespaceSpec", &[("finalizers", ATOMIC)]),
    parts("io.k8s.api.core.v1.NamespaceStatus", &[("conditions", keyed(&["type"]))]),
    parts("io.k8s.api.core.v1.NodeAffinity", &[("preferredDuringSchedulingIgnoredDuringExecution", ATOMIC)]),
    whole("io.k8s.api.core.v1.NodeSelector", &[("nodeSelectorTerms", ATOMIC)]),
    parts("io.k8s.api.core.v1.NodeSelectorRequirement", &[("values", ATOMIC)]),
    whole("io.k8s.api.core.v1.NodeSelectorTerm", &[("matchExpressions", ATOMIC), ("matchFields", ATOMIC)]),
    parts("io.k8s.api.core.v1.NodeSpec", &[("podCIDRs", SET_MERGED), ("taints", ATOMIC)]),
    parts(
        "io.k8s.api.core.v1.NodeStatus",
        &[
            ("addresses", keyed(&["type"])),
            ("conditions", keyed(&["type"])),
            ("images", ATOMIC),
            ("runtimeHandlers", ATOMIC),
            ("volumesAttached", ATOMIC),
            ("volumesInUse", ATOMIC),
        ],
    ),
    whole("io.k8s.api.core.v1.ObjectFieldSelector", &[]),
    whole("io.k8s.api.core.v1.ObjectReference", &[]),
    parts("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &[("accessModes", ATOMIC)]),
    parts(
        "io.k8s.api.core.v1.PersistentVolumeClaimStatus",
        &[("accessModes", ATOMIC), ("conditions", keyed(&["type"]))],
    ),
    parts("io.k8s.api.core.v1.PersistentVolumeSpec", &[("accessModes", ATOMIC), ("mountOptions", ATOMIC)]),
    parts(
        "io.k8s.api.core.v1.PodAffinity",
        &[
            ("preferredDuringSchedulingIgnoredDuringExecution", ATOMIC),
            ("requiredDuringSchedulingIgnoredDuringExecution", ATOMIC),
        ],
    ),
    parts(
        "io.k8s.api.core.v1.PodAffinityTerm",
        &[("matchLabelKeys", ATOMIC), ("mismatchLabelKeys", ATOMIC), ("namespaces", ATOMIC)],
    ),
    parts(
        "io.k8s.api.core.v1.PodAntiAffinity",
        &[
            ("preferredDuringSchedulingIgnoredDuringExecution", ATOMIC),
            ("requiredDuringSchedulingIgnoredDuringExecution", ATOMIC),
        ],
    ),
    parts("io.k8s.api.core.v1.PodDNSConfig", &[("nameservers", ATOMIC), ("options", ATOMIC), ("searches", ATOMIC)]),
    parts("io.k8s.api.core.v1.PodExtendedResourceClaimStatus", &[("requestMappings", ATOMIC)]),
    parts("io.k8s.api.core.v1.PodSecurityContext", &[("supplementalGroups", ATOMIC), ("sysctls", ATOMIC)]),
    parts(
        "io.k8s.api.core.v1.PodSpec",
        &[
            ("containers", keyed(&["name"])),
            ("ephemeralContainers", keyed(&["name"])),
            ("hostAliases", keyed(&["ip"])),
            ("imagePullSecrets", keyed(&["name"])),
            ("initContainers", keyed(&["name"])),
            ("nodeSelector", ATOMIC_MAP),
            ("readinessGates", ATOMIC),
            ("resourceClaims", keyed_retaining(&["name"])),
            ("schedulingGates", keyed(&["name"])),
            ("tolerations", ATOMIC),
            ("topologySpreadConstraints", keyed(&["topologyKey", "whenUnsatisfiable"])),
            ("volumes", keyed_retaining(&["name"])),
        ],
    ),
    parts(
        "io.k8s.api.core.v1.PodStatus",
        &[
            ("conditions", keyed(&["type"])),
            ("containerStatuses", ATOMIC),
            ("ephemeralContainerStatuses", ATOMIC),
            ("hostIPs", keyed_in_patch("ip")),
            ("initContainerStatuses", ATOMIC),
            ("podIPs", keyed(&["ip"])),
            ("resourceClaimStatuses", keyed_retaining(&["name"])),
        ],
    ),
    parts("io.k8s.api.core.v1.ProjectedVolumeSource", &[("sources", ATOMIC)]),
    parts("io.k8s.api.core.v1.RBDPersistentVolumeSource", &[("monitors", ATOMIC)]),
    parts("io.k8s.api.core.v1.RBDVolumeSource", &[("monitors", ATOMIC)]),
    parts("io.k8s.api.core.v1.ReplicationControllerSpec", &[("selector", ATOMIC_MAP)]),
    parts("io.k8s.api.core.v1.ReplicationControllerStatus", &[("conditions", keyed(&["type"]))]),
    whole("io.k8s.api.core.v1.ResourceFieldSelector", &[]),
    parts("io.k8s.api.core.v1.ResourceQuotaSpec", &[("scopes", ATOMIC)]),
    parts("io.k8s.api.core.v1.ResourceRequirements", &[("claims", keyed_in_apply(&["name"]))]),
    parts("io.k8s.api.core.v1.ResourceStatus", &[("resources", keyed_in_apply(&["resourceID"]))]),
    whole("io.k8s.api.core.v1.ScopeSelector", &[("matchExpressions", ATOMIC)]),
    parts("io.k8s.api.core.v1.ScopedResourceSelectorRequirement", &[("values", ATOMIC)]),
    whole("io.k8s.api.core.v1.SecretKeySelector", &[]),
    parts("io.k8s.api.core.v1.SecretProjection", &[("items", ATOMIC)]),
    whole("io.k8s.api.core.v1.SecretReference", &[]),
    parts("io.k8s.api.core.v1.SecretVolumeSource", &[("items", ATOMIC)]),
    parts("io.k8s.api.core.v1.ServiceAccount", &[("imagePullSecrets", ATOMIC), ("secrets", keyed(&["name"]))]),
    parts(
        "io.k8s.api.core.v1.ServiceSpec",
        &[
            ("clusterIPs", ATOMIC),
            ("externalIPs", ATOMIC),
            ("ipFamilies", ATOMIC),
            ("loadBalancerSourceRanges", ATOMIC),
            ("ports", keyed(&["port", "protocol"])),
            ("selector", ATOMIC_MAP),
        ],
    ),
    parts("io.k8s.api.core.v1.ServiceStatus", &[("conditions", keyed(&["type"]))]),
    parts("io.k8s.api.core.v1.TopologySelectorLabelRequirement", &[("values", ATOMIC)]),
    whole("io.k8s.api.core.v1.TopologySelectorTerm", &[("matchLabelExpressions", ATOMIC)]),
    parts("io.k8s.api.core.v1.TopologySpreadConstraint", &[("matchLabelKeys", ATOMIC)]),
    whole("io.k8s.api.core.v1.TypedLocalObjectReference", &[]),
    parts("io.k8s.api.discovery.v1.Endpoint", &[("addresses", SET)]),
    parts("io.k8s.api.discovery.v1.EndpointHints", &[("forNodes", ATOMIC), ("forZones", ATOMIC)]),
    whole("io.k8s.api.discovery.v1.EndpointPort", &[]),
    parts("io.k8s.api.discovery.v1.EndpointSlice", &[("endpoints", ATOMIC), ("ports", ATOMIC)]),
    parts("io.k8s.api.networking.v1.HTTPIngressRuleValue", &[("paths", ATOMIC)]),
    parts("io.k8s.api.networking.v1.IPBlock", &[("except", ATOMIC)]),
    parts("io.k8s.api.networking.v1.IngressLoadBalancerIngress", &[("ports", ATOMIC)]),
    parts("io.k8s.api.networking.v1.IngressLoadBalancerStatus", &[("ingress", ATOMIC)]),
    parts("io.k8s.api.networking.v1.IngressSpec", &[("rules", ATOMIC), ("tls", ATOMIC)]),
    parts("io.k8s.api.networking.v1.IngressTLS", &[("hosts", ATOMIC)]),
    parts("io.k8s.api.networking.v1.NetworkPolicyEgressRule", &[("ports", ATOMIC), ("to", ATOMIC)]),
    parts("io.k8s.api.networking.v1.NetworkPolicyIngressRule", &[("from", ATOMIC), ("ports", ATOMIC)]),
    parts(
        "io.k8s.api.networking.v1.NetworkPolicySpec",
        &[("egress", ATOMIC), ("ingress", ATOMIC), ("policyTypes", ATOMIC)],
    ),
    whole("io.k8s.api.networking.v1.ServiceBackendPort", &[]),
    parts("io.k8s.api.networking.v1.ServiceCIDRSpec", &[("cidrs", ATOMIC)]),
    parts("io.k8s.api.networking.v1.ServiceCIDRStatus", &[("conditions", keyed(&["type"]))]),
    parts(
        "io.k8s.api.policy.v1.PodDisruptionBudgetSpec",
        &[("selector", Marker { apply: Apply::Unmarked, patch: Patch::Replace })],
    ),
    parts("io.k8s.api.policy.v1.PodDisruptionBudgetStatus", &[("conditions", keyed(&["type"]))]),
    parts("io.k8s.api.rbac.v1.AggregationRule", &[("clusterRoleSelectors", ATOMIC)]),
    parts("io.k8s.api.rbac.v1.ClusterRole", &[("rules", ATOMIC)]),
    parts("io.k8s.api.rbac.v1.ClusterRoleBinding", &[("subjects", ATOMIC)]),
    parts(
        "io.k8s.api.rbac.v1.PolicyRule",
        &[
            ("apiGroups", ATOMIC),
            ("nonResourceURLs", ATOMIC),
            ("resourceNames", ATOMIC),
            ("resources", ATOMIC),
            ("verbs", ATOMIC),
        ],
    ),
    parts("io.k8s.api.rbac.v1.Role", &[("rules", ATOMIC)]),
    parts("io.k8s.api.rbac.v1.RoleBinding", &[("subjects", ATOMIC)]),
    whole("io.k8s.api.rbac.v1.RoleRef", &[]),
    whole("io.k8s.api.rbac.v1.Subject", &[]),
    parts(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionNames",
        &[("categories", ATOMIC), ("shortNames", ATOMIC)],
    ),
    parts(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
        &[("versions", ATOMIC)],
    ),
    parts(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        &[("conditions", keyed_in_apply(&["type"])), ("storedVersions", ATOMIC)],
    ),
    parts(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion",
        &[("additionalPrinterColumns", ATOMIC), ("selectableFields", ATOMIC)],
    ),
    parts(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        &[
            ("allOf", ATOMIC),
            ("anyOf", ATOMIC),
            ("enum", ATOMIC),
            ("oneOf", ATOMIC),
            ("required", ATOMIC),
            ("x-kubernetes-list-map-keys", ATOMIC),
            ("x-kubernetes-validations", keyed(&["rule"])),
        ],
    ),
    parts(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.WebhookConversion",
        &[("conversionReviewVersions", ATOMIC)],
    ),
    whole("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", &[("matchExpressions", ATOMIC)]),
    parts("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement", &[("values", ATOMIC)]),
    parts(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        &[("finalizers", SET_MERGED), ("managedFields", ATOMIC), ("ownerReferences", keyed(&["uid"]))],
    ),
    whole("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", &[]),
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
    fn finds_types_and_fields() {
        let container = of("io.k8s.api.core.v1.Container").unwrap();
        let ports =
            Marker { apply: Apply::Keyed(&["containerPort", "protocol"]), patch: Patch::Merge("containerPort") };
        assert_eq!(container.field("ports"), Some(ports));
        assert_eq!(container.field("image"), None);
        assert_eq!(of("io.k8s.api.core.v1.Nothing"), None);
    }
}
