//! The clock, and the time zone.
//!
//! Decisions and pollers never read the system clock directly, so that a simulation that drives tokio's timers also
//! drives the time that plans see.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The source of the current time.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// A time that advances with tokio's timers.
    Timers { start: Timestamp, since: Instant },
}

/// The time zone of schedules that name none.
#[derive(Clone, Debug, Default)]
pub enum LocalZone {
    /// The system's zone.
    #[default]
    System,
    /// This one, wherever the process runs.
    Fixed(TimeZone),
}

impl LocalZone {
    /// Returns the zone.
    pub(crate) fn get(&self) -> TimeZone {
        match self {
            Self::System => TimeZone::system(),
            Self::Fixed(zone) => zone.clone(),
        }
    }
}

impl Clock {
    /// Returns a clock that starts at this time and advances with tokio's timers, paused or not.
    pub fn from_timers(start: Timestamp) -> Self {
        Self::Timers { start, since: Instant::now() }
    }

    /// Returns a clock that is ahead of this one; the system's clock stays what it is.
    #[must_use]
    pub fn ahead(self, by: SignedDuration) -> Self {
        match self {
            Self::System => self,
            Self::Timers { start, since } => Self::Timers { start: start.checked_add(by).unwrap_or(start), since },
        }
    }

    /// Returns the current time.
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
    async fn a_simulated_clock_advances_with_the_timers() {
        let start: Timestamp = "2026-03-01T08:00:00Z".parse().unwrap();
        let clock = Clock::from_timers(start);
        assert_eq!(clock.now(), start);
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-03-01T08:01:30Z");
        assert_eq!(clock.ahead(SignedDuration::from_secs(-30)).now().to_string(), "2026-03-01T08:01:00Z");
    }

    #[test]
    fn the_system_clock_is_the_default() {
        let before = Timestamp::now();
        assert!(Clock::default().now() >= before);
    }
}
