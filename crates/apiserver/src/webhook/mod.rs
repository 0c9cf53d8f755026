//! Admission webhooks: external review of a write before it is committed.
//!
//! ```text
//!   trial run ─▶ mutating webhooks, one after the other ─▶ validating ones, side by side ─▶ the write itself
//! ```
//!
//! The trial completes the object, so that webhooks see what would be stored. The write then takes what they made
//! of it, at the version that they saw; a lost race starts over. A mutating webhook with `reinvocationPolicy: IfNeeded`
//! is asked once more if a later one changed the object. Only requests pass through here: what the controllers of this
//! server write is not reviewed.

mod call;
pub(crate) mod conversion;
mod policy;
mod review;
mod select;

use std::sync::Arc;

use serde_json::Value;

use crate::auth::User;
use crate::error::ApiError;
use crate::ops::{Cluster, DeleteOptions, Target, WriteOptions, Written};
use crate::registry::Resource;
use crate::schema::FieldError;
use crate::selector::Selection;
use crate::store::{Entry, ListRange};
pub(crate) use review::Operation;
use review::{AdmissionRequest, Answer};

const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
/// How often a conflicting write is reviewed again.
const TRIES: usize = 5;

/// Creates an object.
pub(crate) async fn create(
    cluster: &Cluster,
    resource: &Arc<Resource>,
    namespace: &str,
    body: Value,
    options: &WriteOptions,
    user: &User,
) -> Result<Written, ApiError> {
    let Some(hooks) = Hooks::of(cluster, resource) else {
        return commit(cluster, resource, namespace, body, options).await;
    };
    let trial = commit(cluster, resource, namespace, body, &WriteOptions { dry_run: true, ..options.clone() }).await?;
    let mut object = shown(cluster, resource, trial.entry.clone()).await?;
    let name = trial.entry.key.name.clone();
    let target = Target { resource, namespace, name: &name };
    let request = AdmissionRequest::new(cluster, target, None, Operation::Create, user, options.dry_run);
    let warnings = hooks.admit(&request, &mut object, &Value::Null).await?;
    let written = commit(cluster, resource, namespace, without_revision(object), options).await?;
    Ok(told(written, trial.warnings, warnings))
}

/// Creates an object without any review.
async fn commit(
    cluster: &Cluster,
    resource: &Arc<Resource>,
    namespace: &str,
    body: Value,
    options: &WriteOptions,
) -> Result<Written, ApiError> {
    if resource.conversion().is_none() {
        return cluster.create(resource, namespace, body, options);
    }
    let create = || cluster.create(resource, namespace, body.clone(), options);
    conversion::converting(cluster, resource, options, create).await
}

/// Updates an object through `change`, which also runs as a dry run to build the review.
pub(crate) async fn modify(
    cluster: &Cluster,
    target: Target<'_>,
    subresource: Option<&str>,
    options: &WriteOptions,
    user: &User,
    change: impl Fn(&WriteOptions) -> Result<Written, ApiError>,
) -> Result<Written, ApiError> {
    let resource = target.resource;
    let Some(hooks) = Hooks::of(cluster, resource) else {
        return conversion::converting(cluster, resource, options, || change(options)).await;
    };
    let trial_options = WriteOptions { dry_run: true, ..options.clone() };
    for _ in 0..TRIES {
        let before = cluster.get(target).ok();
        let trial = conversion::converting(cluster, resource, options, || change(&trial_options)).await?;
        let mut object = shown(cluster, resource, trial.entry.clone()).await?;
        // An apply may also create.
        let (operation, old) = match &before {
            Some(before) => (Operation::Update, shown(cluster, resource, before.clone()).await?),
            None => (Operation::Create, Value::Null),
        };
        let request = AdmissionRequest::new(cluster, target, subresource, operation, user, options.dry_run);
        let warnings = hooks.admit(&request, &mut object, &old).await?;
        let written = match &before {
            Some(before) => {
                object["metadata"]["resourceVersion"] = before.revision.to_string().into();
                let update = || cluster.update(target, subresource, object.clone(), options);
                conversion::converting(cluster, resource, options, update).await
            }
            None => commit(cluster, resource, target.namespace, without_revision(object), options).await,
        };
        match written {
            // A conflict: a change with a resourceVersion fails in the next round.
            Err(error) if error.is_conflict() || error.reason() == "AlreadyExists" => {}
            Err(error) => return Err(error),
            Ok(written) => return Ok(told(written, trial.warnings, warnings)),
        }
    }
    Err(ApiError::modified(target.resource.named(target.name)))
}

