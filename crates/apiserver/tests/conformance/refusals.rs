//! Good and bad objects, one request each: what the real server refuses, ours must refuse with the same code and causes.
//!
//! Every request is a dry run against both servers. A row is an object that is fine, with some fields changed. An object
//! that the real server refuses and ours accepts is always an error; other differences are listed with their reason.

mod batch;
mod drivers;
mod meta;
mod pods;
mod policy;
mod services;
mod storage;
mod workloads;

use http::Method;
use serde_json::{Value, json};

use super::harness::{Answer, Side};

/// One request, and what must exist before it.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content: &'static str,
    pub(crate) body: String,
    /// A collection and an object that is created in it first.
    pub(crate) existing: Option<(String, Value)>,
}

const GO: &str = "the message quotes Go types, a Go value, or a diff of Go structs";
const DECODER: &str = "the words of Go's decoders, where ours says the same in others";
const MORE: &str = "the real server gives further reasons for the same fault";
const WORDS: &str = "the same fault in other words";
const DROPPED: &str = "a field behind a feature gate, which the real server drops and ours refuses";

const NODE: &str = "the node of this server cannot honour the field";

/// A difference that is meant.
pub(crate) struct Listed {
    /// A part of the row's name.
    pub(crate) row: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
    /// The codes of the real server and of this one, where they differ.
    codes: Option<(u16, u16)>,
}

impl Listed {
    /// Returns the codes that are meant where the real server gives this answer.
    pub(crate) fn codes(&self, wanted: &Answer) -> (u16, u16) {
        self.codes.unwrap_or((wanted.code, wanted.code))
    }
}

const fn listed(row: &'static str, reason: &'static str) -> Listed {
    Listed { row, reason, codes: None }
}

/// A difference of the code: that of the real server, then ours.
const fn coded(row: &'static str, codes: (u16, u16), reason: &'static str) -> Listed {
    Listed { row, reason, codes: Some(codes) }
}

