//! Role-based access control: bindings lead to roles, roles to rules.
//!
//! Every request is authorized, and bindings and roles change rarely, so both are compiled into an index that is
//! rebuilt after a change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::rule::Rule;
use super::{Attributes, User};
use crate::store::{Entry, ListRange, Store};

const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";

/// The rules of roles, by namespace and name.
type Rules = HashMap<(Box<str>, Box<str>), Arc<[Rule]>>;

/// The compiled roles and bindings.
#[derive(Default)]
pub(super) struct Rbac {
    index: Mutex<Arc<Index>>,
}

#[derive(Default)]
struct Index {
    /// The last change of each of the four tables.
    built_at: [u64; 4],
    cluster: Vec<Binding>,
    by_namespace: HashMap<Box<str>, Vec<Binding>>,
}

struct Binding {
    /// `ClusterRoleBinding "a" of ClusterRole "b"`.
    name: String,
    subjects: Vec<Subject>,
    rules: Arc<[Rule]>,
}

enum Subject {
    User(String),
    Group(String),
}

impl Rbac {
    /// Authorizes a request; returns why it is allowed.
    pub(super) fn allows(&self, user: &User, attributes: &Attributes, store: &Store) -> Option<String> {
        let index = self.index(store);
        index.bindings(&attributes.namespace).find_map(|binding| {
            let subject = binding.subject(user)?;
            let allowed = binding.rules.iter().any(|rule| rule.permits(attributes));
            allowed.then(|| format!("RBAC: allowed by {} to {subject}", binding.name))
        })
    }

    /// Returns the rules that apply to a user in a namespace.
    pub(super) fn rules_of(&self, user: &User, namespace: &str, store: &Store) -> Vec<Rule> {
        let index = self.index(store);
        let held = index.bindings(namespace).filter(|binding| binding.subject(user).is_some());
        held.flat_map(|binding| binding.rules.iter().cloned()).collect()
    }

    fn index(&self, store: &Store) -> Arc<Index> {
        let now = [CLUSTER_ROLES, ROLES, CLUSTER_BINDINGS, BINDINGS].map(|table| store.last_change(table));
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if index.built_at != now {
            *index = Arc::new(Index::build(now, store));
        }
        index.clone()
    }
}

impl Index {
    fn build(built_at: [u64; 4], store: &Store) -> Index {
        let list = |table: &str| -> Vec<Arc<Entry>> {
            store.list(table, &ListRange::default(), |_| true).map(|page| page.entries).unwrap_or_default()
        };
        let rules = |table: &str| -> Rules {
            let rules = |entry: &Entry| Rule::parse_all(&entry.value()).into();
            let key = |entry: &Entry| (entry.key.namespace.clone(), entry.key.name.clone());
            list(table).iter().map(|entry| (key(entry), rules(entry))).collect()
        };
        let (cluster_roles, roles) = (rules(CLUSTER_ROLES), rules(ROLES));
        let compile = |kind: &str, entry: &Entry| {
            let value = entry.value();
            let role = &value["roleRef"];
            let (role_kind, role_name) = (role["kind"].as_str()?, role["name"].as_str()?);
            let rules = match role_kind {
                "ClusterRole" => cluster_roles.get(&("".into(), role_name.into()))?,
                _ => roles.get(&(entry.key.namespace.clone(), role_name.into()))?,
            };
            let name = format!("{kind} {:?} of {role_kind} {role_name:?}", entry.key.name);
            let subjects = value["subjects"].as_array().into_iter().flatten();
            let subjects = subjects.filter_map(|one| Subject::parse(one, &entry.key.namespace)).collect();
            Some(Binding { name, subjects, rules: rules.clone() })
        };
        let cluster = list(CLUSTER_BINDINGS).iter().filter_map(|entry| compile("ClusterRoleBinding", entry)).collect();
        let mut by_namespace: HashMap<Box<str>, Vec<Binding>> = HashMap::new();
        for entry in list(BINDINGS) {
            if let Some(binding) = compile("RoleBinding", &entry) {
                by_namespace.entry(entry.key.namespace.clone()).or_default().push(binding);
            }
        }
        Index { built_at, cluster, by_namespace }
    }

    fn bindings(&self, namespace: &str) -> impl Iterator<Item = &Binding> {
        let here = Some(namespace).filter(|namespace| !namespace.is_empty());
        self.cluster.iter().chain(here.and_then(|namespace| self.by_namespace.get(namespace)).into_iter().flatten())
    }
}

impl Binding {
    /// Returns the subject that a user matches, as messages name it.
    fn subject(&self, user: &User) -> Option<String> {
        self.subjects.iter().find_map(|subject| match subject {
            Subject::User(name) => (*name == user.name).then(|| format!("User {name:?}")),
            Subject::Group(name) => user.groups.contains(name).then(|| format!("Group {name:?}")),
        })
    }
}

impl Subject {
    fn parse(subject: &Value, namespace: &str) -> Option<Subject> {
        let name = subject["name"].as_str()?.to_owned();
        match subject["kind"].as_str()? {
            "User" => Some(Subject::User(name)),
            "Group" => Some(Subject::Group(name)),
            "ServiceAccount" => {
                let namespace = subject["namespace"].as_str().unwrap_or(namespace);
                Some(Subject::User(format!("system:serviceaccount:{namespace}:{name}")))
            }
            _ => None,
        }
    }
}

/// Returns the status of a SelfSubjectRulesReview.
pub(super) fn rules_review(rules: &[Rule]) -> Value {
    let shown: Vec<Value> = rules.iter().map(Rule::to_value).collect();
    let (paths, resources): (Vec<Value>, Vec<Value>) =
        shown.into_iter().partition(|rule| rule["nonResourceURLs"].is_array());
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}
