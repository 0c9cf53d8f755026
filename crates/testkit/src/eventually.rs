//! Waiting for what will come about, with an end.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

/// How long something may take on a busy machine. What works takes a fraction of it.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// Asks until the answer is a good one. A bad answer says what was seen, and the last one is told if none was good in
/// time.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = tokio::time::timeout(PATIENCE, ask()).await;
        let answer = answer.with_context(|| format!("{what}: no answer within {} s", PATIENCE.as_secs()))?;
        match answer {
            Ok(found) => return Ok(found),
            Err(seen) if Instant::now() > end => {
                return Err(seen.context(format!("{what}: not within {} s", PATIENCE.as_secs())));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Waits for something that comes to its end by itself.
pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> Result<T> {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.with_context(|| format!("{what}: not within {} s", PATIENCE.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_thing_seen_is_told() {
        let mut asked = 0;
        let answer = eventually("four", async || {
            asked += 1;
            anyhow::ensure!(asked == 4, "seen {asked}");
            Ok(asked)
        });
        assert_eq!(answer.await.unwrap(), 4);

        let never = eventually("five", async || anyhow::bail!("seen four") as Result<()>);
        assert_eq!(format!("{:#}", never.await.unwrap_err()), "five: not within 120 s: seen four");
        let silent = eventually("an answer", async || std::future::pending::<Result<()>>().await);
        assert_eq!(
            format!("{:#}", silent.await.unwrap_err()),
            "an answer: no answer within 120 s: deadline has elapsed"
        );
        let stuck = within("the end", std::future::pending::<()>());
        assert_eq!(format!("{:#}", stuck.await.unwrap_err()), "the end: not within 120 s: deadline has elapsed");
    }
}
