//! What is polled about Serve on the clusters of a RayService, and what was last replied.
//!
//! Nothing here does I/O. A plan names what to poll ([`ServePoll`]); a poller of the operator asks dashboards and
//! proxies, outside of every pass, and its replies are part of the next [`Observed`](super::Observed).

use crate::dashboard::{DashboardEndpoint, RayRequest, RequestFailure, null_as_default};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// For this long a request that broke off may still take effect: kube-apiserver ends a request after a minute.
const TAKES_EFFECT: SignedDuration = SignedDuration::from_secs(60);

/// The clusters of one RayService to poll.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServePoll {
    pub clusters: Vec<ClusterPoll>,
}

/// What to ask of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterPoll {
    pub cluster: String,
    /// The dashboard, once the head is ready.
    pub dashboard: Option<DashboardEndpoint>,
    /// The head's Serve proxy, if its health matters.
    pub proxy: Option<Proxy>,
}

/// The Serve proxy of a head Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub namespace: String,
    pub pod: String,
    /// The Pod that the reply holds for.
    pub uid: String,
    pub ip: String,
    pub port: i32,
}

/// A configuration for Serve.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredConfig {
    pub config: ServeConfig,
    /// What is sent, or why the text cannot be.
    pub body: Result<Value, String>,
    /// Whether to send it again when Serve has no applications at all, as after the loss of a head.
    pub resend_when_lost: bool,
}

/// The identity of a configuration: its source text and the capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeConfig {
    pub text: String,
    /// `target_capacity`, where an upgrade sets it.
    pub capacity: Option<i32>,
}

/// What is known of all clusters of a RayService, by their names.
///
/// A restart of the operator loses it. Polling brings the applications back, and a configuration is sent again,
/// which changes nothing at Serve.
pub type ServeState = BTreeMap<String, ClusterState>;

/// What is known of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterState {
    /// The last reply about the applications, younger than the last configuration.
    pub last_reply: Option<ServeReply>,
    /// The configuration that Serve last accepted.
    pub submitted: Option<ServeConfig>,
    /// The last attempt to submit one.
    pub attempt: Option<ConfigAttempt>,
    /// The configurations in requests of which it is not known whether Ray saw them, and when the last of each failed.
    pub broken: Vec<(ServeConfig, Timestamp)>,
    /// The configuration that Ray itself refused last, unless it has accepted one since.
    pub refused: Option<RefusedConfig>,
    /// Whether the proxy of the Pod with this UID is healthy, if that is known.
    pub proxy: Option<(String, bool)>,
    /// Since when all applications have been running.
    pub running_since: Option<Timestamp>,
}

/// A reply, or that there was none.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeReply {
    pub at: Timestamp,
    /// The error message.
    pub answer: Result<Details, String>,
}

/// An attempt to submit a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigAttempt {
    pub at: Timestamp,
    pub result: Result<(), RequestFailure>,
}

/// A configuration that Ray refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedConfig {
    pub config: ServeConfig,
    /// Ray's reason.
    pub why: String,
}

/// What one round of polling a cluster brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterReply {
    /// The dashboard's reply; nothing if the head is not ready.
    pub serve: Option<ServeReply>,
    /// Whether the proxy of the Pod with this UID is healthy, if that is known.
    pub proxy: Option<(String, bool)>,
}

/// Serve as its API shows it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Details {
    #[serde(deserialize_with = "null_as_default")]
    pub applications: BTreeMap<String, Application>,
    /// The capacity of the configuration that it has, in percent; older versions of Ray do not show it.
    pub target_capacity: Option<f64>,
}

/// An application.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Application {
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    #[serde(deserialize_with = "null_as_default")]
    pub message: String,
    #[serde(deserialize_with = "null_as_default")]
    pub deployments: BTreeMap<String, Deployment>,
    /// The part of the configuration that it was made from.
    pub deployed_app_config: Option<Value>,
}

/// A deployment of an application.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Deployment {
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    #[serde(deserialize_with = "null_as_default")]
    pub message: String,
}

