//! Ray objects as the caches hold them: as unparsed text.
//!
//! A pod template is a struct of kilobytes even when it is nearly empty, so a parsed RayCluster takes about twenty times
//! the memory of its text. A pass parses the objects that it needs and drops them at its end.

use crate::metrics::Excerpt;
use crate::watched_object::View;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::view::{MetaView, OwnerView};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::sync::OnceLock;
use tracing::warn;

/// kubectl's record of what was applied: a second copy of the whole spec, which is not cached. Our writes are patches,
/// so it stays on the API server.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object of kind `K`, as text.
pub struct RawObject<K> {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    version: Box<str>,
    /// A hash of the metadata, generation included: of all that can change but the status.
    revision: u64,
    generation: i64,
    terminating: bool,
    /// The Ray object that controls this one.
    controller: Option<Box<ObjectKey>>,
    /// Metadata (without what only the API server needs), spec and status.
    text: Box<str>,
    /// Parsed when metrics are first scraped, and nothing if it cannot be.
    excerpt: OnceLock<Option<Box<Excerpt>>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> RawObject<K> {
    /// Returns the object's UID.
    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the object's resource version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the object's generation.
    pub(crate) fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns whether the object is being deleted.
    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// Parses parts of the object; a failure is logged.
    pub(crate) fn read_as<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&self.text)
            .inspect_err(|error| {
                let kind = std::any::type_name::<K>().rsplit("::").next();
                let (namespace, name) = (&self.namespace, &self.name);
                warn!(kind, %namespace, %name, %error, "cannot parse an object; ignoring it");
            })
            .ok()
    }

    /// Parses the metadata; a failure is logged.
    pub(crate) fn metadata(&self) -> Option<MetaView> {
        #[derive(Deserialize)]
        struct WithMetadata {
            metadata: MetaView,
        }
        self.read_as::<WithMetadata>().map(|object| object.metadata)
    }

    /// Returns what metrics show of the object; a failure is logged.
    pub(crate) fn excerpt(&self) -> Option<&Excerpt> {
        self.excerpt.get_or_init(|| self.read_as().map(Box::new)).as_deref()
    }

    /// Returns the owners of the object: itself and its controller.
    pub(crate) fn owners(&self, kind: Kind) -> Vec<ObjectKey> {
        let itself = ObjectKey::new(kind, &self.namespace, &self.name);
        [itself].into_iter().chain(self.controller.as_deref().cloned()).collect()
    }
}

impl<K: DeserializeOwned> RawObject<K> {
    /// Parses the whole object; a failure is logged.
    pub fn read(&self) -> Option<K> {
        self.read_as()
    }
}

impl<K> fmt::Debug for RawObject<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}@{}", self.namespace, self.name, self.version)
    }
}

impl<K: 'static> View for RawObject<K> {
    fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn text(&self) -> Option<&str> {
        Some(&self.text)
    }

    fn differs_in_status_only(&self, before: &Self) -> bool {
        self.revision == before.revision
    }
}

type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// The parts of an object as raw text.
#[derive(Deserialize, Serialize)]
struct Pieces<'a> {
    #[serde(borrow)]
    metadata: Fields<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    status: Option<&'a RawValue>,
}

impl<'de, K> Deserialize<'de> for RawObject<K> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Self::from_pieces(Pieces::deserialize(input)?).map_err(D::Error::custom)
    }
}

impl<K> RawObject<K> {
    fn from_pieces(whole: Pieces<'_>) -> Result<Self, serde_json::Error> {
        let annotations = match whole.metadata.get("annotations") {
            Some(annotations) if annotations.get().contains(LAST_APPLIED) => {
                let mut annotations: Option<Fields<'_>> = serde_json::from_str(annotations.get())?;
                annotations.as_mut().map(|fields| fields.remove(LAST_APPLIED));
                Some(serde_json::value::to_raw_value(&annotations)?)
            }
            _ => None,
        };
        let mut object = whole;
        object.metadata.remove("managedFields");
        if let Some(annotations) = &annotations {
            object.metadata.insert("annotations".into(), annotations);
        }
        let text = |field: &str| match object.metadata.get(field) {
            Some(text) => serde_json::from_str::<Box<str>>(text.get()),
            None => Ok(Box::default()),
        };
        let name = text("name")?;
        if name.is_empty() {
            return Err(Error::missing_field("metadata.name"));
        }
        let namespace = text("namespace")?;
        let owners = match object.metadata.get("ownerReferences") {
            Some(owners) => serde_json::from_str::<Option<Vec<OwnerView>>>(owners.get())?.unwrap_or_default(),
            None => Vec::new(),
        };
        let controller = owners.iter().find(|owner| owner.controller);
        let controller =
            controller.and_then(|owner| Some(ObjectKey::new(Kind::of_ray(&owner.kind)?, &namespace, &owner.name)));
        let generation = match object.metadata.get("generation") {
            Some(generation) => serde_json::from_str::<Option<i64>>(generation.get())?.unwrap_or_default(),
            None => 0,
        };
        Ok(Self {
            revision: revision(&object.metadata),
            generation,
            controller: controller.map(Box::new),
            namespace,
            name,
            uid: text("uid")?,
            version: text("resourceVersion")?,
            terminating: object.metadata.get("deletionTimestamp").is_some_and(|time| time.get() != "null"),
            text: serde_json::to_string(&object)?.into(),
            excerpt: OnceLock::new(),
            kind: PhantomData,
        })
    }
}

