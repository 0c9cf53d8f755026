//! The served kinds and their behaviour.
//!
//! Built-in kinds are a static table; custom kinds come and go with their definitions. Requests look a
//! resource up once and then hold it, so a definition that changes meanwhile does no harm.

mod autoscaler_conversion;
mod builtin;
mod custom;
mod defaults;
mod definition_names;
mod event_conversion;
pub(crate) mod shape;
pub(crate) mod unsupported;
mod validation;

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::Value;

pub use builtin::{Builtin, Subresource};
pub(crate) use custom::{ConversionWebhook, note_storage_version};
pub use custom::{Custom, ScalePaths};
pub(crate) use defaults::pod::{add_default_tolerations, admit as admit_pod, qos_class};
pub(crate) use definition_names::{Acceptance, accept};

pub(crate) use validation::networking::internal_range;

use crate::error::{ApiError, Named};
use crate::names::{self, NameRule};
use crate::schema::FieldError;

/// One kind at one version.
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version, e.g. `v1`.
    pub version: Arc<str>,
    /// Group and version as objects carry them.
    pub api_version: Arc<str>,
    /// The kind, e.g. `Pod`.
    pub kind: Arc<str>,
    /// The kind of a list.
    pub list_kind: Arc<str>,
    /// The name in paths, e.g. `pods`.
    pub plural: Arc<str>,
    /// The name of one.
    pub singular: Arc<str>,
    /// The short names.
    pub short_names: Vec<Arc<str>>,
    /// Names for several kinds at once, e.g. `all`.
    pub categories: Vec<Arc<str>>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Where the objects are stored; versions of a kind share it.
    pub table: Arc<str>,
    /// The behaviour of this kind.
    pub behaviour: Behaviour,
}

/// The behaviour of a kind.
pub enum Behaviour {
    /// A built-in kind.
    Builtin(&'static Builtin),
    /// A custom kind.
    Custom(Custom),
}

const CUSTOM_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

impl Resource {
    /// Group, version and plural.
    fn path(&self) -> (&str, &str, &str) {
        (&self.group, &self.version, &self.plural)
    }

