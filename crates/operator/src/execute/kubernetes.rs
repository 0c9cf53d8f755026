//! Writes to the API server. The only file that changes what users own.
//!
//! The steps of a stage run side by side in a window that slides: a few first, and one more for every success, so that a
//! quota that is used up is hit a few times and not a hundred, and no step waits for the slowest of a batch. All requests
//! share one budget that is handed out in order of arrival, and a request that hangs gives its permit back: no cluster
//! starves another.

use super::RunningPass;
use crate::api_request::{collection_url, error_text, send};
use crate::in_flight::InFlightWrites;
use crate::random::Random;
use crate::write_budget::WriteBudget;
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::request::Request;
use manta_logic::action::{Accept, Action, Body, DRAWN_WHEN_WRITTEN, Kind, ObjectKey, Step};
use manta_logic::config::Safeguards;
use manta_logic::pass::StepResult;
use manta_logic::view::PodView;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::Arc;
use tracing::{info, warn};

/// Writes of a stage that may be under way before the first has succeeded.
const FIRST_WINDOW: usize = 4;
/// The field manager of our patches.
const MANAGER: &str = "manta-operator";

/// Carries out the steps that are for the API server.
pub(crate) struct KubernetesExecutor {
    pub(crate) client: Client,
    pub(crate) budget: Arc<WriteBudget>,
    pub(crate) in_flight: Arc<InFlightWrites>,
    pub(crate) random: Random,
    pub(crate) safeguards: Safeguards,
}

impl KubernetesExecutor {
    /// Carries out steps. Returns their results, in order.
    pub(super) async fn execute(&self, pass: &RunningPass<'_>, steps: &[&Step]) -> Vec<StepResult> {
        let mut results = vec![StepResult::Skipped; steps.len()];
        let mut rest = steps.iter().enumerate();
        let mut under_way = FuturesUnordered::new();
        let mut window = FIRST_WINDOW;
        loop {
            let free = window.min(self.budget.share()).saturating_sub(under_way.len());
            under_way.extend(rest.by_ref().take(free).map(async |(index, step)| (index, self.write(pass, step).await)));
            let Some((index, result)) = under_way.next().await else { return results };
            match result {
                StepResult::Superseded => {
                    rest.by_ref().for_each(|(index, _)| results[index] = StepResult::Superseded);
                }
                StepResult::Failed(_) => rest.by_ref().for_each(drop),
                _ => window += 1,
            }
            results[index] = result;
        }
    }

    async fn write(&self, pass: &RunningPass<'_>, step: &Step) -> StepResult {
        let permit = self.budget.acquire().await;
        if pass.is_superseded() {
            return StepResult::Superseded;
        }
        let key = step.action.key();
        let woken_by = pass.reason;
        let (kind, namespace, name) = (key.kind.resource().kind, &key.namespace, &key.name);
        info!(action = verb(&step.action), kind, %namespace, %name, why = step.why, %woken_by, "writing");
        match self.budget.send(&permit, || self.send(pass, step)).await {
            Ok(result) => result,
            Err(error) if is_accepted(step, &error) => StepResult::Unchanged,
            Err(error) => {
                let error = error_text(&error);
                warn!(kind, %namespace, %name, why = step.why, error, "write failed");
                StepResult::Failed(error)
            }
        }
    }

    async fn send(&self, pass: &RunningPass<'_>, step: &Step) -> Result<StepResult, kube::Error> {
        // Again, because this may be the second attempt.
        if pass.is_superseded() {
            return Ok(StepResult::Superseded);
        }
        let owner = pass.key;
        let written = match &step.action {
            Action::Create { key, body } => self.create(owner, step, key, body).await,
            Action::Replace { key, body } => self.replace(key, body).await,
            Action::Merge { key, patch } => self.merge(key, patch).await,
            Action::Delete { key, uid, force } => self.delete(owner, key, uid, *force).await,
            Action::Ray { .. } => Ok(()),
        };
        written.map(|()| StepResult::Done)
    }

