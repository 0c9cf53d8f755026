//! The kinds that are checked, and their schemas.

use std::collections::HashMap;

use manta_api::crd::{self, Versions};
use manta_apiserver::schema::StructuralSchema;
use manta_logic::action;
use serde_json::Value;

use crate::suggest;

const GROUP: &str = "ray.io";

const KINDS: [(&str, action::Kind); 4] = [
    (manta_api::RayCluster::KIND, action::Kind::RayCluster),
    (manta_api::RayCronJob::KIND, action::Kind::RayCronJob),
    (manta_api::RayJob::KIND, action::Kind::RayJob),
    (manta_api::RayService::KIND, action::Kind::RayService),
];

/// A kind in one version.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) action: action::Kind,
    version: String,
    pub(crate) schema: StructuralSchema,
}

impl Kind {
    /// Returns the note for a deprecated version.
    pub(crate) fn deprecation(&self) -> Option<&'static str> {
        (self.version != manta_api::VERSION).then_some("this version is deprecated, use ray.io/v1")
    }
}

/// Why an object is not checked.
#[derive(Debug)]
pub(crate) enum Unsupported {
    /// A kind of another API group.
    OtherGroup,
    /// The apiVersion is wrong.
    Version(String),
    /// The kind is wrong.
    Kind(String),
}

/// The kinds of ray.io, compiled when first used: most files hold one or two.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    known: HashMap<(String, String), Kind>,
    /// The schemas by kind and version, once one was needed.
    schemas: Option<HashMap<(&'static str, String), Value>>,
}

impl Kinds {
    pub(crate) fn find(&mut self, api_version: &str, kind: &str) -> Result<&Kind, Unsupported> {
        let ours = kind_names();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let name = ours.iter().copied().find(|name| *name == kind);
        if group != GROUP {
            // A typo in the group must not exempt a RayCluster from the checks.
            return Err(match name {
                Some(name) => Unsupported::Version(format!("{name} belongs to {GROUP}/{}", manta_api::VERSION)),
                None => Unsupported::OtherGroup,
            });
        }
        let Some(name) = name else {
            let hint = suggest::closest(kind, ours.into_iter())
                .map_or_else(|| format!("{GROUP} has {}", ours.join(", ")), |name| format!("did you mean {name}?"));
            return Err(Unsupported::Kind(format!("unknown kind \"{kind}\", {hint}")));
        };
        let key = (version.to_owned(), kind.to_owned());
        if !self.known.contains_key(&key) {
            let compiled = self.compile(name, version)?;
            self.known.insert(key.clone(), compiled);
        }
        self.known.get(&key).ok_or(Unsupported::OtherGroup)
    }

    fn compile(&mut self, name: &'static str, version: &str) -> Result<Kind, Unsupported> {
        let schemas = self.schemas.get_or_insert_with(schemas);
        let Some(schema) = schemas.get(&(name, version.to_owned())) else {
            return Err(Unsupported::Version(format!(
                "unknown version, {name} belongs to {GROUP}/{}",
                manta_api::VERSION
            )));
        };
        let schema = StructuralSchema::compile(schema)
            .map_err(|errors| Unsupported::Version(format!("the schema does not compile: {}", errors.join(", "))))?;
        let action =
            KINDS.into_iter().find(|(known, _)| *known == name).map_or(action::Kind::RayCluster, |(_, kind)| kind);
        Ok(Kind { action, version: version.to_owned(), schema })
    }
}

fn kind_names() -> [&'static str; 4] {
    KINDS.map(|(name, _)| name)
}

fn schemas() -> HashMap<(&'static str, String), Value> {
    let mut out = HashMap::new();
    for crd in crd::all(Versions::V1AndV1alpha1) {
        let Some(name) = kind_names().into_iter().find(|name| *name == crd.spec.names.kind) else { continue };
        for version in crd.spec.versions {
            let schema = version.schema.and_then(|schema| schema.open_api_v3_schema);
            if let Some(schema) = schema.and_then(|schema| serde_json::to_value(schema).ok()) {
                out.insert((name, version.name), schema);
            }
        }
    }
    out
}