    /// This kind's object in error messages that speak of resources.
    pub fn named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.group, what: &self.plural, name }
    }

    /// This kind's object in error messages that speak of kinds.
    pub fn kind_named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.group, what: &self.kind, name }
    }

    /// Returns the built-in part, if it is one.
    pub fn builtin(&self) -> Option<&'static Builtin> {
        match &self.behaviour {
            Behaviour::Builtin(builtin) => Some(builtin),
            Behaviour::Custom(_) => None,
        }
    }

    /// Returns the custom part, if it is one.
    pub fn custom(&self) -> Option<&Custom> {
        match &self.behaviour {
            Behaviour::Builtin(_) => None,
            Behaviour::Custom(custom) => Some(custom),
        }
    }

    /// Returns the verbs it knows.
    pub fn verbs(&self) -> &'static [&'static str] {
        self.builtin().map_or(CUSTOM_VERBS, |builtin| builtin.verbs)
    }

    /// Returns whether objects of this kind are stored; reviews are not.
    pub fn is_stored(&self) -> bool {
        self.verbs().contains(&"get")
    }

    /// Returns the subresources.
    pub fn subresources(&self) -> Vec<Subresource> {
        match &self.behaviour {
            Behaviour::Builtin(builtin) => builtin.subresources.to_vec(),
            Behaviour::Custom(custom) => {
                let verbs = &["get", "patch", "update"];
                let status = Subresource { name: "status", kind: None, verbs };
                let scale = Subresource { name: "scale", kind: Some(("autoscaling", "v1", "Scale")), verbs };
                let known = [custom.status.then_some(status), custom.scale.is_some().then_some(scale)];
                known.into_iter().flatten().collect()
            }
        }
    }

    /// Returns whether there is a status subresource.
    pub fn has_status(&self) -> bool {
        match &self.behaviour {
            Behaviour::Builtin(builtin) => builtin.has("status"),
            Behaviour::Custom(custom) => custom.status,
        }
    }

    /// Returns whether objects carry `metadata.generation`.
    pub fn has_generation(&self) -> bool {
        self.builtin().is_none_or(|builtin| builtin.generation)
    }

    /// Returns which names its objects may have.
    pub fn name_rule(&self) -> NameRule {
        self.builtin().map_or(NameRule::Subdomain, |builtin| builtin.name_rule)
    }

    /// Returns whether stored JSON can be sent as it is.
    pub fn serves_stored_form(&self) -> bool {
        match &self.behaviour {
            Behaviour::Builtin(builtin) => builtin.view.is_none(),
            Behaviour::Custom(custom) => custom.storage_version == *self.version,
        }
    }

    /// Returns the apiVersion of newly stored objects.
    pub(crate) fn stored_api_version(&self) -> String {
        match &self.behaviour {
            Behaviour::Builtin(_) => self.api_version.to_string(),
            Behaviour::Custom(custom) => format!("{}/{}", self.group, custom.storage_version),
        }
    }

    /// Returns the webhook that converts between the versions of this kind, if there is one.
    pub(crate) fn conversion(&self) -> Option<&ConversionWebhook> {
        self.custom().and_then(|custom| custom.conversion.as_deref())
    }

    /// Converts an object of this version to the stored form, unless a webhook does that.
    pub fn to_stored(&self, value: &mut Value) {
        match &self.behaviour {
            Behaviour::Builtin(builtin) => {
                if let Some(view) = builtin.view {
                    (view.to_stored)(value);
                }
            }
            Behaviour::Custom(custom) if custom.conversion.is_some() => {}
            Behaviour::Custom(_) => value["apiVersion"] = self.stored_api_version().into(),
        }
    }

    /// Converts a stored object to this version, unless a webhook does that.
    pub fn to_served(&self, value: &mut Value) {
        match &self.behaviour {
            Behaviour::Builtin(builtin) => {
                if let Some(view) = builtin.view {
                    (view.to_served)(value);
                }
            }
            Behaviour::Custom(custom) if custom.conversion.is_some() => {}
            Behaviour::Custom(_) => value["apiVersion"] = (*self.api_version).into(),
        }
    }

    /// Returns a warning about what is only stored of an object, so that manifests that contain it apply.
    pub(crate) fn inert(&self) -> Option<String> {
        const INERT: &[(&str, &str)] = &[
            ("apiregistration.k8s.io", "APIService"),
            ("apps", "StatefulSet"),
            ("apps", "DaemonSet"),
            ("autoscaling", "HorizontalPodAutoscaler"),
            ("batch", "CronJob"),
            ("", "LimitRange"),
            ("networking.k8s.io", "NetworkPolicy"),
            ("networking.k8s.io", "Ingress"),
            ("certificates.k8s.io", "CertificateSigningRequest"),
            ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
            ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
        ];
        let known = INERT.contains(&(&*self.group, &*self.kind)) && self.builtin().is_some();
        known.then(|| format!("this server stores {} objects, but nothing acts on them", self.kind))
    }

    /// Refuses field selectors on fields that this kind does not offer.
    pub fn check_selectable(&self, path: &str) -> Result<(), ApiError> {
        let always = ["metadata.name", "metadata.namespace"];
        let known = match &self.behaviour {
            Behaviour::Custom(custom) => custom.selectable.iter().any(|field| field == path),
            Behaviour::Builtin(builtin) => match builtin.plural {
                "pods" => [
                    "spec.nodeName",
                    "spec.restartPolicy",
                    "spec.schedulerName",
                    "spec.serviceAccountName",
                    "spec.hostNetwork",
                    "status.phase",
                    "status.podIP",
                    "status.nominatedNodeName",
                ]
                .contains(&path),
                "events" => {
                    path.starts_with("involvedObject.")
                        || path.starts_with("regarding.")
                        || ["reason", "reportingComponent", "source", "type"].contains(&path)
                }
                "namespaces" => path == "status.phase",
                "nodes" => path == "spec.unschedulable",
                "secrets" => path == "type",
                "services" => ["spec.clusterIP", "spec.type"].contains(&path),
                "jobs" => path == "status.successful",
                "certificatesigningrequests" => path == "spec.signerName",
                "replicasets" | "replicationcontrollers" => path == "status.replicas",
                _ => false,
            },
        };
        if known || always.contains(&path) {
            return Ok(());
        }
        let own = [
            "pods",
            "events",
            "namespaces",
            "nodes",
            "secrets",
            "services",
            "jobs",
            "certificatesigningrequests",
            "replicasets",
            "replicationcontrollers",
        ];
        Err(ApiError::bad_request(match self.builtin().is_some_and(|builtin| !own.contains(&builtin.plural)) {
            true => format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
            false => format!("field label not supported: {path}"),
        }))
    }
}

/// All kinds that are served now.
pub struct Registry {
    snapshot: RwLock<Arc<Snapshot>>,
    compiled: Mutex<custom::Compiled>,
    defined: tokio::sync::watch::Sender<u64>,
}

/// An immutable view of the served kinds.
pub struct Snapshot {
    /// In the order of discovery.
    pub resources: Vec<Arc<Resource>>,
    /// Sorted by group, version and plural.
    by_path: Vec<Arc<Resource>>,
}

