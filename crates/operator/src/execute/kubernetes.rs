//! Writes to the API server. The only file that changes what users own.
//!
//! The steps of a stage run side by side: a few first, then twice as many as long as all goes well, so that a quota that
//! is used up is hit once and not a hundred times. All requests share one limit that is handed out in order of arrival,
//! and a request that hangs gives its permit back: no cluster starves another.

use super::RunningPass;
use crate::api_request::{collection_url, error_text, send};
use crate::concurrency_limit::ConcurrencyLimit;
use crate::in_flight::InFlightWrites;
use crate::random::Random;
use futures::future::join_all;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::request::Request;
use manta_logic::action::{Accept, Action, Body, DRAWN_WHEN_WRITTEN, Kind, ObjectKey, Step};
use manta_logic::config::Safeguards;
use manta_logic::pass::StepResult;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::Arc;
use tracing::{info, warn};

/// Writes that the first batch of a stage holds.
const FIRST_BATCH: usize = 4;
/// Writes that may be under way at once for one object.
const LARGEST_BATCH: usize = 16;
/// The field manager of our patches.
const MANAGER: &str = "manta-operator";

/// Carries out the steps that are for the API server.
pub(crate) struct KubernetesExecutor {
    pub(crate) client: Client,
    pub(crate) limit: Arc<ConcurrencyLimit>,
    pub(crate) in_flight: Arc<InFlightWrites>,
    pub(crate) random: Random,
    pub(crate) safeguards: Safeguards,
}

impl KubernetesExecutor {
    /// Carries out steps. Returns their results, in order.
    pub(super) async fn execute(&self, pass: &RunningPass<'_>, steps: &[&Step]) -> Vec<StepResult> {
        let mut results = Vec::with_capacity(steps.len());
        let mut batch = FIRST_BATCH;
        while results.len() < steps.len() {
            let rest = &steps[results.len()..];
            let now = &rest[..batch.min(rest.len())];
            results.extend(join_all(now.iter().map(|step| self.write(pass, step))).await);
            if results.contains(&StepResult::Superseded) {
                results.resize(steps.len(), StepResult::Superseded);
            } else if results.iter().any(|result| matches!(result, StepResult::Failed(_))) {
                results.resize(steps.len(), StepResult::Skipped);
            }
            batch = (batch * 2).min(LARGEST_BATCH);
        }
        results
    }

    async fn write(&self, pass: &RunningPass<'_>, step: &Step) -> StepResult {
        let permit = self.limit.acquire().await;
        if pass.is_superseded() {
            return StepResult::Superseded;
        }
        let key = step.action.key();
        let woken_by = pass.reason;
        let (kind, namespace, name) = (key.kind.resource().kind, &key.namespace, &key.name);
        info!(action = verb(&step.action), kind, %namespace, %name, why = step.why, %woken_by, "writing");
        match permit.run(self.send(pass, step)).await {
            Ok(()) => StepResult::Done,
            Err(error) if is_accepted(step, &error) => StepResult::Unchanged,
            Err(error) => {
                let error = error_text(&error);
                warn!(kind, %namespace, %name, why = step.why, error, "write failed");
                StepResult::Failed(error)
            }
        }
    }

    async fn send(&self, pass: &RunningPass<'_>, step: &Step) -> Result<(), kube::Error> {
        let owner = pass.key;
        match &step.action {
            Action::Create { key, body } => self.create(owner, step, key, body).await,
            Action::Replace { key, body } => self.replace(key, body).await,
            Action::Merge { key, patch } => self.merge(key, patch).await,
            Action::Delete { key, uid, force } => self.delete(owner, key, uid, *force).await,
            Action::Ray { .. } => Ok(()),
        }
    }

    async fn create(&self, owner: &ObjectKey, step: &Step, key: &ObjectKey, body: &Body) -> Result<(), kube::Error> {
        let text = match key.kind {
            Kind::Secret => with_token(body, &self.random),
            _ => body.text().to_owned(),
        };
        let request = Request::new(collection_url(key))
            .create(&PostParams::default(), text.into_bytes())
            .map_err(kube::Error::BuildRequest)?;
        let written = send(&self.client, request).await?;
        // Secrets are never watched, so they would be in flight for ever; the next pass looks them up.
        if key.kind != Kind::Secret {
            self.in_flight.created(owner, key, step.pods_of.clone(), written.metadata.uid);
        }
        Ok(())
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
        if matches!(&result, Err(error) if !matches!(error, kube::Error::Api(_))) {
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

/// Returns whether an error says that nothing is left to do.
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
