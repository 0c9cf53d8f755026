//! What Ray's dashboards are asked to do, and where they are.

use crate::service::dashboard::ServeConfig;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Where a dashboard is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardEndpoint {
    pub namespace: String,
    /// Host and port, without scheme.
    pub address: String,
    /// The head Service, for the way through the API server's proxy.
    pub service: String,
    /// The Secret with the token in its key `auth_token`, if the cluster asks for one.
    pub token_secret: Option<String>,
}

/// A request that changes something at Ray. All of them may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum RayRequest {
    /// Submits a job with this body; one that Ray knows by its id counts as submitted.
    SubmitJob { job_id: String, body: Value },
    /// Stops a job; one that has ended, or that Ray does not know, counts as stopped.
    StopJob { job_id: String },
    /// Gives Serve a configuration.
    ConfigureServe { config: ServeConfig, body: Value },
}

/// Why a request that changes something at Ray failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    /// The whole error message.
    pub text: String,
    /// Ray's reason, if the request reached Ray and Ray itself refused it.
    pub refusal: Option<String>,
}

impl From<String> for RequestFailure {
    /// Returns a failure of which it is not known whether Ray saw the request at all.
    fn from(text: String) -> Self {
        Self { text, refusal: None }
    }
}

/// Reads null like an absent field.
pub(crate) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}
