//! The built-in kinds, as a table.

use k8s_openapi::api::admissionregistration::v1 as admission;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::authentication::v1 as authentication;
use k8s_openapi::api::authorization::v1 as authorization;
use k8s_openapi::api::autoscaling::{v1 as autoscaling, v2 as autoscaling_two};
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::certificates::v1 as certificates;
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::api::flowcontrol::v1 as flowcontrol;
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::api::node::v1 as node;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::api::scheduling::v1 as scheduling;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use schemars::JsonSchema;
use serde_json::Value;

use super::defaults::{self, other, pod, service, workload};
use super::shape::Describe;
use super::{autoscaler_conversion, event_conversion, validation};
use crate::names::NameRule;
use crate::schema::FieldError;

/// What the server knows about a built-in kind.
#[derive(Clone, Copy)]
pub struct Builtin {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) singular: &'static str,
    pub(super) short: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) namespaced: bool,
    pub(super) verbs: &'static [&'static str],
    pub(super) subresources: &'static [Subresource],
    /// The objects of another kind or version that this one shows under other names.
    pub(super) view: Option<View>,
    /// Counts changes of the spec in `metadata.generation`.
    pub(crate) generation: bool,
    pub(crate) name_rule: NameRule,
    /// Dependents survive their owner unless the client asks for another policy.
    pub(crate) orphans_by_default: bool,
    /// Deleting returns the object instead of a `Status`.
    pub(crate) returns_deleted: bool,
    pub(crate) describe: Describe,
    pub(crate) definition: fn() -> std::borrow::Cow<'static, str>,
    /// Fills in what the client left out, on every write.
    pub(crate) default: fn(&mut Value),
    /// Sets what only the server may set on a new object.
    pub(crate) create: fn(&mut Value),
    /// Validates an object, given the one that it replaces.
    pub(crate) validate: fn(&Value, Option<&Value>, &mut Vec<FieldError>),
    /// Validates an object whose status a client changed, given the one before.
    pub(crate) validate_status: fn(&Value, &Value, &mut Vec<FieldError>),
}

/// How a kind shows the objects of another kind, or of another version of itself.
#[derive(Clone, Copy)]
pub(super) struct View {
    /// The table of the other.
    pub(super) table: &'static str,
    /// Converts from this kind to the stored form.
    pub(super) to_stored: fn(&mut Value),
    /// Converts from the stored form to this kind.
    pub(super) to_served: fn(&mut Value),
}

/// A subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The last part of the path.
    pub name: &'static str,
    /// Group, version and kind of its body, where they differ from the object's.
    pub kind: Option<(&'static str, &'static str, &'static str)>,
    /// The verbs it knows.
    pub verbs: &'static [&'static str],
}

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];
const STREAM: &[&str] = &["create", "get"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];

const STATUS: Subresource = Subresource { name: "status", kind: None, verbs: READ_WRITE };
const SCALE: Subresource = Subresource { name: "scale", kind: Some(("autoscaling", "v1", "Scale")), verbs: READ_WRITE };

const fn sub(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, kind: Some(("", "", kind)), verbs }
}

