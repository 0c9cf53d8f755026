//! The rules as ValidatingAdmissionPolicies, which the API server evaluates itself, without a webhook and with the
//! operator's messages.
//!
//! CEL can express most rules. The operator alone checks these, and reports them by event and status: names and values of
//! labels, names of groups under a network policy, TLS, the history server, the mount of the embedded storage, the order
//! of deletion rules, pre-releases of Ray, `runtimeEnvYAML`, schedules and time zones, `ray.io/initializing-timeout`, and
//! all rules that depend on feature gates or on installed components.

mod cluster;
mod job;
mod service;

use crate::action::Kind;
use crate::labels::MANAGED_BY_SELF;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A policy and its binding to all namespaces.
#[derive(Clone, Debug)]
pub struct Policy {
    pub policy: ValidatingAdmissionPolicy,
    pub binding: ValidatingAdmissionPolicyBinding,
}

/// Returns the policies of all four kinds.
pub fn all() -> Vec<Policy> {
    [Kind::RayCluster, Kind::RayJob, Kind::RayService, Kind::RayCronJob].map(of).into()
}

fn of(kind: Kind) -> Policy {
    let resource = kind.resource();
    let name = format!("{}.ray.io", resource.plural);
    let metadata = || ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let (variables, rules) = match kind {
        Kind::RayCluster => cluster::policy(),
        Kind::RayJob => job::policy(),
        Kind::RayService => service::policy(),
        _ => job::cron_policy(),
    };
    let constraints = MatchResources {
        resource_rules: Some(vec![NamedRuleWithOperations {
            api_groups: Some(vec![resource.group.to_owned()]),
            api_versions: Some(vec![resource.version.to_owned()]),
            operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
            resources: Some(vec![resource.plural.to_owned()]),
            ..NamedRuleWithOperations::default()
        }]),
        ..MatchResources::default()
    };
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(constraints),
        match_conditions: Some(conditions(kind)),
        variables: Some(variables.into_iter().map(Variable::from).collect()),
        validations: Some(rules.into_iter().map(Validation::from).collect()),
        ..ValidatingAdmissionPolicySpec::default()
    };
    let binding = ValidatingAdmissionPolicyBindingSpec {
        policy_name: name.clone(),
        validation_actions: vec!["Deny".to_owned()],
        ..ValidatingAdmissionPolicyBindingSpec::default()
    };
    Policy {
        policy: ValidatingAdmissionPolicy { metadata: metadata(), spec: Some(spec), ..Default::default() },
        binding: ValidatingAdmissionPolicyBinding { metadata: metadata(), spec: binding },
    }
}

/// Returns the conditions of a policy: it skips objects that are being deleted or that another controller manages, and
/// changes outside of spec and annotations.
fn conditions(kind: Kind) -> Vec<MatchCondition> {
    let mut conditions = vec![
        ("stays", "!has(object.metadata.deletionTimestamp)".to_owned()),
        (
            "changed",
            "oldObject == null || object.spec != oldObject.spec || object.metadata.?annotations != \
             oldObject.metadata.?annotations"
                .to_owned(),
        ),
    ];
    if kind != Kind::RayCronJob {
        let ours = literal(MANAGED_BY_SELF);
        conditions.push(("ours", format!("object.spec.?managedBy.orValue({ours}) == {ours}")));
    }
    conditions.into_iter().map(|(name, expression)| MatchCondition { name: name.to_owned(), expression }).collect()
}

/// A variable of the expressions: its name and its expression.
struct CelVariable(&'static str, String);

impl From<CelVariable> for Variable {
    fn from(CelVariable(name, expression): CelVariable) -> Self {
        Self { name: name.to_owned(), expression }
    }
}

/// A condition, and the message of its violation.
struct Rule {
    holds: String,
    /// A CEL expression that evaluates to a string.
    message: String,
}

impl Rule {
    /// Returns a rule with a constant message.
    fn plain(holds: &str, message: &str) -> Self {
        Self { holds: holds.to_owned(), message: literal(message) }
    }

    /// Returns a rule with expressions in its message: `before {expression} after`.
    fn interpolated(holds: &str, message: &str) -> Self {
        Self { holds: holds.to_owned(), message: interpolate(message) }
    }

    /// Returns a rule for each worker group `g`; the message is about the first group that breaks it.
    fn of_groups(breaks: &str, message: &str) -> Self {
        let groups = "variables.groups";
        let first = format!("{groups}.filter(g, {breaks})[0]");
        Self {
            holds: format!("!{groups}.exists(g, {breaks})"),
            message: interpolate(message).replace("string(g.", &format!("string({first}.")),
        }
    }

    /// Restricts the rule to objects that meet a condition.
    fn only_if(self, condition: &str) -> Self {
        Self { holds: format!("!({condition}) || ({})", self.holds), ..self }
    }

    /// Adds a prefix to the message.
    fn with_prefix(self, prefix: &str) -> Self {
        Self { message: format!("{} + {}", literal(prefix), self.message), ..self }
    }
}

impl From<Rule> for Validation {
    fn from(rule: Rule) -> Self {
        Self {
            expression: rule.holds,
            message_expression: Some(rule.message),
            reason: Some("Invalid".to_owned()),
            ..Self::default()
        }
    }
}

/// Returns a text as a CEL string literal.
fn literal(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the CEL expression of a message with expressions in braces.
fn interpolate(message: &str) -> String {
    let mut parts = Vec::new();
    for (index, part) in message.split('{').enumerate() {
        let (expression, rest) = if index == 0 { (None, part) } else { split_brace(part) };
        parts.extend(expression.map(|expression| format!("string({expression})")));
        if !rest.is_empty() {
            parts.push(literal(rest));
        }
    }
    parts.join(" + ")
}

fn split_brace(part: &str) -> (Option<&str>, &str) {
    part.split_once('}').map_or((None, part), |(expression, rest)| (Some(expression), rest))
}

/// Returns the rule for the length of names.
fn name_length(kind: &str, prefix: &str, max: usize) -> Rule {
    Rule::plain(
        &format!("size(object.metadata.name) <= {max}"),
        &format!("{prefix}{kind} name should be no more than {max} characters"),
    )
}

/// Returns the rules for names.
fn names(kind: &str, prefix: &str, max: usize) -> Vec<Rule> {
    vec![
        name_length(kind, prefix, max),
        Rule::plain(
            "object.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            &format!(
                "{prefix}{kind} name should be a valid DNS1035 label: [a DNS-1035 label must consist of lower case \
                 alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric \
                 character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]"
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_in_cel() {
        assert_eq!(interpolate("plain \"x\""), r#""plain \"x\"""#);
        assert_eq!(interpolate("a {x.y} b"), r#""a " + string(x.y) + " b""#);
        let rule = Rule::of_groups("g.minReplicas < 0", "group {g.groupName} is wrong");
        assert_eq!(rule.holds, "!variables.groups.exists(g, g.minReplicas < 0)");
        assert_eq!(
            rule.message,
            r#""group " + string(variables.groups.filter(g, g.minReplicas < 0)[0].groupName) + " is wrong""#
        );
    }
}
