//! The CRDs of the four kinds, generated from the Rust types.
//!
//! `structural` converts a type to a schema, `kubernetes` completes the schemas of Kubernetes' own types, and `v1alpha1`
//! reduces the schema to the old version. This file adds names, scope, printer columns and subresources.

mod kubernetes;
mod structural;
mod v1alpha1;

use crate::{
    GROUP, RayCluster, RayClusterSpec, RayClusterStatus, RayCronJob, RayCronJobSpec, RayCronJobStatus, RayJob,
    RayJobSpec, RayJobStatus, RayService, RayServiceSpec, RayServiceStatus, VERSION,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde_json::{Value, json};
use structural::Descriptions;

/// The versions that a CRD serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// `v1` only: small enough for a client-side `kubectl apply`.
    V1,
    /// Also the deprecated `v1alpha1`, for clusters that still store it.
    V1AndV1alpha1,
}

/// Returns the CRDs of all four kinds, sorted by name.
pub fn all(versions: Versions) -> Vec<CustomResourceDefinition> {
    KINDS.iter().map(|kind| kind.crd(versions, Descriptions::Removed)).collect()
}

/// Returns the CRDs of all four kinds with the documentation of their fields, for `kubectl explain`.
pub fn with_descriptions() -> Vec<CustomResourceDefinition> {
    KINDS.iter().map(|kind| kind.crd(Versions::V1, Descriptions::Own)).collect()
}

/// The parts of a CRD besides the schemas of spec and status.
struct Kind {
    kind: &'static str,
    plural: &'static str,
    schema: fn(Descriptions) -> Value,
    columns: &'static [Column],
    v1alpha1: Option<OldVersion>,
}

/// The differences between `v1alpha1` and `v1`.
struct OldVersion {
    schema: fn(Value) -> Value,
    columns: &'static [Column],
}

