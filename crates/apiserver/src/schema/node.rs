//! A schema as a tree that is quick to walk.

use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use super::formats::Format;
use super::rules::Rule;

/// The JSON type that a schema asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|t| t.name() == name)
    }
}

/// How the items of a list are identified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Every item is its own key.
    Set,
    /// Items are objects, identified by these fields.
    Map(Vec<String>),
}

/// The value of `additionalProperties`.
#[derive(Debug, Clone)]
pub(crate) enum Additional {
    Forbidden,
    Anything,
    Schema(Arc<Node>),
}

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: Option<Type>,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) int_or_string: bool,
    pub(crate) atomic_map: bool,
    pub(crate) list_type: ListType,
    pub(crate) default: Option<Box<Value>>,
    /// Sorted by name.
    pub(crate) properties: Vec<(Box<str>, Arc<Node>)>,
    pub(crate) additional: Option<Additional>,
    pub(crate) items: Option<Arc<Node>>,
    pub(crate) checks: Option<Box<Checks>>,
    pub(crate) rules: Vec<Rule>,
    /// Whether this node or one below it has rules, so that walks may stop early.
    pub(crate) has_rules: bool,
}

/// The value validations of a node; most nodes have none.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) format: Option<(Format, Box<str>)>,
    pub(crate) required: Vec<String>,
    pub(crate) allowed: Option<Vec<Value>>,
    pub(crate) pattern: Option<(Regex, Box<str>)>,
    pub(crate) min_length: Option<i64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

impl Checks {
    pub(crate) fn has_branches(&self) -> bool {
        !self.all_of.is_empty() || !self.any_of.is_empty() || !self.one_of.is_empty()
    }
}

impl Node {
    pub(crate) fn property(&self, name: &str) -> Option<&Arc<Node>> {
        let at = self.properties.binary_search_by(|(key, _)| key.as_ref().cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// Returns the schema of map values, if the node is a map with one.
    pub(crate) fn additional_schema(&self) -> Option<&Arc<Node>> {
        match &self.additional {
            Some(Additional::Schema(node)) => Some(node),
            _ => None,
        }
    }

    /// Returns the schema that holds for a key, named or not.
    pub(crate) fn child(&self, key: &str) -> Option<&Arc<Node>> {
        self.property(key).or_else(|| self.additional_schema())
    }
}