/// Returns a hash of the metadata without the version, which a status changes too.
fn revision(metadata: &Fields<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (field, text) in metadata.iter().filter(|(field, _)| *field != "resourceVersion") {
        (field, text.get()).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use manta_api::RayCluster;
    use serde_json::{Value, json};

    fn raw(object: &Value) -> RawObject<RayCluster> {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn sample() -> Value {
        json!({
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {
                "name": "demo", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "annotations": {"note": "ä \"x\"", LAST_APPLIED: "{\"spec\":{}}"},
                "managedFields": [{"manager": "kubectl"}],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "1"},
                    {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "web", "uid": "2", "controller": true},
                ],
            },
            "spec": {"rayVersion": "2.52.0", "headGroupSpec": {"template": {"spec": {"containers": []}}}},
            "status": {"state": "ready"},
        })
    }

    #[test]
    fn everything_but_managed_fields_and_last_applied_is_cached() {
        let object = raw(&sample());
        assert_eq!(View::key(&object), ("ns", "demo"));
        assert_eq!((object.uid(), object.version(), object.is_terminating()), ("u", "7", false));
        let mut expect = sample();
        let metadata = expect["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata["annotations"].as_object_mut().unwrap().remove(LAST_APPLIED);
        assert_eq!(serde_json::to_value(object.read().unwrap()).unwrap()["metadata"], expect["metadata"]);
        assert_eq!(object.read().unwrap(), serde_json::from_value::<RayCluster>(expect).unwrap());
        assert!(!object.text.contains("kubectl"));
    }

    #[test]
    fn owners_are_the_object_and_its_controller() {
        let mut object = sample();
        let itself = ObjectKey::new(Kind::RayCluster, "ns", "demo");
        let service = ObjectKey::new(Kind::RayService, "ns", "web");
        assert_eq!(raw(&object).owners(Kind::RayCluster), [itself.clone(), service]);
        object["metadata"]["ownerReferences"] = json!(null);
        assert_eq!(raw(&object).owners(Kind::RayCluster), [itself]);
    }

    #[test]
    fn an_object_that_cannot_be_parsed_reads_as_none() {
        let mut object = sample();
        object["spec"]["rayVersion"] = json!([]);
        object["metadata"]["deletionTimestamp"] = json!("2026-03-01T08:00:00Z");
        let object = raw(&object);
        assert!(object.read().is_none() && object.is_terminating());
        assert!(serde_json::from_str::<RawObject<RayCluster>>(r#"{"metadata": {}}"#).is_err(), "nameless");
    }

    #[test]
    fn a_change_of_the_status_alone_is_told_from_others() {
        let before = raw(&sample());
        let changed = |pointer: &str, value: Value| {
            let mut object = sample();
            object["metadata"]["resourceVersion"] = json!("8");
            *object.pointer_mut(pointer).unwrap() = value;
            !raw(&object).differs_in_status_only(&before)
        };
        assert!(!changed("/status/state", json!("failed")));
        assert!(!changed("/metadata/managedFields", json!([])));
        assert!(changed("/metadata/annotations/note", json!("other")));
        assert!(changed("/metadata/uid", json!("v")));
        assert!(changed("/metadata/ownerReferences", json!([])));
        for field in ["generation", "labels", "finalizers", "deletionTimestamp"] {
            let mut object = sample();
            object["metadata"][field] = match field {
                "generation" => json!(2),
                "labels" => json!({"a": "b"}),
                "finalizers" => json!(["x"]),
                _ => json!("2026-03-01T08:00:00Z"),
            };
            assert!(!raw(&object).differs_in_status_only(&before), "{field}");
        }
    }
}
