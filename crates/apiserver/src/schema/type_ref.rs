//! One view on the types of custom resources and of built-in kinds, for patches.

use serde_json::{Map, Value};

use super::builtin::{self, Definition, Field, FieldType, Scalar, Strategy};
use super::decode;
use super::node::{Additional, ListType, Node, Type};
use super::path::Path;

/// What is known of the type of a value.
#[derive(Debug, Clone, Copy)]
pub struct TypeRef<'a>(Known<'a>);

#[derive(Debug, Clone, Copy)]
enum Known<'a> {
    /// A custom resource, of whose metadata the schema does not speak.
    Resource(&'a Node),
    Custom(&'a Node),
    Definition(&'static Definition, bool),
    List(&'static FieldType, &'static ListType),
    Map(&'static FieldType, bool),
    Scalar(Scalar),
    /// Any JSON, owned as one value.
    Any,
    /// Nothing is known: lists are one value, maps are merged by key.
    Deduced,
}

static ATOMIC: ListType = ListType::Atomic;

impl TypeRef<'static> {
    /// Returns the type of a built-in kind.
    pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<Self> {
        builtin::definition_of_kind(group, version, kind).map(Self::definition)
    }

    fn definition(definition: &'static Definition) -> Self {
        Self(Known::Definition(definition, definition.atomic))
    }

    fn of_field(field: &'static Field) -> Self {
        match &field.field_type {
            FieldType::List(items) => Self(Known::List(items, &field.list_type)),
            FieldType::Map(values) => Self(Known::Map(values, field.atomic.unwrap_or(false))),
            FieldType::Definition(index) => {
                let definition = builtin::definition(*index);
                Self(Known::Definition(definition, field.atomic.unwrap_or(definition.atomic)))
            }
            other => Self::of_type(other),
        }
    }

    fn of_type(field_type: &'static FieldType) -> Self {
        match field_type {
            FieldType::Scalar(scalar) => Self(Known::Scalar(*scalar)),
            FieldType::Any => Self(Known::Any),
            FieldType::Definition(index) => Self::definition(builtin::definition(*index)),
            FieldType::List(items) => Self(Known::List(items, &ATOMIC)),
            FieldType::Map(values) => Self(Known::Map(values, false)),
        }
    }
}

impl<'a> TypeRef<'a> {
    /// Returns the type of something without a schema.
    pub fn unknown() -> Self {
        Self(Known::Deduced)
    }

    pub(super) fn resource(root: &'a Node) -> Self {
        Self(Known::Resource(root))
    }

    /// Returns the type of a field or map entry and whether the type names it; none if there can be no such field.
    pub(crate) fn child(self, key: &str) -> Option<(TypeRef<'a>, bool)> {
        match self.0 {
            Known::Resource(_) if key == "metadata" => {
                let meta = builtin::definition_named("meta.v1.ObjectMeta")?;
                Some((TypeRef::definition(meta), true))
            }
            Known::Resource(_) if key == "apiVersion" || key == "kind" => {
                Some((TypeRef(Known::Scalar(Scalar::String)), true))
            }
            Known::Resource(node) | Known::Custom(node) => {
                if let Some(property) = node.property(key) {
                    return Some((TypeRef(Known::Custom(property)), true));
                }
                let values = match &node.additional {
                    Some(Additional::Schema(values)) => Known::Custom(values),
                    Some(Additional::Anything) => Known::Deduced,
                    Some(Additional::Forbidden) => return None,
                    None if node.preserve_unknown || node.properties.is_empty() => Known::Deduced,
                    None => return None,
                };
                Some((TypeRef(values), false))
            }
            Known::Definition(definition, _) => definition.field(key).map(|field| (TypeRef::of_field(field), true)),
            Known::Map(values, _) => Some((TypeRef::of_type(values), false)),
            Known::Any => Some((TypeRef(Known::Any), false)),
            Known::Deduced => Some((TypeRef(Known::Deduced), false)),
            Known::List(..) | Known::Scalar(_) => None,
        }
    }

    /// Returns the type of the items of a list.
    pub(crate) fn items(self) -> TypeRef<'a> {
        match self.0 {
            Known::Resource(node) | Known::Custom(node) => {
                node.items.as_ref().map_or(TypeRef(Known::Any), |items| TypeRef(Known::Custom(items)))
            }
            Known::List(items, _) => TypeRef::of_type(items),
            _ => TypeRef(Known::Any),
        }
    }

    /// Returns how the items of a list are identified.
    pub(crate) fn list_type(self) -> &'a ListType {
        match self.0 {
            Known::Resource(node) | Known::Custom(node) => &node.list_type,
            Known::List(_, list_type) => list_type,
            _ => &ATOMIC,
        }
    }

    /// Returns whether an object of this type is one value.
    pub(crate) fn is_atomic_map(self) -> bool {
        match self.0 {
            Known::Resource(node) | Known::Custom(node) => node.atomic_map,
            Known::Definition(_, atomic) | Known::Map(_, atomic) => atomic,
            Known::Any => true,
            Known::Deduced | Known::List(..) | Known::Scalar(_) => false,
        }
    }

    /// Returns the value that a field has when it is not set.
    pub(crate) fn default_of(self, key: &str) -> Option<&'a Value> {
        match self.0 {
            Known::Resource(node) | Known::Custom(node) => node.property(key)?.default.as_deref(),
            Known::Definition(definition, _) => definition.field(key)?.default.as_ref(),
            _ => None,
        }
    }

    /// Returns how a strategic merge treats a field; custom resources have no strategies.
    pub(crate) fn strategy_of(self, key: &str) -> Option<&'static Strategy> {
        match self.0 {
            Known::Definition(definition, _) => definition.field(key).map(|field| &field.strategy),
            _ => None,
        }
    }

    /// Returns what such a value must be: `list`, `map`, or the word for a scalar; `None` if any value is valid.
    pub(crate) fn expectation(self) -> Option<Expectation> {
        match self.0 {
            Known::Resource(node) | Known::Custom(node) => match node.kind? {
                Type::Object => Some(Expectation::Map),
                Type::Array => Some(Expectation::List),
                Type::String if has_format(node) => None,
                Type::String => Some(Expectation::String),
                Type::Integer | Type::Number => Some(Expectation::Numeric),
                Type::Boolean => Some(Expectation::Boolean),
            },
            Known::Definition(..) | Known::Map(..) => Some(Expectation::Map),
            Known::List(..) => Some(Expectation::List),
            Known::Scalar(Scalar::String | Scalar::Bytes) => Some(Expectation::String),
            Known::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number) => Some(Expectation::Numeric),
            Known::Scalar(Scalar::Boolean) => Some(Expectation::Boolean),
            Known::Scalar(_) | Known::Any | Known::Deduced => None,
        }
    }

    /// Returns the message of Go's decoder for an object that does not decode as its built-in type.
    pub fn decode_error(self, object: &Value) -> Option<String> {
        match self.0 {
            Known::Definition(definition, _) => decode::decode_error(object, definition),
            _ => None,
        }
    }

    /// Returns the fields of a built-in object that its type does not have, as strict decoding names them.
    pub fn unknown_fields(self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        visit_unknown(self, object, &Path::Root, &mut found);
        found
    }
}

/// The form that a value of a type must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expectation {
    Map,
    List,
    String,
    Numeric,
    Boolean,
}

fn has_format(node: &Node) -> bool {
    node.checks.as_deref().is_some_and(|checks| checks.format.is_some())
}

fn visit_unknown(type_ref: TypeRef<'_>, value: &Value, path: &Path<'_>, found: &mut Vec<String>) {
    match (type_ref.0, value) {
        (Known::Definition(..) | Known::Map(..), Value::Object(map)) => {
            visit_unknown_fields(type_ref, map, path, found);
        }
        (Known::List(..), Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                visit_unknown(type_ref.items(), item, &path.index(i), found);
            }
        }
        _ => {}
    }
}

fn visit_unknown_fields(type_ref: TypeRef<'_>, map: &Map<String, Value>, path: &Path<'_>, found: &mut Vec<String>) {
    for (key, child) in map {
        let here = path.field(key);
        match type_ref.child(key) {
            Some((child_type, _)) => visit_unknown(child_type, child, &here, found),
            None => found.push(format!("unknown field \"{}\"", here.show_dotted())),
        }
    }
}
