//! Waiting with a timeout.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

/// The timeout; generous, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_mins(2);
/// The interval between two attempts.
const INTERVAL: Duration = Duration::from_millis(100);

/// Repeats `attempt` until it succeeds; after the timeout it returns the last error.
pub async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let result = tokio::time::timeout(TIMEOUT, attempt()).await;
        let result = result.with_context(|| format!("{what}: no result within {} s", TIMEOUT.as_secs()))?;
        match result {
            Ok(found) => return Ok(found),
            Err(seen) if Instant::now() > end => {
                return Err(seen.context(format!("{what}: not within {} s", TIMEOUT.as_secs())));
            }
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

/// Waits for a future, with the same timeout.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    let done = tokio::time::timeout(TIMEOUT, work).await;
    done.with_context(|| format!("{what}: not within {} s", TIMEOUT.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_error_is_returned_after_the_timeout() {
        let mut attempts = 0;
        let result = eventually("four", async || {
            attempts += 1;
            anyhow::ensure!(attempts == 4, "seen {attempts}");
            Ok(attempts)
        });
        assert_eq!(result.await.unwrap(), 4);

        let never = eventually("five", async || anyhow::bail!("seen four") as Result<()>);
        assert_eq!(format!("{:#}", never.await.unwrap_err()), "five: not within 120 s: seen four");
        let silent = eventually("a result", async || std::future::pending::<Result<()>>().await);
        assert_eq!(
            format!("{:#}", silent.await.unwrap_err()),
            "a result: no result within 120 s: deadline has elapsed"
        );
        let stuck = within("the end", std::future::pending::<()>());
        assert_eq!(format!("{:#}", stuck.await.unwrap_err()), "the end: not within 120 s: deadline has elapsed");
    }
}
