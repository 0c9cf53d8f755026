//! From the JSON of a CustomResourceDefinition to a tree of nodes, refusing what is not a structural schema.
//!
//! Structural means: every field says its type outside of `allOf`, `anyOf`, `oneOf` and `not`, and those only add value
//! validations. That is what makes pruning and defaulting decidable.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::field_error::FieldError;
use super::formats::Format;
use super::go_regex;
use super::node::{Additional, Checks, ListType, Node, Type};
use super::rules::Rule;

/// Schemas nest no deeper than this: a walk over one must never exhaust the stack.
const MAX_DEPTH: usize = 200;

/// The position of a schema, which decides which keywords are required and allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Level {
    Root,
    Field,
    Item,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`.
    Nested,
}

/// Compiles the schema at `path` in its CRD.
pub(crate) fn compile(path: &str, schema: &Value) -> Result<Arc<Node>, Vec<FieldError>> {
    run(Compiler::default(), path, schema)
}

/// Compiles a schema, sharing equal parts with all other schemas: pod templates are most of most CRDs.
pub(crate) fn compile_shared(schema: &Value) -> Result<Arc<Node>, Vec<FieldError>> {
    run(Compiler { shares: true, ..Compiler::default() }, "", schema)
}

/// The nodes that are in use, by the hash of their schema and their position.
type SharedNodes = HashMap<(u128, Level), Weak<Node>>;

static SHARED: LazyLock<Mutex<SharedNodes>> = LazyLock::new(Mutex::default);

/// Returns a hash of a JSON value, wide enough that equal hashes mean equal values.
pub(crate) fn hash_of(value: &Value) -> u128 {
    let mut hash = WideHash(DefaultHasher::new(), DefaultHasher::new());
    // The second half differs from the first by its prefix.
    hash.1.write_u8(1);
    hash.add(value);
    u128::from(hash.0.finish()) << 64 | u128::from(hash.1.finish())
}

struct WideHash(DefaultHasher, DefaultHasher);

impl WideHash {
    fn add(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                self.add_bytes(b"{");
                for (key, value) in fields {
                    self.add_bytes(key.as_bytes());
                    self.add(value);
                }
                self.add_bytes(b"}");
            }
            Value::Array(items) => {
                self.add_bytes(b"[");
                items.iter().for_each(|item| self.add(item));
                self.add_bytes(b"]");
            }
            scalar => self.add_bytes(scalar.to_string().as_bytes()),
        }
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        bytes.hash(&mut self.0);
        bytes.hash(&mut self.1);
    }
}

fn run(mut compiler: Compiler, path: &str, schema: &Value) -> Result<Arc<Node>, Vec<FieldError>> {
    let node = compiler.node(schema, path, Level::Root, 0);
    if compiler.errors.is_empty() {
        return Ok(Arc::new(node));
    }
    compiler.errors.sort_by_key(|error| error.to_string());
    compiler.errors.dedup();
    Err(compiler.errors)
}

#[derive(Default)]
struct Compiler {
    /// Whether equal nodes are shared; errors would then name only one of their paths.
    shares: bool,
    errors: Vec<FieldError>,
    /// Pod templates repeat the same few patterns hundreds of times.
    patterns: HashMap<String, Regex>,
}

impl Compiler {
    /// Compiles a node below another.
    fn child(&mut self, schema: &Value, path: &str, level: Level, depth: usize) -> Arc<Node> {
        if !self.shares {
            return Arc::new(self.node(schema, path, level, depth));
        }
        let key = (hash_of(schema), level);
        let known = |nodes: &SharedNodes| nodes.get(&key).and_then(Weak::upgrade);
        if let Some(node) = known(&SHARED.lock().unwrap_or_else(PoisonError::into_inner)) {
            return node;
        }
        let node = Arc::new(self.node(schema, path, level, depth));
        let mut nodes = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() == nodes.capacity() {
            nodes.retain(|_, node| node.strong_count() > 0);
        }
        nodes.insert(key, Arc::downgrade(&node));
        node
    }

    fn node(&mut self, schema: &Value, path: &str, level: Level, depth: usize) -> Node {
        let Some(schema) = schema.as_object() else {
            self.errors.push(FieldError::invalid(path, schema, "must be an object"));
            return Node::default();
        };
        if depth > MAX_DEPTH {
            self.errors.push(FieldError::forbidden(path, &format!("must not nest deeper than {MAX_DEPTH} levels")));
            return Node::default();
        }
        let mut node = Node {
            kind: self.kind(schema, path),
            nullable: flag(schema, "nullable"),
            preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(schema, "x-kubernetes-embedded-resource"),
            int_or_string: flag(schema, "x-kubernetes-int-or-string"),
            atomic_map: schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            list_type: self.list_type(schema, path),
            default: schema.get("default").filter(|value| !value.is_null()).map(|value| Box::new(value.clone())),
            ..Node::default()
        };
        self.children(&mut node, schema, path, level, depth);
        node.checks = self.checks(schema, path, depth);
        node.rules = self.rules(schema, path);
        self.check_shape(&node, schema, path, level);
        self.check_completeness(&node, path);
        node.has_rules = !node.rules.is_empty() || has_rules_below(&node);
        node
    }

    fn kind(&mut self, schema: &Map<String, Value>, path: &str) -> Option<Type> {
        let name = schema.get("type").filter(|t| **t != json!(""))?;
        let kind = name.as_str().and_then(Type::from_name);
        if kind.is_none() {
            let names = ["array", "boolean", "integer", "number", "object", "string"];
            self.errors.push(FieldError::not_supported(format!("{path}.type"), name, &names));
        }
        kind
    }

    fn list_type(&mut self, schema: &Map<String, Value>, path: &str) -> ListType {
        let keys: Vec<String> = strings(schema.get("x-kubernetes-list-map-keys"));
        match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => {
                if keys.is_empty() {
                    self.errors.push(FieldError::required(
                        format!("{path}.x-kubernetes-list-map-keys"),
                        "must not be empty if x-kubernetes-list-type is map",
                    ));
                }
                ListType::Map(keys)
            }
            None | Some("atomic") => ListType::Atomic,
            Some(other) => {
                self.errors.push(FieldError::not_supported(
                    format!("{path}.x-kubernetes-list-type"),
                    &json!(other),
                    &["atomic", "map", "set"],
                ));
                ListType::Atomic
            }
        }
    }

    fn children(&mut self, node: &mut Node, schema: &Map<String, Value>, path: &str, level: Level, depth: usize) {
        let inner = |at: Level| if level == Level::Nested { Level::Nested } else { at };
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            // serde_json keeps keys sorted by default; the search below needs it either way.
            let mut named: Vec<(Box<str>, Arc<Node>)> = properties
                .iter()
                .map(|(name, property)| {
                    let path = format!("{path}.properties[{name}]");
                    (name.as_str().into(), self.child(property, &path, inner(Level::Field), depth + 1))
                })
                .collect();
            named.sort_by(|a, b| a.0.cmp(&b.0));
            node.properties = named;
        }
        if let Some(items) = schema.get("items") {
            node.items = Some(self.child(items, &format!("{path}.items"), inner(Level::Item), depth + 1));
        }
        node.additional = match schema.get("additionalProperties") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(false)) => Some(Additional::Forbidden),
            Some(Value::Bool(true)) => Some(Additional::Anything),
            Some(values) => {
                let path = format!("{path}.additionalProperties");
                Some(Additional::Schema(self.child(values, &path, inner(Level::Field), depth + 1)))
            }
        };
    }

    fn checks(&mut self, schema: &Map<String, Value>, path: &str, depth: usize) -> Option<Box<Checks>> {
        const KEYS: &[&str] = &[
            "format",
            "required",
            "enum",
            "pattern",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minimum",
            "maximum",
            "multipleOf",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if !KEYS.iter().any(|key| schema.contains_key(*key)) {
            return None;
        }
        let count = |key: &str| schema.get(key).and_then(Value::as_i64);
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let format = schema.get("format").and_then(Value::as_str);
        Some(Box::new(Checks {
            format: format.and_then(|name| Some((Format::from_name(name)?, name.into()))),
            required: strings(schema.get("required")),
            allowed: schema.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty()).cloned(),
            pattern: self.pattern(schema, path),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            minimum: bound("minimum"),
            exclusive_minimum: flag(schema, "exclusiveMinimum"),
            maximum: bound("maximum"),
            exclusive_maximum: flag(schema, "exclusiveMaximum"),
            multiple_of: bound("multipleOf"),
            all_of: self.nested(schema, "allOf", path, depth),
            any_of: self.nested(schema, "anyOf", path, depth),
            one_of: self.nested(schema, "oneOf", path, depth),
            not: schema
                .get("not")
                .map(|not| Box::new(self.node(not, &format!("{path}.not"), Level::Nested, depth + 1))),
        }))
    }

    fn nested(&mut self, schema: &Map<String, Value>, key: &str, path: &str, depth: usize) -> Vec<Node> {
        let Some(branches) = schema.get(key).and_then(Value::as_array) else { return Vec::new() };
        let int_or_string = flag(schema, "x-kubernetes-int-or-string");
        branches
            .iter()
            .enumerate()
            .map(|(i, branch)| {
                let path = format!("{path}.{key}[{i}]");
                if int_or_string && is_int_or_string_branch(key, i, branch, branches) {
                    // The one place where a nested type is allowed: its errors are not ours to report.
                    let before = self.errors.len();
                    let node = self.node(branch, &path, Level::Nested, depth + 1);
                    self.errors.truncate(before);
                    return node;
                }
                self.node(branch, &path, Level::Nested, depth + 1)
            })
            .collect()
    }

    fn pattern(&mut self, schema: &Map<String, Value>, path: &str) -> Option<(Regex, Box<str>)> {
        let pattern = schema.get("pattern").and_then(Value::as_str).filter(|pattern| !pattern.is_empty())?;
        if let Some(known) = self.patterns.get(pattern) {
            return Some((known.clone(), pattern.into()));
        }
        match go_regex::compile(pattern) {
            Ok(regex) => {
                self.patterns.insert(pattern.to_owned(), regex.clone());
                Some((regex, pattern.into()))
            }
            Err(cause) => {
                let detail = format!("must be a valid regular expression, but isn't: {cause}");
                self.errors.push(FieldError::invalid(format!("{path}.pattern"), &json!(pattern), &detail));
                None
            }
        }
    }

    fn rules(&mut self, schema: &Map<String, Value>, path: &str) -> Vec<Rule> {
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let mut compiled = Vec::new();
        for (i, rule) in rules.into_iter().flatten().enumerate() {
            match Rule::compile(rule, &format!("{path}.x-kubernetes-validations[{i}]")) {
                Ok(rule) => compiled.push(rule),
                Err(error) => self.errors.push(error),
            }
        }
        compiled
    }

    /// Checks the required and forbidden keywords of a node at its level.
    fn check_shape(&mut self, node: &Node, schema: &Map<String, Value>, path: &str, level: Level) {
        if level == Level::Nested {
            return self.check_nested(schema, path);
        }
        let kind = node.kind;
        let untyped = schema.get("type").is_none_or(|t| *t == json!(""));
        if kind == Some(Type::Array) && node.items.is_none() {
            self.errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
        }
        if level == Level::Root && node.additional.is_some() {
            self.errors
                .push(FieldError::forbidden(format!("{path}.additionalProperties"), "must not be used at the root"));
        }
        if !node.properties.is_empty() && node.additional.is_some() {
            self.errors.push(FieldError::forbidden(
                format!("{path}.additionalProperties"),
                "additionalProperties and properties are mutual exclusive",
            ));
        }
        if node.embedded && kind != Some(Type::Object) {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            self.errors.push(match schema.get("type") {
                Some(found) if !untyped => FieldError::invalid(format!("{path}.type"), found, detail),
                _ => FieldError::required(format!("{path}.type"), detail),
            });
        } else if untyped && !node.int_or_string && !node.preserve_unknown {
            let place = match level {
                Level::Root => "at the root",
                Level::Item => "for specified array items",
                _ => "for specified object fields",
            };
            self.errors.push(FieldError::required(format!("{path}.type"), &format!("must not be empty {place}")));
        }
        if level == Level::Root && kind.is_some_and(|kind| kind != Type::Object) {
            self.errors.push(FieldError::invalid(
                format!("{path}.type"),
                schema.get("type").unwrap_or(&Value::Null),
                "must be object at the root",
            ));
        }
        if node.int_or_string && node.preserve_unknown {
            self.errors.push(FieldError::invalid(
                format!("{path}.x-kubernetes-preserve-unknown-fields"),
                &json!(true),
                "must be false if x-kubernetes-int-or-string is true",
            ));
        }
        if node.embedded && !node.preserve_unknown && node.properties.is_empty() {
            self.errors.push(FieldError::required(
                format!("{path}.properties"),
                "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ));
        }
        if level == Level::Root {
            self.check_root_metadata(node, path);
        }
    }

    fn check_root_metadata(&mut self, node: &Node, path: &str) {
        let Some(metadata) = node.property("metadata") else { return };
        let path = format!("{path}.properties[metadata]");
        if metadata.kind != Some(Type::Object) {
            let found = metadata.kind.map_or("", Type::name);
            self.errors.push(FieldError::invalid(format!("{path}.type"), &json!(found), "must be object"));
        }
        let only_names = metadata.properties.iter().all(|(name, _)| matches!(name.as_ref(), "name" | "generateName"));
        if !only_names || metadata.additional.is_some() || metadata.preserve_unknown {
            self.errors.push(FieldError::forbidden(
                path,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }

    /// Nested schemas add value validations and nothing else.
    fn check_nested(&mut self, schema: &Map<String, Value>, path: &str) {
        const FORBIDDEN: &[(&str, &str)] = &[
            ("type", "must be empty to be structural"),
            ("additionalProperties", "must be undefined to be structural"),
            ("default", "must be undefined to be structural"),
            ("title", "must be empty to be structural"),
            ("description", "must be empty to be structural"),
            ("nullable", "must be false to be structural"),
            ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
            ("x-kubernetes-embedded-resource", "must be false to be structural"),
            ("x-kubernetes-int-or-string", "must be false to be structural"),
            ("x-kubernetes-list-map-keys", "must be empty to be structural"),
            ("x-kubernetes-list-type", "must be undefined to be structural"),
            ("x-kubernetes-map-type", "must be undefined to be structural"),
            ("x-kubernetes-validations", "must be empty to be structural"),
        ];
        for (key, detail) in FORBIDDEN {
            let empty = |value: &Value| match value {
                Value::Null | Value::Bool(false) => true,
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            if schema.get(*key).is_some_and(|value| !empty(value)) {
                self.errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
            }
        }
    }

    /// Whatever a nested schema speaks of must exist outside of it as well.
    fn check_completeness(&mut self, node: &Node, path: &str) {
        let Some(checks) = &node.checks else { return };
        let lists = [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)];
        for (key, branches) in lists {
            for (i, branch) in branches.iter().enumerate() {
                self.complete(node, branch, &format!("{path}.{key}[{i}]"), path);
            }
        }
        if let Some(not) = &checks.not {
            self.complete(node, not, &format!("{path}.not"), path);
        }
    }

    fn complete(&mut self, outer: &Node, nested: &Node, nested_path: &str, path: &str) {
        for (name, inner) in &nested.properties {
            match outer.child(name) {
                Some(child) => {
                    let below = format!("{nested_path}.properties[{name}]");
                    self.complete(child, inner, &below, &format!("{path}.properties[{name}]"));
                }
                None if outer.preserve_unknown => {}
                None => self.errors.push(FieldError::required(
                    format!("{path}.properties[{name}]"),
                    &format!("because it is defined in {nested_path}.properties[{name}]"),
                )),
            }
        }
        if let Some(inner) = &nested.items {
            match &outer.items {
                Some(items) => self.complete(items, inner, &format!("{nested_path}.items"), &format!("{path}.items")),
                None => self.errors.push(FieldError::required(
                    format!("{path}.items"),
                    &format!("because it is defined in {nested_path}.items"),
                )),
            }
        }
    }
}

fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(|s| s.as_str().map(str::to_owned)).collect()
}

/// `anyOf: [{type: integer}, {type: string}]`, directly or as the first of `allOf`.
fn is_int_or_string_branch(key: &str, index: usize, branch: &Value, branches: &[Value]) -> bool {
    let pair = [json!({"type": "integer"}), json!({"type": "string"})];
    match key {
        "anyOf" => branches == pair,
        "allOf" => index == 0 && branch.get("anyOf").and_then(Value::as_array).is_some_and(|any| *any == pair),
        _ => false,
    }
}

fn has_rules_below(node: &Node) -> bool {
    node.properties.iter().any(|(_, child)| child.has_rules)
        || node.items.as_ref().is_some_and(|items| items.has_rules)
        || node.additional_schema().is_some_and(|values| values.has_rules)
}
