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
    Accept, Action, Body, DRAWN_WHEN_WRITTEN, Event, Failure, Kind, Outcome, Stage, Target, Todo,
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
    pub(crate) async fn act(&self, owner: &Target, regarding: &Regarding, stages: &[Stage]) -> Outcome {
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

    async fn run_stage(&self, owner: &Target, stage: &Stage, outcome: &mut Outcome, told: &mut Vec<Event>) {
        let mut batch = stage.len().min(4);
        let mut rest = stage.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(batch.min(rest.len()));
            for (todo, result) in now.iter().zip(join_all(now.iter().map(|todo| self.write(owner, todo))).await) {
                match result {
                    Ok(Written::Done) => {
                        if let Action::Create { target, .. } = &todo.action {
                            outcome.created.push(target.clone());
                        }
                        told.extend(todo.done.clone());
                    }
                    Ok(Written::NothingToDo) => {}
                    Err(error) => self.fail(todo, &error, outcome, told),
                }
            }
            if outcome.failure.is_some() {
                return;
            }
            rest = later;
            batch = (batch * 2).clamp(1, SIDE_BY_SIDE);
        }
    }

    fn fail(&self, todo: &Todo, error: &kube::Error, outcome: &mut Outcome, told: &mut Vec<Event>) {
        let target = todo.action.target();
        let error = text(error);
        warn!(
            kind = target.kind.resource().kind,
            namespace = target.namespace,
            name = target.name,
            why = todo.why,
            error,
            "a write failed"
        );
        if let Some(mut event) = todo.failed.clone() {
            event.note.push_str(&error);
            told.push(event);
        }
        outcome.failure.get_or_insert(Failure { reason: todo.failure_reason, error });
    }

    async fn write(&self, owner: &Target, todo: &Todo) -> Result<Written, kube::Error> {
        let place = self.budget.enter().await;
        let target = todo.action.target();
        info!(
            action = verb(&todo.action),
            kind = target.kind.resource().kind,
            namespace = target.namespace,
            name = target.name,
            why = todo.why,
            "writing"
        );
        let request = async {
            match &todo.action {
                Action::Create { body, .. } => self.create(owner, todo, target, body).await,
                Action::Replace { body, .. } => self.replace(target, body).await,
                Action::Merge { patch, .. } => self.merge(target, patch).await,
                Action::Delete { uid, force, .. } => self.delete(owner, target, uid, *force).await,
            }
        };
        match place.work(request).await {
            Ok(()) => Ok(Written::Done),
            Err(error) if is_accepted(todo, &error) => Ok(Written::NothingToDo),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, owner: &Target, todo: &Todo, target: &Target, body: &Body) -> Result<(), kube::Error> {
        let text = match target.kind {
            Kind::Secret => with_token(body),
            _ => body.text().to_owned(),
        };
        let request = Request::new(collection(target))
            .create(&PostParams::default(), text.into_bytes())
            .map_err(kube::Error::BuildRequest)?;
        let made = send(&self.client, request).await?;
        self.in_flight.created(owner, target, todo.group.as_deref(), made.metadata.uid);
        self.memory.remember(owner, target);
        Ok(())
    }

    async fn replace(&self, target: &Target, body: &Body) -> Result<(), kube::Error> {
        let bytes = body.text().as_bytes().to_vec();
        let request = Request::new(collection(target))
            .replace(&target.name, &PostParams::default(), bytes)
            .map_err(kube::Error::BuildRequest)?;
        send(&self.client, request).await.map(drop)
    }

    async fn merge(&self, target: &Target, patch: &Value) -> Result<(), kube::Error> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let request = Request::new(collection(target))
            .patch(&target.name, &params, &Patch::Merge(patch))
            .map_err(kube::Error::BuildRequest)?;
        send(&self.client, request).await.map(drop)
    }

    async fn delete(&self, owner: &Target, target: &Target, uid: &str, force: bool) -> Result<(), kube::Error> {
        let params = DeleteParams {
            grace_period_seconds: force.then_some(0),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            propagation_policy: Some(kube::api::PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let request =
            Request::new(collection(target)).delete(&target.name, &params).map_err(kube::Error::BuildRequest)?;
        self.client.request::<IgnoredAny>(request).await?;
        self.in_flight.deleted(owner, target, uid);
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
pub(crate) fn collection(target: &Target) -> String {
    let resource = target.kind.resource();
    let group = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    format!("{group}/namespaces/{}/{}", target.namespace, resource.plural)
}

/// What the API server said, without wrapping.
pub(crate) fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether an error says that there is nothing left to do.
fn is_accepted(todo: &Todo, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    match todo.accept {
        Accept::Nothing => false,
        Accept::AlreadyExists => status.reason == "AlreadyExists",
        // A conflict on deletion means that the name now belongs to another object.
        Accept::NotFound => status.code == 404 || (status.code == 409 && matches!(todo.action, Action::Delete { .. })),
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
