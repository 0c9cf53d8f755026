//! The Lease of the leader election, served without the rest of the API server: candidates ask for it every two seconds
//! of every world, which would be most of the requests.

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use tower::BoxError;

/// Serves one Lease, with the checks of versions that an election needs.
#[derive(Default)]
pub(crate) struct LeaseServer(Mutex<State>);

#[derive(Default)]
struct State {
    revision: u64,
    /// The Lease as it was last written, if it was.
    lease: Option<Bytes>,
}

impl LeaseServer {
    /// Replies to a request.
    pub(crate) fn reply(&self, method: &Method, body: &[u8]) -> Result<Response<Body>, BoxError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (method.as_str(), state.lease.clone()) {
            ("GET", Some(lease)) => Ok(Response::new(Body::from(lease))),
            ("GET" | "PUT", None) => crate::network::refused(404),
            ("POST", Some(_)) => crate::network::refused(409),
            ("POST", None) => state.write(serde_json::from_slice(body)?),
            _ => {
                let lease: Value = serde_json::from_slice(body)?;
                let version = lease["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
                if version == Some(state.revision) { state.write(lease) } else { crate::network::refused(409) }
            }
        }
    }
}

impl State {
    fn write(&mut self, mut lease: Value) -> Result<Response<Body>, BoxError> {
        self.revision += 1;
        lease["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let lease = Bytes::from(lease.to_string());
        self.lease = Some(lease.clone());
        Ok(Response::new(Body::from(lease)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_version_is_replaced() {
        let server = LeaseServer::default();
        let check = |method: Method, version: Option<&str>, expect: u16| {
            let body = json!({"metadata": {"name": "lease", "resourceVersion": version}}).to_string();
            let response = server.reply(&method, body.as_bytes());
            let status = response.map(|response| response.status().as_u16());
            assert_eq!(status.ok(), Some(expect), "{method} {version:?}");
        };
        check(Method::GET, None, 404);
        check(Method::PUT, Some("1"), 404);
        check(Method::POST, None, 200);
        check(Method::POST, None, 409);
        check(Method::PUT, Some("1"), 200);
        check(Method::PUT, Some("1"), 409);
        check(Method::PUT, Some("2"), 200);
        check(Method::GET, None, 200);
    }
}
