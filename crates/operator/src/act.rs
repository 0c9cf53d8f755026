//! Carries plans out. The only file that writes to a cluster, beside events and status.
//!
//! Stages run in order, the actions of a stage side by side: a few first, then twice as many as
//! long as all goes well, so that a quota that is used up is hit once and not a hundred times. All
//! requests share one budget that is handed out in order of arrival, and one that hangs leaves it: no cluster starves
//! another.

use crate::events::{Publisher, Regarding};
use crate::in_flight::InFlightWrites;
use crate::look_up::Memory;
use crate::room::Room;
use futures::future::join_all;
use http::header::{ACCEPT, HeaderValue};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::request::Request;
use manta_logic::action::{
    Accept, Action, Body, DRAWN_WHEN_WRITTEN, Event, Failure, Kind, ObjectKey, Outcome, Stage, Step,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::Arc;
use tracing::{info, warn};

/// Writes that may be under way at once, over all objects. Each takes a connection, which costs memory.
const BUDGET: usize = 32;
/// Writes that may be under way at once for one object.
const SIDE_BY_SIDE: usize = 16;
/// The field manager of our patches.
const MANAGER: &str = "manta-operator";
/// What we want back of an object that was written.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The room that all writes share.
pub(crate) fn budget() -> Arc<Room> {
    Arc::new(Room::new(BUDGET))
}

/// The one that writes.
#[derive(Clone)]
pub(crate) struct Actor {
    client: Client,
    budget: Arc<Room>,
    in_flight: Arc<InFlightWrites>,
    memory: Arc<Memory>,
    publisher: Publisher,
}

impl Actor {
    pub(crate) fn new(
        client: Client,
        budget: Arc<Room>,
        in_flight: Arc<InFlightWrites>,
        memory: Arc<Memory>,
        publisher: Publisher,
    ) -> Self {
        Self { client, budget, in_flight, memory, publisher }
    }

    /// Carries stages out for an object and tells its events.
    pub(crate) async fn act(&self, owner: &ObjectKey, regarding: &Regarding, stages: &[Stage]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut told = Vec::new();
        for stage in stages {
            self.run_stage(owner, stage, &mut outcome, &mut told).await;
            if outcome.failure.is_some() {
                break;
            }
        }
        self.publisher.publish(regarding, told);
        outcome
    }

    async fn run_stage(&self, owner: &ObjectKey, stage: &Stage, outcome: &mut Outcome, told: &mut Vec<Event>) {
        let mut batch = stage.len().min(4);
        let mut rest = stage.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(batch.min(rest.len()));
            for (step, result) in now.iter().zip(join_all(now.iter().map(|step| self.write(owner, step))).await) {
                match result {
                    Ok(Written::Done) => {
                        if let Action::Create { key, .. } = &step.action {
                            outcome.created.push(key.clone());
                        }
                        told.extend(step.done.clone());
                    }
                    Ok(Written::NothingToDo) => {}
                    Err(error) => self.fail(step, &error, outcome, told),
                }
            }
            if outcome.failure.is_some() {
                return;
            }
            rest = later;
            batch = (batch * 2).clamp(1, SIDE_BY_SIDE);
        }
    }

    fn fail(&self, step: &Step, error: &kube::Error, outcome: &mut Outcome, told: &mut Vec<Event>) {
        let key = step.action.key();
        let error = text(error);
        warn!(
            kind = key.kind.resource().kind,
            namespace = key.namespace,
            name = key.name,
            why = step.why,
            error,
            "a write failed"
        );
        if let Some(mut event) = step.failed.clone() {
            event.note.push_str(&error);
            told.push(event);
        }
        outcome.failure.get_or_insert(Failure { reason: step.failure_reason, error });
    }

    async fn write(&self, owner: &ObjectKey, step: &Step) -> Result<Written, kube::Error> {
        let place = self.budget.enter().await;
        let key = step.action.key();
        info!(
            action = verb(&step.action),
            kind = key.kind.resource().kind,
            namespace = key.namespace,
            name = key.name,
            why = step.why,
            "writing"
        );
        let request = async {
            match &step.action {
                Action::Create { body, .. } => self.create(owner, step, key, body).await,
                Action::Replace { body, .. } => self.replace(key, body).await,
                Action::Merge { patch, .. } => self.merge(key, patch).await,
                Action::Delete { uid, force, .. } => self.delete(owner, key, uid, *force).await,
            }
        };
        match place.work(request).await {
            Ok(()) => Ok(Written::Done),
            Err(error) if is_accepted(step, &error) => Ok(Written::NothingToDo),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, owner: &ObjectKey, step: &Step, key: &ObjectKey, body: &Body) -> Result<(), kube::Error> {
        let text = match key.kind {
            Kind::Secret => with_token(body),
            _ => body.text().to_owned(),
        };
        let request = Request::new(collection(key))
            .create(&PostParams::default(), text.into_bytes())
            .map_err(kube::Error::BuildRequest)?;
        let made = send(&self.client, request).await?;
        self.in_flight.created(owner, key, step.group.as_deref(), made.metadata.uid);
        self.memory.remember(owner, key);
        Ok(())
    }

    async fn replace(&self, key: &ObjectKey, body: &Body) -> Result<(), kube::Error> {
        let bytes = body.text().as_bytes().to_vec();
        let request = Request::new(collection(key))
            .replace(&key.name, &PostParams::default(), bytes)
            .map_err(kube::Error::BuildRequest)?;
        send(&self.client, request).await.map(drop)
    }

    async fn merge(&self, key: &ObjectKey, patch: &Value) -> Result<(), kube::Error> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let request = Request::new(collection(key))
            .patch(&key.name, &params, &Patch::Merge(patch))
            .map_err(kube::Error::BuildRequest)?;
        send(&self.client, request).await.map(drop)
    }

    async fn delete(&self, owner: &ObjectKey, key: &ObjectKey, uid: &str, force: bool) -> Result<(), kube::Error> {
        let params = DeleteParams {
            grace_period_seconds: force.then_some(0),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            propagation_policy: Some(kube::api::PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let request = Request::new(collection(key)).delete(&key.name, &params).map_err(kube::Error::BuildRequest)?;
        self.client.request::<IgnoredAny>(request).await?;
        self.in_flight.deleted(owner, key, uid);
        Ok(())
    }
}

enum Written {
    Done,
    NothingToDo,
}

/// The part of an answer that is of interest.
#[derive(Deserialize)]
pub(crate) struct Made {
    #[serde(default)]
    pub(crate) metadata: MadeMeta,
}

/// The part of its `metadata` that is of interest.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MadeMeta {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

/// Writes an object and reads the little of the answer that is of interest; the rest is not even sent.
pub(crate) async fn send(client: &Client, mut request: http::Request<Vec<u8>>) -> Result<Made, kube::Error> {
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
    client.request(request).await
}

/// The URL of the objects beside this one.
pub(crate) fn collection(key: &ObjectKey) -> String {
    let resource = key.kind.resource();
    let group = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    format!("{group}/namespaces/{}/{}", key.namespace, resource.plural)
}

/// What the API server said, without wrapping.
pub(crate) fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether an error says that there is nothing left to do.
fn is_accepted(step: &Step, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    match step.accept {
        Accept::Nothing => false,
        Accept::AlreadyExists => status.reason == "AlreadyExists",
        // A conflict on deletion means that the name now belongs to another object.
        Accept::NotFound => status.code == 404 || (status.code == 409 && matches!(step.action, Action::Delete { .. })),
    }
}

fn verb(action: &Action) -> &'static str {
    match action {
        Action::Create { .. } => "create",
        Action::Replace { .. } => "replace",
        Action::Merge { .. } => "patch",
        Action::Delete { .. } => "delete",
    }
}

/// The Secret with a fresh token in place of the placeholder.
fn with_token(body: &Body) -> String {
    let mut body = body.value();
    if let Some(data) = body.get_mut("stringData").and_then(Value::as_object_mut) {
        for value in data.values_mut().filter(|value| *value == DRAWN_WHEN_WRITTEN) {
            *value = Value::String(crate::token::draw());
        }
    }
    body.to_string()
}
