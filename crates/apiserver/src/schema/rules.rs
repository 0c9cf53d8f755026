//! CEL rules of a schema (`x-kubernetes-validations`).
//!
//! A rule sees the value as `self` and, if it is a transition rule, the value before as `oldSelf`; without an old value
//! a transition rule is skipped, unless it takes `oldSelf` as an optional.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};
use kube_cel::cel::objects::{Key, OptionalValue};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::{Value, json};

use super::cel_budget::{self, Budget};
use super::cel_value;
use super::correlate::Old;
use super::field_error::FieldError;
use super::node::{Node, Type};
use super::path::Path;

/// Longer messages from a messageExpression are not shown.
const MAX_MESSAGE: usize = 5 * 1024;

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    program: Expression,
    message: Option<String>,
    message_program: Option<Expression>,
    reason: Option<String>,
    /// Dotted, without a leading dot.
    field_path: Option<String>,
    uses_old: bool,
    optional_old: bool,
}

impl Rule {
    /// Compiles the rule that stands at `path` in its CustomResourceDefinition.
    pub(crate) fn compile(rule: &Value, path: &str) -> Result<Self, FieldError> {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned);
        let Some(source) = text("rule").filter(|rule| !rule.trim().is_empty()) else {
            return Err(FieldError::required(format!("{path}.rule"), "rule is not specified"));
        };
        let program = parse(&source, &format!("{path}.rule"))?;
        let message_program = match text("messageExpression") {
            Some(expression) => Some(parse(&expression, &format!("{path}.messageExpression"))?),
            None => None,
        };
        Ok(Self {
            uses_old: program.references().has_variable("oldSelf"),
            program,
            message: text("message").map(|message| message.trim().to_owned()),
            message_program,
            reason: text("reason"),
            field_path: text("fieldPath").map(|path| normalize_field_path(&path)),
            optional_old: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            text: source,
        })
    }

    /// Returns what errors call this rule.
    fn name(&self) -> &str {
        self.message.as_deref().unwrap_or_else(|| self.text.trim())
    }

    fn default_message(&self) -> String {
        self.message.clone().unwrap_or_else(|| format!("failed rule: {}", self.text.trim()))
    }
}

fn parse(source: &str, path: &str) -> Result<Expression, FieldError> {
    let parser = || Parser::new().enable_optional_syntax(true).parse(source);
    let failed =
        |cause: String| FieldError::invalid(path, &json!(source), &format!("compilation failed: {}", cause.trim_end()));
    match catch_unwind(AssertUnwindSafe(parser)) {
        Ok(parsed) => parsed.map(cel_budget::metered).map_err(|errors| failed(errors.to_string())),
        Err(_) => Err(failed("the expression cannot be parsed".to_owned())),
    }
}

/// `.a['b'].c` as `a.b.c`.
fn normalize_field_path(path: &str) -> String {
    path.replace("['", ".").replace("']", "").trim_start_matches('.').to_owned()
}

/// Runs every rule at and below the node.
pub(crate) fn validate<'a>(value: &'a Value, root: &Node, old: Option<&'a Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if root.has_rules {
        let _budget = Budget::begin();
        validate_node(value, root, &Path::Root, Old::new(old, value), true, &mut errors);
    }
    errors
}

fn validate_node<'a>(
    value: &'a Value,
    node: &Node,
    path: &Path<'_>,
    old: Old<'a>,
    resource_root: bool,
    errors: &mut Vec<FieldError>,
) {
    // A null is judged by the rules around it.
    if value.is_null() || !node.has_rules {
        return;
    }
    if !node.rules.is_empty() {
        run_rules(value, node, path, old, resource_root, errors);
    }
    match value {
        Value::Array(items) => {
            let Some(schema) = &node.items else { return };
            for (i, item) in items.iter().enumerate() {
                let old_item = old.item(node, i, item);
                validate_node(item, schema, &path.index(i), old_item, schema.embedded, errors);
            }
        }
        Value::Object(map) => {
            for (key, child) in map {
                let old_child = old.field(key, child);
                if let Some(property) = node.property(key) {
                    validate_node(child, property, &path.field(key), old_child, property.embedded, errors);
                } else if let Some(values) = node.additional_schema() {
                    validate_node(child, values, &path.key(key), old_child, values.embedded, errors);
                }
            }
        }
        _ => {}
    }
}

thread_local! {
    /// The CEL functions, registered once per thread: registration takes longer than most rules.
    static FUNCTIONS: Context<'static> = cel_budget::with_meter(Context::default().with_all());
}

