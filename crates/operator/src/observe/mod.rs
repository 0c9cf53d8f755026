//! Gathers what is known about one object, from memory alone.
//!
//! One file per kind. Nothing here starts a watch or waits for one: what is missing is part of the result.

mod cluster;
mod cronjob;
mod job;
mod service;

use crate::clock::LocalZone;
use crate::dashboard::poller::Pollers;
use crate::in_flight::{InFlightWrites, Shown};
use crate::raw_object::RawObject;
use crate::stores::Stores;
use jiff::Timestamp;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::config::Config;
use manta_logic::job::dashboard::JobPoll;
use manta_logic::plan::Reconciled;
use manta_logic::service::dashboard::ServePoll;
use manta_logic::view::MetaView;
use std::sync::Arc;

/// What is known about an object, or why nothing can be decided.
#[derive(Debug)]
pub(crate) enum Observation<T> {
    Gone,
    /// These kinds are not watched yet, or not everything is listed.
    NotSynced(Vec<Kind>),
    /// An object cannot be read; only a change can help.
    Unreadable,
    /// The caches do not show yet what was written for this object.
    InFlight,
    /// Everything that is needed; kinds that would be of use, but are not watched yet, are named.
    Ready {
        seen: Box<T>,
        not_synced: Vec<Kind>,
    },
}

impl<T> Observation<T> {
    fn ready(seen: T) -> Self {
        Self::Ready { seen: Box::new(seen), not_synced: Vec::new() }
    }
}

/// Everything that is known, of all objects.
pub(crate) struct Sources<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) in_flight: &'a InFlightWrites,
    pub(crate) jobs: &'a Pollers<JobPoll>,
    pub(crate) serve: &'a Pollers<ServePoll>,
    pub(crate) config: &'a Config,
    pub(crate) now: Timestamp,
    pub(crate) local_zone: &'a LocalZone,
    /// Where random names come from.
    pub(crate) seed: u64,
}

/// A kind that can be observed.
pub(crate) trait Observe: Reconciled {
    /// Gathers what is known about one object.
    fn observe(sources: &Sources<'_>, key: &ObjectKey) -> Observation<Self::Observed>;

    /// Returns the object itself.
    fn object(seen: &Self::Observed) -> &Self;
}

impl Sources<'_> {
    /// Returns those of the kinds whose watches have not listed everything.
    fn not_synced(&self, kinds: impl IntoIterator<Item = Kind>) -> Vec<Kind> {
        kinds.into_iter().filter(|kind| !self.stores.is_synced(*kind)).collect()
    }

    /// Returns whether writes for an object are not visible yet.
    fn has_writes_in_flight(&self, owner: &ObjectKey) -> bool {
        let in_flight = self.in_flight.of(owner, self.now, |written| self.shown(owner, written));
        !in_flight.creating.is_empty() || !in_flight.deleting.is_empty()
    }

    /// Returns what the caches show of something that we wrote.
    fn shown(&self, owner: &ObjectKey, written: &ObjectKey) -> Shown {
        let stores = self.stores;
        let name = &written.name;
        match written.kind {
            Kind::Pod => shown_meta(stores.pods.get(owner, name).as_ref().map(|object| &object.metadata)),
            // A RayService also makes Services that belong to its clusters.
            Kind::Service => {
                shown_meta(stores.kube_services.find(&owner.namespace, name).as_ref().map(|object| &object.metadata))
            }
            Kind::Job => shown_meta(stores.kube_jobs.get(owner, name).as_ref().map(|object| &object.metadata)),
            Kind::RayCluster => shown_raw(stores.clusters.get(written, name)),
            Kind::RayJob => shown_raw(stores.jobs.get(written, name)),
            kind => shown_meta(stores.related(kind).get(owner, name).as_ref().map(|object| &object.metadata)),
        }
    }
}

fn shown_meta(meta: Option<&MetaView>) -> Shown {
    match meta {
        None => Shown::Absent,
        Some(meta) if meta.deletion_timestamp.is_some() => Shown::Terminating,
        Some(meta) => Shown::Alive(meta.uid.to_string()),
    }
}

fn shown_raw<K>(object: Option<Arc<RawObject<K>>>) -> Shown {
    match object {
        None => Shown::Absent,
        Some(object) if object.is_terminating() => Shown::Terminating,
        Some(object) => Shown::Alive(object.uid().to_owned()),
    }
}

#[cfg(test)]
mod tests;
