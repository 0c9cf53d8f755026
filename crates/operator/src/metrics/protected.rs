//! `/metrics` for those only whom the API server allows to get it: a TokenReview and a SubjectAccessReview per token.

use crate::lock::lock;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// How long a token that may read metrics is not reviewed again.
const ALLOWED_TTL: Duration = Duration::from_secs(60);

/// The reviews of tokens, through the API server.
pub(crate) struct Reviews {
    client: Client,
    /// The tokens that may read metrics, with the time of their review.
    allowed: Mutex<HashMap<String, Instant>>,
}

impl Reviews {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client, allowed: Mutex::default() })
    }

    /// Returns the status to refuse a request with, if any.
    async fn refuse(&self, headers: &HeaderMap) -> Result<Option<StatusCode>, kube::Error> {
        let Some(token) = bearer_token(headers) else { return Ok(Some(StatusCode::UNAUTHORIZED)) };
        if lock(&self.allowed).get(token).is_some_and(|reviewed| reviewed.elapsed() < ALLOWED_TTL) {
            return Ok(None);
        }
        let Some(user) = self.authenticate(token).await? else { return Ok(Some(StatusCode::UNAUTHORIZED)) };
        if !self.may_read(user).await? {
            return Ok(Some(StatusCode::FORBIDDEN));
        }
        let mut allowed = lock(&self.allowed);
        allowed.retain(|_, reviewed| reviewed.elapsed() < ALLOWED_TTL);
        allowed.insert(token.to_owned(), Instant::now());
        Ok(None)
    }

    async fn authenticate(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = reviewed.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn may_read(&self, user: UserInfo) -> Result<bool, kube::Error> {
        let path = NonResourceAttributes { path: Some("/metrics".to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(path),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        Ok(reviewed.status.is_some_and(|status| status.allowed))
    }
}

/// Passes a request on if its token may read metrics.
pub(crate) async fn check(State(reviews): State<Arc<Reviews>>, request: Request, next: Next) -> Response {
    match reviews.refuse(request.headers()).await {
        Ok(None) => next.run(request).await,
        Ok(Some(status)) => status.into_response(),
        Err(error) => {
            warn!(%error, "cannot review a token for metrics");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::ServiceExt;

    /// An API server that knows the tokens `prometheus` and `somebody`, of users of the same names; it counts reviews.
    fn api(reviews: Arc<AtomicUsize>) -> Client {
        let handler = move |request: Request| {
            reviews.fetch_add(1, Ordering::Relaxed);
            async move {
                let path = request.uri().path().to_owned();
                let bytes = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
                let mut body: Value = serde_json::from_slice(&bytes).unwrap();
                let spec = body["spec"].clone();
                body["status"] = match path.as_str() {
                    "/apis/authentication.k8s.io/v1/tokenreviews" => match spec["token"].as_str() {
                        Some("broken") => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                        Some(token @ ("prometheus" | "somebody")) => {
                            json!({"authenticated": true, "user": {"username": token, "groups": ["g"]}})
                        }
                        _ => json!({"authenticated": false}),
                    },
                    "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                        assert_eq!(spec["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
                        assert_eq!(spec["groups"], json!(["g"]));
                        json!({"allowed": spec["user"] == "prometheus"})
                    }
                    other => panic!("{other}"),
                };
                (StatusCode::CREATED, body.to_string()).into_response()
            }
        };
        Client::new(Router::new().fallback(handler), "ns")
    }

    #[tokio::test(start_paused = true)]
    async fn only_those_who_may_get_metrics_read_them() {
        let counted = Arc::new(AtomicUsize::new(0));
        let layer = axum::middleware::from_fn_with_state(Reviews::new(api(Arc::clone(&counted))), check);
        let router = Router::new().route("/metrics", get(|| async { "metrics" })).layer(layer);
        let ask = |authorization: &str| {
            let request = Request::get("/metrics").header("authorization", authorization).body(Body::empty()).unwrap();
            let router = router.clone();
            async move { router.oneshot(request).await.unwrap().status().as_u16() }
        };
        for (authorization, expect) in [
            ("", 401),
            ("Bearer ", 401),
            ("Basic prometheus", 401),
            ("Bearer forged", 401),
            ("Bearer somebody", 403),
            ("Bearer broken", 503),
            ("Bearer prometheus", 200),
        ] {
            assert_eq!(ask(authorization).await, expect, "{authorization}");
        }
        let before = counted.load(Ordering::Relaxed);
        assert_eq!(ask("Bearer prometheus").await, 200);
        assert_eq!(counted.load(Ordering::Relaxed), before, "not reviewed again at once");
        tokio::time::advance(ALLOWED_TTL).await;
        assert_eq!(ask("Bearer prometheus").await, 200);
        assert_eq!(counted.load(Ordering::Relaxed), before + 2, "but after a minute");
    }
}
