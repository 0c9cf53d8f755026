//! A concurrency limit that slow work cannot starve.
//!
//! Passes and writes are bounded because each costs memory. A bound alone would let a few that hang, behind a slow
//! webhook say, stop all others; so work that takes longer than [`PATIENCE`] trades its permit for one of a second,
//! larger set. Up to [`SLOW`] more than the limit can therefore be under way at once; slow work beyond that keeps its permit.

use crate::lock::lock;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long work may keep its permit from others.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much more work may be slow at the same time.
const SLOW: usize = 256;

/// Permits that are handed out in order of arrival.
pub(crate) struct ConcurrencyLimit {
    permits: Permits,
    slow: Arc<Semaphore>,
    size: Mutex<usize>,
}

/// One permit, free again when it is dropped.
pub(crate) struct Permit {
    held: Mutex<Option<Held>>,
    permits: Permits,
    slow: Arc<Semaphore>,
}

/// A set of permits whose size changes.
#[derive(Clone)]
struct Permits {
    semaphore: Arc<Semaphore>,
    /// How many permits that are held will not be handed out again, because there are fewer by now.
    surplus: Arc<AtomicUsize>,
}

enum Held {
    Usual { permit: Option<OwnedSemaphorePermit>, surplus: Arc<AtomicUsize> },
    Slow { _permit: OwnedSemaphorePermit },
}

impl Permits {
    async fn acquire(&self) -> Held {
        // The semaphore is never closed, so there always is a permit.
        let permit = Arc::clone(&self.semaphore).acquire_owned().await.ok();
        Held::Usual { permit, surplus: Arc::clone(&self.surplus) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Self::Usual { permit, surplus } = self else { return };
        if take_from(surplus, 1) == 1
            && let Some(permit) = permit.take()
        {
            permit.forget();
        }
    }
}

/// Reduces a number by up to `most`. Returns by how much.
fn take_from(number: &AtomicUsize, most: usize) -> usize {
    let fewer = |number: usize| Some(number.saturating_sub(most));
    number.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).map_or(0, |before| before.min(most))
}

impl ConcurrencyLimit {
    pub(crate) fn new(permits: usize) -> Self {
        Self::with_slow(permits, SLOW)
    }

    fn with_slow(permits: usize, slow: usize) -> Self {
        let usual = Permits { semaphore: Arc::new(Semaphore::new(permits)), surplus: Arc::default() };
        Self { permits: usual, slow: Arc::new(Semaphore::new(slow)), size: Mutex::new(permits) }
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> Permit {
        let held = self.permits.acquire().await;
        Permit { held: Mutex::new(Some(held)), permits: self.permits.clone(), slow: Arc::clone(&self.slow) }
    }

    /// Returns whether all permits are in use.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.permits.semaphore.available_permits() == 0
    }

    /// Changes how many permits there are; those in use stay valid.
    pub(crate) fn resize(&self, size: usize) {
        let Permits { semaphore, surplus } = &self.permits;
        let mut before = lock(&self.size);
        let (more, fewer) = (size.saturating_sub(*before), before.saturating_sub(size));
        semaphore.add_permits(more - take_from(surplus, more));
        surplus.fetch_add(fewer - semaphore.forget_permits(fewer), Ordering::AcqRel);
        *before = size;
    }
}

impl Permit {
    /// Does the work, and gives the permit back to others once it is slow.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(done) = timeout(PATIENCE, &mut work).await {
            return done;
        }
        if let Ok(slow) = Arc::clone(&self.slow).try_acquire_owned() {
            *lock(&self.held) = Some(Held::Slow { _permit: slow });
        }
        let done = work.await;
        lock(&self.held).take();
        done
    }

    /// Gives the permit back while waiting for something that has a limit of its own.
    pub(crate) async fn released<T>(&self, wait: impl Future<Output = T>) -> T {
        lock(&self.held).take();
        let done = wait.await;
        let again = self.permits.acquire().await;
        *lock(&self.held) = Some(again);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::future::{pending, ready};

    fn hang(permit: Permit) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { permit.run(pending::<()>()).await })
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_hangs_gives_its_permit_back() {
        let limit = ConcurrencyLimit::with_slow(1, 1);
        let hung = hang(limit.acquire().await);
        let second = timeout(PATIENCE * 10, limit.acquire()).await.expect("the first is slow by now");
        assert!(limit.acquire().now_or_never().is_none(), "there is one permit, and the second has it");
        assert_eq!(second.run(ready(2)).await, 2);
        drop(second);
        assert!(limit.acquire().now_or_never().is_some());
        hung.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_is_bounded_too() {
        let limit = ConcurrencyLimit::with_slow(1, 1);
        let first = hang(limit.acquire().await);
        let second = timeout(PATIENCE * 10, limit.acquire()).await.expect("the first is slow by now");
        let second = hang(second);
        let third = timeout(PATIENCE * 10, limit.acquire()).await;
        assert!(third.is_err(), "one is slow, one keeps the permit");
        first.abort();
        second.abort();
        timeout(PATIENCE, limit.acquire()).await.expect("both are gone").run(ready(())).await;
    }

    #[tokio::test]
    async fn the_number_of_permits_changes_while_some_are_in_use() {
        let limit = ConcurrencyLimit::with_slow(3, 0);
        let mut held = Vec::new();
        let acquire = |held: &mut Vec<Permit>| {
            let before = held.len();
            held.extend(std::iter::from_fn(|| limit.acquire().now_or_never()));
            held.len() - before
        };
        assert_eq!(acquire(&mut held), 3);
        limit.resize(1);
        held.truncate(1);
        assert_eq!(acquire(&mut held), 0, "two are gone");
        limit.resize(4);
        assert_eq!((acquire(&mut held), limit.is_exhausted()), (3, true));
        limit.resize(2);
        limit.resize(3);
        held.truncate(1);
        assert_eq!(acquire(&mut held), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_is_free_while_its_work_waits_elsewhere() {
        let limit = ConcurrencyLimit::with_slow(1, 0);
        let first = limit.acquire().await;
        let waiting = first.released(async { timeout(PATIENCE, limit.acquire()).await.expect("it is free") });
        drop(waiting.now_or_never());
        let second = first.released(limit.acquire()).now_or_never();
        assert!(second.is_none(), "the second holds the permit that the first wants back");
    }
}