/// Each covers one row, so that no other fault of a kind hides behind it.
pub(crate) const LISTED: &[Listed] = &[
    listed("ServiceAccount /metadata/ownerReferences=[{\"apiVersion\":\"v1\",\"controller\"", WORDS),
    listed("ServiceAccount /kind=", GO),
    listed("ServiceAccount /apiVersion=", GO),
    listed("ServiceAccount /secrets=", GO),
    listed("Event /eventTime=", MORE),
    listed("request broken JSON", DECODER),
    listed("request empty body", DECODER),
    listed("request a list as body", DECODER),
    listed("request strict duplicate YAML key", DECODER),
    listed("request continue=x", DECODER),
    listed("request apply of a broken body", DECODER),
    coded("Pod /spec/initContainers=[{\"image\":\"i\",\"name\":\"i\",\"restartPolicy\":\"Never\"", (201, 422), DROPPED),
    coded("Pod /spec/containers/0/restartPolicy=\"Always\"", (201, 422), DROPPED),
    listed("Pod /spec/dnsConfig={\"searches\"", WORDS),
    coded("Pod /spec/preemptionPolicy=", (403, 422), "admission refuses it before validation does"),
    listed("Pod /spec/restartPolicy=1", GO),
    listed("configMapKeyRef\":{\"key\":\"k\",\"name\":\"\"}", WORDS),
    listed("Pod /spec/containers/0/resources={\"limits\":{\"odd\"", MORE),
    listed(
        "Pod /spec/volumes=[{\"name\":\"v\",\"projected\":{\"sources\":[{\"serviceAccountToken\":{\"expirationSeconds\":600,\"path\":\"\"}}]}}]",
        "there is no service account admission in the real server of this test",
    ),
    listed(
        "Pod /spec/volumes=[{\"name\":\"v\",\"projected\":{\"sources\":[{\"serviceAccountToken\":{\"expirationSeconds\":5,\"path\":\"t\"}}]}}]",
        "there is no service account admission in the real server of this test",
    ),
    listed("{\"csi\":{\"driver\":\"\"}", WORDS),
    listed("Pod update  {\"spec\":{\"containers\":[{\"image\":\"\",\"name\":\"c\"}]}}", GO),
    listed("Pod update  {\"spec\":{\"restartPolicy\":\"Never\"}}", GO),
    listed("Pod update  {\"spec\":{\"nodeName\":\"n\"}}", GO),
    listed("Deployment /spec/selector={\"matchLabels\":{\"bad key\":\"c\"}}", MORE),
    listed(
        "Deployment /spec/selector={\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"In\",\"values\":[]}]}",
        MORE,
    ),
    listed(
        "Deployment /spec/selector={\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Odd\",\"values\":[\"b\"]}]}",
        MORE,
    ),
    listed("Deployment /spec/strategy={\"type\":\"Odd\"", GO),
    listed("Deployment update /status", MORE),
    listed("DaemonSet /spec/updateStrategy={\"type\":\"Odd\"", GO),
    listed("Job /spec/maxFailedIndexes=1", MORE),
    listed("Job /spec/podFailurePolicy={\"rules\":[{\"action\":\"FailJob\"}]}", GO),
    listed("Job update  {\"spec\":{\"selector\"", MORE),
    listed("Job update /status {\"status\":{\"succeeded\":-1}}", GO),
    listed("Job update /status {\"status\":{\"conditions\":[{\"status\":\"True\",\"type\":\"Complete\"}]}}", GO),
    listed("Job update /status {\"status\":{\"conditions\":[{\"status\":\"True\",\"type\":\"Failed\"}]}}", GO),
    listed(
        "Job update /status {\"status\":{\"conditions\":[{\"status\":\"True\",\"type\":\"Complete\"},{\"status\":\"True\",\"type\":\"Failed\"}]}}",
        GO,
    ),
    listed("CronJob /spec/schedule=\"60 * * * *\"", WORDS),
    listed("CronJob /spec/schedule=\"5-1 * * * *\"", WORDS),
    listed("CronJob /spec/schedule=\"*/0 * * * *\"", WORDS),
    listed("CronJob /spec/timeZone=\"local\"", MORE),
    listed("Service /spec/clusterIP=\"1.2.3\"", WORDS),
    coded(
        "Service /spec/type=\"NodePort\" /spec/ports=[{\"nodePort\":70000",
        (201, 422),
        "the real server allocates no ports in a dry run, where it would refuse this one",
    ),
    listed("Endpoints /subsets=[{\"addresses\":[{\"ip\":\"\"}]}]", MORE),
    listed("Endpoints /subsets=[{\"addresses\":[{\"ip\":\"x\"}]}]", MORE),
    listed("EndpointSlice /endpoints=[{\"addresses\":[\"::1\"]}]", MORE),
    listed("EndpointSlice update", MORE),
    listed(".dockerconfigjson\":", DECODER),
    listed("PersistentVolumeClaim update  {\"spec\":{\"accessModes\":[\"ReadWriteMany\"]}}", GO),
    listed("PersistentVolumeClaim update  {\"spec\":{\"resources\":{\"requests\":{\"storage\":\"1Mi\"}}}}", GO),
    listed("PersistentVolume /spec/capacity={}", MORE),
    listed("PersistentVolume /spec/capacity={\"storage\":\"-1\"}", MORE),
    listed("PersistentVolume /spec/capacity={\"cpu\":\"1\"}", MORE),
    listed("PersistentVolume /spec/accessModes=[]", WORDS),
    listed("PersistentVolume /spec/hostPath=", MORE),
    listed("PersistentVolume /spec/nfs=", WORDS),
    listed(
        "WebhookConfiguration /webhooks/0/clientConfig={\"service\":{\"name\":\"\"",
        "the real server names the wrong field",
    ),
    listed(
        "ValidatingWebhookConfiguration /webhooks/0/matchConditions=[{\"expression\":\"not ) valid\",\"name\":\"a\"}]",
        "the words of the CEL compiler",
    ),
    listed(
        "ValidatingWebhookConfiguration /webhooks/0/matchConditions=[{\"expression\":\"unknown == 1\",\"name\":\"a\"}]",
        "the words of the CEL compiler",
    ),
    listed(
        "MutatingWebhookConfiguration /webhooks/0/matchConditions=[{\"expression\":\"not ) valid\",\"name\":\"a\"}]",
        "the words of the CEL compiler",
    ),
    listed("ResourceQuota /spec/hard={\"odd\"", MORE),
    listed("ResourceQuota /spec/scopeSelector=", MORE),
    listed(
        "LimitRange /spec/limits=[{\"max\":{\"cpu\":\"1\"},\"min\":{\"cpu\":\"2\"},\"type\":\"Container\"}]",
        "the real server checks the defaults that it derives, too",
    ),
    listed(
        "LimitRange /spec/limits=[{\"default\":{\"cpu\":\"3\"},\"max\":{\"cpu\":\"2\"},\"type\":\"Container\"}]",
        "the real server checks the defaults that it derives, too",
    ),
    listed("Lease /spec/renewTime=", GO),
    listed("CustomResourceDefinition /spec/names/kind=\"\"", MORE),
    listed(
        "CustomResourceDefinition /spec/versions=[]",
        "the real server speaks of fields of an older version of the kind",
    ),
    listed(
        "CustomResourceDefinition /spec/versions/0/storage=false",
        "the real server speaks of fields of an older version of the kind",
    ),
    listed(
        "CustomResourceDefinition /spec/versions/0/name=\"Bad_Version\"",
        "the real server speaks of fields of an older version of the kind",
    ),
    listed(
        "CustomResourceDefinition /spec/versions/0/schema=null",
        "the real server speaks of fields of an older version of the kind",
    ),
    listed(
        "CustomResourceDefinition /spec/versions/0/schema/openAPIV3Schema={\"type\":\"array\"}",
        "the real server speaks of fields of an older version of the kind",
    ),
    listed(
        "CustomResourceDefinition /spec/versions/0/schema/openAPIV3Schema={\"properties\":{\"a\":{}},\"type\":\"object\"}",
        "the real server speaks of fields of an older version of the kind",
    ),
    listed(
        "CustomResourceDefinition /spec/versions/0/schema/openAPIV3Schema={\"properties\":{\"a\":{\"type\":\"odd\"}},\"type\":\"object\"}",
        "the real server speaks of fields of an older version of the kind",
    ),
    listed(
        "CustomResourceDefinition /spec/versions/0/schema/openAPIV3Schema={\"type\":\"object\",\"x-kubernetes-validations\":[{\"rule\":\"self.(\"}]}",
        "the real server speaks of fields of an older version of the kind",
    ),
    coded("Pod /spec/shareProcessNamespace=true", (201, 422), NODE),
    coded("PersistentVolumeClaim /spec/dataSource=", (201, 422), NODE),
    listed("VolumeAttachment /spec/source={\"persistentVolumeName\"", MORE),
    listed("FlowSchema /spec/distinguisherMethod=", GO),
];

