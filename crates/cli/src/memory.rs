//! Gives memory back that a burst of work has freed: the start itself, a first kubectl, a new CRD.

use manta_agent::runtime::memory;
use std::time::Duration;

/// How often freed memory is given back to the system.
const INTERVAL: Duration = Duration::from_secs(10);

/// Gives freed memory back again and again; never returns.
pub(crate) async fn keep_releasing() {
    let mut tick = tokio::time::interval(INTERVAL);
    loop {
        tick.tick().await;
        memory::release_freed();
    }
}
