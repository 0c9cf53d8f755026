//! Custom kinds: compiles a CustomResourceDefinition into resources.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::definition_names::is_established;
use super::validation::{definition, immutable};
use super::{Behaviour, Resource, is_built_in};
use crate::names::NameRule;
use crate::schema::{FieldError, StructuralSchema};

/// One served version of a custom kind.
pub struct Custom {
    /// The schema as JSON text: compact, and compiled only when an object of the kind is written.
    source: Box<str>,
    compiled: OnceLock<Option<StructuralSchema>>,
    /// The revision of the definition: objects from before it may lack defaults of this schema.
    defined_at: u64,
    /// Unknown fields stay.
    pub preserve_unknown: bool,
    /// Whether there is a status subresource.
    pub status: bool,
    /// Where a scale finds its numbers.
    pub scale: Option<ScalePaths>,
    /// What `kubectl get` shows.
    pub columns: Value,
    /// Fields beyond name and namespace that clients may select by, without the leading dot.
    pub selectable: Vec<String>,
    /// The version in which objects are stored.
    pub storage_version: String,
    /// The webhook that converts between the versions; without one they differ in their apiVersion only.
    pub(crate) conversion: Option<Box<ConversionWebhook>>,
}

/// A webhook that converts objects between versions.
pub(crate) struct ConversionWebhook {
    /// Where it is, as admission webhooks say it.
    pub(crate) client_config: Value,
    /// The versions of ConversionReview that it understands, the preferred one first.
    pub(crate) review_versions: Vec<String>,
}

impl ConversionWebhook {
    fn of(definition: &Value) -> Option<ConversionWebhook> {
        let conversion = &definition["spec"]["conversion"];
        let webhook = (conversion["strategy"] == "Webhook").then_some(&conversion["webhook"])?;
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten();
        Some(ConversionWebhook {
            client_config: webhook["clientConfig"].clone(),
            review_versions: versions.filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }
}

/// JSON paths of a scale subresource, as pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted number.
    pub replicas: String,
    /// The observed number.
    pub status: String,
    /// The selector as text.
    pub selector: Option<String>,
}

/// Returns the resources that a definition serves.
pub(super) fn resources(definition: &Value) -> Vec<Arc<Resource>> {
    let spec = &definition["spec"];
    let text = |value: &Value| -> Arc<str> { value.as_str().unwrap_or("").into() };
    let names = &spec["names"];
    let group = text(&spec["group"]);
    // An earlier version has let such definitions in.
    if is_built_in(&group, names["plural"].as_str().unwrap_or("")) {
        return Vec::new();
    }
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let storage = versions.iter().find(|version| version["storage"] == true);
    let storage_version = storage.map_or("", |version| version["name"].as_str().unwrap_or("")).to_owned();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let served = versions.iter().filter(|version| version["served"] == true);
    served
        .map(|version| {
            let name = text(&version["name"]);
            Arc::new(Resource {
                api_version: format!("{group}/{name}").into(),
                table: format!("{}.{group}", text(&names["plural"])).into(),
                group: group.clone(),
                version: name,
                kind: text(&names["kind"]),
                list_kind: text(&names["listKind"]),
                plural: text(&names["plural"]),
                singular: text(&names["singular"]),
                short_names: list(&names["shortNames"]),
                categories: list(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                behaviour: Behaviour::Custom(custom(definition, version, &storage_version)),
            })
        })
        .collect()
}

fn custom(definition: &Value, version: &Value, storage_version: &str) -> Custom {
    let pointer = |value: &Value| value.as_str().map(|path| path.replace('.', "/"));
    let scale = &version["subresources"]["scale"];
    let paths = pointer(&scale["specReplicasPath"]).zip(pointer(&scale["statusReplicasPath"]));
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    Custom {
        source: version["schema"]["openAPIV3Schema"].to_string().into(),
        compiled: OnceLock::new(),
        defined_at: definition["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0),
        preserve_unknown: definition["spec"]["preserveUnknownFields"] == true,
        status: version["subresources"]["status"].is_object(),
        scale: paths.map(|(replicas, status)| ScalePaths {
            replicas,
            status,
            selector: pointer(&scale["labelSelectorPath"]),
        }),
        columns: version["additionalPrinterColumns"].clone(),
        selectable: selectable
            .filter_map(|field| field["jsonPath"].as_str())
            .map(|path| path.trim_start_matches('.').to_owned())
            .collect(),
        storage_version: storage_version.to_owned(),
        conversion: ConversionWebhook::of(definition).map(Box::new),
    }
}

impl Custom {
    /// Returns the schema as JSON text.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Returns the schema as written.
    pub fn open_api(&self) -> Value {
        serde_json::from_str(&self.source).unwrap_or_default()
    }

    /// Returns the schema if its defaults must be applied to an object of this revision when it is read.
    pub(crate) fn defaults_for(&self, revision: u64) -> Option<&StructuralSchema> {
        (revision < self.defined_at && self.source.contains("\"default\":")).then(|| self.schema())?
    }

    /// Returns the compiled schema; nothing is known of the objects without one.
    pub fn schema(&self) -> Option<&StructuralSchema> {
        let compile = || match StructuralSchema::compile_shared(&self.open_api()) {
            Ok(schema) => Some(schema),
            Err(faults) => {
                tracing::warn!(faults = faults.join("; "), "serving a CRD version without its invalid schema");
                None
            }
        };
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// Validates a CRD.
pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if let Some(old) = old {
        kept_fields(new, old, errors);
        stored_versions(new, errors);
    }
    let (group, plural) = (spec["group"].as_str().unwrap_or(""), spec["names"]["plural"].as_str().unwrap_or(""));
    for (field, value) in [("spec.group", group), ("spec.names.plural", plural)] {
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    if spec["names"]["kind"].as_str().unwrap_or("").is_empty() {
        errors.push(FieldError::required("spec.names.kind", ""));
    }
    definition::names(new, old, errors);
    let wanted = format!("{plural}.{group}");
    if new["metadata"]["name"] != wanted.as_str() {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &new["metadata"]["name"], why));
    }
    let scopes = ["Cluster", "Namespaced"];
    if !scopes.contains(&spec["scope"].as_str().unwrap_or("")) {
        match spec["scope"].as_str() {
            None => errors.push(FieldError::required("spec.scope", "")),
            Some(_) => errors.push(FieldError::not_supported("spec.scope", &spec["scope"], &scopes)),
        }
    }
    if spec["preserveUnknownFields"] == true {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &true.into(), why));
    }
    conversion(&spec["conversion"], errors);
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    if versions.is_empty() {
        errors.push(FieldError::required("spec.versions", "must have at least one version"));
    }
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    if stored != 1 && !versions.is_empty() {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], why));
    }
    for (index, version) in versions.iter().enumerate() {
        if let Some(why) = NameRule::Label1035.refuse(version["name"].as_str().unwrap_or("")) {
            errors.push(FieldError::invalid(format!("spec.versions[{index}].name"), &version["name"], &why));
        }
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match version["schema"]["openAPIV3Schema"].is_object() {
            false => errors.push(FieldError::required(path, "schemas are required")),
            true => {
                if let Err(faults) = StructuralSchema::compile_at(&path, &version["schema"]["openAPIV3Schema"]) {
                    errors.extend(faults);
                }
            }
        }
    }
}

