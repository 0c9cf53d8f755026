//! Turns recorded objects, in which everything variable is masked, into objects that can be created.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The recorded version of KubeRay.
const KUBERAY: &str = "v1.7.0";

const REPLICA_NAME: &str = "ray.io/worker-group-replica-name";
const REPLICA_INDEX: &str = "ray.io/worker-group-replica-index";

/// The alphabet of Kubernetes' random suffixes.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The state of one namespace's restoration.
pub struct Restore<'a> {
    namespace: &'a str,
    now: String,
    /// Kind and recorded name to the real name and uid.
    made: BTreeMap<(String, String), (String, String)>,
    /// The number of objects created per kind and recorded name: names with a masked suffix repeat.
    counts: BTreeMap<(String, String), u32>,
}

impl<'a> Restore<'a> {
    /// Returns a restoration into a namespace.
    pub fn new(namespace: &'a str) -> Self {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Self { namespace, now, made: BTreeMap::new(), counts: BTreeMap::new() }
    }

    /// Returns the object to create, or None while one of its owners does not exist yet.
    pub fn object(&self, recorded: &Value) -> Option<Value> {
        let key = key_of(recorded);
        let mut object = self.unmask(recorded);
        let number = self.counts.get(&key).copied().unwrap_or_default();
        object["metadata"]["name"] = json!(real_name(&key.1, number));
        for (owner, masked) in owners(&mut object).into_iter().zip(recorded_owners(recorded)) {
            let (name, uid) = self.made.get(&masked)?;
            owner["name"] = json!(name);
            owner["uid"] = json!(uid);
        }
        match key.0.as_str() {
            "Pod" => {
                // The hosts of a replica share its name. The mask makes all replica names equal; the index tells them apart.
                let labels = &recorded["metadata"]["labels"];
                let index = labels[REPLICA_INDEX].as_str().and_then(|index| index.parse().ok());
                if let (Some(name), Some(index)) = (labels[REPLICA_NAME].as_str(), index) {
                    object["metadata"]["labels"][REPLICA_NAME] = json!(real_name(name, index));
                }
            }
            "Service" if object["spec"]["clusterIP"] != "None" => {
                object["spec"].as_object_mut().map(|spec| spec.remove("clusterIP"));
            }
            "Job" => {
                // The server sets these itself.
                object["spec"].as_object_mut().map(|spec| spec.remove("selector"));
                if let Some(labels) = object["spec"]["template"]["metadata"]["labels"].as_object_mut() {
                    labels.retain(|name, _| !name.ends_with("controller-uid") && !name.ends_with("job-name"));
                }
            }
            "Secret" => {
                // Masked values are not valid base64.
                for value in object["data"].as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
                    if value == "<data>" {
                        *value = json!("bWFza2Vk");
                    }
                }
            }
            _ => {}
        }
        Some(object)
    }

    /// Records a created object.
    pub fn created(&mut self, recorded: &Value, object: &Value, uid: &str) {
        let key = key_of(recorded);
        *self.counts.entry(key.clone()).or_default() += 1;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.made.entry(key).or_insert((name, uid.to_owned()));
    }

    fn unmask(&self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (self.unmask_text(key), self.unmask(value))).collect()
            }
            Value::Array(items) => items.iter().map(|item| self.unmask(item)).collect(),
            Value::String(text) => Value::String(self.unmask_text(text)),
            other => other.clone(),
        }
    }

    fn unmask_text(&self, text: &str) -> String {
        let uid = self.made.iter().find(|((kind, _), _)| kind.starts_with("Ray")).map_or("", |(_, (_, uid))| uid);
        let plain = text
            .replace("<ns>", self.namespace)
            .replace("<version>", KUBERAY)
            .replace("<hash>", "0123456789ABCDEFGHIJKLMNOPQRSTUV")
            .replace("<time>", &self.now)
            .replace("<ip>", "10.244.0.1")
            .replace("<nodePort>", "30000")
            .replace("<id>", "masked")
            .replace("<uid>", uid);
        real_name(&plain, 0)
    }
}

