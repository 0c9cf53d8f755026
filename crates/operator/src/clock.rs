//! What time it is.
//!
//! Decisions and pollers never ask the system themselves: a simulation that drives tokio's timers
//! also drives the date that plans see.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where the date and time come from.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// A date that moves with tokio's timers.
    Timers { start: Timestamp, since: Instant },
}

impl Clock {
    /// A clock that shows this date now and moves with tokio's timers, paused ones included.
    pub fn from_timers(start: Timestamp) -> Self {
        Self::Timers { start, since: Instant::now() }
    }

    /// The date and time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Timers { start, since } => {
                let passed = SignedDuration::try_from(since.elapsed()).unwrap_or(SignedDuration::MAX);
                start.checked_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_date_moves_with_the_timers() {
        let start: Timestamp = "2026-03-01T08:00:00Z".parse().unwrap();
        let clock = Clock::from_timers(start);
        assert_eq!(clock.now(), start);
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-03-01T08:01:30Z");
    }

    #[test]
    fn the_systems_clock_is_the_default() {
        let before = Timestamp::now();
        assert!(Clock::default().now() >= before);
    }
}
