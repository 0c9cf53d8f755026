//! Checks manifests without a cluster.
//!
//! ```text
//!   bytes ─▶ documents with lines ─▶ kind ─▶ schema, CEL rules ─▶ rules of webhook and operator ─▶ findings
//!            (yaml)                  (kinds) (schema)             (rules)
//! ```
//!
//! Linting is pure: it never panics, reads neither clock nor network, and does bounded work on any input.

mod embedded;
mod fields;
mod kinds;
mod locate;
mod metadata;
mod pods;
mod rules;
mod scalar;
mod suspicious;
mod syntax;
#[cfg(test)]
mod tests;
mod wording;
mod yaml;

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use self::kinds::{Kind, Kinds, Unsupported};
use self::locate::locate;
use self::yaml::{Documents, Node};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The input cannot be parsed.
    Unreadable,
    /// The API server or the operator would reject it.
    Error,
    /// It is accepted, but probably unintended.
    Warning,
    /// Informational; nothing to fix.
    Note,
}

/// One finding about a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub file: String,
    /// From 1; 0 if the finding is about the whole file.
    pub line: usize,
    /// The field, as in `spec.workerGroupSpecs[0].replicas`; empty if the finding is about the whole document.
    pub path: String,
    pub message: String,
    pub severity: Severity,
}

impl Finding {
    /// Returns the finding about a file that cannot be read.
    pub fn unreadable(file: &str, why: &str) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            path: String::new(),
            message: format!("cannot be read: {why}"),
            severity: Severity::Unreadable,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        match self.severity {
            Severity::Unreadable | Severity::Error => {}
            Severity::Warning => write!(f, " warning:")?,
            Severity::Note => write!(f, " note:")?,
        }
        if !self.path.is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}", self.message)
    }
}

/// Lints files one by one; compiles each schema when it is first needed.
#[derive(Debug, Default)]
pub struct Linter {
    kinds: Kinds,
}

/// How many syntax errors get a better message: one mistake can cause thousands.
const MAX_IMPROVED: usize = 100;

impl Linter {
    /// Returns the findings about the contents of a file, sorted by line.
    pub fn lint(&mut self, file: &str, contents: &[u8]) -> Vec<Finding> {
        self.visit(file, contents, &mut |_| {})
    }

    /// Returns the findings about the contents of a file, and the objects in it.
    pub fn read(&mut self, file: &str, contents: &[u8]) -> (Vec<Finding>, Vec<Value>) {
        let mut objects = Vec::new();
        let findings = self.visit(file, contents, &mut |object| objects.push(object.to_value()));
        (findings, objects)
    }

    /// Does the same, and refuses objects without a name, which cannot be applied.
    pub fn read_to_apply(&mut self, file: &str, contents: &[u8]) -> (Vec<Finding>, Vec<Value>) {
        let (mut objects, mut nameless) = (Vec::new(), Report { file, findings: Vec::new() });
        let mut findings = self.visit(file, contents, &mut |object| {
            refuse_nameless(object, &mut nameless);
            objects.push(object.to_value());
        });
        findings.extend(nameless.findings);
        findings.sort_by_key(|finding| finding.line);
        (findings, objects)
    }

    /// Fills in the defaults of the CRDs, as the API server does.
    pub fn set_defaults(&mut self, object: &mut Value) {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        if let Ok(kind) = self.kinds.find(&text("apiVersion"), &text("kind")) {
            kind.schema.default(object);
        }
    }