/// Returns recorded objects as a server would hold them: with owners first, UIDs and versions.
pub fn restore(namespace: &str, recorded: &[Value]) -> Result<Vec<Value>> {
    let mut restore = Restore::new(namespace);
    let mut restored = Vec::new();
    let mut waiting: Vec<&Value> = recorded.iter().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain(|recorded| {
            let Some(mut object) = restore.object(recorded) else { return true };
            let uid = format!("00000000-0000-4000-8000-{:012}", restored.len());
            object["metadata"]["uid"] = json!(uid);
            object["metadata"]["resourceVersion"] = json!(restored.len().to_string());
            object["metadata"]["creationTimestamp"] = json!(restore.now);
            restore.created(recorded, &object, &uid);
            restored.push(object);
            false
        });
        ensure!(waiting.len() < before, "{before} objects have owners that were not recorded");
    }
    Ok(restored)
}

fn key_of(recorded: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&recorded["kind"]), text(&recorded["metadata"]["name"]))
}

fn owners(object: &mut Value) -> Vec<&mut Value> {
    object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten().collect()
}

fn recorded_owners(recorded: &Value) -> impl Iterator<Item = (String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owners = recorded["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.map(move |owner| (text(&owner["kind"]), text(&owner["name"])))
}

/// Replaces each masked suffix by one derived from the text before it, so that equal names stay equal; the last suffix
/// also depends on the number, which tells objects of the same masked name apart.
fn real_name(masked: &str, number: u32) -> String {
    let mut parts = masked.split("-*").peekable();
    let mut name = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        let salt = if parts.peek().is_none() { number } else { 0 };
        name = format!("{name}-{}{part}", suffix(&name, salt));
    }
    name
}

fn suffix(before: &str, salt: u32) -> String {
    let mut state = before.bytes().fold(2_166_136_261_u32 ^ salt.wrapping_mul(0x9E37_79B9), |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let letter = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(SUFFIX_ALPHABET[(state >> 16) as usize % SUFFIX_ALPHABET.len()])
    };
    (0..5).map(letter).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn masked_names_become_real_consistently() {
        assert_eq!(real_name("plain", 3), "plain");
        let cluster = real_name("job-*", 0);
        assert!(cluster.len() == 9 && cluster.starts_with("job-"), "{cluster}");
        let head = real_name("job-*-head-*", 0);
        assert!(head.starts_with(&format!("{cluster}-head-")), "{head} of {cluster}");
        assert_ne!(real_name("c-worker-*", 0), real_name("c-worker-*", 1));
        assert!(real_name("job-*-worker-*", 7).starts_with(&cluster));
    }

    #[test]
    fn only_hosts_of_one_replica_share_its_name() {
        let pod = |index: &str| {
            let labels = json!({REPLICA_NAME: "tpu-*", REPLICA_INDEX: index});
            let object =
                Restore::new("n").object(&json!({"kind": "Pod", "metadata": {"name": "w-*", "labels": labels}}));
            object.unwrap()["metadata"]["labels"][REPLICA_NAME].clone()
        };
        assert_eq!(pod("1"), pod("1"));
        assert_ne!(pod("0"), pod("1"));
    }

    #[test]
    fn dependents_wait_for_their_owner_and_use_its_uid() {
        let cluster = json!({"kind": "RayCluster", "metadata": {"name": "c", "namespace": "<ns>"}});
        let pod = json!({"kind": "Pod", "metadata": {"name": "c-head-*", "namespace": "<ns>",
            "annotations": {"v": "<version>", "storage": "<uid>"},
            "ownerReferences": [{"kind": "RayCluster", "name": "c"}]}});
        let mut restore = Restore::new("n");
        assert_eq!(restore.object(&pod), None);
        let made = restore.object(&cluster).unwrap();
        restore.created(&cluster, &made, "u-1");
        let made = restore.object(&pod).unwrap();
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(made["metadata"]["namespace"], "n");
        assert_eq!(made["metadata"]["annotations"], json!({"v": "v1.7.0", "storage": "u-1"}));
        restore.created(&pod, &made, "u-2");
        assert_ne!(restore.object(&pod).unwrap()["metadata"]["name"], made["metadata"]["name"]);
    }
}
