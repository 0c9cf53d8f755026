//! Policy rules: what they permit, and whether some rules cover others.

use std::fmt;

use serde_json::Value;

use super::Attributes;

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(super) verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    pub(super) urls: Vec<String>,
}

impl Rule {
    pub(crate) fn parse(rule: &Value) -> Rule {
        let list = |key: &str| {
            rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// Returns the rules of a role.
    pub(crate) fn parse_all(role: &Value) -> Vec<Rule> {
        role["rules"].as_array().into_iter().flatten().map(Rule::parse).collect()
    }

    /// Returns the rule as roles write it.
    pub(super) fn to_value(&self) -> Value {
        let lists = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        lists.map(|(key, list)| (key.to_owned(), Value::from(list.as_slice()))).collect()
    }

    /// Returns whether the rule permits a request.
    pub(super) fn permits(&self, attributes: &Attributes) -> bool {
        if !has(&self.verbs, &attributes.verb) {
            return false;
        }
        if attributes.resource.is_empty() {
            return self.urls.iter().any(|pattern| url_matches(pattern, &attributes.path));
        }
        let resource = match attributes.subresource.as_str() {
            "" => attributes.resource.clone(),
            below => format!("{}/{below}", attributes.resource),
        };
        has(&self.groups, &attributes.group)
            && self.has_resource(&resource)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }

    fn has_resource(&self, resource: &str) -> bool {
        let any_below = resource.split_once('/').map(|(_, below)| format!("*/{below}"));
        has(&self.resources, resource) || any_below.is_some_and(|pattern| self.resources.contains(&pattern))
    }

    /// Splits the rule into rules of one verb, group, resource and name each.
    fn split(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        for verb in &self.verbs {
            let part = Rule { verbs: vec![verb.clone()], ..Rule::default() };
            parts.extend(self.urls.iter().map(|url| Rule { urls: vec![url.clone()], ..part.clone() }));
            for group in &self.groups {
                for resource in &self.resources {
                    let part = Rule { groups: vec![group.clone()], resources: vec![resource.clone()], ..part.clone() };
                    if self.names.is_empty() {
                        parts.push(part);
                    } else {
                        parts.extend(self.names.iter().map(|name| Rule { names: vec![name.clone()], ..part.clone() }));
                    }
                }
            }
        }
        parts
    }

    /// Returns whether this rule covers one that was split.
    fn covers(&self, part: &Rule) -> bool {
        has(&self.verbs, &part.verbs[0])
            && part.urls.iter().all(|url| self.urls.iter().any(|pattern| pattern == url || url_matches(pattern, url)))
            && part.groups.iter().all(|group| has(&self.groups, group))
            && part.resources.iter().all(|resource| self.has_resource(resource))
            && (self.names.is_empty() || (!part.names.is_empty() && self.names.contains(&part.names[0])))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = Vec::new();
        for (name, list) in [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("ResourceNames", &self.names),
            ("NonResourceURLs", &self.urls),
            ("Verbs", &self.verbs),
        ] {
            if !list.is_empty() {
                let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
                fields.push(format!("{name}:[{}]", items.join(" ")));
            }
        }
        write!(f, "{{{}}}", fields.join(", "))
    }
}

/// Returns the parts of `wanted` that `held` does not cover.
pub(crate) fn uncovered(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::split);
    parts.filter(|part| !held.iter().any(|rule| rule.covers(part))).collect()
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

fn url_matches(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_permit_what_they_name() {
        let check = |rule: &Value, verb: &str, resource: &str, subresource: &str, name: &str, expect: bool| {
            let attributes = Attributes {
                verb: verb.into(),
                resource: resource.into(),
                subresource: subresource.into(),
                name: name.into(),
                ..Attributes::default()
            };
            assert_eq!(Rule::parse(rule).permits(&attributes), expect, "{rule} {attributes:?}");
        };
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"]});
        check(&rule, "get", "pods", "", "a", true);
        check(&rule, "get", "pods", "log", "a", true);
        check(&rule, "list", "pods", "", "", false);
        check(&rule, "get", "pods", "status", "a", false);
        let named = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["b"]});
        check(&named, "get", "pods", "", "a", false);
        check(&named, "get", "pods", "", "b", true);
        let scales = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"]});
        check(&scales, "update", "deployments", "scale", "a", true);
        check(&scales, "update", "deployments", "", "a", false);
        let path = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics*"]});
        let plain = Attributes { verb: "get".into(), path: "/metrics/x".into(), ..Attributes::default() };
        assert!(Rule::parse(&path).permits(&plain));
    }

    #[test]
    fn coverage_is_part_by_part() {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]| {
            Rule::parse(&json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names}))
        };
        let check = |held: &[Rule], wanted: Rule, missing: usize| {
            let found = uncovered(held, std::slice::from_ref(&wanted));
            assert_eq!(found.len(), missing, "{wanted}: {found:?}");
        };
        let pods = rule(&[""], &["pods"], &["get", "list"], &[]);
        let secrets = rule(&[""], &["secrets"], &["get"], &["a"]);
        let held = [pods.clone(), secrets];
        check(&held, pods, 0);
        check(&held, rule(&[""], &["pods", "secrets"], &["get"], &["a"]), 0);
        check(&held, rule(&[""], &["secrets"], &["get"], &[]), 1);
        check(&held, rule(&[""], &["secrets"], &["get"], &["a", "b"]), 1);
        check(&held, rule(&[""], &["pods"], &["*"], &[]), 1);
        check(&held, rule(&["*"], &["pods"], &["get"], &[]), 1);
        check(&held, rule(&[""], &["*"], &["get"], &[]), 1);
        check(&[rule(&["*"], &["*"], &["*"], &[])], rule(&["*"], &["*"], &["*"], &[]), 0);
        let url = Rule::parse(&json!({"nonResourceURLs": ["/a/*"], "verbs": ["get"]}));
        let below = Rule::parse(&json!({"nonResourceURLs": ["/a/b"], "verbs": ["get"]}));
        assert!(uncovered(std::slice::from_ref(&url), std::slice::from_ref(&below)).is_empty());
        assert_eq!(uncovered(std::slice::from_ref(&below), std::slice::from_ref(&url)).len(), 1);
    }
}
