//! Tells the followers of a table that it changed, in the order in which they began to wait.
//!
//! tokio's `watch` wakes its receivers in random order, so a simulation would differ from run to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The sending side.
#[derive(Default)]
pub(super) struct Signal(Arc<Shared>);

#[derive(Default)]
struct Shared {
    changes: AtomicU64,
    waiting: Notify,
}

/// The receiving side of one follower.
pub(super) struct Listener {
    shared: Arc<Shared>,
    seen: u64,
}

impl Signal {
    /// Wakes everyone who waits, and everyone who is about to.
    pub(super) fn notify(&self) {
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        self.0.waiting.notify_waiters();
    }

    /// Returns a listener for the changes from now on.
    pub(super) fn subscribe(&self) -> Listener {
        Listener { shared: Arc::clone(&self.0), seen: self.0.changes.load(Ordering::Acquire) }
    }
}

impl Listener {
    /// Waits for a change after the last one that was waited for.
    pub(super) async fn changed(&mut self) {
        loop {
            let notified = self.shared.waiting.notified();
            tokio::pin!(notified);
            // From here on no notification is missed.
            notified.as_mut().enable();
            let changes = self.shared.changes.load(Ordering::Acquire);
            if changes != self.seen {
                self.seen = changes;
                return;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn a_change_is_seen_once_before_or_while_waiting() {
        let signal = Signal::default();
        let mut listener = signal.subscribe();
        assert!(listener.changed().now_or_never().is_none());
        signal.notify();
        signal.notify();
        listener.changed().await;
        assert!(listener.changed().now_or_never().is_none(), "both changes were seen");
        let mut waiting = Box::pin(listener.changed());
        assert!(waiting.as_mut().now_or_never().is_none());
        signal.notify();
        waiting.await;
    }
}