    fn visit(&mut self, file: &str, contents: &[u8], visitor: &mut dyn FnMut(&Node)) -> Vec<Finding> {
        let mut report = Report { file, findings: Vec::new() };
        match std::str::from_utf8(contents) {
            Ok(text) => {
                let mut documents = Documents::new(text);
                let mut any = false;
                while let Some(root) = documents.next(&mut report) {
                    any = true;
                    for object in objects_of(&root) {
                        visitor(object);
                        self.lint_object(object, &mut report);
                    }
                }
                if !any && report.findings.is_empty() {
                    report.note(0, "the file is empty");
                }
                for finding in report.findings.iter_mut().take(MAX_IMPROVED) {
                    syntax::improve(finding, text);
                }
            }
            Err(error) => {
                let line = 1 + contents[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
                report.unreadable(line, "not UTF-8 text");
            }
        }
        report.findings.sort();
        report.findings.sort_by_key(|finding| finding.line);
        report.findings.dedup();
        report.findings
    }

    fn lint_object(&mut self, root: &Node, report: &mut Report<'_>) {
        if !root.is_map() {
            report.error(
                root.line,
                "",
                &format!("must be an object with apiVersion and kind, but is {}", root.type_name()),
            );
            return;
        }
        let missing: Vec<&str> =
            ["apiVersion", "kind"].into_iter().filter(|key| root.get(key).and_then(Node::as_str).is_none()).collect();
        if !missing.is_empty() {
            for key in missing {
                let line = root.get(key).map_or(root.line, |node| node.line);
                let what = if root.get(key).is_some() { "must be a string" } else { "Required value" };
                report.error(line, key, what);
            }
            return;
        }
        let text = |key: &str| root.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
        let (api_version, kind_name) = (text("apiVersion"), text("kind"));
        let line_of = |key: &str| root.key_line(key).unwrap_or(root.line);
        match self.kinds.find(&api_version, &kind_name) {
            Ok(kind) => lint_kind(root, kind, report),
            Err(Unsupported::OtherGroup) => {
                report.note(line_of("kind"), &format!("{kind_name} of {api_version} is not checked"));
            }
            Err(Unsupported::Version(message)) => report.error(line_of("apiVersion"), "apiVersion", &message),
            Err(Unsupported::Kind(message)) => report.error(line_of("kind"), "kind", &message),
        }
    }
}

/// Reports an object that has no name; those of Ray that have no `generateName` either are reported by its rules.
fn refuse_nameless(object: &Node, report: &mut Report<'_>) {
    let text = |path: &[&str]| object.at(path).and_then(Node::as_str).unwrap_or_default();
    if !object.is_map() || !text(&["metadata", "name"]).is_empty() {
        return;
    }
    if !text(&["metadata", "generateName"]).is_empty() {
        let why = "cannot use generateName here, because objects are applied by name; set metadata.name";
        report.error_at(object, "metadata.generateName", why);
    } else if !text(&["apiVersion"]).starts_with("ray.io/") {
        report.error_at(object, "metadata.name", "Required value: name is required");
    }
}

/// Returns the document itself, or the items of a List.
fn objects_of(document: &Node) -> Vec<&Node> {
    let text = |key: &str| document.get(key).and_then(Node::as_str);
    if text("kind") == Some("List") && text("apiVersion") == Some("v1") {
        return document.get("items").into_iter().flat_map(Node::items).collect();
    }
    vec![document]
}

fn lint_kind(root: &Node, kind: &Kind, report: &mut Report<'_>) {
    if let Some(warning) = kind.deprecation() {
        report.note(root.key_line("apiVersion").unwrap_or(root.line), warning);
    }
    suspicious::check(root, report);
    embedded::check(root, report);
    let mut object = root.to_value();
    for unknown in kind.schema.find_unknown_fields(&object) {
        let name = unknown.path.rsplit(['.', ']']).next().unwrap_or_default();
        let hint = crate::suggest::closest(name, unknown.known.iter().map(String::as_str))
            .map_or_else(String::new, |name| format!(", did you mean \"{name}\"?"));
        report.error_at(root, &unknown.path, &format!("unknown field{hint}"));
    }
    kind.schema.prune(&mut object);
    kind.schema.default(&mut object);
    let mut broken = !metadata::check(root, report);
    metadata::fill_in_empty_values(&mut object);
    for error in kind.schema.validate(&object, None) {
        if error.field == "<nil>" && error.body.contains("some validation rules were not checked") {
            report.note(root.line, "the CEL rules were not checked, because the object does not match the schema");
            continue;
        }
        broken = true;
        let path = if error.field == "<nil>" { "" } else { &error.field };
        let (line, value) = locate::find(root, path);
        report.error(line, path, &wording::reword(path, &error.body, value));
    }
    if broken {
        return;
    }
    let problems = rules::check(kind, &object, root);
    for problem in &problems {
        report.error_at(root, &problem.path, &problem.message);
    }
    let is_refused =
        |path: &str| problems.iter().any(|problem| problem.path != "spec" && path.starts_with(problem.path.as_str()));
    for warning in rules::warnings(&object, root).into_iter().filter(|warning| !is_refused(&warning.path)) {
        report.warning(locate(root, &warning.path), &warning.path, &warning.message);
    }
}

/// Collects the findings of one file.
pub(crate) struct Report<'a> {
    file: &'a str,
    findings: Vec<Finding>,
}

impl Report<'_> {
    fn push(&mut self, line: usize, path: &str, message: &str, severity: Severity) {
        self.findings.push(Finding {
            file: self.file.to_owned(),
            line,
            path: path.to_owned(),
            message: message.to_owned(),
            severity,
        });
    }

    pub(crate) fn unreadable(&mut self, line: usize, message: &str) {
        self.push(line, "", message, Severity::Unreadable);
    }

    pub(crate) fn error(&mut self, line: usize, path: &str, message: &str) {
        self.push(line, path, message, Severity::Error);
    }

    pub(crate) fn warning(&mut self, line: usize, path: &str, message: &str) {
        self.push(line, path, message, Severity::Warning);
    }

    fn note(&mut self, line: usize, message: &str) {
        self.push(line, "", message, Severity::Note);
    }

    /// Adds an error about a field, on the line of the field or of its closest existing parent.
    fn error_at(&mut self, root: &Node, path: &str, message: &str) {
        self.error(locate(root, path), path, message);
    }
}
