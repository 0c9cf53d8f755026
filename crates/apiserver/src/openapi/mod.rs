//! OpenAPI: the shapes of all kinds, for `kubectl explain`, `apply` and validation.
//!
//! Documents are made when asked for and not kept: they are large, and asked for rarely. The patch operations
//! do not offer strategic merge, so that kubectl takes merge keys from its own types instead of from here.

pub(crate) mod protobuf;
mod version_two;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::registry::{Resource, Snapshot, shape};
pub(crate) use version_two::{version_two, version_two_json};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
/// The fields that name an object's type, as Kubernetes describes them.
const TYPE_META: [(&str, &str); 2] = [
    (
        "apiVersion",
        "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized \
         schemas to the latest internal value, and may reject unrecognized values. More info: \
         https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    ),
    (
        "kind",
        "Kind is a string value representing the REST resource this object represents. Servers may infer this from the \
         endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
         https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    ),
];

/// Returns `/openapi/v3`, the index of documents with a hash for each.
pub(crate) fn root(now: &Snapshot) -> Value {
    let mut paths = Map::new();
    for resource in &now.resources {
        let name = document_name(resource);
        if paths.contains_key(&name) {
            continue;
        }
        let hash = fingerprint(members(now, &resource.group, &resource.version));
        let url = format!("/openapi/v3/{name}?hash={hash}");
        paths.insert(name, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// Returns a hash of all kinds, or of those of one document: a document with the same hash is the same.
pub(crate) fn hash(now: &Snapshot, path: &[&str]) -> String {
    match group_version(path) {
        Some((group, version)) => fingerprint(members(now, group, version)),
        None => fingerprint(now.resources.iter()),
    }
}

fn fingerprint<'a>(members: impl Iterator<Item = &'a Arc<Resource>>) -> String {
    fingerprint_of(env!("CARGO_PKG_VERSION"), members)
}

/// Hashes what documents are made from: the schemas of custom kinds, and the version for those that are built in.
fn fingerprint_of<'a>(version: &str, members: impl Iterator<Item = &'a Arc<Resource>>) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    version.hash(&mut hasher);
    for one in members {
        (&one.group, &one.version, &one.kind).hash(&mut hasher);
        if let Some(custom) = one.custom() {
            custom.source().hash(&mut hasher);
            custom.status.hash(&mut hasher);
        }
    }
    format!("{:016X}", hasher.finish())
}

/// Returns the group and the version of a document's path.
fn group_version<'a>(path: &[&'a str]) -> Option<(&'a str, &'a str)> {
    match *path {
        ["api", version] => Some(("", version)),
        ["apis", group, version] => Some((group, version)),
        _ => None,
    }
}

/// Returns the document of one group and version.
pub(crate) fn document(now: &Snapshot, path: &[&str]) -> Option<Value> {
    let (group, version) = group_version(path)?;
    let members: Vec<&Arc<Resource>> = members(now, group, version).collect();
    if members.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    for resource in &members {
        add_paths(resource, &mut paths);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.34.4"},
        "paths": paths,
        "components": {"schemas": schemas(&members, Version::Three)},
    }))
}

fn members<'a>(now: &'a Snapshot, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
    now.resources.iter().filter(move |resource| *resource.group == *group && *resource.version == *version)
}

fn document_name(resource: &Resource) -> String {
    match resource.group.is_empty() {
        true => format!("api/{}", resource.version),
        false => format!("apis/{}/{}", resource.group, resource.version),
    }
}

/// The versions of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

impl Version {
    /// Returns the path of the schemas inside a document.
    fn folder(self) -> &'static str {
        match self {
            Version::Two => "/definitions",
            Version::Three => "/components/schemas",
        }
    }
}

/// Returns the schemas of kinds.
fn schemas(members: &[&Arc<Resource>], openapi: Version) -> Map<String, Value> {
    let folder = openapi.folder();
    let mut settings = shape::settings();
    settings.definitions_path = folder.into();
    let mut generator = settings.into_generator();
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>();
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta>();
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions>();
    for builtin in members.iter().filter_map(|resource| resource.builtin()) {
        (builtin.describe)(&mut generator);
    }
    let mut schemas: Map<String, Value> = generator.take_definitions(false).into_iter().collect();
    for schema in schemas.values_mut() {
        wrap_references(schema);
    }
    for resource in members {
        let name = definition_name(resource);
        if let Some(custom) = resource.custom() {
            schemas.insert(name.clone(), custom_schema(custom.open_api(), openapi));
        }
        if let Some(schema) = schemas.get_mut(&name) {
            schema["x-kubernetes-group-version-kind"] = json!([kind_of(resource)]);
        }
        schemas.insert(format!("{name}List"), json!({
            "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"$ref": format!("#{folder}/{LIST_META}")},
                "items": {"type": "array", "items": {"$ref": format!("#{folder}/{name}")}},
            },
            "x-kubernetes-group-version-kind": [{"group": &*resource.group, "version": &*resource.version, "kind": &*resource.list_kind}],
        }));
    }
    schemas
}

/// Returns a CRD's schema with the fields that every object has.
fn custom_schema(mut schema: Value, openapi: Version) -> Value {
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    if openapi == Version::Two {
        if version_two::accepts_anything(&schema) {
            return json!({"type": "object"});
        }
        version_two::simplify(&mut schema);
    }
    let properties = &mut schema["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    properties["metadata"] = json!({
        "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        "allOf": [{"$ref": format!("#{}/{OBJECT_META}", openapi.folder())}],
    });
    for (key, description) in TYPE_META {
        properties[key] = json!({"type": "string", "description": description});
    }
    schema
}

