//! The simulated Ray Serve of one head.

use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The applications that a head was asked to run, and since when.
pub(super) struct Serve {
    config: Value,
    since: Instant,
    starts_for: Duration,
    /// The version that answers until this one does: Serve replaces replicas one after the other.
    earlier: Option<String>,
}

impl Serve {
    /// Returns Serve with another configuration. Applications that stay the same run on.
    pub(super) fn configure(earlier: Option<&Self>, config: Value, starts_for: Duration) -> Self {
        let unchanged = earlier.filter(|earlier| earlier.config["applications"] == config["applications"]);
        match unchanged {
            Some(Self { since, starts_for, earlier, .. }) => {
                Self { config, since: *since, starts_for: *starts_for, earlier: earlier.clone() }
            }
            None => {
                let earlier = earlier.and_then(Self::answers).map(ToOwned::to_owned);
                Self { config, since: Instant::now(), starts_for, earlier }
            }
        }
    }

    /// Returns the version that answers requests: the import path of the first application.
    pub(super) fn answers(&self) -> Option<&str> {
        if self.is_running() { self.config["applications"][0]["import_path"].as_str() } else { self.earlier.as_deref() }
    }

    fn is_running(&self) -> bool {
        self.since.elapsed() >= self.starts_for
    }

    /// Returns what the dashboard shows.
    pub(super) fn details(&self) -> Value {
        let status = if self.is_running() { "RUNNING" } else { "DEPLOYING" };
        let deployment = if self.is_running() { "HEALTHY" } else { "UPDATING" };
        let applications: Map<String, Value> = self.config["applications"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|app| {
                let name = app["name"].as_str().unwrap_or_default().to_owned();
                let details = json!({
                    "name": name, "status": status, "message": "", "deployed_app_config": app,
                    "deployments": {"d": {"name": "d", "status": deployment, "message": ""}},
                });
                (name, details)
            })
            .collect();
        json!({"applications": applications})
    }
}
