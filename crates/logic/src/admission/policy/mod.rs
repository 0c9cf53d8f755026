//! The rules as ValidatingAdmissionPolicies, for those who want no webhook: the API server checks them by itself, in the
//! operator's words.
//!
//! CEL can say most rules, not all. Left to the operator, which tells by event and status: names and values of labels,
//! names of groups under a network policy, TLS, the history server, the mount of the embedded store, the order of
//! deletion rules, pre-releases of Ray, `runtimeEnvYAML`, schedules and time zones, `ray.io/initializing-timeout`, and
//! whatever depends on feature gates or on what is installed.

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

/// A policy and the binding that puts it into force everywhere.
#[derive(Clone, Debug)]
pub struct Policy {
    pub policy: ValidatingAdmissionPolicy,
    pub binding: ValidatingAdmissionPolicyBinding,
}

/// The policies of all four kinds.
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

/// What is deleted, managed by others, or changed elsewhere than in spec and annotations is let through.
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
        let ours = text(MANAGED_BY_SELF);
        conditions.push(("ours", format!("object.spec.?managedBy.orValue({ours}) == {ours}")));
    }
    conditions.into_iter().map(|(name, expression)| MatchCondition { name: name.to_owned(), expression }).collect()
}

/// A part of expressions that has a name.
struct Named(&'static str, String);

impl From<Named> for Variable {
    fn from(Named(name, expression): Named) -> Self {
        Self { name: name.to_owned(), expression }
    }
}

/// What must hold, and what is said where it does not.
struct Rule {
    holds: String,
    /// A CEL expression of a text.
    message: String,
}

impl Rule {
    /// A rule whose message is always the same.
    fn plain(holds: &str, message: &str) -> Self {
        Self { holds: holds.to_owned(), message: text(message) }
    }

    /// A rule with values in its message: `before {expression} after`.
    fn telling(holds: &str, message: &str) -> Self {
        Self { holds: holds.to_owned(), message: interpolated(message) }
    }

    /// A rule of each worker group `g`; in the message `{g.name}` is of the first that breaks it.
    fn of_groups(breaks: &str, message: &str) -> Self {
        let groups = "variables.groups";
        let first = format!("{groups}.filter(g, {breaks})[0]");
        Self {
            holds: format!("!{groups}.exists(g, {breaks})"),
            message: interpolated(message).replace("string(g.", &format!("string({first}.")),
        }
    }

    /// The same rule where a condition is met.
    fn only_if(self, condition: &str) -> Self {
        Self { holds: format!("!({condition}) || ({})", self.holds), ..self }
    }

    /// The same rule with something said before.
    fn after(self, prefix: &str) -> Self {
        Self { message: format!("{} + {}", text(prefix), self.message), ..self }
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

/// A text as CEL writes it.
fn text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A text in which expressions stand in braces.
fn interpolated(message: &str) -> String {
    let mut parts = Vec::new();
    for (index, part) in message.split('{').enumerate() {
        let (expression, rest) = if index == 0 { (None, part) } else { split_brace(part) };
        parts.extend(expression.map(|expression| format!("string({expression})")));
        if !rest.is_empty() {
            parts.push(text(rest));
        }
    }
    parts.join(" + ")
}

fn split_brace(part: &str) -> (Option<&str>, &str) {
    part.split_once('}').map_or((None, part), |(expression, rest)| (Some(expression), rest))
}

/// The rules of names.
fn names(kind: &str, prefix: &str, max: usize) -> Vec<Rule> {
    vec![
        Rule::plain(
            &format!("size(object.metadata.name) <= {max}"),
            &format!("{prefix}{kind} name should be no more than {max} characters"),
        ),
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
        assert_eq!(interpolated("plain \"x\""), r#""plain \"x\"""#);
        assert_eq!(interpolated("a {x.y} b"), r#""a " + string(x.y) + " b""#);
        let rule = Rule::of_groups("g.minReplicas < 0", "group {g.groupName} is wrong");
        assert_eq!(rule.holds, "!variables.groups.exists(g, g.minReplicas < 0)");
        assert_eq!(
            rule.message,
            r#""group " + string(variables.groups.filter(g, g.minReplicas < 0)[0].groupName) + " is wrong""#
        );
    }
}