/// A printer column: name, type, JSONPath and priority; columns with priority 1 are shown by `-o wide` only.
type Column = (&'static str, &'static str, &'static str, i32);

const KINDS: &[Kind] = &[
    Kind {
        kind: RayCluster::KIND,
        plural: RayCluster::PLURAL,
        schema: root::<RayClusterSpec, RayClusterStatus>,
        columns: CLUSTER_COLUMNS,
        v1alpha1: Some(OldVersion { schema: v1alpha1::cluster, columns: CLUSTER_COLUMNS }),
    },
    Kind {
        kind: RayCronJob::KIND,
        plural: RayCronJob::PLURAL,
        schema: root::<RayCronJobSpec, RayCronJobStatus>,
        columns: &[
            ("schedule", "string", ".spec.schedule", 0),
            ("timezone", "string", ".spec.timeZone", 0),
            ("last schedule", "date", ".status.lastScheduleTime", 0),
            ("age", "date", ".metadata.creationTimestamp", 0),
            ("suspend", "boolean", ".spec.suspend", 0),
        ],
        v1alpha1: None,
    },
    Kind {
        kind: RayJob::KIND,
        plural: RayJob::PLURAL,
        schema: root::<RayJobSpec, RayJobStatus>,
        columns: &[
            ("job status", "string", ".status.jobStatus", 0),
            ("deployment status", "string", ".status.jobDeploymentStatus", 0),
            ("ray cluster name", "string", ".status.rayClusterName", 0),
            ("start time", "string", ".status.startTime", 0),
            ("end time", "string", ".status.endTime", 0),
            ("age", "date", ".metadata.creationTimestamp", 0),
        ],
        v1alpha1: Some(OldVersion { schema: v1alpha1::job, columns: &[] }),
    },
    Kind {
        kind: RayService::KIND,
        plural: RayService::PLURAL,
        schema: root::<RayServiceSpec, RayServiceStatus>,
        columns: &[
            ("service status", "string", ".status.serviceStatus", 0),
            ("num serve endpoints", "string", ".status.numServeEndpoints", 0),
        ],
        v1alpha1: Some(OldVersion { schema: v1alpha1::service, columns: &[] }),
    },
];

const CLUSTER_COLUMNS: &[Column] = &[
    ("desired workers", "integer", ".status.desiredWorkerReplicas", 0),
    ("available workers", "integer", ".status.availableWorkerReplicas", 0),
    ("cpus", "string", ".status.desiredCPU", 0),
    ("memory", "string", ".status.desiredMemory", 0),
    ("gpus", "string", ".status.desiredGPU", 0),
    ("tpus", "string", ".status.desiredTPU", 1),
    ("status", "string", ".status.state", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
    ("head pod IP", "string", ".status.head.podIP", 1),
    ("head service IP", "string", ".status.head.serviceIP", 1),
];

/// Returns the schema of a whole object.
fn root<Spec: JsonSchema, Status: JsonSchema>(descriptions: Descriptions) -> Value {
    json!({
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural::schema_of::<Spec>(descriptions),
            "status": structural::schema_of::<Status>(descriptions),
        },
    })
}

impl Kind {
    fn crd(&self, versions: Versions, descriptions: Descriptions) -> CustomResourceDefinition {
        let schema = (self.schema)(descriptions);
        let stored = version(VERSION, schema.clone(), self.columns);
        let mut served = vec![CustomResourceDefinitionVersion { storage: true, ..stored }];
        if let (Versions::V1AndV1alpha1, Some(old)) = (versions, &self.v1alpha1) {
            served.push(CustomResourceDefinitionVersion {
                deprecated: Some(true),
                deprecation_warning: Some(v1alpha1::warning(self.kind)),
                ..version(v1alpha1::VERSION, (old.schema)(schema), old.columns)
            });
        }
        CustomResourceDefinition {
            metadata: ObjectMeta { name: Some(format!("{}.{GROUP}", self.plural)), ..ObjectMeta::default() },
            spec: CustomResourceDefinitionSpec {
                group: GROUP.to_owned(),
                names: CustomResourceDefinitionNames {
                    categories: Some(vec!["all".to_owned()]),
                    kind: self.kind.to_owned(),
                    list_kind: Some(format!("{}List", self.kind)),
                    plural: self.plural.to_owned(),
                    singular: Some(self.kind.to_lowercase()),
                    short_names: None,
                },
                scope: "Namespaced".to_owned(),
                versions: served,
                ..CustomResourceDefinitionSpec::default()
            },
            ..CustomResourceDefinition::default()
        }
    }
}

/// Returns a version that is served but not stored.
fn version(name: &str, schema: Value, columns: &[Column]) -> CustomResourceDefinitionVersion {
    let columns: Vec<_> = columns
        .iter()
        .map(|&(name, type_, json_path, priority)| CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: json_path.to_owned(),
            priority: (priority != 0).then_some(priority),
            ..CustomResourceColumnDefinition::default()
        })
        .collect();
    CustomResourceDefinitionVersion {
        name: name.to_owned(),
        served: true,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(
                serde_json::from_value(schema).expect("a schema of this crate's own types holds known keywords only"),
            ),
        }),
        subresources: Some(CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(json!({}))),
            scale: None,
        }),
        additional_printer_columns: (!columns.is_empty()).then_some(columns),
        ..CustomResourceDefinitionVersion::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum size of annotations, in which `kubectl apply` stores the object.
    const ANNOTATION_LIMIT: usize = 262_144;

    #[test]
    fn v1_crds_fit_a_client_side_apply() {
        for crd in all(Versions::V1) {
            let size = serde_json::to_string(&crd).unwrap().len();
            assert!(size < ANNOTATION_LIMIT, "{} has {size} bytes", crd.metadata.name.unwrap());
        }
    }

    #[test]
    fn every_field_of_ours_can_be_explained() {
        let field =
            |crd: &Value, path: &str| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].pointer(path).cloned();
        for crd in with_descriptions() {
            let crd = json!(crd);
            for part in ["spec", "status"] {
                let schema = field(&crd, &format!("/properties/{part}")).unwrap();
                assert_explained(&schema, part);
            }
        }
        let cluster = json!(with_descriptions()[0]);
        let replicas = "/properties/spec/properties/workerGroupSpecs/items/properties/replicas/description";
        let expect = "How many replicas to run; the autoscaler changes this number.";
        assert_eq!(field(&cluster, replicas), Some(expect.into()));
        // Those of Kubernetes' own types would make the CRDs ten times as large.
        let pod = "/properties/spec/properties/headGroupSpec/properties/template/properties/spec/description";
        assert_eq!(field(&cluster, pod), None);
    }

    /// Descends into what this crate defines: everything that has a description itself.
    fn assert_explained(schema: &Value, path: &str) {
        assert!(schema["description"].is_string(), "{path} has no description");
        let is_own = |inner: &Value| inner["description"].is_string();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let siblings = schema["properties"].as_object().into_iter().flatten();
            if siblings.clone().any(|(_, sibling)| is_own(sibling)) {
                assert_explained(property, &format!("{path}.{name}"));
            }
        }
        for inner in [&schema["items"], &schema["additionalProperties"]] {
            if is_own(inner) {
                assert_explained(inner, &format!("{path}[]"));
            }
        }
    }

    #[test]
    fn exactly_v1_is_stored() {
        for crd in all(Versions::V1).into_iter().chain(all(Versions::V1AndV1alpha1)) {
            let stored: Vec<_> = crd.spec.versions.iter().filter(|v| v.storage).map(|v| v.name.as_str()).collect();
            assert_eq!(stored, [VERSION]);
        }
    }
}
