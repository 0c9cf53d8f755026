//! Structural schemas of custom resources: pruning, defaulting, validation.
//!
//! ```text
//!   request ─▶ unknown_fields (told or refused) ─▶ prune ─▶ default ─▶ validate(new, old) ─▶ store
//! ```
//!
//! Everything here is pure: JSON in, JSON or messages out. The messages are those of Kubernetes.

pub(crate) mod builtin;
mod cel_budget;
mod cel_value;
mod compile;
mod correlate;
pub(crate) mod decode;
mod default;
mod field_error;
mod formats;
mod go_regex;
pub(crate) mod go_text;
mod list_type;
mod metadata;
mod node;
mod number;
mod path;
#[cfg(test)]
mod properties;
mod prune;
mod rules;
#[cfg(test)]
mod tests;
mod type_ref;
mod value_checks;

use std::sync::Arc;

use serde_json::{Value, json};

pub(crate) use self::compile::hash_of;
use self::correlate::Old;
pub use self::field_error::{ErrorType, FieldError};
pub use self::node::ListType;
use self::node::Node;
pub(crate) use self::path::Path;
pub(crate) use self::rules::{Outcome, condition_holds, expression_error, with_variables};
pub(crate) use self::type_ref::Expectation;
pub use self::type_ref::TypeRef;

/// Said instead of running the rules on an object whose shape is wrong.
const RULES_SKIPPED: &str = "some validation rules were not checked because the object was invalid; correct the \
                             existing errors to complete validation";

/// The compiled schema of one version of a custom resource.
#[derive(Debug, Clone)]
pub struct StructuralSchema {
    root: Arc<Node>,
}

impl StructuralSchema {
    /// Compiles an `openAPIV3Schema`; the errors are why it is not structural.
    pub fn compile(schema: &Value) -> Result<Self, Vec<String>> {
        Self::compile_at("spec.validation.openAPIV3Schema", schema)
            .map_err(|errors| errors.iter().map(FieldError::to_string).collect())
    }

    /// Like `compile`, sharing equal parts with other schemas in memory.
    pub fn compile_shared(schema: &Value) -> Result<Self, Vec<String>> {
        let compiled = compile::compile_shared(schema).map(|root| Self { root });
        compiled.map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    /// Like `compile`, for a schema that stands at `path` in its CustomResourceDefinition.
    pub fn compile_at(path: &str, schema: &Value) -> Result<Self, Vec<FieldError>> {
        compile::compile(path, schema).map(|root| Self { root })
    }

    /// Returns the type as patches see it.
    pub fn type_ref(&self) -> TypeRef<'_> {
        TypeRef::resource(&self.root)
    }

    /// Removes the fields that the schema does not know, and writes numbers as the real server stores them.
    pub fn prune(&self, object: &mut Value) {
        number::write_whole_floats_as_integers(object);
        prune::prune(object, &self.root);
        metadata::prune_embedded(object, &self.root);
    }

    /// Drops nulls that mean "not set", and fills in the defaults.
    pub fn default(&self, object: &mut Value) {
        default::apply(object, &self.root);
    }

    /// Returns everything wrong with an object, given the one that it replaces.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = value_checks::validate(new, &self.root, &Path::Root, Old::new(old, new));
        metadata::validate_embedded(new, &self.root, &Path::Root, &mut errors);
        self.validate_lists_and_rules(new, old, &mut errors);
        errors
    }

    /// Returns everything wrong with an object of which only the status changed.
    pub fn validate_status(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let (Some(status), Some(schema)) = (new.get("status"), self.root.property("status")) {
            let inside = value_checks::validate(status, schema, &Path::Root, Old::new(old.get("status"), status));
            errors.extend(inside.into_iter().map(|error| match error.field.as_str() {
                "<nil>" => FieldError { field: "status".to_owned(), ..error },
                below => FieldError { field: format!("status.{below}"), ..error },
            }));
        }
        self.validate_lists_and_rules(new, Some(old), &mut errors);
        errors
    }

    fn validate_lists_and_rules(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let mut repeated = Vec::new();
        list_type::validate(new, &self.root, &Path::Root, &mut repeated);
        if let (false, Some(old)) = (repeated.is_empty(), old) {
            let mut before = Vec::new();
            list_type::validate(old, &self.root, &Path::Root, &mut before);
            if !before.is_empty() {
                repeated.clear();
            }
        }
        errors.append(&mut repeated);
        if !self.root.has_rules {
            return;
        }
        if errors.iter().any(FieldError::blocks_rules) {
            errors.push(FieldError::invalid("<nil>", &json!(null), RULES_SKIPPED));
        } else {
            errors.extend(rules::validate(new, &self.root, old));
        }
    }

    /// Returns the fields that pruning would drop, as strict decoding names them: `unknown field "spec.foo"`.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        let message = |field: &UnknownField| format!("unknown field \"{}\"", field.path);
        self.find_unknown_fields(object).iter().map(message).collect()
    }

    /// Returns the fields that pruning would drop, with those that could have been meant.
    pub fn find_unknown_fields(&self, object: &Value) -> Vec<UnknownField> {
        let mut pruned = Vec::new();
        prune::visit_unknown(object, &self.root, &mut |path, node| {
            let names = node.into_iter().flat_map(|node| node.properties.iter().map(|(name, _)| name.to_string()));
            pruned.push(UnknownField { path: path.show_dotted(), known: names.collect() });
        });
        pruned.sort_by(|a, b| a.path.cmp(&b.path));
        let of_metadata = |path: String| UnknownField { path, known: metadata::field_names() };
        let own = metadata::unknown_fields(object).into_iter().map(of_metadata);
        let embedded = metadata::unknown_embedded_fields(object, &self.root).into_iter().map(of_metadata);
        own.chain(pruned).chain(embedded).collect()
    }
}

/// A field that the schema does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    pub path: String,
    /// The fields that the schema knows at that place.
    pub known: Vec<String>,
}
