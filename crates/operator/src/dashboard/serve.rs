//! Ray Serve: its applications and configuration, from the dashboard, and the health of its proxies.
//!
//! One task polls all clusters of a RayService concurrently.

use super::client::{Client, RequestError};
use super::jobs::{is_success, with_status};
use super::poller::{Poll, Round};
use futures::future::join_all;
use http::Method;
use jiff::Timestamp;
use manta_logic::dashboard::DashboardEndpoint;
use manta_logic::service::dashboard::{
    ClusterPoll, ClusterReply, Details, Proxy, ServePoll, ServeReply, ServeState, read_failure,
};
use serde_json::Value;

/// How many late replies in a row make a proxy unhealthy.
const LATE_REPLIES: usize = 3;

const APPLICATIONS: &str = "/api/serve/applications/";

/// Why a request to Serve failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("failed to get serve details: {0}")]
    DetailsRequest(#[source] RequestError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("failed to get serve details: GetServeDetails fail: {0}")]
    Details(String),
    #[error("failed to get serve details: GetServeDetails failed. Failed to unmarshal bytes: {0}")]
    InvalidDetails(String),
    #[error("UpdateDeployments fail: {0}")]
    Refused(String),
}

/// Returns the applications and their states.
pub async fn details(client: &Client, endpoint: &DashboardEndpoint) -> Result<Details, ServeError> {
    let path = format!("{APPLICATIONS}?api_type=declarative");
    let response = client.send(endpoint, Method::GET, &path, None).await.map_err(ServeError::DetailsRequest)?;
    if !is_success(response.status) {
        return Err(ServeError::Details(with_status(&response)));
    }
    serde_json::from_str(&response.body).map_err(|_| ServeError::InvalidDetails(response.body))
}

/// Submits a configuration to Serve.
pub async fn submit(client: &Client, endpoint: &DashboardEndpoint, body: &Value) -> Result<(), ServeError> {
    let response = client.send(endpoint, Method::PUT, APPLICATIONS, Some(body)).await?;
    if is_success(response.status) { Ok(()) } else { Err(ServeError::Refused(with_status(&response))) }
}

impl Poll for ServePoll {
    type State = ServeState;
    type Reply = Vec<ClusterReply>;

    /// The state is per cluster, so it stays valid when the set of clusters changes.
    fn is_about_the_same(&self, _: &Self) -> bool {
        true
    }

    fn is_urgent(&self, other: &Self) -> bool {
        self != other
    }

    fn fresher_than(&self) -> Option<Timestamp> {
        None
    }

    fn start(_: Timestamp) -> ServeState {
        ServeState::new()
    }

    async fn ask(&self, client: &Client) -> Vec<ClusterReply> {
        join_all(self.clusters.iter().map(|cluster| ask_cluster(client, cluster))).await
    }

    fn observe(&self, state: &mut ServeState, replies: Vec<ClusterReply>) -> Round {
        state.retain(|name, _| self.clusters.iter().any(|poll| poll.cluster == *name));
        let mut round = Round { reached: self.clusters.iter().all(|poll| poll.dashboard.is_none()), changed: false };
        for (poll, reply) in self.clusters.iter().zip(replies) {
            let known = state.entry(poll.cluster.clone()).or_default();
            let failed_before = known.last_reply.as_ref().is_some_and(|reply| reply.answer.is_err());
            round.changed |= known.observe(reply);
            match known.last_reply.as_ref().map(|reply| &reply.answer) {
                Some(Ok(_)) => round.reached = true,
                Some(Err(error)) if !failed_before => {
                    tracing::info!(cluster = poll.cluster, error, "dashboard did not reply");
                }
                _ => {}
            }
        }
        round
    }
}

async fn ask_cluster(client: &Client, poll: &ClusterPoll) -> ClusterReply {
    let proxy = async {
        let proxy = poll.proxy.as_ref()?;
        Some((proxy.uid.clone(), is_healthy(client, proxy).await))
    };
    let serve = async {
        let answer = details(client, poll.dashboard.as_ref()?).await.map_err(|error| read_failure(&error.to_string()));
        Some(ServeReply { at: client.now(), answer })
    };
    let (proxy, serve) = futures::join!(proxy, serve);
    ClusterReply { serve, proxy }
}

/// Returns whether a proxy is healthy. A reply that is late says that the proxy is busy, which is no reason to take it out
/// of the Service at once.
async fn is_healthy(client: &Client, proxy: &Proxy) -> bool {
    for _ in 0..LATE_REPLIES {
        match client.probe(proxy).await {
            Ok(status) => return status == 200,
            Err(RequestError::Timeout(_)) => {}
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests;
