//! A table of the Go types behind the Ray API.

use std::collections::HashMap;
use std::sync::LazyLock;

static TABLE: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| parse(include_str!("types.txt")));

/// The type of a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    RayCluster,
    RayClusterSpec,
    RayJob,
    RayJobSpec,
    RayService,
    RayCronJob,
    /// The annotation for YuniKorn.
    YunikornTaskGroup,
}

impl Root {
    pub(super) fn fields(self) -> &'static [Field] {
        fields(match self {
            Root::RayCluster => "RayCluster",
            Root::RayClusterSpec => "RayClusterSpec",
            Root::RayJob => "RayJob",
            Root::RayJobSpec => "RayJobSpec",
            Root::RayService => "RayService",
            Root::RayCronJob => "RayCronJob",
            Root::YunikornTaskGroup => "YunikornTaskGroup",
        })
    }
}

/// A field of a struct.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) omit: Omit,
    pub(super) shape: Shape,
}

/// The condition under which a field is omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Omit {
    Never,
    /// Go's `omitempty`, which never omits a struct.
    Empty,
    /// Go's `omitzero`, which does.
    Zero,
}

/// The type of a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    String,
    Bool,
    Int,
    Float,
    Quantity,
    Time,
    IntOrString,
    Any,
    Pointer(Box<Shape>),
    List(Box<Shape>),
    Map(Box<Shape>),
    Struct(&'static str),
}

/// Returns the fields of a struct in declaration order.
pub(super) fn fields(name: &str) -> &'static [Field] {
    TABLE.get(name).map_or(&[], Vec::as_slice)
}

fn parse(text: &'static str) -> HashMap<&'static str, Vec<Field>> {
    let mut table = HashMap::new();
    let mut current = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.trim_start().split_once(' ') {
            None => current = line,
            Some((name, shape)) => {
                table.entry(current).or_insert_with(Vec::new).push(Field::parse(name, shape));
            }
        }
    }
    table
}

impl Field {
    fn parse(name: &'static str, shape: &'static str) -> Self {
        let bare = name.trim_end_matches('?');
        let omit = match name.len() - bare.len() {
            0 => Omit::Never,
            1 => Omit::Empty,
            _ => Omit::Zero,
        };
        Self { name: bare, omit, shape: Shape::parse(shape) }
    }
}

impl Shape {
    fn parse(text: &'static str) -> Self {
        let inner = |prefix: &str| text.strip_prefix(prefix).map(|inner| Box::new(Shape::parse(inner)));
        if let Some(inner) = inner("*") {
            return Shape::Pointer(inner);
        }
        if let Some(inner) = inner("[]") {
            return Shape::List(inner);
        }
        if let Some(inner) = inner("{}") {
            return Shape::Map(inner);
        }
        match text {
            "string" => Shape::String,
            "bool" => Shape::Bool,
            "int" => Shape::Int,
            "float" => Shape::Float,
            "quantity" => Shape::Quantity,
            "time" => Shape::Time,
            "intOrString" => Shape::IntOrString,
            "any" => Shape::Any,
            name => Shape::Struct(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_referenced_type_is_in_the_table() {
        fn check(shape: &Shape) {
            match shape {
                Shape::Pointer(inner) | Shape::List(inner) | Shape::Map(inner) => check(inner),
                Shape::Struct(name) => assert!(!fields(name).is_empty(), "{name} is not in the table"),
                _ => {}
            }
        }
        assert!(TABLE.len() > 150, "{} types", TABLE.len());
        TABLE.values().flatten().for_each(|field| check(&field.shape));
        let roots = [
            Root::RayCluster,
            Root::RayClusterSpec,
            Root::RayJob,
            Root::RayJobSpec,
            Root::RayService,
            Root::RayCronJob,
            Root::YunikornTaskGroup,
        ];
        for root in roots {
            assert!(!root.fields().is_empty(), "{root:?}");
        }
    }
}
