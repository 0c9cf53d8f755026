//! A concurrency limit that slow work cannot starve.
//!
//! Passes and writes are bounded because each costs memory. A bound alone would let a few that hang, behind a slow
//! webhook say, stop all others; so work that takes longer than [`PATIENCE`] trades its permit for one of a second,
//! larger set.

use crate::lock::lock;
use std::pin::pin;
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
    permits: Arc<Semaphore>,
    slow: Arc<Semaphore>,
}

/// One permit, free again when it is dropped.
pub(crate) struct Permit {
    held: Mutex<Option<OwnedSemaphorePermit>>,
    permits: Arc<Semaphore>,
    slow: Arc<Semaphore>,
}

impl ConcurrencyLimit {
    pub(crate) fn new(permits: usize) -> Self {
        Self::with_slow(permits, SLOW)
    }

    fn with_slow(permits: usize, slow: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits)), slow: Arc::new(Semaphore::new(slow)) }
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> Permit {
        // The semaphore is never closed, so there always is a permit.
        let held = Arc::clone(&self.permits).acquire_owned().await.ok();
        Permit { held: Mutex::new(held), permits: Arc::clone(&self.permits), slow: Arc::clone(&self.slow) }
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
            *lock(&self.held) = Some(slow);
        }
        let done = work.await;
        lock(&self.held).take();
        done
    }

    /// Gives the permit back while waiting for something that has a limit of its own.
    pub(crate) async fn released<T>(&self, wait: impl Future<Output = T>) -> T {
        lock(&self.held).take();
        let done = wait.await;
        let again = Arc::clone(&self.permits).acquire_owned().await.ok();
        *lock(&self.held) = again;
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
