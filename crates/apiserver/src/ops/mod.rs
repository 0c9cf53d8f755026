//! What the verbs do, apart from how they arrive.
//!
//! ```text
//!   body ─▶ shape ─▶ defaults ─▶ admission ─▶ checks ─▶ commit        (create)
//!   body ─▶ shape ─▶ defaults ─▶ carry over ─▶ checks ─▶ commit       (update, patch; retried on a lost race)
//! ```
//!
//! Everything here is synchronous: only waiting for the disk is not, and that is the caller's.

mod admission;
mod body;
mod create;
mod delete;
mod evict;
mod patch;
mod review;
mod scale;
mod service_ips;
mod token;
mod update;

use std::sync::{Arc, RwLock};

use serde_json::Value;

pub use delete::{DeleteOptions, Deleted, Propagation, success};
pub use patch::PatchKind;
pub use service_ips::ServiceIps;

use crate::auth::Authority;
use crate::clock::Clock;
use crate::error::ApiError;
use crate::node::NodeBackend;
use crate::registry::{Registry, Resource};
use crate::store::{Entry, ObjectKey, Store};

/// Everything that a request can touch.
pub struct Cluster {
    /// The objects.
    pub store: Store,
    /// The kinds.
    pub registry: Registry,
    /// Time and chance.
    pub clock: Clock,
    /// Addresses for services.
    pub service_ips: ServiceIps,
    /// Who may call, and tokens for those who may.
    pub authority: Authority,
    /// Whether pods get a service account and its token.
    pub admit_service_accounts: bool,
    pub(crate) node: RwLock<Option<NodeBackend>>,
}

/// What to do about fields that a kind does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them, and say so.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// What a client says about a write, beside the object.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Do everything but commit.
    pub dry_run: bool,
    /// What to do about unknown fields.
    pub validation: FieldValidation,
    /// Who manages the fields that are written.
    pub manager: String,
    /// Take fields from other managers.
    pub force: bool,
}

/// What a write did.
#[derive(Debug)]
pub struct Written {
    /// The object now.
    pub entry: Arc<Entry>,
    /// Whether it is new.
    pub created: bool,
    /// What to tell the client.
    pub warnings: Vec<String>,
}

/// One object's place.
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
    /// The object at a place.
    pub fn get(&self, target: Target<'_>) -> Result<Arc<Entry>, ApiError> {
        self.store.get(&target.resource.table, &target.key()).ok_or_else(|| target.not_found())
    }

    /// What to call to reach pods, if there is a node.
    pub fn node(&self) -> Option<NodeBackend> {
        self.node.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// An object that was not stored: the answer to a dry run.
fn unsaved(key: ObjectKey, value: Value, revision: Option<u64>) -> Arc<Entry> {
    let key = Arc::new(key);
    match revision {
        Some(revision) => Arc::new(Entry::seal(revision, key, value)),
        None => {
            let json = serde_json::to_vec(&value).unwrap_or_default();
            let sealed = Entry::seal(0, key, value);
            Arc::new(Entry { json: json.into(), ..sealed })
        }
    }
}