    async fn create(&self, owner: &ObjectKey, step: &Step, key: &ObjectKey, body: &Body) -> Result<(), kube::Error> {
        let text = match key.kind {
            Kind::Secret => with_token(body, &self.random),
            _ => body.text().to_owned(),
        };
        let request = Request::new(collection_url(key))
            .create(&PostParams::default(), text.into_bytes())
            .map_err(kube::Error::BuildRequest)?;
        let result = send(&self.client, request).await;
        if let Err(error) = &result
            && (may_take_effect(error) || is_there_already(error))
        {
            self.creation_broke(owner, key, body);
        }
        let written = result?;
        // Secrets are never watched, so they would be in flight for ever; the next pass looks them up.
        if key.kind != Kind::Secret {
            self.in_flight.created(owner, key, step.pods_of.clone(), written.metadata.uid);
        }
        Ok(())
    }

    /// Remembers a Pod that may still be created, or was by an earlier request whose reply was lost and no watch shows it yet.
    fn creation_broke(&self, owner: &ObjectKey, key: &ObjectKey, body: &Body) {
        if key.kind != Kind::Pod {
            return;
        }
        if let Ok(PodView { metadata, .. }) = serde_json::from_str(body.text()) {
            self.in_flight.creation_broke(owner, metadata);
        }
    }

    async fn replace(&self, key: &ObjectKey, body: &Body) -> Result<(), kube::Error> {
        let bytes = body.text().as_bytes().to_vec();
        let request = Request::new(collection_url(key))
            .replace(&key.name, &PostParams::default(), bytes)
            .map_err(kube::Error::BuildRequest)?;
        send(&self.client, request).await.map(drop)
    }

    async fn merge(&self, key: &ObjectKey, patch: &Value) -> Result<(), kube::Error> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let request = Request::new(collection_url(key))
            .patch(&key.name, &params, &Patch::Merge(patch))
            .map_err(kube::Error::BuildRequest)?;
        send(&self.client, request).await.map(drop)
    }

    async fn delete(&self, owner: &ObjectKey, key: &ObjectKey, uid: &str, force: bool) -> Result<(), kube::Error> {
        let params = DeleteParams {
            grace_period_seconds: force.then_some(0),
            preconditions: self
                .safeguards
                .uid_preconditions
                .then(|| Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            propagation_policy: Some(kube::api::PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let request =
            Request::new(collection_url(key)).delete(&key.name, &params).map_err(kube::Error::BuildRequest)?;
        let result = self.client.request::<IgnoredAny>(request).await;
        if matches!(&result, Err(error) if may_take_effect(error)) {
            self.in_flight.deletion_broke(owner, uid);
        }
        result?;
        // The same here.
        if key.kind != Kind::Secret {
            self.in_flight.deleted(owner, key, uid);
        }
        Ok(())
    }
}

impl KubernetesExecutor {
    /// Writes a record of a post-mortem, in place of an earlier one of the same name.
    pub(crate) async fn put_record(&self, namespace: &str, record: &Value) -> Result<(), kube::Error> {
        let requests = Request::new(records_url(namespace));
        let body = record.to_string().into_bytes();
        let name = record["metadata"]["name"].as_str().unwrap_or_default();
        let params = PostParams::default();
        let create = requests.create(&params, body.clone()).map_err(kube::Error::BuildRequest)?;
        match send(&self.client, create).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                let replace = requests.replace(name, &params, body).map_err(kube::Error::BuildRequest)?;
                send(&self.client, replace).await.map(drop)
            }
            written => written.map(drop),
        }
    }

    /// Deletes a record that has expired; one that is gone counts as deleted.
    pub(crate) async fn delete_record(&self, namespace: &str, name: &str, uid: &str) -> Result<(), kube::Error> {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let request = Request::new(records_url(namespace)).delete(name, &params).map_err(kube::Error::BuildRequest)?;
        match self.client.request::<IgnoredAny>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            deleted => deleted.map(drop),
        }
    }
}

fn records_url(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Returns whether a request that failed like this may have taken effect, or still may: there was no reply, or the API server did not
/// wait for its storage any longer.
fn may_take_effect(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if status.code < 500)
}

fn is_there_already(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Returns whether an error says that nothing is left to do.
fn is_accepted(step: &Step, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    match step.accept {
        Accept::Nothing => false,
        Accept::AlreadyExists => is_there_already(error),
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
        Action::Ray { .. } => "ray",
    }
}

/// Returns the Secret with a fresh token in place of the placeholder.
fn with_token(body: &Body, random: &Random) -> String {
    let mut body = body.value();
    if let Some(data) = body.get_mut("stringData").and_then(Value::as_object_mut) {
        for value in data.values_mut().filter(|value| *value == DRAWN_WHEN_WRITTEN) {
            *value = Value::String(random.token());
        }
    }
    body.to_string()
}
