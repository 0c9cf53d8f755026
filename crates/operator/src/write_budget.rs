//! The writes that may be under way at once: as many as the API server takes.
//!
//! The budget climbs while that makes the server finish more writes a second, and goes back when more of them only wait
//! longer. A server that puts requests off or fails halves it. Each write takes a connection, which costs memory, so
//! there is an upper bound, too: [`MOST`] writes, and beside them as many slow ones as the [`ConcurrencyLimit`] admits.

use crate::concurrency_limit::{ConcurrencyLimit, Permit};
use crate::lock::lock;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The budget of a start, and what it never falls below for mere slowness.
const USUAL: usize = 32;
/// The budget while a server refuses most requests.
const LEAST: usize = 4;
/// The largest budget. Slow writes give their permits back, so they do not count.
const MOST: usize = 128;
/// A step up is a quarter; it has to make this much more of the writes, or it is undone.
const WORTHWHILE: f64 = 1.1;
/// Refusals this close to each other are one sign of overload.
const ONE_SIGN: Duration = Duration::from_secs(1);

/// The wait before a write that the server put off is sent again: it doubles, and the longest is the last.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// Hands permits for writes out, in order of arrival.
pub(crate) struct WriteBudget {
    limit: ConcurrencyLimit,
    pace: Mutex<Pace>,
}

impl Default for WriteBudget {
    fn default() -> Self {
        Self { limit: ConcurrencyLimit::new(USUAL), pace: Mutex::new(Pace::new()) }
    }
}

impl WriteBudget {
    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> Permit {
        self.limit.acquire().await
    }

    /// Returns how many writes one object may have under way: half of all, so that others get through.
    pub(crate) fn share(&self) -> usize {
        (lock(&self.pace).size / 2).max(1)
    }

    /// Sends a write. The server answers code 429 before it does anything, so such a write is sent again: later, and
    /// without a permit meanwhile.
    pub(crate) async fn send<T, W: Future<Output = Result<T, kube::Error>>>(
        &self,
        permit: &Permit,
        write: impl Fn() -> W,
    ) -> Result<T, kube::Error> {
        let mut retries = Retries::default();
        loop {
            let start = Instant::now();
            let result = permit.run(write()).await;
            self.observe(&result, start.elapsed());
            match result.as_ref().err().and_then(|error| retries.wait_after(error)) {
                Some(wait) => permit.released(sleep(wait)).await,
                None => return result,
            }
        }
    }

    fn observe<T>(&self, result: &Result<T, kube::Error>, took: Duration) {
        let mut pace = lock(&self.pace);
        let size = match result {
            Err(error) if is_overload(error) => pace.refused(Instant::now()),
            _ => pace.answered(took, self.limit.is_exhausted()),
        };
        if let Some(size) = size {
            self.limit.resize(size);
        }
    }
}

/// When to send one request again that the server puts off.
pub(crate) struct Retries {
    next_wait: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { next_wait: FIRST_WAIT }
    }
}

impl Retries {
    /// Returns how long to wait before the request is sent again, if it was put off and not too often.
    pub(crate) fn wait_after(&mut self, error: &kube::Error) -> Option<Duration> {
        let kube::Error::Api(status) = error else { return None };
        if status.code != 429 || self.next_wait > LONGEST_WAIT {
            return None;
        }
        let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let wait = Duration::from_secs(asked.into()).clamp(self.next_wait, LONGEST_WAIT);
        self.next_wait *= 2;
        Some(wait)
    }
}

/// Returns whether an error says that the server has too much to do. A write that timed out in the server (504) does not:
/// one namespace's webhook may be slow.
fn is_overload(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 503),
        // Connections that break or time out.
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

/// Decides about the size of the budget.
struct Pace {
    size: usize,
    /// Writes that were answered at this size, and the time that they took together.
    answered: usize,
    took: Duration,
    /// Writes a second at the size before the last step up.
    rate_before: f64,
    /// The size to go back to if the last step up does not pay.
    size_before: usize,
    last_refusal: Option<Instant>,
}

impl Pace {
    fn new() -> Self {
        Self {
            size: USUAL,
            answered: 0,
            took: Duration::ZERO,
            rate_before: 0.0,
            size_before: USUAL,
            last_refusal: None,
        }
    }

    /// Takes an answer into account. Returns the new size, if it changes; unless writes wait, none is worth trying.
    fn answered(&mut self, took: Duration, others_wait: bool) -> Option<usize> {
        if !others_wait {
            return None;
        }
        self.answered += 1;
        self.took += took;
        // Two rounds, because what was under way at the last step was sent at another size.
        if self.answered < 2 * self.size {
            return None;
        }
        let mean = (self.took.as_secs_f64() / self.answered as f64).max(f64::MIN_POSITIVE);
        let rate = self.size as f64 / mean;
        if self.size < USUAL {
            // On the way back after refusals.
            return self.set(self.size + 1, 0.0);
        }
        if rate >= self.rate_before * WORTHWHILE {
            return self.set((self.size + self.size / 4).min(MOST), rate);
        }
        // What was gained is measured anew, because servers and their other clients change.
        self.set(self.size_before, 0.0)
    }

    fn refused(&mut self, now: Instant) -> Option<usize> {
        if self.last_refusal.is_some_and(|last| now.duration_since(last) < ONE_SIGN) {
            return None;
        }
        self.last_refusal = Some(now);
        self.set((self.size / 2).max(LEAST), 0.0)
    }

    fn set(&mut self, size: usize, rate: f64) -> Option<usize> {
        (self.answered, self.took, self.rate_before) = (0, Duration::ZERO, rate);
        if self.size == size {
            return None;
        }
        self.size_before = self.size.min(size);
        self.size = size;
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size after these many rounds of answers, each after a time that depends on the size.
    fn size_after(pace: &mut Pace, rounds: usize, latency: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut sizes = Vec::new();
        for _ in 0..rounds {
            for _ in 0..2 * pace.size {
                pace.answered(Duration::from_millis(latency(pace.size)), true);
            }
            sizes.push(pace.size);
        }
        sizes
    }

    #[test]
    fn the_budget_grows_while_the_server_finishes_more() {
        type Latency = fn(usize) -> u64;
        let check = |rounds: usize, latency: Latency, expect: &[usize]| {
            let sizes = size_after(&mut Pace::new(), rounds, latency);
            assert!(sizes.ends_with(expect), "{sizes:?}");
        };
        // More writes at once take no longer.
        check(7, |_| 10, &[40, 50, 62, 77, 96, 120, 128]);
        // They only wait longer.
        check(4, |size| size as u64, &[40, 32, 40, 32]);
        // The server has 64 at once, and others wait.
        check(9, |size| 1000 * size.max(64) as u64 / 64, &[62, 77, 62]);
    }

    #[test]
    fn the_budget_stays_while_it_is_not_used_up() {
        let mut pace = Pace::new();
        assert!((0..1000).all(|_| pace.answered(Duration::from_millis(1), false).is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_halve_the_budget_once_a_second() {
        let mut pace = Pace::new();
        let refusals = |pace: &mut Pace| (0..10).filter_map(|_| pace.refused(Instant::now())).collect::<Vec<_>>();
        for expect in [vec![16], vec![8], vec![4], vec![]] {
            assert_eq!(refusals(&mut pace), expect);
            tokio::time::advance(ONE_SIGN).await;
        }
        assert_eq!(size_after(&mut pace, 3, |_| 10), [5, 6, 7], "the way back is slow");
    }
}