/// Wraps references in `allOf`: OpenAPI 3.0 ignores siblings of a `$ref`.
fn wrap_references(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            // A property may be called `$ref` too; only a text is a reference.
            if map.len() > 1
                && map.get("$ref").is_some_and(Value::is_string)
                && let Some(reference) = map.remove("$ref")
            {
                map.insert("allOf".into(), json!([{"$ref": reference}]));
            }
            for (key, value) in map.iter_mut() {
                if key != "allOf" {
                    wrap_references(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        _ => {}
    }
}

/// Returns the name of a kind's schema: `io.k8s.api.core.v1.Pod`, or the reversed group for custom kinds.
fn definition_name(resource: &Resource) -> String {
    match resource.builtin() {
        Some(builtin) => (builtin.definition)().into_owned(),
        None => {
            let mut parts: Vec<&str> = resource.group.split('.').collect();
            parts.reverse();
            format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
        }
    }
}

fn kind_of(resource: &Resource) -> Value {
    json!({"group": &*resource.group, "version": &*resource.version, "kind": &*resource.kind})
}

fn add_paths(resource: &Resource, paths: &mut Map<String, Value>) {
    let prefix = match resource.group.is_empty() {
        true => format!("/api/{}", resource.version),
        false => format!("/apis/{}/{}", resource.group, resource.version),
    };
    let verbs = resource.verbs();
    let collection = match resource.namespaced {
        true => format!("{prefix}/namespaces/{{namespace}}/{}", resource.plural),
        false => format!("{prefix}/{}", resource.plural),
    };
    let operations = |known: &[(&str, &str, &str)]| {
        let known = known.iter().filter(|(_, verb, _)| verbs.contains(verb));
        let made = known.map(|(method, _, action)| ((*method).to_owned(), operation(resource, action)));
        made.collect::<Map<String, Value>>()
    };
    if resource.namespaced && verbs.contains(&"list") {
        let all = operations(&[("get", "list", "list")]);
        paths.insert(format!("{prefix}/{}", resource.plural), all.into());
    }
    let many = operations(&[
        ("get", "list", "list"),
        ("post", "create", "post"),
        ("delete", "deletecollection", "deletecollection"),
    ]);
    let mut many = many;
    many.insert("parameters".into(), path_parameters(resource, false));
    paths.insert(collection.clone(), many.into());
    if resource.is_stored() {
        let mut one = operations(&[
            ("get", "get", "get"),
            ("put", "update", "put"),
            ("patch", "patch", "patch"),
            ("delete", "delete", "delete"),
        ]);
        one.insert("parameters".into(), path_parameters(resource, true));
        paths.insert(format!("{collection}/{{name}}"), one.into());
    }
}

fn path_parameters(resource: &Resource, named: bool) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}});
    let mut parameters = Vec::new();
    if named {
        parameters.push(parameter("name"));
    }
    if resource.namespaced {
        parameters.push(parameter("namespace"));
    }
    parameters.into()
}

fn operation(resource: &Resource, action: &str) -> Value {
    let reference = format!("#/components/schemas/{}", definition_name(resource));
    let parameter =
        |name: &str, kind: &str| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}});
    let mut parameters = Vec::new();
    if matches!(action, "post" | "put" | "patch") {
        parameters.extend([
            parameter("dryRun", "string"),
            parameter("fieldManager", "string"),
            parameter("fieldValidation", "string"),
        ]);
    }
    if action == "patch" {
        parameters.push(parameter("force", "boolean"));
    }
    if action.starts_with("delete") {
        parameters.extend([
            parameter("dryRun", "string"),
            parameter("gracePeriodSeconds", "integer"),
            parameter("propagationPolicy", "string"),
        ]);
    }
    if action == "list" {
        let names = ["labelSelector", "fieldSelector", "continue", "resourceVersion", "resourceVersionMatch"];
        parameters.extend(names.map(|name| parameter(name, "string")));
        parameters.extend([
            parameter("limit", "integer"),
            parameter("watch", "boolean"),
            parameter("timeoutSeconds", "integer"),
        ]);
    }
    let schema = match action {
        "list" => json!({"$ref": format!("{reference}List")}),
        _ => json!({"$ref": reference}),
    };
    let mut operation = json!({
        "description": format!("{action} {}", resource.kind),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind_of(resource),
    });
    match action {
        "post" | "put" => {
            operation["requestBody"] = json!({"required": true, "content": {"*/*": {"schema": {"$ref": reference}}}})
        }
        "patch" => {
            let patch = json!({"schema": {"type": "object"}});
            operation["requestBody"] = json!({"required": true, "content": {
                "application/apply-patch+yaml": patch, "application/json-patch+json": patch, "application/merge-patch+json": patch}});
        }
        _ => {}
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn another_version_has_other_hashes() {
        let now = Registry::default().now();
        let hash = |version: &str| fingerprint_of(version, now.resources.iter());
        assert_ne!(hash("1.0.0"), hash("1.0.1"));
        assert_eq!(hash("1.0.0"), hash("1.0.0"));
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let now = Registry::default().now();
        let root = root(&now);
        for path in root["paths"].as_object().expect("paths").keys() {
            let parts: Vec<&str> = path.split('/').collect();
            let document = document(&now, &parts).expect("a document");
            let schemas = document["components"]["schemas"].as_object().expect("schemas");
            let text = document.to_string();
            for reference in text.split("#/components/schemas/").skip(1) {
                let name = reference.split('"').next().expect("a name");
                assert!(schemas.contains_key(name), "{path}: {name}");
            }
        }
    }
}
