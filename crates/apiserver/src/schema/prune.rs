//! Fields the schema does not know: dropped on the way in, or named to a client that asked for strict validation.

use serde_json::Value;

use super::node::{Additional, Node};
use super::path::Path;

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields. The root counts as a resource, so its type and metadata always stay.
pub(crate) fn prune(object: &mut Value, root: &Node) {
    prune_inside(object, Schema { node: root, embedded: true, preserve: root.preserve_unknown });
}

/// Called for every unknown field, with its path and the node that should know it.
type Found<'a> = dyn FnMut(&Path<'_>, Option<&Node>) + 'a;

/// Calls `found` with every unknown field, in the order of the object.
pub(crate) fn visit_unknown(object: &Value, root: &Node, found: &mut Found<'_>) {
    let schema = Schema { node: root, embedded: true, preserve: root.preserve_unknown };
    visit_inside(object, schema, &Path::Root, found);
}

/// A node, and what its surroundings add to it.
#[derive(Clone, Copy)]
struct Schema<'a> {
    node: &'a Node,
    embedded: bool,
    preserve: bool,
}

impl<'a> Schema<'a> {
    fn of(node: &'a Node) -> Self {
        Self { node, embedded: node.embedded, preserve: node.preserve_unknown }
    }

    fn field(self, key: &str) -> Fate<'a> {
        if self.embedded && META_FIELDS.contains(&key) {
            return Fate::Keep;
        }
        if let Some(property) = self.node.property(key) {
            return Fate::Inside(Schema::of(property));
        }
        match &self.node.additional {
            Some(Additional::Schema(values)) => Fate::Inside(Schema::of(values)),
            Some(Additional::Anything) => Fate::Empty,
            _ if self.preserve => Fate::Keep,
            _ => Fate::Unknown,
        }
    }

    fn item(self) -> Fate<'a> {
        match &self.node.items {
            // A list that keeps what it does not know lends that to its items.
            Some(items) => {
                Fate::Inside(Schema { preserve: self.preserve || items.preserve_unknown, ..Self::of(items) })
            }
            None if self.preserve => Fate::Keep,
            None => Fate::Empty,
        }
    }
}

/// What becomes of a value.
enum Fate<'a> {
    Keep,
    Inside(Schema<'a>),
    /// The value stays, but nothing describes its fields.
    Empty,
    Unknown,
}

fn prune_inside(value: &mut Value, schema: Schema<'_>) {
    match value {
        Value::Object(map) => map.retain(|key, child| match schema.field(key) {
            Fate::Keep => true,
            Fate::Inside(inner) => {
                prune_inside(child, inner);
                true
            }
            Fate::Empty => {
                prune_all(child);
                true
            }
            Fate::Unknown => false,
        }),
        Value::Array(items) => {
            for item in items {
                match schema.item() {
                    Fate::Inside(inner) => prune_inside(item, inner),
                    Fate::Empty => prune_all(item),
                    Fate::Keep | Fate::Unknown => {}
                }
            }
        }
        _ => {}
    }
}

fn prune_all(value: &mut Value) {
    match value {
        Value::Object(map) => map.clear(),
        Value::Array(items) => items.iter_mut().for_each(prune_all),
        _ => {}
    }
}

fn visit_inside(value: &Value, schema: Schema<'_>, path: &Path<'_>, found: &mut Found<'_>) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                let here = path.field(key);
                match schema.field(key) {
                    Fate::Keep => {}
                    Fate::Inside(inner) => visit_inside(child, inner, &here, found),
                    Fate::Empty => visit_all(child, &here, found),
                    Fate::Unknown => found(&here, Some(schema.node)),
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let here = path.index(i);
                match schema.item() {
                    Fate::Inside(inner) => visit_inside(item, inner, &here, found),
                    Fate::Empty => visit_all(item, &here, found),
                    Fate::Keep | Fate::Unknown => {}
                }
            }
        }
        _ => {}
    }
}

fn visit_all(value: &Value, path: &Path<'_>, found: &mut Found<'_>) {
    match value {
        Value::Object(map) => map.keys().for_each(|key| found(&path.field(key), None)),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| visit_all(item, &path.index(i), found)),
        _ => {}
    }
}
