//! Random sequences of requests.

use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::kinds::{KINDS, Kind};

/// One step of a sequence.
#[derive(Clone)]
pub(crate) enum Operation {
    /// Sends a request.
    Send(Verb, Target, u64),
    /// Stops the server, checks its data, and starts it again.
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Update,
    MergePatch,
    JsonPatch,
    StrategicPatch,
    Apply,
    Delete,
    DeleteCollection,
    Release,
    Damaged,
}

/// The object that a request is about; the numbers select from lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) kind: u8,
    pub(crate) namespace: u8,
    pub(crate) name: u8,
    pub(crate) status: bool,
}

/// A request without its server.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PATCHES: &[&str] = &[
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Operation::Restart => f.write_str("Restart"),
            Operation::Send(verb, target, seed) => {
                let status = if target.status { "/status" } else { "" };
                write!(f, "{verb:?} {}{status} seed {seed}", target.path())
            }
        }
    }
}

/// Returns sequences of up to `length` steps; definitions come first so that custom objects have a chance.
pub(crate) fn sequence(length: usize) -> impl Strategy<Value = Vec<Operation>> {
    let verb = prop_oneof![
        8 => Just(Verb::Create),
        3 => Just(Verb::Update),
        2 => Just(Verb::MergePatch),
        2 => Just(Verb::JsonPatch),
        2 => Just(Verb::StrategicPatch),
        2 => Just(Verb::Apply),
        3 => Just(Verb::Delete),
        1 => Just(Verb::DeleteCollection),
        2 => Just(Verb::Release),
        3 => Just(Verb::Damaged),
    ];
    let target = (0..KINDS.len() as u8, 0..5_u8, 0..2_u8, prop::bool::weighted(0.2))
        .prop_map(|(kind, namespace, name, status)| Target { kind, namespace, name, status });
    let send = (verb, target, any::<u64>()).prop_map(|(verb, target, seed)| Operation::Send(verb, target, seed));
    let step = prop_oneof![40 => send, 1 => Just(Operation::Restart)];
    prop::collection::vec(step, 1..length).prop_map(|steps| definitions().into_iter().chain(steps).collect())
}

/// Creates the namespaces and definitions that most requests are about.
fn definitions() -> Vec<Operation> {
    let cluster_wide = KINDS.iter().enumerate().filter(|(_, kind)| kind.kind == "Namespace" || kind.is_definition());
    let named = cluster_wide.flat_map(|(kind, _)| (0..2_u8).map(move |name| (kind as u8, name)));
    let targets = named.map(|(kind, name)| Target { kind, namespace: 0, name, status: false });
    targets.map(|target| Operation::Send(Verb::Create, target, 1)).collect()
}

impl Target {
    pub(crate) fn kind(self) -> &'static Kind {
        &KINDS[usize::from(self.kind) % KINDS.len()]
    }

    pub(crate) fn collection(self) -> String {
        self.kind().collection(self.namespace)
    }

    pub(crate) fn path(self) -> String {
        format!("{}/{}", self.collection(), self.kind().name(self.name))
    }
}

/// Builds the request of a step, given the current object and the uids seen so far.
pub(crate) fn build(verb: Verb, target: Target, seed: u64, current: &Value, uids: &[String]) -> Request {
    let (dice, kind) = (Dice::new(seed), target.kind());
    let name = kind.name(target.name);
    let own = if target.status { format!("{}/status", target.path()) } else { target.path() };
    let (mut method, mut path, mut content_type) = (Method::PATCH, own, JSON);
    let mut body = match verb {
        Verb::Create => {
            (method, path) = (Method::POST, target.collection());
            kind.object(name, &dice, uids)
        }
        Verb::Update => {
            method = Method::PUT;
            updated(current, kind, name, &dice, uids)
        }
        Verb::MergePatch => {
            content_type = PATCHES[0];
            json!({"metadata": {"labels": {"app": dice.pick(&["x", "y"]), "gone": null}}, "data": {"m": "n"},
                "spec": {"size": dice.below(20), "free": dice.value()}, "status": {"phase": dice.pick(&["Running", "Failed"])}})
        }
        Verb::JsonPatch => {
            content_type = PATCHES[1];
            json_patch(&dice)
        }
        Verb::StrategicPatch => {
            content_type = PATCHES[2];
            json!({"metadata": {"annotations": {"s": "t"}, "finalizers": ["fuzz.example/hold"]},
                "spec": {"containers": [{"name": dice.pick(&["c", "d"]), "image": "j"}]}})
        }
        Verb::Apply => {
            content_type = PATCHES[3];
            let force = dice.once_in(2);
            path = format!("{path}?fieldManager={}&force={force}", dice.pick(&["one", "two"]));
            kind.object(name, &dice, &[])
        }
        Verb::Delete | Verb::DeleteCollection => {
            (method, path) = (Method::DELETE, if verb == Verb::Delete { target.path() } else { target.collection() });
            delete_options(&dice, uids)
        }
        Verb::Release => {
            (content_type, path) = (PATCHES[0], target.path());
            json!({"metadata": {"finalizers": null}})
        }
        Verb::Damaged => return damaged(target, &dice, uids),
    };
    if dice.once_in(4) && !matches!(verb, Verb::Release) {
        dice.mutate(&mut body);
    }
    Request { method, path, content_type, body: body.to_string().into_bytes() }
}

