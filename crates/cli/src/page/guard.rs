//! Decides which requests are answered at all, and what a browser may do with the answers.
//!
//! Every page in a browser can send requests to loopback, under any name that resolves to it. So the name in `Host` must be
//! one of ours, and a request that a page caused must come from this very origin. Dashboards of Ray run code of users; they
//! are served under names of their own, which makes them other origins.

use super::Page;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use std::sync::Arc;

use super::failure::Failure;

/// Refuses what other sites cause, hands dashboards over, and adds the headers that confine the page.
pub(super) async fn check(State(page): State<Arc<Page>>, request: Request<Body>, next: Next) -> Response {
    let headers = request.headers();
    if let Err(why) = page.access.guard.check_headers(headers) {
        return Failure::new(StatusCode::FORBIDDEN, why).into_response();
    }
    let host = text(headers, &header::HOST).to_owned();
    if let Some(dashboard) = page.dashboards.named(&host) {
        return dashboard.forward(request).await;
    }
    if let Err(why) = check_origin(request.method(), request.uri().path(), headers) {
        return Failure::new(StatusCode::FORBIDDEN, why).into_response();
    }
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = next.run(request).await;
    confine(response.headers_mut(), &host, is_api);
    response
}

/// Checks that a request comes from this page, or from a person who follows a link to it.
fn check_origin(method: &Method, path: &str, headers: &HeaderMap) -> Result<(), &'static str> {
    const REFUSED: &str = "pages of other origins may not use this one";
    if headers.contains_key(header::ORIGIN) {
        let origin = text(headers, &header::ORIGIN);
        let host = text(headers, &header::HOST);
        let own = ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
        if !own {
            return Err(REFUSED);
        }
    }
    let fetch = |name: &'static str| headers.get(name).and_then(|value| value.to_str().ok());
    match fetch("sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        // A link from elsewhere opens the page; it carries no secret.
        Some(_) => {
            let is_link = fetch("sec-fetch-mode") == Some("navigate") && fetch("sec-fetch-dest") == Some("document");
            if is_link && method == Method::GET && !path.starts_with("/api/") { Ok(()) } else { Err(REFUSED) }
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Adds the headers that keep the page from running, loading or sending anything that is not its own.
fn confine(headers: &mut HeaderMap, host: &str, is_api: bool) {
    // Browsers differ in whether 'self' covers WebSockets, so they are named.
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' ws://{host} \
         wss://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
        ("cache-control", if is_api { "no-store" } else { "no-cache" }),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_origin_and_links_are_answered() {
        let check = |method: &Method, path: &str, pairs: &[(&'static str, &'static str)], expect: bool| {
            let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("127.0.0.1:7265"))]);
            for (name, value) in pairs {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            assert_eq!(check_origin(method, path, &headers).is_ok(), expect, "{method} {path} {pairs:?}");
        };
        let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        check(&Method::GET, "/", &[], true);
        check(&Method::GET, "/", &link, true);
        check(&Method::POST, "/", &link, false);
        check(&Method::GET, "/api/session", &link, false);
        check(&Method::GET, "/api/live", &[("origin", "http://127.0.0.1:7265")], true);
        // Another port of the same machine, such as a dashboard, is another origin.
        check(&Method::GET, "/api/live", &[("origin", "http://127.0.0.1:8265")], false);
        check(&Method::GET, "/api/live", &[("origin", "null")], false);
        check(&Method::POST, "/api/act", &[("sec-fetch-site", "same-site")], false);
        check(&Method::GET, "/app.js", &[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "script")], false);
        check(&Method::POST, "/api/act", &[("sec-fetch-site", "same-origin")], true);
    }
}
