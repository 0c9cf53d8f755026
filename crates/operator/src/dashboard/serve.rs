//! Ray Serve: applications and configuration at the dashboard, and the health of the proxies that take requests.
//!
//! One task follows all clusters of a RayService. Each round asks them side by side; a configuration that is due is
//! submitted right after the answer that shows it, and the answer after that is the one that counts.

use super::client::{Client, NoAnswer};
use super::jobs::{is_success, with_status};
use super::poller::{Round, Subject};
use futures::future::join_all;
use http::Method;
use jiff::Timestamp;
use manta_logic::job::dashboard::DashboardEndpoint;
use manta_logic::service::dashboard::{
    ClusterKnown, ClusterWatch, Details, Heard, Known, Put, Putting, Watch, read_failure, submit_failure,
};
use serde_json::Value;

const APPLICATIONS: &str = "/api/serve/applications/";

/// Why a request to Serve failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("failed to get serve details: {0}")]
    Unread(#[source] NoAnswer),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("failed to get serve details: GetServeDetails fail: {0}")]
    Details(String),
    #[error("failed to get serve details: GetServeDetails failed. Failed to unmarshal bytes: {0}")]
    NoDetails(String),
    #[error("UpdateDeployments fail: {0}")]
    Refused(String),
}

/// The applications and how they are.
pub async fn details(client: &Client, endpoint: &DashboardEndpoint) -> Result<Details, ServeError> {
    let path = format!("{APPLICATIONS}?api_type=declarative");
    let answered = client.send(endpoint, Method::GET, &path, None).await.map_err(ServeError::Unread)?;
    if !is_success(answered.status) {
        return Err(ServeError::Details(with_status(&answered)));
    }
    serde_json::from_str(&answered.body).map_err(|_| ServeError::NoDetails(answered.body))
}

/// Hands a configuration to Serve.
pub async fn submit(client: &Client, endpoint: &DashboardEndpoint, body: &Value) -> Result<(), ServeError> {
    let answered = client.send(endpoint, Method::PUT, APPLICATIONS, Some(body)).await?;
    if is_success(answered.status) { Ok(()) } else { Err(ServeError::Refused(with_status(&answered))) }
}

impl Subject for Watch {
    type Known = Known;

    /// What is known is kept by cluster, so that none of it is ever wrong.
    fn is_about_the_same(&self, _: &Self) -> bool {
        true
    }

    fn is_urgent(&self, other: &Self) -> bool {
        self != other
    }

    fn fresher_than(&self) -> Option<Timestamp> {
        None
    }

    fn start(_: Timestamp) -> Known {
        Known::new()
    }

    async fn ask(&self, client: &Client, mut known: Known) -> Round<Known> {
        let asked = self.clusters.iter().map(|cluster| {
            let known = known.remove(&cluster.cluster).unwrap_or_default();
            async move {
                let before = known.clone();
                let after = ask_cluster(client, cluster, known).await;
                (cluster.cluster.clone(), before, after)
            }
        });
        let (mut reached, mut news) = (self.clusters.iter().all(|cluster| cluster.dashboard.is_none()), false);
        let asked: Vec<(String, ClusterKnown, ClusterKnown)> = join_all(asked).await;
        let known = asked.into_iter().map(|(name, before, after)| {
            reached |= after.details().is_some();
            news |= says(&before) != says(&after);
            (name, after)
        });
        let known = known.collect();
        Round { known, reached, news, over: false }
    }
}

/// What is known, without the times at which it was heard and tried.
fn says(known: &ClusterKnown) -> ClusterKnown {
    let mut known = known.clone();
    if let Some(heard) = &mut known.heard {
        heard.at = Timestamp::UNIX_EPOCH;
    }
    if let Some(put) = &mut known.put {
        put.at = Timestamp::UNIX_EPOCH;
    }
    known
}

async fn ask_cluster(client: &Client, watch: &ClusterWatch, mut known: ClusterKnown) -> ClusterKnown {
    let health = async {
        let proxy = watch.proxy.as_ref()?;
        let answered = client.probe(proxy).await;
        Some((proxy.uid.clone(), answered.is_ok_and(|status| status == 200)))
    };
    let serve = async {
        let Some(dashboard) = &watch.dashboard else {
            known.lose_head();
            return;
        };
        hear(client, dashboard, &mut known, &watch.cluster).await;
        let due = |put: &&Put| known.details().is_some() && put.is_due(&known) && !is_known_to_be_bad(put, &known);
        if let Some(put) = watch.put.as_ref().filter(due) {
            send(client, dashboard, put, &mut known, &watch.cluster).await;
            hear(client, dashboard, &mut known, &watch.cluster).await;
        }
    };
    let (health, ()) = futures::join!(health, serve);
    known.proxy = health;
    known
}

/// Whether a text that cannot be sent has been told already.
fn is_known_to_be_bad(put: &Put, known: &ClusterKnown) -> bool {
    let told = known.put.as_ref().and_then(|put| put.result.as_ref().err());
    put.body.as_ref().err().is_some_and(|error| told == Some(error))
}

async fn hear(client: &Client, dashboard: &DashboardEndpoint, known: &mut ClusterKnown, cluster: &str) {
    let now = client.now();
    let answer = details(client, dashboard).await.map_err(|error| read_failure(&error.to_string()));
    let failed_before = known.heard.as_ref().is_some_and(|heard| heard.answer.is_err());
    if let (Err(error), false) = (&answer, failed_before) {
        tracing::info!(cluster, address = dashboard.address, error, "a dashboard gave no answer");
    }
    let running = answer.as_ref().is_ok_and(Details::is_running);
    known.running_since = running.then(|| known.running_since.unwrap_or(now));
    known.heard = Some(Heard { at: now, answer });
}

async fn send(client: &Client, dashboard: &DashboardEndpoint, put: &Put, known: &mut ClusterKnown, cluster: &str) {
    let only_capacity = known
        .submitted
        .as_ref()
        .is_some_and(|before| before.text == put.config.text && before.capacity != put.config.capacity);
    let result = match &put.body {
        Ok(body) => submit(client, dashboard, body).await.map_err(|error| submit_failure(&error.to_string())),
        Err(error) => Err(error.clone()),
    };
    match &result {
        Ok(()) => {
            tracing::info!(cluster, capacity = put.config.capacity, "submitted a Serve configuration");
            known.submitted = Some(put.config.clone());
        }
        Err(error) => tracing::warn!(cluster, error, "a Serve configuration could not be submitted"),
    }
    known.put = Some(Putting { at: client.now(), only_capacity, result });
}

#[cfg(test)]
mod tests;