impl Snapshot {
    fn new(resources: Vec<Arc<Resource>>) -> Snapshot {
        let mut by_path = resources.clone();
        by_path.sort_by(|one, other| one.path().cmp(&other.path()));
        Snapshot { resources, by_path }
    }

    /// Returns the resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let found = self.by_path.binary_search_by(|resource| resource.path().cmp(&(group, version, plural)));
        found.ok().map(|index| &self.by_path[index])
    }

    /// Returns the resource of a kind, as owner references name it.
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| *resource.api_version == *api_version && *resource.kind == *kind)
    }

    /// Some resource whose objects are in a table.
    pub fn find_table(&self, table: &str) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| *resource.table == *table && resource.serves_stored_form())
    }

    /// Returns one resource per table: what a namespace may contain.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter().filter(|resource| resource.is_stored() && resource.serves_stored_form())
    }
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            snapshot: RwLock::new(Arc::new(Snapshot::new(builtins()))),
            compiled: Mutex::default(),
            defined: tokio::sync::watch::Sender::new(0),
        }
    }
}

impl Registry {
    /// Returns the kinds that are served now.
    pub fn now(&self) -> Arc<Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves exactly these CRDs beside the built-in kinds.
    pub fn define(&self, definitions: &[impl std::borrow::Borrow<Value>]) {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut resources = builtins();
        resources.extend(compiled.refresh(definitions));
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Snapshot::new(resources));
        self.defined.send_modify(|count| *count += 1);
    }

    /// Returns a receiver that is notified when the served kinds change.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.defined.subscribe()
    }

    /// Returns a built-in resource that is known to exist.
    pub fn builtin(&self, group: &str, plural: &str) -> Arc<Resource> {
        let now = self.now();
        match now.find(group, "v1", plural) {
            Some(resource) => resource.clone(),
            None => unreachable!("{plural}.{group} is in the table of built-in kinds"),
        }
    }
}

/// Returns whether a resource is built in, at whatever version.
pub(crate) fn is_built_in(group: &str, plural: &str) -> bool {
    builtin::BUILTINS.iter().any(|builtin| builtin.group == group && builtin.plural == plural)
}

fn builtins() -> Vec<Arc<Resource>> {
    builtin::BUILTINS
        .iter()
        .map(|builtin| {
            let group = builtin.group;
            let table = match (builtin.view, group) {
                (Some(view), _) => view.table.to_owned(),
                (None, "") => builtin.plural.to_owned(),
                (None, group) => format!("{}.{group}", builtin.plural),
            };
            Arc::new(Resource {
                group: group.into(),
                version: builtin.version.into(),
                api_version: match group {
                    "" => builtin.version.into(),
                    group => format!("{group}/{}", builtin.version).into(),
                },
                kind: builtin.kind.into(),
                list_kind: format!("{}List", builtin.kind).into(),
                plural: builtin.plural.into(),
                singular: builtin.singular.into(),
                short_names: builtin.short.iter().map(|name| (*name).into()).collect(),
                categories: builtin.categories.iter().map(|name| (*name).into()).collect(),
                namespaced: builtin.namespaced,
                table: table.into(),
                behaviour: Behaviour::Builtin(builtin),
            })
        })
        .collect()
}

/// Returns what would be refused in the labels, annotations, finalizers and owners of an object of any kind.
pub fn metadata_errors(metadata: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    names::check_metadata(metadata, NameRule::Path, false, &mut errors);
    errors.retain(|error| error.field != "metadata.name" && error.field != "metadata.generateName");
    errors
}

/// Returns what would be refused in a pod made from a template; the paths are those below the template.
pub fn template_errors(template: &Value) -> Vec<FieldError> {
    let mut template = template.clone();
    defaults::pod::template(&mut template);
    let mut errors = metadata_errors(&template["metadata"]);
    validation::pod::spec(&template["spec"], "spec", &mut errors);
    errors
}

/// Returns what is wrong with the containers that a pod got while it runs.
pub(crate) fn ephemeral_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validation::pod::ephemeral_containers(new, old, &mut errors);
    errors
}

/// Returns what is wrong with a scale.
pub(crate) fn scale_errors(scale: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validation::workload::scale(scale, &mut errors);
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_kinds_are_found() {
        let registry = Registry::default();
        assert_eq!(&*registry.builtin("", "pods").kind, "Pod");
        assert_eq!(&*registry.builtin("events.k8s.io", "events").table, "events");
        assert!(registry.now().find("", "v1", "nonsense").is_none());
        assert_eq!(registry.now().tables().filter(|resource| &*resource.table == "events").count(), 1);
    }
}