fn run_rules(
    value: &Value,
    node: &Node,
    path: &Path<'_>,
    old: Old<'_>,
    resource_root: bool,
    errors: &mut Vec<FieldError>,
) {
    FUNCTIONS.with(|functions| {
        let old_value = old.value().filter(|old| !old.is_null());
        let mut context = functions.new_inner_scope();
        context.add_variable_from_value("self", cel_value::convert(value, node, resource_root));
        let mut optional = context.new_inner_scope();
        let cel_old = old_value
            .filter(|_| node.rules.iter().any(|rule| rule.uses_old))
            .map(|old| cel_value::convert(old, node, resource_root));
        let wrapped = cel_old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
        optional.add_variable_from_value("oldSelf", CelValue::Opaque(Arc::new(wrapped)));
        let mut plain = context.new_inner_scope();
        if let Some(cel_old) = cel_old {
            plain.add_variable_from_value("oldSelf", cel_old);
        }
        for rule in &node.rules {
            if cel_budget::is_exhausted() {
                return;
            }
            if rule.uses_old && old_value.is_none() && !rule.optional_old {
                continue;
            }
            let scope = if rule.optional_old { &optional } else { &plain };
            if let Some(error) = run(rule, scope, &plain, node, path)
                // A rule about the change itself is never forgiven.
                && (rule.uses_old || !old.is_unchanged())
            {
                errors.push(error);
            }
        }
    });
}

fn run(rule: &Rule, scope: &Context<'_>, plain: &Context<'_>, node: &Node, path: &Path<'_>) -> Option<FieldError> {
    let kind = json!(node.kind.map_or("", Type::name));
    match evaluate(&rule.program, scope) {
        Ok(CelValue::Bool(true)) => None,
        Ok(CelValue::Bool(false)) => {
            let message = message_of(rule, plain).unwrap_or_else(|| rule.default_message());
            let field = match (&rule.field_path, path) {
                (Some(below), Path::Root) => below.clone(),
                (Some(below), _) => format!("{}.{below}", path.show()),
                (None, _) => path.show(),
            };
            Some(match rule.reason.as_deref() {
                Some("FieldValueForbidden") => FieldError::forbidden(field, &message),
                Some("FieldValueRequired") => FieldError::required(field, &message),
                Some("FieldValueDuplicate") => FieldError::duplicate(field, &kind),
                _ => FieldError::invalid(field, &kind, &message),
            })
        }
        Ok(_) => {
            let detail = format!("must evaluate to a bool evaluating rule: {}", rule.name());
            Some(FieldError::invalid(path.show(), &kind, &detail))
        }
        Err(_) if cel_budget::is_exhausted() => {
            let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
            Some(FieldError::invalid(path.show(), &kind, detail))
        }
        Err(cause) if cause == "no such overload" => {
            let detail = format!(
                "'{cause}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                rule.name()
            );
            Some(FieldError::invalid(path.show(), &kind, &detail))
        }
        Err(cause) => {
            Some(FieldError::invalid(path.show(), &kind, &format!("{cause} evaluating rule: {}", rule.name())))
        }
    }
}

/// The result of an expression, as far as admission is interested in it.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Bool(bool),
    Text(String),
    Other,
}

/// Runs `work` with a function that evaluates expressions on untyped values. The `composed` ones are evaluated first, in
/// order, and later expressions see their values as `variables.<name>`; one that fails is missing there.
pub(crate) fn with_variables<R>(
    given: &[(&str, &Value)],
    composed: &[(&str, &str)],
    work: impl FnOnce(&dyn Fn(&str) -> Result<Outcome, String>) -> R,
) -> R {
    let _budget = Budget::begin();
    FUNCTIONS.with(|functions| {
        let mut context = functions.new_inner_scope();
        for (name, value) in given {
            context.add_variable_from_value(*name, cel_value::untyped(value));
        }
        let mut values = std::collections::HashMap::new();
        let map = |values: &std::collections::HashMap<Key, CelValue>| {
            CelValue::Map(kube_cel::cel::objects::Map { map: Arc::new(values.clone()) })
        };
        context.add_variable_from_value("variables", map(&values));
        for (name, expression) in composed {
            let value = parse(expression, "expression").ok().and_then(|program| evaluate(&program, &context).ok());
            if let Some(value) = value {
                values.insert(Key::String(Arc::new((*name).to_owned())), value);
                context.add_variable_from_value("variables", map(&values));
            }
        }
        work(&|expression| {
            let program = parse(expression, "expression").map_err(|error| error.to_string())?;
            Ok(match evaluate(&program, &context)? {
                CelValue::Bool(value) => Outcome::Bool(value),
                CelValue::String(text) => Outcome::Text(text.to_string()),
                _ => Outcome::Other,
            })
        })
    })
}

/// Returns whether a condition on untyped values holds; the error is why it could not be evaluated.
pub(crate) fn condition_holds(expression: &str, variables: &[(&str, &Value)]) -> Result<bool, String> {
    with_variables(variables, &[], |evaluate| match evaluate(expression)? {
        Outcome::Bool(holds) => Ok(holds),
        _ => Err("the expression gives no bool".to_owned()),
    })
}

