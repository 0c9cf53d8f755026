//! The built-in types: which fields there are, and how lists and maps of theirs merge.
//!
//! The facts are those that the real server publishes in its OpenAPI documents, kept as one table in `builtin.txt`;
//! `tests/builtin_types.rs` compares it with the real server and rewrites it on request. A line without indent opens
//! a type, an indented one is a field:
//!
//! ```text
//! core.v1.Container
//!   ports [core.v1.ContainerPort keys=containerPort,protocol merge=containerPort
//! ```
//!
//! `[T` is a list of `T`, `{T` a map to `T`; scalars are lower case words; `?` is anything.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::node::ListType;

const TABLE: &str = include_str!("builtin.txt");

static TYPES: LazyLock<Types> = LazyLock::new(|| Types::parse(TABLE));

/// A scalar, as far as decoding cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Bytes,
    Int32,
    Int64,
    Number,
    Boolean,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
}

/// The type of a field.
#[derive(Debug)]
pub(crate) enum FieldType {
    Scalar(Scalar),
    /// Any JSON, one value to whoever owns it.
    Any,
    Definition(usize),
    List(Box<FieldType>),
    Map(Box<FieldType>),
}

/// One field of a built-in type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) field_type: FieldType,
    pub(crate) list_type: ListType,
    /// Whether the value of a map or struct is one value, where the field says so itself.
    pub(crate) atomic: Option<bool>,
    /// How a strategic merge treats the field.
    pub(crate) strategy: Strategy,
    pub(crate) default: Option<Value>,
}

/// The patch strategy of a field.
#[derive(Debug, Default)]
pub(crate) struct Strategy {
    pub(crate) merge: bool,
    pub(crate) retain_keys: bool,
    pub(crate) merge_key: Option<&'static str>,
}

/// One built-in type.
#[derive(Debug)]
pub(crate) struct Definition {
    /// `core.v1.Container`
    pub(crate) name: &'static str,
    pub(crate) atomic: bool,
    /// Sorted by name.
    pub(crate) fields: Vec<Field>,
}

impl Definition {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let at = self.fields.binary_search_by(|field| field.name.cmp(name)).ok()?;
        Some(&self.fields[at])
    }
}

struct Types {
    definitions: Vec<Definition>,
    by_name: HashMap<&'static str, usize>,
    by_kind: HashMap<(&'static str, &'static str, &'static str), usize>,
}

/// Returns the definition behind a number found in a field.
pub(crate) fn definition(index: usize) -> &'static Definition {
    &TYPES.definitions[index]
}

/// Returns the definition of a kind.
pub(crate) fn definition_of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Definition> {
    TYPES.by_kind.get(&(group, version, kind)).map(|index| definition(*index))
}

/// Returns the definition of that name, such as `meta.v1.ObjectMeta`.
pub(crate) fn definition_named(name: &str) -> Option<&'static Definition> {
    TYPES.by_name.get(name).map(|index| definition(*index))
}

impl Types {
    fn parse(table: &'static str) -> Self {
        let headers = table.lines().filter(|line| !line.starts_with([' ', '#']) && !line.is_empty());
        let by_name: HashMap<&'static str, usize> =
            headers.enumerate().map(|(index, line)| (line.split(' ').next().unwrap_or(line), index)).collect();
        let mut types = Self { definitions: Vec::with_capacity(by_name.len()), by_kind: HashMap::new(), by_name };
        for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            match line.strip_prefix("  ") {
                None => types.open(line),
                Some(field) => {
                    let field = parse_field(field, &types.by_name);
                    if let Some(open) = types.definitions.last_mut() {
                        open.fields.push(field);
                    }
                }
            }
        }
        types
    }

    fn open(&mut self, line: &'static str) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let mut atomic = false;
        for word in words {
            match word.strip_prefix("kind=") {
                Some(kind) => {
                    let mut parts = kind.split('/');
                    let mut next = || parts.next().unwrap_or_default();
                    self.by_kind.insert((next(), next(), next()), self.definitions.len());
                }
                None => atomic |= word == "atomic",
            }
        }
        self.definitions.push(Definition { name, atomic, fields: Vec::new() });
    }
}

fn parse_field(line: &'static str, by_name: &HashMap<&'static str, usize>) -> Field {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let mut field = Field {
        name,
        field_type: parse_type(words.next().unwrap_or_default(), by_name),
        list_type: ListType::Atomic,
        atomic: None,
        strategy: Strategy::default(),
        default: None,
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("set", _) => field.list_type = ListType::Set,
            ("keys", keys) => field.list_type = ListType::Map(keys.split(',').map(str::to_owned).collect()),
            ("atomic", _) => field.atomic = Some(true),
            ("granular", _) => field.atomic = Some(false),
            ("retainKeys", _) => field.strategy.retain_keys = true,
            ("merge", key) => {
                field.strategy.merge = true;
                field.strategy.merge_key = Some(key).filter(|key| !key.is_empty());
            }
            ("default", json) => field.default = serde_json::from_str(json).ok(),
            _ => {}
        }
    }
    field
}

fn parse_type(word: &str, by_name: &HashMap<&'static str, usize>) -> FieldType {
    if let Some(items) = word.strip_prefix('[') {
        return FieldType::List(Box::new(parse_type(items, by_name)));
    }
    if let Some(values) = word.strip_prefix('{') {
        return FieldType::Map(Box::new(parse_type(values, by_name)));
    }
    FieldType::Scalar(match word {
        "string" => Scalar::String,
        "byte" => Scalar::Bytes,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "number" => Scalar::Number,
        "boolean" => Scalar::Boolean,
        "time" => Scalar::Time,
        "micro-time" => Scalar::MicroTime,
        "quantity" => Scalar::Quantity,
        "int-or-string" => Scalar::IntOrString,
        name => return by_name.get(name).map_or(FieldType::Any, |index| FieldType::Definition(*index)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads_back() {
        let pod = definition_of_kind("", "v1", "Pod").unwrap();
        assert_eq!(pod.name, "core.v1.Pod");
        let spec = match pod.field("spec").map(|field| &field.field_type) {
            Some(FieldType::Definition(index)) => definition(*index),
            other => panic!("{other:?}"),
        };
        let containers = spec.field("containers").unwrap();
        assert_eq!(containers.list_type, ListType::Map(vec!["name".to_owned()]));
        assert_eq!(containers.strategy.merge_key, Some("name"));
        assert!(definition_named("meta.v1.LabelSelector").unwrap().atomic);
        for definition in &TYPES.definitions {
            assert!(definition.fields.is_sorted_by_key(|field| field.name), "{}", definition.name);
        }
    }
}