/// Validates that what stored objects depend on stays as it is.
fn kept_fields(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if is_established(old) {
        immutable(new, Some(old), "/spec/scope", errors);
        immutable(new, Some(old), "/spec/names/kind", errors);
    }
    immutable(new, Some(old), "/spec/group", errors);
    immutable(new, Some(old), "/spec/names/plural", errors);
}

/// Validates that every version that objects may be stored in still exists.
fn stored_versions(definition: &Value, errors: &mut Vec<FieldError>) {
    let versions: Vec<&Value> = definition["spec"]["versions"].as_array().into_iter().flatten().collect();
    let stored = definition["status"]["storedVersions"].as_array().into_iter().flatten();
    for (index, version) in stored.enumerate() {
        if !versions.iter().any(|known| known["name"] == *version) {
            let name = version.as_str().unwrap_or("");
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("status.storedVersions[{index}]"), version, &why));
        }
    }
}

/// Adds the storage version of a definition to those that objects may be stored in.
pub(crate) fn note_storage_version(definition: &mut Value) {
    let mut stored: Vec<Value> = definition["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        if version["storage"] == true && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    definition["status"]["storedVersions"] = stored.into();
}

fn conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    let strategies = ["None", "Webhook"];
    let strategy = &conversion["strategy"];
    if !strategies.contains(&strategy.as_str().unwrap_or("")) {
        errors.push(FieldError::not_supported("spec.conversion.strategy", strategy, &strategies));
    }
    if strategy != "Webhook" {
        return;
    }
    let webhook = &conversion["webhook"];
    if webhook["clientConfig"].is_null() {
        let why = "required when strategy is set to Webhook";
        errors.push(FieldError::required("spec.conversion.webhookClientConfig", why));
    }
    if webhook["conversionReviewVersions"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.conversion.conversionReviewVersions", ""));
    }
}

/// Definitions already turned into resources, so that a new one does not compile the others again.
#[derive(Default)]
pub(super) struct Compiled {
    /// The hash of a definition's spec, and its resources.
    by_name: HashMap<String, (u128, Vec<Arc<Resource>>)>,
}

impl Compiled {
    /// Returns the resources of all definitions, reusing those whose spec did not change.
    pub(super) fn refresh(&mut self, definitions: &[impl std::borrow::Borrow<Value>]) -> Vec<Arc<Resource>> {
        let mut old = std::mem::take(&mut self.by_name);
        let mut all = Vec::new();
        for definition in definitions {
            let definition: &Value = definition.borrow();
            let name = definition["metadata"]["name"].as_str().unwrap_or("").to_owned();
            let spec = crate::schema::hash_of(&definition["spec"]);
            let known = old.remove(&name).filter(|(known, _)| *known == spec);
            let found = known.map_or_else(|| resources(definition), |(_, found)| found);
            all.extend(found.iter().cloned());
            self.by_name.insert(name, (spec, found));
        }
        all
    }
}
