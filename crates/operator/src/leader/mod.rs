//! Leader election on KubeRay's own Lease: of all operators, Manta or KubeRay, only the holder acts.
//!
//! Every write carries the resource version that was read. A holder renews every 2 s and gives up 10 s after the start
//! of its last successful renewal. Others may take over 15 s after they observed that renewal, by their own clocks. On
//! exit the lease is released, so that a successor need not wait.

mod fence;
mod terms;

pub use fence::Fence;
pub use terms::run_elected;
pub(crate) use terms::run_terms;

use crate::clock::Clock;
use crate::run::Settings;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{info, warn};

/// The name of the Lease, the same as KubeRay's.
pub const LEASE: &str = "ray-operator-leader";
const LEASE_DURATION_SECONDS: i32 = 15;
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// A candidate in the leader election.
pub(crate) struct Candidate {
    leases: Api<Lease>,
    identity: String,
    clock: Clock,
    /// The Lease as last observed, and when its spec was first observed.
    seen: Option<(Lease, Instant)>,
}

/// Why leadership ended.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Lost {
    #[error("leader election lost: {0} holds the Lease now")]
    To(String),
    #[error("leader election lost: the Lease could not be renewed for {} s", RENEW_DEADLINE.as_secs())]
    NotRenewed,
}

/// The holder of the Lease.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    Us,
    Other(String),
}

/// What to do about an observed Lease.
#[derive(Debug, PartialEq)]
enum Step {
    Write(Box<Lease>),
    Wait(String),
}

/// Why the Lease is not acquired yet.
#[derive(PartialEq, Eq)]
enum Blocked {
    HeldBy(String),
    Failed(String),
    TimedOut,
}

impl Blocked {
    fn log(&self) {
        match self {
            Self::HeldBy(holder) => info!(lease = LEASE, holder, "waiting for the lease held by another operator"),
            Self::Failed(error) => info!(lease = LEASE, error, "cannot acquire the lease; retrying"),
            Self::TimedOut => info!(lease = LEASE, "timed out acquiring the lease; retrying"),
        }
    }
}

impl Candidate {
    /// Returns a candidate with a unique identity.
    pub(crate) fn new(client: Client, namespace: &str, settings: &Settings) -> Self {
        let identity = format!("{}_{}", settings.host, settings.random.uuid());
        Self { leases: Api::namespaced(client, namespace), identity, clock: settings.clock, seen: None }
    }

    /// Waits until the Lease is acquired. Returns when the successful attempt started.
    pub(crate) async fn acquire(&mut self) -> Instant {
        let mut logged = None;
        loop {
            let start = Instant::now();
            // Without a timeout, a dead connection would block the election for ever.
            let blocked = match timeout_at(start + RENEW_DEADLINE, self.try_acquire_or_renew()).await {
                Ok(Ok(Holder::Us)) => {
                    info!(lease = LEASE, identity = self.identity, "acquired the lease");
                    return start;
                }
                Ok(Ok(Holder::Other(holder))) => Blocked::HeldBy(holder),
                Ok(Err(error)) => Blocked::Failed(error.to_string()),
                Err(_) => Blocked::TimedOut,
            };
            if logged.as_ref() != Some(&blocked) {
                blocked.log();
                logged = Some(blocked);
            }
            sleep_until(start + RETRY_PERIOD).await;
        }
    }

    /// Renews the Lease, acquired at `since`, until it is lost.
    pub(crate) async fn renew_until_lost(&mut self, since: Instant) -> Lost {
        let mut renewed = since;
        loop {
            let end = renewed + RENEW_DEADLINE;
            sleep_until(end.min(Instant::now() + RETRY_PERIOD)).await;
            let start = Instant::now();
            match timeout_at(end, self.try_acquire_or_renew()).await {
                Ok(Ok(Holder::Us)) => renewed = start,
                Ok(Ok(Holder::Other(holder))) => return Lost::To(holder),
                Ok(Err(error)) => warn!(lease = LEASE, %error, "cannot renew the lease; retrying"),
                Err(_) => return Lost::NotRenewed,
            }
            if Instant::now() >= renewed + RENEW_DEADLINE {
                return Lost::NotRenewed;
            }
        }
    }