pub(crate) fn rows() -> Vec<Row> {
    let groups = [
        meta::rows(),
        pods::rows(),
        workloads::rows(),
        batch::rows(),
        services::rows(),
        storage::rows(),
        policy::rows(),
        drivers::rows(),
    ];
    groups.into_iter().flatten().collect()
}

/// A kind with an object that is fine.
pub(crate) struct Base {
    kind: &'static str,
    path: &'static str,
    object: Value,
}

pub(crate) fn base(kind: &'static str, path: &'static str, object: Value) -> Base {
    Base { kind, path, object }
}

impl Base {
    /// Creates the object as it is.
    pub(crate) fn good(&self) -> Row {
        self.create(&[])
    }

    /// Creates the object with other values at some places; null removes what is there.
    pub(crate) fn create(&self, changes: &[(&str, Value)]) -> Row {
        let mut object = self.object.clone();
        for (pointer, value) in changes {
            set(&mut object, pointer, value.clone());
        }
        let what: Vec<String> = changes.iter().map(|(pointer, value)| format!("{pointer}={value}")).collect();
        let mut name = format!("{} {}", self.kind, what.join(" "));
        if name.len() > 200 {
            name.truncate((0..=200).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0));
        }
        Row {
            name,
            method: Method::POST,
            path: format!("{}?dryRun=All", self.path),
            content: "application/json",
            body: object.to_string(),
            existing: None,
        }
    }

    /// Creates objects that each have one change.
    pub(crate) fn each(&self, changes: impl IntoIterator<Item = (&'static str, Value)>) -> Vec<Row> {
        changes.into_iter().map(|change| self.create(&[change])).collect()
    }

    /// Patches the object, or a subresource of it, once it exists.
    pub(crate) fn update(&self, below: &str, patch: Value) -> Row {
        let name = self.object["metadata"]["name"].as_str().expect("a name");
        Row {
            name: format!("{} update {below} {patch}", self.kind),
            method: Method::PATCH,
            path: format!("{}/{name}{below}?dryRun=All", self.path),
            content: "application/merge-patch+json",
            body: patch.to_string(),
            existing: Some((self.path.to_owned(), self.object.clone())),
        }
    }
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let parts: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
    let (last, way) = parts.split_last().expect("a pointer");
    let mut place = object;
    for part in way {
        place = match (part.parse::<usize>(), place.is_array()) {
            (Ok(index), true) => &mut place[index],
            _ => &mut place[part.replace("~1", "/").as_str()],
        };
        if place.is_null() {
            *place = json!({});
        }
    }
    let key = last.replace("~1", "/");
    match (value.is_null(), last.parse::<usize>(), place.is_array()) {
        (true, _, _) => {
            place.as_object_mut().expect("an object").remove(&key);
        }
        (false, Ok(index), true) => place[index] = value,
        _ => place[key.as_str()] = value,
    }
}

