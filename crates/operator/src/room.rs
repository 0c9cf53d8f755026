//! Room for so many at once, in which slow ones hold up nobody.
//!
//! Passes and writes are bounded because each costs memory. A bound alone would let a few that hang, behind a slow
//! webhook say, stop all others; so what takes longer than [`PATIENCE`] leaves its place and goes on in overtime.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long something may keep its place from others.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many more may be slow at the same time.
const OVERTIME: usize = 256;

/// Places that are handed out in order of arrival.
pub(crate) struct Room {
    places: Arc<Semaphore>,
    overtime: Arc<Semaphore>,
}

/// One place, free again when it is dropped or its work is done.
pub(crate) struct Place {
    place: Option<OwnedSemaphorePermit>,
    overtime: Arc<Semaphore>,
}

impl Room {
    pub(crate) fn new(places: usize) -> Self {
        Self::with_overtime(places, OVERTIME)
    }

    fn with_overtime(places: usize, overtime: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), overtime: Arc::new(Semaphore::new(overtime)) }
    }

    pub(crate) async fn enter(&self) -> Place {
        // The semaphore is never closed, so there always is a permit.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        Place { place, overtime: Arc::clone(&self.overtime) }
    }
}

impl Place {
    /// Does the work here, as long as it does not keep others waiting.
    pub(crate) async fn work<T>(self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(done) = timeout(PATIENCE, &mut work).await {
            return done;
        }
        let Self { place, overtime } = self;
        let held = match overtime.try_acquire_owned() {
            Ok(overtime) => {
                drop(place);
                Some(overtime)
            }
            Err(_) => place,
        };
        let done = work.await;
        drop(held);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn what_hangs_leaves_its_place_to_others() {
        let room = Room::with_overtime(1, 1);
        let hung = tokio::spawn(room.enter().await.work(pending::<()>()));
        let second = timeout(PATIENCE * 10, room.enter()).await.expect("the first has left its place");
        assert!(room.enter().now_or_never().is_none(), "there is one place, and the second has it");
        assert_eq!(second.work(ready(2)).await, 2);
        assert!(room.enter().now_or_never().is_some(), "what is done is gone");
        hung.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn overtime_has_an_end() {
        let room = Room::with_overtime(1, 1);
        let first = tokio::spawn(room.enter().await.work(pending::<()>()));
        let second = timeout(PATIENCE * 10, room.enter()).await.expect("the first has left its place");
        let second = tokio::spawn(second.work(pending::<()>()));
        let third = timeout(PATIENCE * 10, room.enter()).await;
        assert!(third.is_err(), "one is in overtime, one keeps the place");
        first.abort();
        second.abort();
        timeout(PATIENCE, room.enter()).await.expect("both have left").work(ready(())).await;
    }
}
