//! Where requests and tokens go, and where they do not.

use super::*;
use crate::dashboard::jobs::tests::{client, endpoint};
use manta_testkit::FakeDashboard;
use serde_json::json;

/// Set in the process that runs with the variables of a proxy.
const BEHIND_PROXY: &str = "MANTA_TEST_BEHIND_PROXY";

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = FakeDashboard::start().await.unwrap();
    let location = format!("http://{}/api/jobs/train", other.address());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let redirect = axum::Router::new().fallback(move || async move { axum::response::Redirect::temporary(&location) });
    let server = tokio::spawn(async move { axum::serve(listener, redirect).await });
    let endpoint = DashboardEndpoint { address, token_secret: Some("token".to_owned()), ..endpoint(&other) };
    let response = client(Route::Direct).send(&endpoint, Method::GET, "/api/jobs/train", None).await.unwrap();
    assert_eq!(response.status, 307);
    assert_eq!(other.asked().len(), 0);
    server.abort();
}

#[tokio::test]
async fn a_deleted_cluster_takes_its_token_with_it() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let client = client(Route::Direct);
    let endpoint = DashboardEndpoint { token_secret: Some("token".to_owned()), ..endpoint(&dashboard) };
    client.send(&endpoint, Method::GET, "/api/version", None).await.unwrap();
    let cached = || match &client.tokens {
        Tokens::Secrets { cache, .. } => lock(cache).len(),
        Tokens::Fixed(_) => unreachable!("the client reads Secrets"),
    };
    assert_eq!(cached(), 1);
    client.forget_cluster("ns", "another");
    client.forget_cluster("other", "token");
    assert_eq!(cached(), 1);
    client.forget_cluster("ns", "token");
    assert_eq!(cached(), 0);
}

#[tokio::test(start_paused = true)]
async fn expired_tokens_are_dropped() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let client = client(Route::Direct);
    let Tokens::Secrets { cache, .. } = &client.tokens else { unreachable!("the client reads Secrets") };
    lock(cache).insert(("ns".to_owned(), "old".to_owned()), (Instant::now(), "x".to_owned()));
    tokio::time::advance(TOKEN_TTL).await;
    let endpoint = DashboardEndpoint { token_secret: Some("token".to_owned()), ..endpoint(&dashboard) };
    client.token(&endpoint).await.unwrap();
    assert_eq!(lock(cache).keys().cloned().collect::<Vec<_>>(), [("ns".to_owned(), "token".to_owned())]);
}

/// Not a test by itself: the process whose environment names a proxy.
#[tokio::test]
async fn child_behind_a_proxy() {
    if std::env::var_os(BEHIND_PROXY).is_none() {
        return;
    }
    let dashboard = FakeDashboard::start().await.unwrap();
    dashboard.set_job("train", &json!({"status": "RUNNING"}));
    let response = client(Route::Direct).send(&endpoint(&dashboard), Method::GET, "/api/jobs/train", None).await;
    assert_eq!(response.unwrap().status, 200);
    assert_eq!(dashboard.asked().len(), 1);
}

#[test]
fn proxy_variables_are_ignored() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "dashboard::client::tests::child_behind_a_proxy"]).env(BEHIND_PROXY, "1");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, &url);
    }
    let output = child.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    proxy.set_nonblocking(true).unwrap();
    assert_eq!(proxy.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody came to the proxy");
}
