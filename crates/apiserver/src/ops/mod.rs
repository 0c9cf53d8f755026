//! The verbs, independent of HTTP.
//!
//! ```text
//!   body ─▶ shape ─▶ defaults ─▶ admission ─▶ checks ─▶ commit        (create)
//!   body ─▶ shape ─▶ defaults ─▶ preserved fields ─▶ checks ─▶ commit (update, patch; retried on conflict)
//! ```
//!
//! Everything here is synchronous; the caller awaits durability.

mod admission;
mod body;
pub(crate) mod conversion;
mod create;
mod delete;
mod evict;
mod patch;
pub(crate) mod quota;
mod review;
mod runtime_class;
mod scale;
mod service_ips;
mod token;
mod update;

use std::sync::{Arc, RwLock};

use serde_json::Value;

pub use conversion::Conversions;
pub use delete::{DeleteOptions, Deleted, Propagation, success};
pub use patch::PatchKind;
pub use service_ips::ServiceIps;

use crate::auth::{Authority, User};
use crate::clock::Clock;
use crate::controllers::supervisor::Panics;
use crate::error::ApiError;
use crate::node::NodeBackend;
use crate::registry::{Registry, Resource};
use crate::schema::FieldError;
use crate::store::{CommitError, Entry, MAX_DEPTH, ObjectKey, Store};

/// The state behind every request.
pub struct Cluster {
    /// The objects.
    pub store: Store,
    /// The kinds.
    pub registry: Registry,
    /// The source of time and randomness.
    pub clock: Clock,
    /// The allocator of service addresses and node ports.
    pub service_ips: ServiceIps,
    /// Authentication, authorization and the service account token issuer.
    pub authority: Authority,
    /// The panics that were caught.
    pub panics: Panics,
    /// Whether pods get a service account and its token.
    pub admit_service_accounts: bool,
    pub(crate) node: RwLock<Option<NodeBackend>>,
    pub(crate) reviewer: Option<crate::webhook::Reviewer>,
    /// Held from the check of a quota until the commit of what it was checked for.
    pub(crate) quota_lock: std::sync::Mutex<()>,
}

/// The handling of unknown fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drops them silently.
    Ignore,
    /// Drops them with a warning.
    #[default]
    Warn,
    /// Rejects the request.
    Strict,
}

/// The options of a write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Validates without committing.
    pub dry_run: bool,
    /// The handling of unknown fields.
    pub validation: FieldValidation,
    /// The field manager.
    pub manager: String,
    /// Takes fields from other managers.
    pub force: bool,
    /// Who writes; without one it is the server itself, which may grant every permission.
    pub user: Option<User>,
    /// What strict decoding says about fields that the body has twice.
    pub duplicates: Vec<String>,
    /// What webhooks have converted for this write.
    pub conversions: Conversions,
}

/// Returns whether a request is a dry run; one for a stage that does not exist must not be carried out.
pub(crate) fn is_dry_run<'a>(stages: impl IntoIterator<Item = &'a str>, kind: &str) -> Result<bool, ApiError> {
    let stages: Vec<&str> = stages.into_iter().collect();
    if stages.iter().any(|stage| *stage != "All") {
        let error = FieldError::not_supported("dryRun", &serde_json::json!(stages), &["All"]);
        return Err(ApiError::invalid_options(kind, error));
    }
    Ok(!stages.is_empty())
}

/// The result of a write.
#[derive(Debug)]
pub struct Written {
    /// The object after the write.
    pub entry: Arc<Entry>,
    /// Whether it is new.
    pub created: bool,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// The kind, namespace and name of one object.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Its kind.
    pub resource: &'a Arc<Resource>,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl Target<'_> {
    /// Returns the error of a write to this object that was not committed.
    fn commit_error(&self, error: CommitError) -> ApiError {
        commit_error(self.resource, self.name, error)
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace, self.name)
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(self.resource.named(self.name))
    }

    fn modified(&self) -> ApiError {
        ApiError::modified(self.resource.named(self.name))
    }
}

impl Cluster {
    /// Returns the object, or a NotFound error.
    pub fn get(&self, target: Target<'_>) -> Result<Arc<Entry>, ApiError> {
        self.store.get(&target.resource.table, &target.key()).ok_or_else(|| target.not_found())
    }

    /// Returns the node backend, if there is one.
    pub fn node(&self) -> Option<NodeBackend> {
        self.node.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// Returns the error of a write that was not committed.
fn commit_error(resource: &Resource, name: &str, error: CommitError) -> ApiError {
    match error {
        CommitError::AlreadyExists => ApiError::already_exists(resource.named(name)),
        CommitError::NotFound => ApiError::not_found(resource.named(name)),
        CommitError::Conflict => ApiError::modified(resource.named(name)),
        CommitError::TooDeep => {
            ApiError::bad_request(format!("the object nests deeper than {MAX_DEPTH} levels, which cannot be stored"))
        }
        CommitError::Unavailable(failure) => failure.into(),
    }
}

/// Returns the entry for the response to a dry run.
fn dry_run_entry(key: ObjectKey, value: Value, revision: Option<u64>) -> Arc<Entry> {
    let key = Arc::new(key);
    match revision {
        Some(revision) => Arc::new(Entry::new(revision, key, value)),
        None => {
            let json = serde_json::to_vec(&value).unwrap_or_default();
            let sealed = Entry::new(0, key, value);
            Arc::new(Entry { json: json.into(), ..sealed })
        }
    }
}