impl Details {
    /// Returns whether there are applications and all of them run.
    pub fn is_running(&self) -> bool {
        !self.applications.is_empty() && self.applications.values().all(|app| app.status == "RUNNING")
    }
}

impl ClusterState {
    /// Returns the applications, if the last reply was about them.
    pub fn details(&self) -> Option<&Details> {
        self.last_reply.as_ref().and_then(|reply| reply.answer.as_ref().ok())
    }

    /// Returns whether the last reply came from a Serve that has another capacity than the one submitted last: a dashboard that
    /// is behind, or that of an earlier head.
    pub fn shows_another_capacity(&self) -> bool {
        let submitted = self.submitted.as_ref().and_then(|submitted| submitted.capacity);
        let shown = self.details().and_then(|details| details.target_capacity);
        submitted.zip(shown).is_some_and(|(submitted, shown)| f64::from(submitted) != shown)
    }

    /// Returns when no request can any more put another configuration in place of the one that Serve accepted last, if one
    /// may have done so.
    pub fn confirm_at(&self) -> Option<Timestamp> {
        let submitted = self.submitted.as_ref()?;
        let others = self.broken.iter().filter(|(broken, _)| broken != submitted);
        others.map(|(_, at)| *at + TAKES_EFFECT).max()
    }

    /// Records the replies of a polling round. Returns whether they differ from the ones before.
    pub fn observe(&mut self, reply: ClusterReply) -> bool {
        let before = (self.last_reply.take().map(|reply| reply.answer), self.running_since, self.proxy.take());
        let running = reply.serve.as_ref().filter(|reply| reply.answer.as_ref().is_ok_and(Details::is_running));
        self.running_since = running.map(|reply| self.running_since.unwrap_or(reply.at));
        self.last_reply = reply.serve;
        self.proxy = reply.proxy;
        let answer = self.last_reply.as_ref().map(|reply| &reply.answer);
        (before.0.as_ref(), before.1, &before.2) != (answer, self.running_since, &self.proxy)
    }

    /// Records the result of a request.
    pub fn record(&mut self, request: &RayRequest, result: &Result<(), RequestFailure>, now: Timestamp) {
        let RayRequest::ConfigureServe { config, .. } = request else { return };
        self.attempt = Some(ConfigAttempt { at: now, result: result.clone() });
        match result {
            Ok(()) => {
                self.submitted = Some(config.clone());
                self.refused = None;
                // What took effect meanwhile is replaced by this one.
                self.broken.retain(|(_, at)| now < *at + TAKES_EFFECT);
                // Replies from before the submission are out of date.
                self.last_reply = None;
            }
            // A request that was lost on its way leaves what Ray said before.
            Err(RequestFailure { refusal: None, .. }) => {
                self.broken.retain(|(broken, _)| broken != config);
                self.broken.push((config.clone(), now));
            }
            Err(RequestFailure { refusal: Some(why), .. }) => {
                self.refused = Some(RefusedConfig { config: config.clone(), why: why.clone() });
            }
        }
    }
}

impl DesiredConfig {
    /// Returns whether it has to be sent, given what is known.
    pub fn is_due(&self, known: &ClusterState) -> bool {
        let lost = known.details().is_some_and(|details| details.applications.is_empty());
        known.submitted.as_ref() != Some(&self.config) || (self.resend_when_lost && lost)
    }
}

/// Returns the text for a failure to read the applications.
pub fn read_failure(error: &str) -> String {
    format!(
        "failed to get Serve application statuses from the dashboard. If you observe this error consistently, please \
         check https://docs.ray.io/en/latest/cluster/kubernetes/troubleshooting/rayservice-troubleshooting.html for \
         more details. err: {error}"
    )
}