/// Returns how two answers differ in code, reason or causes.
pub(crate) fn difference(wanted: &Answer, got: &Answer) -> Option<String> {
    let (real, ours) = (verdict(wanted), verdict(got));
    (real != ours).then(|| format!("the real server says {real}\n      ours says {ours}"))
}

/// What a Status says, apart from the order of its causes.
fn verdict(answer: &Answer) -> String {
    if answer.code < 400 {
        return answer.code.to_string();
    }
    let causes = answer.body["details"]["causes"].as_array();
    let causes = causes.filter(|_| answer.code == 422);
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut lines: Vec<String> = match causes {
        Some(causes) => causes
            .iter()
            .map(|cause| {
                format!(
                    "{} {}: {}",
                    text(&cause["reason"]),
                    text(&cause["field"]),
                    without_value(&text(&cause["message"]))
                )
            })
            .collect(),
        None => vec![text(&answer.body["message"])],
    };
    lines.sort();
    lines.dedup();
    format!("{} {} {}", answer.code, text(&answer.body["reason"]), lines.join(" | "))
}

/// Leaves the value out of a cause: the real server prints it as Go does.
fn without_value(message: &str) -> String {
    let (title, rest) = message.split_once(": ").unwrap_or((message, ""));
    let detail = rest.rsplit_once(": ").map_or("", |(_, detail)| detail);
    match title {
        "Invalid value" | "Duplicate value" => format!("{title}: {detail}"),
        _ => message.to_owned(),
    }
}

/// Sends a row to a server.
pub(crate) async fn send(side: &Side, row: &Row, namespace: &str) -> Answer {
    if let Some((path, object)) = &row.existing {
        side.request(&Method::POST, path, "application/json", &object.to_string(), namespace).await;
    }
    side.request(&row.method, &row.path, row.content, &row.body, namespace).await
}