/// Returns the current object with another body; now and then at a version that has passed, or at none.
fn updated(current: &Value, kind: &Kind, name: &str, dice: &Dice, uids: &[String]) -> Value {
    let mut object = kind.object(name, dice, uids);
    if current.is_object() {
        object["metadata"] = current["metadata"].clone();
        object["metadata"]["labels"] = json!({"app": dice.pick(&["x", "y"]), "n": dice.below(9).to_string()});
        if dice.once_in(2) {
            object["spec"] = current["spec"].clone();
        }
    }
    match dice.below(8) {
        0 => object["metadata"]["resourceVersion"] = "1".into(),
        1 => object["metadata"]["resourceVersion"] = Value::Null,
        2 => object["metadata"]["finalizers"] = json!(["fuzz.example/hold", "fuzz.example/other"]),
        _ => {}
    }
    object["status"] = json!({"phase": dice.pick(&["Running", "Succeeded"]), "replicas": dice.below(3)});
    object
}

fn json_patch(dice: &Dice) -> Value {
    let paths =
        ["/metadata/labels/app", "/metadata/finalizers", "/data/k", "/spec/parts/0", "/spec", "/metadata/name", ""];
    let steps = (0..=dice.below(3)).map(|_| {
        let verb = dice.pick(&["add", "remove", "replace", "test", "copy", "move"]);
        json!({"op": verb, "path": dice.pick(&paths), "from": dice.pick(&paths), "value": dice.value()})
    });
    if dice.once_in(2) {
        json!([{"op": "add", "path": "/metadata/labels/app", "value": dice.pick(&["x", "z"])}])
    } else {
        steps.collect()
    }
}

fn delete_options(dice: &Dice, uids: &[String]) -> Value {
    let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    if dice.once_in(2) {
        options["gracePeriodSeconds"] = json!(dice.pick(&[0, 1, i64::MAX]));
    }
    if dice.once_in(2) {
        options["propagationPolicy"] = json!(dice.pick(&["Foreground", "Background", "Orphan"]));
    }
    if dice.once_in(5) && !uids.is_empty() {
        options["preconditions"] = json!({"uid": dice.pick(uids)});
    }
    options
}

/// Returns a request whose bytes, content type or path are not what they should be.
fn damaged(target: Target, dice: &Dice, uids: &[String]) -> Request {
    let kind = target.kind();
    let method = dice.pick(&[Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::GET]).clone();
    let names = ["a", "%00", "a%00b", "%2e%2e", "a%2Fb", "%ff%fe", "A", "a..b", "-", "status"];
    let name = if dice.once_in(3) { (*dice.pick(&names)).to_owned() } else { kind.name(target.name).to_owned() };
    let queries = [
        "",
        "",
        "",
        "?dryRun=All",
        "?limit=-1",
        "?continue=x",
        "?resourceVersion=9223372036854775808",
        "?labelSelector=a%20in%20(",
        "?fieldManager=%00",
        "?gracePeriodSeconds=-5",
        "?fieldValidation=Strict",
    ];
    let query = dice.pick(&queries);
    let path = match method {
        Method::POST => format!("{}{query}", target.collection()),
        _ => format!("{}/{name}{query}", target.collection()),
    };
    let body = match dice.below(5) {
        0 => Vec::new(),
        1 => [b"k8s\0".as_slice(), &dice.damage(&dice.value())].concat(),
        2 => dice.value().to_string().into_bytes(),
        _ => dice.damage(&kind.object(kind.name(target.name), dice, uids)),
    };
    let types = [JSON, PROTOBUF, "application/yaml", PATCHES[0], PATCHES[1], PATCHES[2], PATCHES[3], "text/plain", ""];
    Request { method, path, content_type: types[dice.below(types.len())], body }
}
