//! Failures as the browser gets them: a status and one sentence.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;

/// Why a request was not carried out.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The request itself is wrong.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Adds what was created before it happened.
    pub(super) fn after(mut self, created: &[String]) -> Self {
        if !created.is_empty() {
            let _ = write!(self.message, ". These exist already: {}", created.join(", "));
        }
        self
    }

    /// Returns what the API server replied, with its status.
    pub(super) fn from_kube(what: &str, error: &kube::Error) -> Self {
        let message = sentence(error);
        match error {
            kube::Error::Api(status) => {
                let code = StatusCode::from_u16(status.code).ok().filter(|code| code.is_client_error());
                Self::new(code.unwrap_or(StatusCode::BAD_GATEWAY), format!("{what}: {message}"))
            }
            _ => Self::new(StatusCode::BAD_GATEWAY, format!("{what}: {message}")),
        }
    }
}

/// Returns the API server's own sentence, or why there is none.
pub(super) fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => status.reason.clone(),
        kube::Error::Api(status) => status.message.clone(),
        other => format!("no answer from the API server: {:#}", anyhow::anyhow!(other.to_string())),
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, format!("{error:#}"))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        with_json(self.status, &json!({"error": self.message}))
    }
}

/// A response with a JSON body.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        with_json(StatusCode::OK, &self.0)
    }
}

fn with_json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
