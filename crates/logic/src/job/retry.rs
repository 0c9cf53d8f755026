//! `spec.backoffLimit`: whether a failed RayJob gets another cluster and another try.
//!
//! KubeRay gives up when the dashboard has been unreachable for too long; here that is one more failure
//! like any other, because a job that is lost with its head is what retries are for. Only a passed
//! `activeDeadlineSeconds` is final, as it would have passed again.

use super::phase::reason;

/// Returns whether to try again after this many failures.
pub(super) fn tries_again(backoff_limit: Option<i32>, failures: i32, why: &str) -> bool {
    why != reason::DEADLINE_EXCEEDED && backoff_limit.is_some_and(|limit| failures <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_until_the_limit_is_used_up() {
        let check = |limit, failures, why, expect| assert_eq!(tries_again(limit, failures, why), expect, "{why}");
        check(None, 1, reason::APP_FAILED, false);
        check(Some(0), 1, reason::APP_FAILED, false);
        check(Some(1), 1, reason::APP_FAILED, true);
        check(Some(1), 2, reason::APP_FAILED, false);
        check(Some(2), 1, reason::SUBMISSION_FAILED, true);
        check(Some(2), 1, reason::PRE_RUNNING_DEADLINE_EXCEEDED, true);
        check(Some(2), 1, reason::TRANSITION_GRACE_EXCEEDED, true);
        check(Some(2), 1, reason::STATUS_CHECK_TIMEOUT, true);
        check(Some(2), 1, reason::DEADLINE_EXCEEDED, false);
        check(Some(i32::MAX), i32::MAX, reason::APP_FAILED, true);
    }
}
