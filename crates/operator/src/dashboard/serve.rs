//! Ray Serve: its applications and configuration, from the dashboard, and the health of its proxies.
//!
//! One task polls all clusters of a RayService concurrently.

use super::client::{Client, RequestError, Response};
use super::jobs::{is_from_api_server, is_success, with_status};
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
    /// Ray itself refuses the configuration.
    #[error("UpdateDeployments fail: {0}")]
    Refused(String),
    /// An error that says nothing about the configuration.
    #[error("UpdateDeployments fail: {0}")]
    Unavailable(String),
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
    // The first configuration starts Serve's controller, which takes a few seconds on a busy machine.
    let response = client.patient().send(endpoint, Method::PUT, APPLICATIONS, Some(body)).await?;
    match with_status(&response) {
        _ if is_success(response.status) => Ok(()),
        text if is_refusal(&response) => Err(ServeError::Refused(text)),
        text => Err(ServeError::Unavailable(text)),
    }
}

/// Returns whether Ray refuses what it was sent. Errors of proxies, and those about the token or the load, say nothing
/// about it.
fn is_refusal(response: &Response) -> bool {
    let is_about_the_body =
        matches!(response.status, 400..=500) && ![401, 403, 407, 408, 429].contains(&response.status);
    is_about_the_body && !is_from_api_server(response)
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
        Some((proxy.uid.clone(), health(client, proxy).await?))
    };
    let serve = async {
        // While applications start, the head is busy: a late reply is worth more than another question.
        let answer = details(&client.lenient(), poll.dashboard.as_ref()?)
            .await
            .map_err(|error| read_failure(&error.to_string()));
        Some(ServeReply { at: client.now(), answer })
    };
    let (proxy, serve) = futures::join!(proxy, serve);
    ClusterReply { serve, proxy }
}

/// Returns whether a proxy is healthy, nothing if only the way to it has failed. A reply that is late says that the proxy is
/// busy, which is no reason to take it out of the Service at once.
async fn health(client: &Client, proxy: &Proxy) -> Option<bool> {
    for _ in 0..LATE_REPLIES {
        match client.probe(proxy).await {
            Ok(response) if is_trouble_on_the_way(&response) => return None,
            Ok(response) => return Some(response.status == 200),
            Err(RequestError::Timeout(_)) => {}
            // It is the API server that was not reached.
            Err(_) if !client.is_direct() => return None,
            Err(_) => return Some(false),
        }
    }
    Some(false)
}

/// Returns whether an error says nothing about the proxy that was asked: that of an API server, unless it could not reach the
/// proxy, or about the load.
fn is_trouble_on_the_way(response: &Response) -> bool {
    response.status == 429 || is_from_api_server(response) && ![502, 503].contains(&response.status)
}

#[cfg(test)]
mod tests;
