//! Parses YAML and JSON into trees that record line numbers.
//!
//! Work is bounded: the parser limits nesting, and two counters limit the number of values and the depth that aliases
//! expand to. A document with a syntax error is reported and skipped; the documents after it are still read.

use std::collections::HashMap;
use std::rc::Rc;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::{Report, scalar};

/// How many values aliases may add to a file.
const MAX_ALIASED: usize = 200_000;

/// How deep values may nest, with aliases expanded.
const MAX_DEPTH: usize = 400;

/// How many key errors are reported per file: one mistake can cause thousands.
const MAX_PROBLEMS: usize = 1_000;

/// A value and the line it starts on.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    data: Data,
    /// Whether it is a block of text, `|` or `>`.
    is_block: bool,
    /// The number of values in it, itself included, with aliases expanded.
    size: usize,
    depth: usize,
}

#[derive(Debug)]
enum Data {
    Scalar(Value),
    List(Vec<Rc<Node>>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) value: Rc<Node>,
}

impl Node {
    fn new(line: usize, data: Data) -> Self {
        let (size, depth) = match &data {
            Data::Scalar(_) => (1, 1),
            Data::List(items) => measure(items.iter()),
            Data::Map(entries) => measure(entries.iter().map(|entry| &entry.value)),
        };
        Self { line, data, is_block: false, size, depth }
    }

    pub(crate) fn is_block(&self) -> bool {
        self.is_block
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.data, Data::Scalar(Value::Null))
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.data, Data::Map(_))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let entries: &[Entry] = if let Data::Map(entries) = &self.data { entries } else { &[] };
        entries.iter()
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &Node> {
        let items: &[Rc<Node>] = if let Data::List(items) = &self.data { items } else { &[] };
        items.iter().map(Rc::as_ref)
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().find(|entry| entry.key == key)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| entry.value.as_ref())
    }

    /// Returns the value at a path of keys.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    pub(crate) fn key_line(&self, key: &str) -> Option<usize> {
        self.entry(key).map(|entry| entry.line)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Data::Scalar(value) = &self.data { value.as_str() } else { None }
    }

    /// Returns a scalar as it is written, but without quotes.
    pub(crate) fn text(&self) -> Option<String> {
        match &self.data {
            Data::Scalar(Value::String(text)) => Some(text.clone()),
            Data::Scalar(Value::Null) => Some(String::new()),
            Data::Scalar(value) => Some(value.to_string()),
            Data::List(_) | Data::Map(_) => None,
        }
    }

    /// Returns its type in words, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.data {
            Data::List(_) => "a list",
            Data::Map(_) => "an object",
            Data::Scalar(Value::Null) => "nothing",
            Data::Scalar(Value::String(_)) => "a string",
            Data::Scalar(Value::Bool(_)) => "a boolean",
            Data::Scalar(_) => "a number",
        }
    }

    /// Returns the value in words: its type, and itself if it is short.
    pub(crate) fn describe(&self) -> String {
        match &self.data {
            Data::Scalar(Value::String(text)) if text.chars().count() <= 40 => format!("the string \"{text}\""),
            Data::Scalar(Value::Bool(value)) => format!("the boolean {value}"),
            Data::Scalar(Value::Number(number)) => format!("the number {number}"),
            _ => self.type_name().to_owned(),
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(items) => Value::Array(items.iter().map(|item| item.to_value()).collect()),
            Data::Map(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

fn measure<'a>(children: impl Iterator<Item = &'a Rc<Node>>) -> (usize, usize) {
    let (size, depth) =
        children.fold((0_usize, 0), |(size, depth), child| (size.saturating_add(child.size), depth.max(child.depth)));
    (size.saturating_add(1), depth + 1)
}

/// The documents of a file, parsed one by one so that a long file is never in memory as a whole.
pub(crate) struct Documents<'a> {
    parser: Parser<'a, StrInput<'a>>,
    builder: Builder,
    at_end: bool,
}

impl<'a> Documents<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut options = Options::default();
        options.set_emit_comments(false);
        Self { parser: Parser::new_from_str_with_options(text, options), builder: Builder::default(), at_end: false }
    }

    /// Returns the next document that parses, and reports the syntax errors of those before it.
    pub(crate) fn next(&mut self, report: &mut Report<'_>) -> Option<Rc<Node>> {
        while !self.at_end {
            match self.builder.document(&mut self.parser, report) {
                Ok(Some(root)) => return Some(root),
                Ok(None) => self.at_end = true,
                Err(Unparsable) => {
                    self.builder.open.clear();
                    self.builder.anchors.clear();
                    self.at_end = !matches!(self.parser.proceed_next_document(), Ok(true));
                }
            }
        }
        None
    }
}

/// The document has a syntax error, so the rest of it is skipped.
struct Unparsable;

#[derive(Default)]
struct Builder {
    anchors: HashMap<usize, Rc<Node>>,
    open: Vec<Open>,
    aliased: usize,
    problems: usize,
}

/// A list or map that has not been closed yet.
struct Open {
    line: usize,
    anchor: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Rc<Node>>),
    Map { entries: Vec<Entry>, seen: HashMap<String, usize>, key: Option<Key>, merges: Vec<Rc<Node>> },
}

/// A key whose value has not been read yet.
enum Key {
    Named(String, usize),
    /// `<<`
    Merge,
    /// Already reported; its value is read and dropped.
    Unusable,
}