/// Identifiers that are types, or the first part of a function's name.
const NAMESPACES: &[&str] = &[
    "bool",
    "bytes",
    "cel",
    "double",
    "duration",
    "dyn",
    "format",
    "google",
    "int",
    "ip",
    "jsonpatch",
    "list",
    "map",
    "math",
    "null_type",
    "optional",
    "sets",
    "string",
    "timestamp",
    "type",
    "uint",
    "base64",
    "strings",
    "lists",
    "url",
    "cidr",
];

/// Returns the first identifier that is neither known nor bound by a macro such as `all`.
fn undeclared<'a>(expression: &'a IdedExpr, bound: &mut Vec<&'a str>, known: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    match &expression.expr {
        Expr::Ident(name) => {
            let fine = name.starts_with('@') || bound.contains(&name.as_str()) || known(name);
            (!fine).then_some(name.as_str())
        }
        Expr::Call(call) => {
            let parts = call.target.as_deref().into_iter().chain(&call.args);
            parts.into_iter().find_map(|part| undeclared(part, bound, known))
        }
        Expr::Select(select) => undeclared(&select.operand, bound, known),
        Expr::List(list) => list.elements.iter().find_map(|element| undeclared(element, bound, known)),
        Expr::Comprehension(loop_) => {
            if let Some(name) = undeclared(&loop_.iter_range, bound, known) {
                return Some(name);
            }
            let outer = bound.len();
            bound.push(&loop_.accu_var);
            bound.push(&loop_.iter_var);
            bound.extend(loop_.iter_var2.as_deref());
            let parts = [&loop_.accu_init, &loop_.loop_cond, &loop_.loop_step, &loop_.result];
            let found = parts.into_iter().find_map(|part| undeclared(part, bound, known));
            bound.truncate(outer);
            found
        }
        Expr::Map(map) => map.entries.iter().find_map(|entry| undeclared_entry(&entry.expr, bound, known)),
        Expr::Struct(fields) => fields.entries.iter().find_map(|entry| undeclared_entry(&entry.expr, bound, known)),
        Expr::Literal(_) | Expr::Unspecified => None,
    }
}

fn undeclared_entry<'a>(
    entry: &'a EntryExpr,
    bound: &mut Vec<&'a str>,
    known: &dyn Fn(&str) -> bool,
) -> Option<&'a str> {
    match entry {
        EntryExpr::StructField(field) => undeclared(&field.value, bound, known),
        EntryExpr::MapEntry(entry) => {
            undeclared(&entry.key, bound, known).or_else(|| undeclared(&entry.value, bound, known))
        }
    }
}

/// Returns why an expression is not one that gives a bool, or another type, with some variables.
pub(crate) fn expression_error(expression: &str, variables: &[&str], wants_bool: bool) -> Option<String> {
    let program = match parse(expression, "expression") {
        Ok(program) => program,
        Err(error) => {
            let body = error.body;
            return Some(
                body.split_once("compilation failed: ")
                    .map_or(body.clone(), |(_, why)| format!("compilation failed: {why}")),
            );
        }
    };
    let known = |name: &str| variables.contains(&name) || NAMESPACES.contains(&name);
    if let Some(name) = undeclared(&program, &mut Vec::new(), &known) {
        return Some(format!("compilation failed: undeclared reference to '{name}' (in container '')"));
    }
    let is_other = match &program.expr {
        Expr::Literal(literal) => !matches!(literal, LiteralValue::Boolean(_)),
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) => true,
        _ => false,
    };
    let kind = match &program.expr {
        Expr::Literal(LiteralValue::String(_)) => "string",
        Expr::Literal(LiteralValue::Int(_)) => "int",
        Expr::List(_) => "list",
        Expr::Map(_) => "map",
        _ => "another type",
    };
    (wants_bool && is_other).then(|| format!("must evaluate to bool but got {kind}"))
}

/// Returns the message made by the rule's messageExpression, if it is fit to be shown.
fn message_of(rule: &Rule, context: &Context<'_>) -> Option<String> {
    let CelValue::String(text) = evaluate(rule.message_program.as_ref()?, context).ok()? else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

/// Evaluates an expression. The interpreter has corners that panic (dates out of range among them); whoever may write
/// a rule or an object must not be able to stop the server with that.
fn evaluate(program: &Expression, context: &Context<'_>) -> Result<CelValue, String> {
    match catch_unwind(AssertUnwindSafe(|| context.resolve(program))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(explain(&error)),
        Err(_) => Err("internal error".to_owned()),
    }
}

fn explain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::UnexpectedType { .. } => "no such overload".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(CelValue::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        other => other.to_string(),
    }
}
