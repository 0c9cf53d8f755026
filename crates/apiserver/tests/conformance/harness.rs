//! Playing requests, and comparing answers.

use std::collections::BTreeMap;

use http::{Method, Request};
use manta_apiserver::{Options, Server};
use manta_testkit::ControlPlane;
use serde_json::{Value, json};

/// A list of requests that belong together.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One request. `{ns}` stands for the case's namespace, `{x}` for the value that an earlier step saved as `x`.
#[derive(Clone)]
pub(crate) struct Step {
    method: Method,
    path: String,
    body: Option<Value>,
    text: Option<String>,
    content: &'static str,
    accept: &'static str,
    keep: Vec<(&'static str, &'static str)>,
    until: Option<(&'static str, Value)>,
}

impl Step {
    fn new(method: Method, path: &str, body: Option<Value>) -> Step {
        Step {
            method,
            path: path.to_owned(),
            body,
            text: None,
            content: "application/json",
            accept: "application/json",
            keep: Vec::new(),
            until: None,
        }
    }

    /// Keeps a field of the answer for later steps.
    pub(crate) fn keep(mut self, name: &'static str, pointer: &'static str) -> Step {
        self.keep.push((name, pointer));
        self
    }

    /// Repeats the request until a field has a value (or, for null, until the object is gone).
    pub(crate) fn until(mut self, pointer: &'static str, value: Value) -> Step {
        self.until = Some((pointer, value));
        self
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Step {
        self.accept = accept;
        self
    }

    pub(crate) fn content(mut self, content: &'static str) -> Step {
        self.content = content;
        self
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

pub(crate) fn get(path: &str) -> Step {
    Step::new(Method::GET, path, None)
}

pub(crate) fn post(path: &str, body: Value) -> Step {
    Step::new(Method::POST, path, Some(body))
}

pub(crate) fn put(path: &str, body: Value) -> Step {
    Step::new(Method::PUT, path, Some(body))
}

pub(crate) fn delete(path: &str) -> Step {
    Step::new(Method::DELETE, path, None)
}

pub(crate) fn delete_with(path: &str, body: Value) -> Step {
    Step::new(Method::DELETE, path, Some(body))
}

/// Returns a patch: `json`, `merge`, `strategic` or `apply`.
pub(crate) fn patch(kind: &str, path: &str, body: Value) -> Step {
    let content = match kind {
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        _ => "application/apply-patch+yaml",
    };
    Step::new(Method::PATCH, path, Some(body)).content(content)
}

/// Returns a body that is no JSON.
pub(crate) fn post_text(path: &str, text: &str) -> Step {
    Step { text: Some(text.to_owned()), ..Step::new(Method::POST, path, None) }
}

pub(crate) fn case(name: &str, steps: Vec<Step>) -> Case {
    Case { name: name.to_owned(), steps }
}

/// What a server answered.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

/// One of the two servers.
pub(crate) struct Side {
    client: kube::Client,
    _server: Option<Server>,
}

impl Side {
    pub(crate) async fn real() -> Side {
        let client = ControlPlane::shared().client().await.expect("a client of the real server");
        Side { client, _server: None }
    }

    pub(crate) async fn ours() -> Side {
        let server = Server::start(Options::default()).await.expect("our server starts");
        Side { client: server.client(), _server: Some(server) }
    }

    /// Plays a case in a namespace of its own.
    pub(crate) async fn play(&self, case: &Case) -> Vec<Answer> {
        let made = self
            .call(&post("/api/v1/namespaces", json!({"metadata": {"generateName": "conformance-"}})), &BTreeMap::new())
            .await;
        let namespace = made.body["metadata"]["name"].as_str().expect("a namespace").to_owned();
        let mut kept = BTreeMap::from([("ns".to_owned(), namespace.clone())]);
        let mut answers = Vec::new();
        for step in &case.steps {
            let mut answer = self.call(step, &kept).await;
            if let Some((pointer, wanted)) = &step.until {
                let end = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
                while answer.body.pointer(pointer).unwrap_or(&Value::Null) != wanted
                    && tokio::time::Instant::now() < end
                {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    answer = self.call(step, &kept).await;
                }
            }
            for (name, pointer) in &step.keep {
                let found = answer.body.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
                kept.insert((*name).to_owned(), found);
            }
            answers.push(answer);
        }
        self.call(&delete(&format!("/api/v1/namespaces/{namespace}")), &BTreeMap::new()).await;
        for answer in &mut answers {
            answer.body = normal(std::mem::take(&mut answer.body), &kept);
            for warning in &mut answer.warnings {
                *warning = warning.replace(&namespace, "<ns>");
            }
        }
        answers
    }

    /// Creates a namespace with one ConfigMap, `existing`.
    pub(crate) async fn namespace(&self) -> String {
        let step = post("/api/v1/namespaces", json!({"metadata": {"generateName": "conformance-"}}));
        let made = self.call(&step, &BTreeMap::new()).await;
        let name = made.body["metadata"]["name"].as_str().expect("a namespace").to_owned();
        let path = format!("/api/v1/namespaces/{name}/configmaps");
        self.call(&post(&path, json!({"metadata": {"name": "existing"}})), &BTreeMap::new()).await;
        name
    }

    /// Sends one request; `{ns}` stands for the namespace, which the answer shows as `<ns>`.
    pub(crate) async fn request(
        &self,
        method: &Method,
        path: &str,
        content: &'static str,
        body: &str,
        namespace: &str,
    ) -> Answer {
        let kept = BTreeMap::from([("ns".to_owned(), namespace.to_owned())]);
        let body = body.replace("{ns}", namespace);
        let text = Some(body).filter(|body| !body.is_empty());
        let step = Step { text, content, ..Step::new(method.clone(), path, None) };
        let mut answer = self.call(&step, &kept).await;
        answer.body = normal(std::mem::take(&mut answer.body), &kept);
        answer
    }

    async fn call(&self, step: &Step, kept: &BTreeMap<String, String>) -> Answer {
        let fill = |text: &str| {
            kept.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
        };
        let body = match (&step.body, &step.text) {
            (Some(body), _) => fill(&body.to_string()),
            (None, Some(text)) => text.clone(),
            (None, None) => String::new(),
        };
        let request = Request::builder()
            .method(step.method.clone())
            .uri(fill(&step.path))
            .header("Content-Type", step.content)
            .header("Accept", step.accept)
            .header("User-Agent", "conformance/1")
            .body(body.into_bytes().into())
            .expect("a request");
        let response = self.client.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|value| value.to_str().expect("text").to_owned()).collect();
        use http_body_util::BodyExt;
        let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or_else(|_| {
            let lines: Option<Vec<Value>> = text.lines().map(|line| serde_json::from_str(line).ok()).collect();
            lines.filter(|lines| !lines.is_empty()).map_or(Value::String(text), without_late_bookmarks)
        });
        Answer { code, body, warnings }
    }
}

/// Drops the bookmarks that end a watch: whether one comes in time is left to chance.
fn without_late_bookmarks(mut events: Vec<Value>) -> Value {
    let is_late = |event: &Value| event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null();
    while events.len() > 1 && events.last().is_some_and(is_late) {
        events.pop();
    }
    if events.len() == 1 { events.remove(0) } else { events.into() }
}

/// Replaces what must differ between two servers.
fn normal(value: Value, kept: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(key, _)| key != "managedFields" && key != "selfLink")
            .map(|(key, value)| {
                let value = match (key.as_str(), &value) {
                    (
                        "uid"
                        | "resourceVersion"
                        | "creationTimestamp"
                        | "deletionTimestamp"
                        | "continue"
                        | "clusterIP"
                        | "jti"
                        | "token"
                        | "time"
                        | "storageVersionHash"
                        | "expirationTimestamp"
                        | "lastTransitionTime"
                        | "lastProbeTime"
                        | "startTime",
                        Value::String(text),
                    ) if text != "None" && !text.is_empty() => format!("<{key}>").into(),
                    ("clusterIPs", Value::Array(_)) => "<clusterIPs>".into(),
                    // The real server walks Go maps, so the order of its complaints is left to chance.
                    ("causes", Value::Array(_)) => match normal(value, kept) {
                        Value::Array(mut causes) => {
                            causes.sort_by_key(ToString::to_string);
                            causes.into()
                        }
                        other => other,
                    },
                    _ => normal(value, kept),
                };
                (key, value)
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(|item| normal(item, kept)).collect(),
        Value::String(text) => {
            let is_age = text.len() < 5 && text.strip_suffix('s').is_some_and(|number| number.parse::<u32>().is_ok());
            if is_age {
                return "<age>".into();
            }
            let mut text = without_uids(&text);
            for (name, value) in kept.iter().filter(|(_, value)| value.len() > 2) {
                text = text.replace(value.as_str(), &format!("<{name}>"));
            }
            text.into()
        }
        other => other,
    }
}

/// Replaces every uid in a text.
fn without_uids(text: &str) -> String {
    let is_uid = |part: &str| {
        part.len() == 36
            && part.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    };
    let mut plain = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(part) = rest.get(..36).filter(|part| is_uid(part)) {
            plain.push_str(if part.starts_with("00000000") { part } else { "<uid>" });
            rest = &rest[36..];
        } else {
            let end = rest.chars().next().map_or(1, char::len_utf8);
            plain.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    plain
}

/// One place where two answers differ.
pub(crate) struct Difference {
    pub(crate) pointer: String,
    wanted: String,
    got: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}: the real server says {}, ours {}", self.pointer, self.wanted, self.got)
    }
}

pub(crate) fn compare(wanted: &Answer, got: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    diff(&json!(wanted.code), &json!(got.code), "code", &mut found);
    diff(&json!(wanted.warnings), &json!(got.warnings), "warnings", &mut found);
    diff(&wanted.body, &got.body, "", &mut found);
    found
}

fn diff(wanted: &Value, got: &Value, pointer: &str, found: &mut Vec<Difference>) {
    match (wanted, got) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let null = Value::Null;
                diff(a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null), &format!("{pointer}/{key}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                diff(a, b, &format!("{pointer}/{index}"), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => {
            let show = |value: &Value| value.to_string().chars().take(600).collect();
            found.push(Difference { pointer: pointer.to_owned(), wanted: show(a), got: show(b) });
        }
    }
}