const fn kind<T: JsonSchema>(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> Builtin {
    Builtin {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        short: &[],
        categories: &[],
        namespaced: true,
        verbs: ALL,
        subresources: &[],
        view: None,
        generation: false,
        name_rule: NameRule::Subdomain,
        orphans_by_default: false,
        returns_deleted: false,
        describe: |generator| generator.subschema_for::<T>(),
        definition: T::schema_name,
        default: defaults::none,
        create: defaults::none,
        validate: validation::none,
        validate_status: |_, _, _| {},
    }
}

impl Builtin {
    const fn short(self, short: &'static [&'static str]) -> Builtin {
        Builtin { short, ..self }
    }
    const fn at(self, version: &'static str) -> Builtin {
        Builtin { version, ..self }
    }
    const fn showing(self, view: View) -> Builtin {
        Builtin { view: Some(view), ..self }
    }
    const fn in_all(self) -> Builtin {
        Builtin { categories: &["all"], ..self }
    }
    const fn extension(self) -> Builtin {
        Builtin { categories: &["api-extensions"], namespaced: false, ..self }
    }
    const fn cluster(self) -> Builtin {
        Builtin { namespaced: false, ..self }
    }
    const fn create_only(self) -> Builtin {
        Builtin { verbs: CREATE, ..self }
    }
    const fn subs(self, subresources: &'static [Subresource]) -> Builtin {
        Builtin { subresources, ..self }
    }
    const fn counted(self) -> Builtin {
        Builtin { generation: true, ..self }
    }
    const fn named(self, name_rule: NameRule) -> Builtin {
        Builtin { name_rule, ..self }
    }
    const fn default(self, default: fn(&mut Value)) -> Builtin {
        Builtin { default, ..self }
    }
    const fn create(self, create: fn(&mut Value)) -> Builtin {
        Builtin { create, ..self }
    }
    const fn validate(self, validate: fn(&Value, Option<&Value>, &mut Vec<FieldError>)) -> Builtin {
        Builtin { validate, ..self }
    }
    const fn validate_status(self, validate_status: fn(&Value, &Value, &mut Vec<FieldError>)) -> Builtin {
        Builtin { validate_status, ..self }
    }
    const fn orphans(self) -> Builtin {
        Builtin { orphans_by_default: true, ..self }
    }
    const fn returned(self) -> Builtin {
        Builtin { returns_deleted: true, ..self }
    }

    /// Returns whether there is a subresource of this name.
    pub(crate) fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|known| known.name == subresource)
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Every built-in kind, in the order in which discovery shows them.
pub(super) static BUILTINS: &[Builtin] = &[
    kind::<core::Binding>("", "Binding", "bindings", "binding").create_only(),
    Builtin {
        verbs: &["get", "list"],
        ..kind::<core::ComponentStatus>("", "ComponentStatus", "componentstatuses", "componentstatus")
    }
    .short(&["cs"])
    .cluster(),
    kind::<core::ConfigMap>("", "ConfigMap", "configmaps", "configmap").short(&["cm"]).validate(validation::data),
    kind::<core::Endpoints>("", "Endpoints", "endpoints", "endpoints")
        .short(&["ep"])
        .default(service::endpoints)
        .validate(validation::networking::endpoints),
    kind::<core::Event>("", "Event", "events", "event")
        .short(&["ev"])
        .default(other::event)
        .validate(validation::event),
    kind::<core::LimitRange>("", "LimitRange", "limitranges", "limitrange")
        .short(&["limits"])
        .validate(validation::limits::limit_range),
    Builtin { verbs: NO_COLLECTION, ..kind::<core::Namespace>("", "Namespace", "namespaces", "namespace") }
        .short(&["ns"])
        .cluster()
        .subs(&[sub("finalize", "Namespace", &["update"]), STATUS])
        .named(NameRule::Label)
        .default(other::namespace)
        .create(other::new_namespace)
        .validate(validation::namespace),
    kind::<core::Node>("", "Node", "nodes", "node")
        .short(&["no"])
        .cluster()
        .subs(&[sub("proxy", "NodeProxyOptions", PROXY), STATUS])
        .default(other::node)
        .validate(validation::workload::node),
    kind::<core::PersistentVolumeClaim>("", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
        .short(&["pvc"])
        .subs(&[STATUS])
        .default(other::claim)
        .create(other::new_claim)
        .validate(validation::volume::claim)
        .returned(),
    kind::<core::PersistentVolume>("", "PersistentVolume", "persistentvolumes", "persistentvolume")
        .short(&["pv"])
        .cluster()
        .subs(&[STATUS])
        .default(other::volume)
        .validate(validation::volume::persistent_volume)
        .returned(),
    kind::<core::Pod>("", "Pod", "pods", "pod")
        .short(&["po"])
        .in_all()
        .subs(&[
            sub("attach", "PodAttachOptions", STREAM),
            sub("binding", "Binding", CREATE),
            sub("ephemeralcontainers", "Pod", READ_WRITE),
            Subresource { name: "eviction", kind: Some(("policy", "v1", "Eviction")), verbs: CREATE },
            sub("exec", "PodExecOptions", STREAM),
            sub("log", "Pod", &["get"]),
            sub("portforward", "PodPortForwardOptions", STREAM),
            sub("proxy", "PodProxyOptions", PROXY),
            sub("resize", "Pod", READ_WRITE),
            STATUS,
        ])
        .counted()
        .default(pod::pod)
        .create(pod::new_status)
        .validate(validation::pod::pod)
        .returned(),
    kind::<core::PodTemplate>("", "PodTemplate", "podtemplates", "podtemplate")
        .default(workload::pod_template)
        .validate(validation::workload::pod_template)
        .returned(),
    kind::<core::ReplicationController>("", "ReplicationController", "replicationcontrollers", "replicationcontroller")
        .short(&["rc"])
        .in_all()
        .subs(&[SCALE, STATUS])
        .counted()
        .default(workload::replication_controller)
        .validate(validation::workload::replication_controller)
        .validate_status(validation::workload::replicas_status)
        .orphans(),
    kind::<core::ResourceQuota>("", "ResourceQuota", "resourcequotas", "resourcequota")
        .short(&["quota"])
        .subs(&[STATUS])
        .default(defaults::empty_status)
        .validate(validation::limits::quota)
        .returned(),
    kind::<core::Secret>("", "Secret", "secrets", "secret").default(other::secret).validate(validation::data),
    kind::<core::ServiceAccount>("", "ServiceAccount", "serviceaccounts", "serviceaccount")
        .short(&["sa"])
        .subs(&[Subresource {
            name: "token",
            kind: Some(("authentication.k8s.io", "v1", "TokenRequest")),
            verbs: CREATE,
        }])
        .returned(),
    kind::<core::Service>("", "Service", "services", "service")
        .short(&["svc"])
        .in_all()
        .subs(&[sub("proxy", "ServiceProxyOptions", PROXY), STATUS])
        .named(NameRule::Label1035)
        .default(service::service)
        .validate(validation::networking::service)
        .returned(),
    kind::<apiregistration::APIService>("apiregistration.k8s.io", "APIService", "apiservices", "apiservice")
        .extension()
        .subs(&[STATUS])
        .default(other::api_service)
        .validate(validation::api_service::api_service),
    kind::<apps::ControllerRevision>("apps", "ControllerRevision", "controllerrevisions", "controllerrevision")
        .validate(validation::workload::controller_revision),
    kind::<apps::DaemonSet>("apps", "DaemonSet", "daemonsets", "daemonset")
        .short(&["ds"])
        .in_all()
        .subs(&[STATUS])
        .counted()
        .default(workload::daemon_set)
        .create(workload::new_daemon_set)
        .validate(validation::workload::daemon_set),
    kind::<apps::Deployment>("apps", "Deployment", "deployments", "deployment")
        .short(&["deploy"])
        .in_all()
        .subs(&[SCALE, STATUS])
        .counted()
        .default(workload::deployment)
        .validate(validation::workload::deployment)
        .validate_status(validation::workload::replicas_status),
    kind::<apps::ReplicaSet>("apps", "ReplicaSet", "replicasets", "replicaset")
        .short(&["rs"])
        .in_all()
        .subs(&[SCALE, STATUS])
        .counted()
        .default(workload::replica_set)
        .validate(validation::workload::replica_set)
        .validate_status(validation::workload::replicas_status),
    kind::<apps::StatefulSet>("apps", "StatefulSet", "statefulsets", "statefulset")
        .short(&["sts"])
        .in_all()
        .subs(&[SCALE, STATUS])
        .counted()
        .default(workload::stateful_set)
        .validate(validation::workload::stateful_set),
    kind::<events::Event>("events.k8s.io", "Event", "events", "event")
        .showing(event_conversion::VIEW)
        .short(&["ev"])
        .default(other::event)
        .validate(validation::event),
    kind::<authentication::SelfSubjectReview>(
        "authentication.k8s.io",
        "SelfSubjectReview",
        "selfsubjectreviews",
        "selfsubjectreview",
    )
    .cluster()
    .create_only(),
    kind::<authentication::TokenReview>("authentication.k8s.io", "TokenReview", "tokenreviews", "tokenreview")
        .cluster()
        .create_only(),
    kind::<authorization::LocalSubjectAccessReview>(
        "authorization.k8s.io",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
    )
    .create_only(),
    kind::<authorization::SelfSubjectAccessReview>(
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
    )
    .cluster()
    .create_only(),
    kind::<authorization::SelfSubjectRulesReview>(
        "authorization.k8s.io",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        "selfsubjectrulesreview",
    )
    .cluster()
    .create_only(),
    kind::<authorization::SubjectAccessReview>(
        "authorization.k8s.io",
        "SubjectAccessReview",
        "subjectaccessreviews",
        "subjectaccessreview",
    )
    .cluster()
    .create_only(),
    kind::<autoscaling_two::HorizontalPodAutoscaler>(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
    )
    .at("v2")
    .short(&["hpa"])
    .in_all()
    .subs(&[STATUS])
    .default(other::autoscaler)
    .validate(validation::autoscaling::autoscaler),
    kind::<autoscaling::HorizontalPodAutoscaler>(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
    )
    .showing(autoscaler_conversion::VIEW)
    .short(&["hpa"])
    .in_all()
    .subs(&[STATUS])
    .default(other::autoscaler)
    .validate(validation::autoscaling::autoscaler),
    kind::<batch::CronJob>("batch", "CronJob", "cronjobs", "cronjob")
        .short(&["cj"])
        .in_all()
        .subs(&[STATUS])
        .counted()
        .default(workload::cron_job)
        .validate(validation::batch::cron_job),
    kind::<batch::Job>("batch", "Job", "jobs", "job")
        .in_all()
        .subs(&[STATUS])
        .counted()
        .default(workload::job)
        .create(workload::new_job)
        .validate(validation::batch::job)
        .validate_status(validation::batch::job_status)
        .orphans(),
    kind::<certificates::CertificateSigningRequest>(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "certificatesigningrequest",
    )
    .short(&["csr"])
    .cluster()
    .subs(&[Subresource { name: "approval", kind: None, verbs: READ_WRITE }, STATUS])
    .default(other::signing_request)
    .validate(validation::policy::signing_request),
    kind::<networking::IngressClass>("networking.k8s.io", "IngressClass", "ingressclasses", "ingressclass")
        .cluster()
        .counted()
        .validate(validation::networking::ingress_class),
    kind::<networking::Ingress>("networking.k8s.io", "Ingress", "ingresses", "ingress")
        .short(&["ing"])
        .subs(&[STATUS])
        .counted()
        .default(service::ingress)
        .validate(validation::networking::ingress),
    kind::<networking::NetworkPolicy>("networking.k8s.io", "NetworkPolicy", "networkpolicies", "networkpolicy")
        .short(&["netpol"])
        .counted()
        .default(service::network_policy)
        .validate(validation::networking::network_policy),
    kind::<policy::PodDisruptionBudget>("policy", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget")
        .short(&["pdb"])
        .subs(&[STATUS])
        .counted()
        .default(other::disruption_budget)
        .validate(validation::limits::disruption_budget),
    kind::<rbac::ClusterRoleBinding>(RBAC, "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding")
        .cluster()
        .named(NameRule::Path)
        .default(other::binding)
        .validate(validation::limits::binding),
    kind::<rbac::ClusterRole>(RBAC, "ClusterRole", "clusterroles", "clusterrole")
        .cluster()
        .named(NameRule::Path)
        .default(other::role)
        .validate(validation::limits::role),
    kind::<rbac::RoleBinding>(RBAC, "RoleBinding", "rolebindings", "rolebinding")
        .named(NameRule::Path)
        .default(other::binding)
        .validate(validation::limits::binding),
    kind::<rbac::Role>(RBAC, "Role", "roles", "role")
        .named(NameRule::Path)
        .default(other::role)
        .validate(validation::limits::role),
    kind::<storage::CSIDriver>("storage.k8s.io", "CSIDriver", "csidrivers", "csidriver")
        .cluster()
        .validate(validation::drivers::csi_driver),
    kind::<storage::CSINode>("storage.k8s.io", "CSINode", "csinodes", "csinode")
        .cluster()
        .validate(validation::drivers::csi_node),
    kind::<storage::StorageClass>("storage.k8s.io", "StorageClass", "storageclasses", "storageclass")
        .short(&["sc"])
        .cluster()
        .default(other::storage_class)
        .validate(validation::limits::storage_class),
    kind::<storage::VolumeAttachment>("storage.k8s.io", "VolumeAttachment", "volumeattachments", "volumeattachment")
        .cluster()
        .subs(&[STATUS])
        .validate(validation::drivers::volume_attachment),
    kind::<admission::MutatingWebhookConfiguration>(
        ADMISSION,
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "mutatingwebhookconfiguration",
    )
    .extension()
    .counted()
    .default(other::webhooks)
    .validate(validation::policy::webhooks),
    kind::<admission::ValidatingWebhookConfiguration>(
        ADMISSION,
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "validatingwebhookconfiguration",
    )
    .extension()
    .counted()
    .default(other::webhooks)
    .validate(validation::policy::webhooks),
    kind::<admission::ValidatingAdmissionPolicy>(
        ADMISSION,
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
    )
    .extension()
    .subs(&[STATUS])
    .counted()
    .default(other::admission_policy)
    .create(other::new_admission_policy)
    .validate(validation::policy::admission_policy),
    kind::<admission::ValidatingAdmissionPolicyBinding>(
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
    )
    .extension()
    .counted()
    .default(other::admission_binding)
    .validate(validation::policy::admission_binding),
    kind::<apiextensions::CustomResourceDefinition>(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "customresourcedefinition",
    )
    .short(&["crd", "crds"])
    .extension()
    .subs(&[STATUS])
    .counted()
    .default(other::definition)
    .create(other::new_definition)
    .validate(super::custom::validate),
    kind::<scheduling::PriorityClass>("scheduling.k8s.io", "PriorityClass", "priorityclasses", "priorityclass")
        .short(&["pc"])
        .cluster()
        .counted()
        .default(other::priority_class)
        .validate(validation::limits::priority_class),
    kind::<coordination::Lease>("coordination.k8s.io", "Lease", "leases", "lease")
        .default(other::lease)
        .validate(validation::limits::lease),
    kind::<flowcontrol::FlowSchema>("flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas", "flowschema")
        .cluster()
        .subs(&[STATUS])
        .counted()
        .default(other::flow_schema)
        .validate(validation::flow_control::flow_schema),
    kind::<flowcontrol::PriorityLevelConfiguration>(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        "prioritylevelconfiguration",
    )
    .cluster()
    .subs(&[STATUS])
    .counted()
    .default(other::priority_level)
    .validate(validation::flow_control::priority_level),
    kind::<node::RuntimeClass>("node.k8s.io", "RuntimeClass", "runtimeclasses", "runtimeclass")
        .cluster()
        .validate(validation::drivers::runtime_class),
    kind::<discovery::EndpointSlice>("discovery.k8s.io", "EndpointSlice", "endpointslices", "endpointslice")
        .counted()
        .default(service::endpoint_slice)
        .validate(validation::networking::endpoint_slice),
];