/// Updates an object through its scale; `change` maps the old scale to the new one.
pub(crate) async fn scale(
    cluster: &Cluster,
    target: Target<'_>,
    options: &WriteOptions,
    user: &User,
    change: impl Fn(Value) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    let resource = target.resource;
    let Some(hooks) = Hooks::of(cluster, resource) else {
        let scale = || cluster.rescale(target, options, &change);
        return conversion::converting(cluster, resource, options, scale).await;
    };
    let trial_options = WriteOptions { dry_run: true, ..options.clone() };
    for _ in 0..TRIES {
        let old = conversion::converting(cluster, resource, options, || cluster.scale(target, options)).await?;
        let trial = || cluster.rescale(target, &trial_options, &change);
        let mut object = conversion::converting(cluster, resource, options, trial).await?;
        let request = AdmissionRequest::new(cluster, target, Some("scale"), Operation::Update, user, options.dry_run)
            .about("autoscaling", "v1", "Scale");
        hooks.admit(&request, &mut object, &old).await?;
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let scale = || cluster.rescale(target, options, |_| Ok(object.clone()));
        match conversion::converting(cluster, resource, options, scale).await {
            // A change with a resourceVersion fails in the next round.
            Err(error) if error.is_conflict() => {}
            other => return other,
        }
    }
    Err(ApiError::modified(resource.named(target.name)))
}

/// Reviews the eviction of a pod.
pub(crate) async fn eviction(
    cluster: &Cluster,
    target: Target<'_>,
    body: &mut Value,
    dry_run: bool,
    user: &User,
) -> Result<(), ApiError> {
    let Some(hooks) = Hooks::of(cluster, target.resource) else { return Ok(()) };
    let request = AdmissionRequest::new(cluster, target, Some("eviction"), Operation::Create, user, dry_run)
        .about("policy", "v1", "Eviction");
    for (key, value) in [("apiVersion", "policy/v1"), ("kind", "Eviction")] {
        body[key] = value.into();
    }
    hooks.admit(&request, body, &Value::Null).await.map(|_| ())
}

/// Reviews the deletion of an object.
pub(crate) async fn deletion(
    cluster: &Cluster,
    target: Target<'_>,
    options: &DeleteOptions,
    user: &User,
) -> Result<(), ApiError> {
    let Some(hooks) = Hooks::of(cluster, target.resource) else { return Ok(()) };
    let old = shown(cluster, target.resource, cluster.get(target)?).await?;
    let request = AdmissionRequest::new(cluster, target, None, Operation::Delete, user, options.dry_run);
    hooks.admit(&request, &mut Value::Null, &old).await.map(|_| ())
}

/// Reviews a connection to an object: exec, attach, port-forward or proxy.
pub(crate) async fn connection(
    cluster: &Cluster,
    target: Target<'_>,
    subresource: &str,
    options: Value,
    user: &User,
) -> Result<(), ApiError> {
    let Some(hooks) = Hooks::of(cluster, target.resource) else { return Ok(()) };
    let request = AdmissionRequest::new(cluster, target, Some(subresource), Operation::Connect, user, false);
    let mut options = options;
    hooks.admit(&request, &mut options, &Value::Null).await.map(|_| ())
}

/// Reviews the deletion of every selected object.
pub(crate) async fn deletions(
    cluster: &Cluster,
    resource: &Arc<Resource>,
    selection: &Selection,
    options: &DeleteOptions,
    user: &User,
) -> Result<(), ApiError> {
    if Hooks::of(cluster, resource).is_none() {
        return Ok(());
    }
    let found = match conversion::select(cluster, resource, selection).await? {
        Some(found) => found,
        None => {
            let span = ListRange { namespace: selection.namespace.as_deref(), ..ListRange::default() };
            let found = cluster.store.list(&resource.table, &span, |entry| selection.matches(entry));
            found.map(|page| page.entries).unwrap_or_default()
        }
    };
    for entry in found {
        let target = Target { resource, namespace: &entry.key.namespace, name: &entry.key.name };
        match deletion(cluster, target, options, user).await {
            // It went by itself meanwhile.
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
    }
    Ok(())
}

async fn shown(cluster: &Cluster, resource: &Resource, entry: Arc<Entry>) -> Result<Value, ApiError> {
    let mut value = conversion::entry(cluster, resource, entry).await?.value();
    resource.to_served(&mut value);
    Ok(value)
}

fn without_revision(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

fn told(mut written: Written, of_trial: Vec<String>, of_hooks: Vec<String>) -> Written {
    written.warnings = of_trial;
    written.warnings.extend(of_hooks);
    written
}

/// A validating webhook in this process, for the objects of one API group.
#[derive(Clone)]
pub struct Reviewer {
    pub group: &'static str,
    pub review: Arc<Review>,
}

/// Judges a new object, given its kind and the stored object if there is one.
pub type Review = dyn Fn(&str, &Value, Option<&Value>) -> Verdict + Send + Sync;

/// What a [`Reviewer`] says about a write; with errors, the write is refused.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    pub warnings: Vec<String>,
}

impl Reviewer {
    fn admit(&self, request: &AdmissionRequest<'_>, object: &Value, old: &Value) -> Result<Vec<String>, ApiError> {
        if request.subresource.is_some() || matches!(request.operation, Operation::Delete | Operation::Connect) {
            return Ok(Vec::new());
        }
        let Target { resource, name, .. } = request.target;
        let verdict = (self.review)(&resource.kind, object, Some(old).filter(|old| !old.is_null()));
        match verdict.errors.as_slice() {
            [] => Ok(verdict.warnings),
            errors => Err(ApiError::invalid(resource.kind_named(name), errors)),
        }
    }
}

/// The webhooks that apply to a kind.
struct Hooks<'a> {
    cluster: &'a Cluster,
    reviewer: Option<&'a Reviewer>,
    mutating: Vec<Value>,
    validating: Vec<Value>,
}

