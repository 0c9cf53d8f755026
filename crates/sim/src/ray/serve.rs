//! The simulated Ray Serve of one head.

use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The applications that a head was asked to run, and since when.
pub(super) struct Serve {
    config: Value,
    since: Instant,
    starts_for: Duration,
    /// What answers until this configuration does: Serve replaces replicas one after the other.
    earlier: Option<Answering>,
    /// When its head ended, since when nothing starts any more.
    ended: Option<Instant>,
}

/// What answers requests, and how much of the traffic it can take.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answering {
    /// The import path of the first application.
    pub(crate) version: String,
    /// In percent of what the whole cluster can take.
    pub(crate) capacity: i64,
}

impl Serve {
    /// Returns Serve with another configuration. Applications that stay the same run on.
    pub(super) fn configure(earlier: Option<&Self>, config: Value, starts_for: Duration) -> Self {
        let new = |earlier| Self { config: config.clone(), since: Instant::now(), starts_for, earlier, ended: None };
        let Some(earlier) = earlier else { return new(None) };
        let same = earlier.config["applications"] == config["applications"];
        if same && capacity(&config) <= capacity(&earlier.config) {
            let Self { since, starts_for, earlier, .. } = earlier;
            return Self { config, since: *since, starts_for: *starts_for, earlier: earlier.clone(), ended: None };
        }
        // More replicas have to start, or others. Those that are there answer until then.
        new(earlier.answering())
    }

    /// Ends, or goes on where it ended.
    pub(super) fn set_ended(&mut self, ended: bool) {
        self.ended = ended.then(Instant::now);
    }

    /// Returns what answers requests.
    pub(super) fn answering(&self) -> Option<Answering> {
        let asked = capacity(&self.config);
        let answering = if self.is_running() {
            let version = self.config["applications"][0]["import_path"].as_str();
            version.map(|version| Answering { version: version.to_owned(), capacity: asked })
        } else {
            let stays = |Answering { version, capacity }| Answering { version, capacity: capacity.min(asked) };
            self.earlier.clone().map(stays)
        };
        answering.filter(|answering| answering.capacity > 0)
    }

    fn is_running(&self) -> bool {
        self.ended.unwrap_or_else(Instant::now) - self.since >= self.starts_for
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
        json!({"applications": applications, "target_capacity": self.config["target_capacity"]})
    }
}

fn capacity(config: &Value) -> i64 {
    config["target_capacity"].as_i64().unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_once_the_head_has_ended() {
        let config = json!({"applications": [{"name": "app", "import_path": "app:v1"}]});
        let mut serve = Serve::configure(None, config, Duration::from_secs(5));
        serve.set_ended(true);
        advance(Duration::from_secs(60)).await;
        assert_eq!((serve.answering(), &serve.details()["applications"]["app"]["status"]), (None, &json!("DEPLOYING")));
        serve.set_ended(false);
        assert!(serve.answering().is_some());
    }
}