impl Builder {
    /// Returns the next document that is not empty.
    fn document<'a>(
        &mut self,
        parser: &mut Parser<'a, StrInput<'a>>,
        report: &mut Report<'_>,
    ) -> Result<Option<Rc<Node>>, Unparsable> {
        let mut root = None;
        while let Some(next) = parser.next_event() {
            let (event, span) = match next {
                Ok(next) => next,
                Err(error) => {
                    let line = error.marker().line().max(1);
                    report.unreadable(line, &format!("not YAML: {}", error.info()));
                    return Err(Unparsable);
                }
            };
            match event {
                Event::DocumentEnd => {
                    self.anchors.clear();
                    // Comments between two separators form an empty document.
                    if let Some(root) = root.take().filter(|root: &Rc<Node>| !root.is_null()) {
                        return Ok(Some(root));
                    }
                }
                Event::StreamEnd => return Ok(None),
                event => {
                    if let Some(node) = self.event(event, &span, report)? {
                        root = Some(node);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Handles one event; returns the root once it is complete.
    fn event(
        &mut self,
        event: Event<'_>,
        span: &Span,
        report: &mut Report<'_>,
    ) -> Result<Option<Rc<Node>>, Unparsable> {
        let line = span.start.line();
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar_value(&text, style, tag.as_deref());
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                (Rc::new(Node { is_block, ..Node::new(line, Data::Scalar(value)) }), anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(Open { line, anchor, kind: OpenKind::List(Vec::new()) });
                return Ok(None);
            }
            Event::MappingStart(_, anchor, _) => {
                let kind = OpenKind::Map { entries: Vec::new(), seen: HashMap::new(), key: None, merges: Vec::new() };
                self.open.push(Open { line, anchor, kind });
                return Ok(None);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(None) };
                let anchor = open.anchor;
                (Rc::new(open.close()), anchor)
            }
            Event::Alias(id) => (self.alias(id, line, report)?, 0),
            _ => return Ok(None),
        };
        if node.depth > MAX_DEPTH {
            report.unreadable(line, &format!("nested deeper than {MAX_DEPTH} levels"));
            return Err(Unparsable);
        }
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(self.attach(node, report))
    }

    fn alias(&mut self, id: usize, line: usize, report: &mut Report<'_>) -> Result<Rc<Node>, Unparsable> {
        let Some(target) = self.anchors.get(&id) else {
            report.unreadable(line, "an alias refers to a value that contains it");
            return Err(Unparsable);
        };
        self.aliased = self.aliased.saturating_add(target.size);
        if self.aliased > MAX_ALIASED {
            report.unreadable(line, &format!("aliases expand to more than {MAX_ALIASED} values"));
            return Err(Unparsable);
        }
        Ok(Rc::clone(target))
    }

    /// Adds a value to the innermost open collection; without one, it is the root.
    fn attach(&mut self, node: Rc<Node>, report: &mut Report<'_>) -> Option<Rc<Node>> {
        let Some(open) = self.open.last_mut() else { return Some(node) };
        match &mut open.kind {
            OpenKind::List(items) => items.push(node),
            OpenKind::Map { entries, seen, key, merges } => match key.take() {
                None => {
                    let made = key_of(&node, seen);
                    if let Err(message) = &made {
                        self.problems += 1;
                        if self.problems <= MAX_PROBLEMS {
                            report.error(node.line, "", message);
                        }
                    }
                    *key = Some(made.unwrap_or(Key::Unusable));
                }
                Some(Key::Named(name, line)) => entries.push(Entry { key: name, line, value: node }),
                Some(Key::Merge) => match &node.data {
                    Data::List(items) => merges.extend(items.iter().cloned()),
                    _ => merges.push(node),
                },
                Some(Key::Unusable) => {}
            },
        }
        None
    }
}

impl Open {
    fn close(self) -> Node {
        let data = match self.kind {
            OpenKind::List(items) => Data::List(items),
            OpenKind::Map { mut entries, merges, mut seen, .. } => {
                // Merged keys never override existing ones.
                for entry in merges.iter().flat_map(|merged| merged.entries()) {
                    if seen.insert(entry.key.clone(), entry.line).is_none() {
                        let value = Rc::clone(&entry.value);
                        entries.push(Entry { key: entry.key.clone(), line: entry.line, value });
                    }
                }
                Data::Map(entries)
            }
        };
        Node::new(self.line, data)
    }
}

/// Returns the key that a value stands for, or why it cannot be a key.
fn key_of(node: &Node, seen: &mut HashMap<String, usize>) -> Result<Key, String> {
    let name = match &node.data {
        Data::Scalar(Value::String(text)) if text == "<<" => return Ok(Key::Merge),
        Data::Scalar(Value::String(text)) => text.clone(),
        Data::Scalar(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        Data::Scalar(_) => return Err("a key must be a string, not null".to_owned()),
        Data::List(_) => return Err("a key must be a string, not a list".to_owned()),
        Data::Map(_) => return Err("a key must be a string, not an object".to_owned()),
    };
    if let Some(first) = seen.insert(name.clone(), node.line) {
        return Err(format!("duplicate key \"{name}\", first on line {first}"));
    }
    Ok(Key::Named(name, node.line))
}

fn scalar_value(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    match tag.and_then(Tag::core_suffix) {
        Some("str" | "binary") => return Value::String(text.to_owned()),
        Some("null") => return Value::Null,
        Some(_) => return scalar::resolve(text),
        None => {}
    }
    match style {
        ScalarStyle::Plain => scalar::resolve(text),
        _ => Value::String(text.to_owned()),
    }
}
