//! What a plan wants of the dashboards and Serve proxies of a RayService, and what they last said.
//!
//! Nothing here talks to anybody. A plan says what should hold ([`Watch`]: "this configuration is submitted"); a
//! poller of the operator asks and submits outside of every pass, and what it hears is part of the next
//! [`Observed`](super::Observed). A pass that is repeated, or an operator that is restarted, does no harm.

use crate::job::dashboard::DashboardEndpoint;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The clusters of one RayService to follow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watch {
    pub clusters: Vec<ClusterWatch>,
}

/// What to ask of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterWatch {
    pub cluster: String,
    /// The dashboard, once the head is ready.
    pub dashboard: Option<DashboardEndpoint>,
    /// The configuration that Serve should have; none leaves it alone.
    pub put: Option<Put>,
    /// The head's Serve proxy, if its health matters.
    pub proxy: Option<Proxy>,
}

/// A configuration for Serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    pub config: Config,
    /// What is sent, or why the text cannot be.
    pub body: Result<Value, String>,
    /// Whether to send it again when Serve has no applications at all, as after the loss of a head.
    pub again_when_lost: bool,
}

/// What configurations are told apart by: the text that they come from, and the capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub text: String,
    /// `target_capacity`, where an upgrade sets it.
    pub capacity: Option<i32>,
}

/// The Serve proxy of a head Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub namespace: String,
    pub pod: String,
    /// The Pod that the answer holds for.
    pub uid: String,
    pub ip: String,
    pub port: i32,
}

/// What is known of all clusters of a RayService, by their names.
pub type Known = BTreeMap<String, ClusterKnown>;

/// What is known of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterKnown {
    /// The last answer about the applications.
    pub heard: Option<Heard>,
    /// The configuration that Serve last accepted.
    pub submitted: Option<Config>,
    /// What came of the last try to submit.
    pub put: Option<Putting>,
    /// Whether the proxy of the Pod with this UID answers.
    pub proxy: Option<(String, bool)>,
    /// Since when all applications have been running.
    pub running_since: Option<Timestamp>,
}

/// An answer, or that there was none.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub at: Timestamp,
    /// The error says what went wrong.
    pub answer: Result<Details, String>,
}

/// A try to submit a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Putting {
    pub at: Timestamp,
    /// Whether only the capacity was new.
    pub only_capacity: bool,
    pub result: Result<(), String>,
}

/// Serve as its API shows it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Details {
    #[serde(deserialize_with = "null_as_default")]
    pub applications: BTreeMap<String, Application>,
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
    /// Whether there are applications and all of them run.
    pub fn is_running(&self) -> bool {
        !self.applications.is_empty() && self.applications.values().all(|app| app.status == "RUNNING")
    }
}

impl ClusterKnown {
    /// The head is not ready: what was heard holds no more, what was submitted may.
    pub fn lose_head(&mut self) {
        self.heard = None;
        self.running_since = None;
    }

    /// The applications as last heard, if the last answer was one.
    pub fn details(&self) -> Option<&Details> {
        self.heard.as_ref().and_then(|heard| heard.answer.as_ref().ok())
    }
}

impl Put {
    /// Whether it has to be sent, given what is known.
    pub fn is_due(&self, known: &ClusterKnown) -> bool {
        let lost = known.details().is_some_and(|details| details.applications.is_empty());
        known.submitted.as_ref() != Some(&self.config) || (self.again_when_lost && lost)
    }
}

/// How a failure to read the applications is told.
pub fn read_failure(error: &str) -> String {
    format!(
        "failed to get Serve application statuses from the dashboard. If you observe this error consistently, please \
         check https://docs.ray.io/en/latest/cluster/kubernetes/troubleshooting/rayservice-troubleshooting.html for \
         more details. err: {error}"
    )
}

/// How a failure to submit is told.
pub fn submit_failure(error: &str) -> String {
    format!(
        "fail to create / update Serve applications. If you observe this error consistently, please check \"Issue 5: \
         Fail to create / update Serve applications.\" in \
         https://docs.ray.io/en/master/cluster/kubernetes/troubleshooting/rayservice-troubleshooting.html#kuberay-\
         raysvc-troubleshoot for more details. err: {error}"
    )
}

fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(inner: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(inner)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(text: &str) -> Details {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn edge_22_running_means_every_application_and_at_least_one() {
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
    fn edge_23_what_is_submitted_when() {
        let config = |text: &str| Config { text: text.to_owned(), capacity: None };
        let put = Put { config: config("a"), body: Ok(Value::Null), again_when_lost: true };
        let check = |submitted: Option<&str>, apps: &str, expect: bool| {
            let heard = Heard { at: Timestamp::UNIX_EPOCH, answer: Ok(details(apps)) };
            let known =
                ClusterKnown { submitted: submitted.map(config), heard: Some(heard), ..ClusterKnown::default() };
            assert_eq!(put.is_due(&known), expect, "{submitted:?} {apps}");
        };
        let some = r#"{"applications": {"a": {"status": "RUNNING"}}}"#;
        check(None, "{}", true);
        check(Some("a"), some, false);
        check(Some("b"), some, true);
        check(Some("a"), "{}", true);
        check(None, some, true);
        let empty = Put { again_when_lost: false, ..put.clone() };
        let known = ClusterKnown { submitted: Some(config("a")), ..ClusterKnown::default() };
        assert!(!empty.is_due(&known), "an empty configuration is sent once");
    }
}
