//! Renewal of the self-signed certificate of the webhook.
//!
//! A self-signed certificate is its own CA, so clients must trust a new one before it is served. The new certificate is
//! therefore stored together with the previous one, and both are trusted until the previous one has expired.

use jiff::{SignedDuration, Timestamp};

/// How long a certificate is valid.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How long before its expiry a certificate is renewed, which leaves time to notice and to retry a failure.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The properties of the stored certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// The host names that it is valid for.
    pub hosts: Vec<String>,
    pub expires: Timestamp,
}

/// The reason why a new certificate is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewalReason {
    #[error("there is no certificate")]
    Missing,
    #[error("the host names of the webhook have changed")]
    HostsChanged,
    #[error("the certificate expires soon")]
    ExpiresSoon,
}

/// Returns why a new certificate for these hosts is needed, if it is.
pub fn renewal_reason(stored: Option<&StoredCertificate>, hosts: &[String], now: Timestamp) -> Option<RenewalReason> {
    match stored {
        None => Some(RenewalReason::Missing),
        Some(stored) if hosts.iter().any(|host| !stored.hosts.contains(host)) => Some(RenewalReason::HostsChanged),
        Some(stored) if now >= stored.expires - RENEW_BEFORE => Some(RenewalReason::ExpiresSoon),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_in_time() {
        let made: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let stored = StoredCertificate { hosts: hosts(&["a.svc", "b.svc"]), expires: made + LIFETIME };
        let days = |days: i64| made + SignedDuration::from_hours(days * 24);
        for (given, wanted, now, expect) in [
            (None, hosts(&["a.svc"]), made, Some(RenewalReason::Missing)),
            (Some(&stored), hosts(&["a.svc"]), made, None),
            (Some(&stored), hosts(&["b.svc", "a.svc"]), days(59), None),
            (Some(&stored), hosts(&["a.svc"]), days(60), Some(RenewalReason::ExpiresSoon)),
            (Some(&stored), hosts(&["a.svc"]), days(60) - SignedDuration::from_secs(1), None),
            // The operator was down for months.
            (Some(&stored), hosts(&["a.svc"]), days(200), Some(RenewalReason::ExpiresSoon)),
            (Some(&stored), hosts(&["c.svc"]), made, Some(RenewalReason::HostsChanged)),
            // A clock that was set back does not renew the certificate.
            (Some(&stored), hosts(&["a.svc"]), days(-5), None),
        ] {
            assert_eq!(renewal_reason(given, &wanted, now), expect, "{wanted:?} at {now}");
        }
    }
}