    /// Releases the Lease, if this candidate holds it.
    pub(crate) async fn release(mut self) {
        let Some((mut lease, _)) = self.seen.take().filter(|(lease, _)| holder(lease) == self.identity) else {
            return;
        };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(self.clock.now()));
        match timeout_at(Instant::now() + RETRY_PERIOD, self.write(&lease)).await {
            Ok(Ok(_)) => info!(lease = LEASE, "released the lease"),
            Ok(Err(error)) => {
                warn!(lease = LEASE, %error, "cannot release the lease; a successor waits until it expires")
            }
            Err(_) => warn!(lease = LEASE, "timed out releasing the lease; a successor waits until it expires"),
        }
    }

    /// Tries once to acquire or renew the Lease.
    async fn try_acquire_or_renew(&mut self) -> Result<Holder, kube::Error> {
        // A renewal needs no read first: a conflict shows that somebody else wrote the Lease in between.
        if let Some((ours, since)) = self.seen.clone().filter(|(lease, _)| holder(lease) == self.identity)
            && let Step::Write(lease) = step(&ours, since, Instant::now(), self.clock.now(), &self.identity)
        {
            match self.write(&lease).await {
                Ok(written) => return Ok(self.record_held(written)),
                Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let lease = match self.leases.get_opt(LEASE).await? {
            Some(found) => {
                let since = match &self.seen {
                    Some((known, since)) if known.spec == found.spec => *since,
                    _ => Instant::now(),
                };
                self.seen = Some((found.clone(), since));
                match step(&found, since, Instant::now(), self.clock.now(), &self.identity) {
                    Step::Write(lease) => *lease,
                    Step::Wait(holder) => return Ok(Holder::Other(holder)),
                }
            }
            None => {
                self.seen = None;
                new_lease(self.clock.now(), &self.identity)
            }
        };
        match self.write(&lease).await {
            Ok(written) => Ok(self.record_held(written)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Holder::Other("another operator".to_owned())),
            Err(error) => Err(error),
        }
    }

    fn record_held(&mut self, written: Lease) -> Holder {
        self.seen = Some((written, Instant::now()));
        Holder::Us
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        match lease.metadata.resource_version {
            Some(_) => self.leases.replace(LEASE, &PostParams::default(), lease).await,
            None => self.leases.create(&PostParams::default(), lease).await,
        }
    }
}

/// Returns the Lease to create where there is none.
fn new_lease(now: Timestamp, identity: &str) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(LEASE_DURATION_SECONDS),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    Lease { metadata: ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() }, spec: Some(spec) }
}

/// Decides to renew our own Lease, to take one that is free or expired, or to wait for its holder.
fn step(lease: &Lease, since: Instant, now: Instant, wall: Timestamp, identity: &str) -> Step {
    let held_by = holder(lease);
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
    if !held_by.is_empty() && held_by != identity && now < since + Duration::from_secs(seconds) {
        return Step::Wait(held_by.to_owned());
    }
    let renewal = held_by == identity;
    let spec = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(LEASE_DURATION_SECONDS),
        acquire_time: if renewal { spec.acquire_time.clone() } else { Some(MicroTime(wall)) },
        renew_time: Some(MicroTime(wall)),
        lease_transitions: Some(spec.lease_transitions.unwrap_or_default().saturating_add(i32::from(!renewal))),
        ..spec
    };
    Step::Write(Box::new(Lease { metadata: lease.metadata.clone(), spec: Some(spec) }))
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_free_expired_or_own_lease_is_written() {
        let seen = Instant::now();
        let wall = Timestamp::UNIX_EPOCH;
        let held = |by: &str, seconds| {
            let mut lease = new_lease(wall, by);
            if let Some(spec) = &mut lease.spec {
                spec.lease_duration_seconds = Some(seconds);
            }
            lease
        };
        for (lease, after, expect) in [
            (held("b", 15), 14, None),
            (held("b", 15), 15, Some(1)),
            // Released by KubeRay, and held with another duration.
            (held("", 1), 0, Some(1)),
            (held("b", 60), 59, None),
            (held("a", 15), 3, Some(0)),
            (Lease::default(), 0, Some(1)),
        ] {
            let step = step(&lease, seen, seen + Duration::from_secs(after), wall, "a");
            let transitions = match step {
                Step::Write(lease) => {
                    assert_eq!(holder(&lease), "a");
                    lease.spec.and_then(|spec| spec.lease_transitions)
                }
                Step::Wait(holder) => {
                    assert_eq!(holder, "b");
                    None
                }
            };
            assert_eq!(transitions, expect, "{lease:?} after {after} s");
        }
    }
}