impl<'a> Hooks<'a> {
    /// Returns the webhooks in order, or `None` if no webhook applies to this kind.
    fn of(cluster: &'a Cluster, resource: &Resource) -> Option<Hooks<'a>> {
        // Webhooks that judged webhooks could lock everybody out for good.
        let exempt = &*resource.group == "admissionregistration.k8s.io";
        let counts = [MUTATING, VALIDATING, policy::BINDINGS].map(|table| cluster.store.count(table));
        let reviewer = cluster.reviewer.as_ref().filter(|reviewer| *reviewer.group == *resource.group);
        if exempt || (counts == [0, 0, 0] && reviewer.is_none()) {
            return None;
        }
        let all = |table: &str| -> Vec<Value> {
            let found = cluster.store.list(table, &ListRange::default(), |_| true);
            let configurations = found.map(|page| page.entries).unwrap_or_default();
            let hooks = configurations.iter().map(|entry| entry.value()["webhooks"].take());
            hooks
                .filter_map(|hooks| match hooks {
                    Value::Array(hooks) => Some(hooks),
                    _ => None,
                })
                .flatten()
                .collect()
        };
        Some(Hooks { cluster, reviewer, mutating: all(MUTATING), validating: all(VALIDATING) })
    }

    /// Runs the mutating, then the validating webhooks; returns their warnings.
    async fn admit(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: &Value,
    ) -> Result<Vec<String>, ApiError> {
        let mut warnings = Vec::new();
        // Those that want to see what later ones change, and what they left.
        let mut curious: Vec<(&Value, Value)> = Vec::new();
        for hook in &self.mutating {
            if let Some(answer) = self.ask(hook, request, object, old).await? {
                answer.apply(object)?;
                warnings.extend(answer.warnings);
                if hook["reinvocationPolicy"] == "IfNeeded" {
                    curious.push((hook, object.clone()));
                }
            }
        }
        for (hook, left) in curious {
            if left != *object
                && let Some(answer) = self.ask(hook, request, object, old).await?
            {
                answer.apply(object)?;
                warnings.extend(answer.warnings);
            }
        }
        let object = &*object;
        if let Some(reviewer) = self.reviewer {
            warnings.extend(reviewer.admit(request, object, old)?);
        }
        warnings.extend(policy::admit(self.cluster, request, object, old)?);
        let answers = self.validating.iter().map(|hook| self.ask(hook, request, object, old));
        for answer in futures::future::join_all(answers).await {
            warnings.extend(answer?.into_iter().flat_map(|answer| answer.warnings));
        }
        Ok(warnings)
    }

    /// Calls one webhook if it matches; fails on a denial, or on a failed call with failurePolicy Fail.
    async fn ask(
        &self,
        hook: &Value,
        request: &AdmissionRequest<'_>,
        object: &Value,
        old: &Value,
    ) -> Result<Option<Answer>, ApiError> {
        let name = hook["name"].as_str().unwrap_or("");
        let ignore = hook["failurePolicy"] == "Ignore";
        match select::concerns(hook, request, object, old) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(_) if ignore => return Ok(None),
            Err(why) => return Err(request.forbidden(&why)),
        }
        if request.dry_run && !matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")) {
            let text = format!("admission webhook {name:?} does not support dry run");
            return Err(ApiError::bad_request(text));
        }
        let request = request.review(object, old);
        let answer = call::post(self.cluster, hook, &request).await;
        match answer.and_then(|answer| Answer::read(name, &request, answer)) {
            Ok(answer) => answer.allowed().map(Some),
            Err(why) if ignore => {
                tracing::warn!(webhook = name, %why, "ignoring a failed webhook with failurePolicy Ignore");
                Ok(None)
            }
            Err(why) => Err(ApiError::internal(format!("failed calling webhook {name:?}: {why}"))),
        }
    }
}