/// Returns the text for a failure to submit a configuration.
pub fn submit_failure(error: &str) -> String {
    format!(
        "fail to create / update Serve applications. If you observe this error consistently, please check \"Issue 5: \
         Fail to create / update Serve applications.\" in \
         https://docs.ray.io/en/master/cluster/kubernetes/troubleshooting/rayservice-troubleshooting.html#kuberay-\
         raysvc-troubleshoot for more details. err: {error}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(text: &str) -> Details {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn running_means_every_application_and_at_least_one() {
        let check = |text: &str, expect: bool| assert_eq!(details(text).is_running(), expect, "{text}");
        check("{}", false);
        check(r#"{"applications": null}"#, false);
        check(r#"{"applications": {"a": {"status": "DEPLOYING"}}}"#, false);
        check(r#"{"applications": {"a": {"status": "UNHEALTHY"}}}"#, false);
        check(r#"{"applications": {"a": {"status": "DEPLOY_FAILED"}}}"#, false);
        check(r#"{"applications": {"a": {"status": "RUNNING"}, "b": {"status": "DEPLOYING"}}}"#, false);
        check(r#"{"applications": {"a": {"status": "RUNNING", "deployments": {"d": {"status": "UNHEALTHY"}}}}}"#, true);
    }

    #[test]
    fn a_reply_with_another_capacity_is_not_about_the_last_submission() {
        let check = |submitted: Option<i32>, shown: &str, expect: bool| {
            let last_reply = Some(ServeReply { at: Timestamp::UNIX_EPOCH, answer: Ok(details(shown)) });
            let submitted = Some(ServeConfig { text: "a".to_owned(), capacity: submitted });
            let known = ClusterState { submitted, last_reply, ..ClusterState::default() };
            assert_eq!(known.shows_another_capacity(), expect, "{shown}");
        };
        check(Some(50), r#"{"target_capacity": 50.0}"#, false);
        check(Some(50), r#"{"target_capacity": 20.0}"#, true);
        check(Some(50), r#"{"target_capacity": null}"#, false);
        check(Some(50), "{}", false);
        check(None, r#"{"target_capacity": 20.0}"#, false);
    }

    #[test]
    fn a_configuration_is_due_when_it_is_new_or_lost() {
        let config = |text: &str| ServeConfig { text: text.to_owned(), capacity: None };
        let put = DesiredConfig { config: config("a"), body: Ok(Value::Null), resend_when_lost: true };
        let check = |submitted: Option<&str>, apps: &str, expect: bool| {
            let last_reply = Some(ServeReply { at: Timestamp::UNIX_EPOCH, answer: Ok(details(apps)) });
            let known = ClusterState { submitted: submitted.map(config), last_reply, ..ClusterState::default() };
            assert_eq!(put.is_due(&known), expect, "{submitted:?} {apps}");
        };
        let some = r#"{"applications": {"a": {"status": "RUNNING"}}}"#;
        check(None, "{}", true);
        check(Some("a"), some, false);
        check(Some("b"), some, true);
        check(Some("a"), "{}", true);
        check(None, some, true);
        let empty = DesiredConfig { resend_when_lost: false, ..put.clone() };
        let known = ClusterState { submitted: Some(config("a")), ..ClusterState::default() };
        assert!(!empty.is_due(&known), "an empty configuration is sent once");
    }

    #[test]
    fn a_configuration_is_confirmed_when_no_other_can_take_effect_any_more() {
        let mut known = ClusterState::default();
        let mut put = |text: &str, lost: bool, second: i64| {
            let config = ServeConfig { text: text.to_owned(), capacity: None };
            let request = RayRequest::ConfigureServe { config, body: Value::Null };
            let result = if lost { Err(RequestFailure::from("connection reset".to_owned())) } else { Ok(()) };
            known.record(&request, &result, Timestamp::from_second(second).unwrap());
            known.confirm_at().map(Timestamp::as_second)
        };
        assert_eq!(put("a", true, 0), None);
        assert_eq!(put("a", false, 3), None, "the same again changes nothing");
        assert_eq!(put("b", false, 10), Some(60), "a may still take effect");
        assert_eq!(put("b", true, 60), Some(60));
        assert_eq!(put("b", false, 63), None);
    }
}
