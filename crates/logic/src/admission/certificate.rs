//! When the operator makes a new certificate for its webhook.
//!
//! One that signed itself is its own authority: who trusts it must be told of its successor before that is served. So
//! the successor is kept together with the one before it, and both are trusted until that one has run out.

use jiff::{SignedDuration, Timestamp};

/// How long a certificate is good for.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How long before its end a new one is made: time enough to notice, and to try again, when that fails.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What is known of the certificate that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The hosts that it is good for.
    pub hosts: Vec<String>,
    pub expires: Timestamp,
}

/// Why a new certificate is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Due {
    #[error("there is none")]
    Missing,
    #[error("the webhook has other names now")]
    OtherHosts,
    #[error("the old one runs out soon")]
    RunsOut,
}

/// Whether a new certificate is needed for these hosts.
pub fn due(kept: Option<&Kept>, hosts: &[String], now: Timestamp) -> Option<Due> {
    match kept {
        None => Some(Due::Missing),
        Some(kept) if hosts.iter().any(|host| !kept.hosts.contains(host)) => Some(Due::OtherHosts),
        Some(kept) if now >= kept.expires - RENEW_BEFORE => Some(Due::RunsOut),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_in_time() {
        let made: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let kept = Kept { hosts: hosts(&["a.svc", "b.svc"]), expires: made + LIFETIME };
        let days = |days: i64| made + SignedDuration::from_hours(days * 24);
        for (given, wanted, now, expect) in [
            (None, hosts(&["a.svc"]), made, Some(Due::Missing)),
            (Some(&kept), hosts(&["a.svc"]), made, None),
            (Some(&kept), hosts(&["b.svc", "a.svc"]), days(59), None),
            (Some(&kept), hosts(&["a.svc"]), days(60), Some(Due::RunsOut)),
            (Some(&kept), hosts(&["a.svc"]), days(60) - SignedDuration::from_secs(1), None),
            // The operator was away for months.
            (Some(&kept), hosts(&["a.svc"]), days(200), Some(Due::RunsOut)),
            (Some(&kept), hosts(&["c.svc"]), made, Some(Due::OtherHosts)),
            // A clock that went back makes no certificate.
            (Some(&kept), hosts(&["a.svc"]), days(-5), None),
        ] {
            assert_eq!(due(given, &wanted, now), expect, "{wanted:?} at {now}");
        }
    }
}
