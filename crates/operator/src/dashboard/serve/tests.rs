//! Serve's API and proxies against a dashboard with injected faults.

use super::*;
use crate::dashboard::client::Route;
use crate::dashboard::jobs::tests::{client, endpoint};
use manta_testkit::{DashboardMode as Mode, FakeDashboard};
use serde_json::json;
use std::net::SocketAddr;

fn proxy(address: SocketAddr) -> Proxy {
    Proxy {
        namespace: "ns".into(),
        pod: "head".into(),
        uid: "u".into(),
        ip: address.ip().to_string(),
        port: address.port().into(),
    }
}

fn poll(dashboard: &FakeDashboard) -> ServePoll {
    let proxy = Some(proxy(dashboard.address()));
    let cluster = ClusterPoll { cluster: "c1".into(), dashboard: Some(endpoint(dashboard)), proxy };
    ServePoll { clusters: vec![cluster] }
}

/// One round, from what is known so far: whether the dashboard replied, and whether anything changed.
async fn round(poll: &ServePoll, state: &mut ServeState) -> (bool, bool) {
    let reply = poll.ask(&client(Route::Direct)).await;
    let round = poll.observe(state, reply);
    (round.reached, round.changed)
}

#[tokio::test]
async fn serve_may_take_longer_to_start_than_other_requests() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let (client, endpoint) = (client(Route::Direct), endpoint(&dashboard));
    dashboard.set_mode(Mode::Slow(std::time::Duration::from_millis(2100)));
    let config = json!({"applications": []});
    let (read, written) = futures::join!(details(&client, &endpoint), submit(&client, &endpoint, &config));
    assert_eq!(read.unwrap_err().to_string(), "failed to get serve details: no answer within 2 s");
    written.unwrap();
}

/// On a busy machine the dashboard takes longer to ask Serve's controller than others take to reply.
#[tokio::test]
async fn a_late_reply_about_applications_is_waited_for() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let (poll, mut state) = (poll(&dashboard), ServeState::new());
    let config = json!({"applications": [{"name": "a"}]});
    submit(&client(Route::Direct), &endpoint(&dashboard), &config).await.unwrap();
    dashboard.set_mode(Mode::Slow(std::time::Duration::from_millis(2100)));
    assert_eq!(round(&poll, &mut state).await, (true, true));
    assert_eq!(state["c1"].details().unwrap().applications.len(), 1);
}

#[tokio::test]
async fn unreadable_replies_are_errors_with_their_cause() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let (client, endpoint) = (client(Route::Direct), endpoint(&dashboard));
    let check = async |status: u16, body: &str, expect: &str| {
        dashboard.set_mode(Mode::Answers(status, body.to_owned()));
        let result = details(&client, &endpoint).await;
        let text =
            result.map_or_else(|error| error.to_string(), |details| format!("{} apps", details.applications.len()));
        assert_eq!(text, expect);
    };
    check(400, "bad", "failed to get serve details: GetServeDetails fail: 400 Bad Request bad").await;
    check(500, "oh", "failed to get serve details: GetServeDetails fail: 500 Internal Server Error oh").await;
    let html = "failed to get serve details: GetServeDetails failed. Failed to unmarshal bytes: <html>";
    check(200, "<html>", html).await;
    check(200, "{}", "0 apps").await;
    check(200, r#"{"applications": {"a": {"status": "RUNNING", "route_prefix": null}}}"#, "1 apps").await;
    let asked = dashboard.asked();
    assert!(asked.iter().all(|asked| asked.path.contains("api_type=declarative")), "{asked:?}");

    let nowhere = manta_logic::dashboard::DashboardEndpoint { address: "://x".to_owned(), ..endpoint.clone() };
    let error = details(&client, &nowhere).await.unwrap_err().to_string();
    assert!(error.starts_with("failed to get serve details: failed to parse dashboard URL: "), "{error}");
    dashboard.set_mode(Mode::Slow(std::time::Duration::from_secs(60)));
    let patient = crate::dashboard::Client::direct(None, std::time::Duration::from_millis(50));
    let error = details(&patient, &endpoint).await.unwrap_err();
    assert!(matches!(error, ServeError::DetailsRequest(RequestError::Timeout(_))), "the cause is preserved: {error:?}");
}

/// What a condition reports as Ray's refusal must be Ray's own words about the configuration.
#[tokio::test]
async fn a_refusal_is_what_ray_itself_says_about_the_config() {
    let mut dashboard = FakeDashboard::start().await.unwrap();
    let (client, endpoint) = (client(Route::Direct), endpoint(&dashboard));
    let check = async |status: u16, body: &str, is_refusal: bool| {
        dashboard.set_mode(Mode::RefusesWrites(status, body.to_owned()));
        let error = submit(&client, &endpoint, &json!({})).await.unwrap_err();
        assert_eq!(matches!(error, ServeError::Refused(_)), is_refusal, "{status} {body}: {error:?}");
        assert!(error.to_string().starts_with(&format!("UpdateDeployments fail: {status} ")), "{error}");
    };
    check(400, "1 validation error for ServeDeploySchema", true).await;
    check(404, "Not Found", true).await;
    check(422, "{\"detail\": []}", true).await;
    check(500, "Traceback (most recent call last)", true).await;
    // The token, the load, and proxies on the way.
    for status in [302, 401, 403, 407, 408, 429, 501, 502, 503, 504] {
        check(status, "", false).await;
    }
    let of_api_server = |code: u16| json!({"kind": "Status", "code": code, "message": "no"}).to_string();
    for code in [400, 403, 404, 500, 503] {
        check(code, &of_api_server(code), false).await;
    }

    let check = async || {
        // Without a connection from before.
        let error =
            submit(&crate::dashboard::Client::direct(None, std::time::Duration::from_secs(2)), &endpoint, &json!({}))
                .await
                .unwrap_err();
        assert!(matches!(error, ServeError::Request(_)), "{error:?}");
    };
    dashboard.set_mode(Mode::Broken);
    check().await;
    dashboard.kill().await;
    check().await;
}

#[tokio::test]
async fn requests_carry_the_token() {
    let dashboard = FakeDashboard::start().await.unwrap();
    dashboard.require_token("secret");
    let endpoint = endpoint(&dashboard);
    let with = |token: Option<&str>| {
        crate::dashboard::Client::direct(token.map(str::to_owned), std::time::Duration::from_secs(5))
    };
    let error = details(&with(None), &endpoint).await.unwrap_err().to_string();
    assert!(error.contains("GetServeDetails fail: 401 Unauthorized"), "{error}");
    submit(&with(Some("secret")), &endpoint, &json!({"applications": [{"name": "a"}]})).await.unwrap();
    assert_eq!(details(&with(Some("secret")), &endpoint).await.unwrap().applications.len(), 1);
    let sent = dashboard.asked().into_iter().filter_map(|asked| asked.authorization).collect::<Vec<_>>();
    assert_eq!(sent, ["Bearer secret", "Bearer secret"]);
}

#[tokio::test]
async fn applications_proxy_health_and_timeouts_are_observed() {
    let mut dashboard = FakeDashboard::start().await.unwrap();
    let (poll, mut state) = (poll(&dashboard), ServeState::new());
    let config = json!({"applications": [{"name": "a"}], "target_capacity": 50});
    submit(&client(Route::Direct), &endpoint(&dashboard), &config).await.unwrap();
    assert_eq!(round(&poll, &mut state).await, (true, true));
    assert_eq!(state["c1"].details().unwrap().applications.len(), 1);
    assert_eq!(state["c1"].proxy, Some(("u".into(), true)));
    assert_eq!(round(&poll, &mut state).await, (true, false), "nothing has changed");

    dashboard.set_proxy_healthy(false);
    assert_eq!(round(&poll, &mut state).await, (true, true));
    assert_eq!(state["c1"].proxy, Some(("u".into(), false)));

    dashboard.set_mode(Mode::Answers(500, "out of order".into()));
    let error = submit(&client(Route::Direct), &endpoint(&dashboard), &json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "UpdateDeployments fail: 500 Internal Server Error out of order");
    assert_eq!(dashboard.serve_config().unwrap()["target_capacity"], 50, "nothing was lost");

    dashboard.kill().await;
    assert_eq!(round(&poll, &mut state).await, (false, true));
    let error = state["c1"].last_reply.as_ref().unwrap().answer.as_ref().unwrap_err();
    assert!(error.starts_with("failed to get Serve application statuses from the dashboard."), "{error}");
}

#[tokio::test]
async fn a_proxy_that_replies_late_once_is_healthy() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = proxy(listener.local_addr().unwrap());
    let client = crate::dashboard::Client::direct(None, std::time::Duration::from_millis(300));
    let check = async |late: usize, expect: bool| {
        let serve = async {
            let mut waiting = Vec::new();
            for _ in 0..late {
                waiting.push(listener.accept().await.unwrap());
            }
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
            }
        };
        tokio::select! {
            never = serve => never,
            healthy = health(&client, &proxy) => assert_eq!(healthy, Some(expect), "after {late} late replies"),
        }
    };
    check(0, true).await;
    check(1, true).await;
    check(LATE_REPLIES, false).await;
}

/// The API server's own trouble must not take a head out of its Service.
#[tokio::test]
async fn an_error_of_the_api_server_says_nothing_about_a_proxy() {
    let check = async |code: u16, body: String, expect: Option<bool>| {
        let status = axum::http::StatusCode::from_u16(code).unwrap();
        let server = axum::Router::new().fallback(move || async move { (status, body) });
        let client = Client::new(kube::Client::new(server, "ns"), Route::ApiServerProxy);
        let proxy = proxy(SocketAddr::from(([10, 0, 0, 1], 8000)));
        assert_eq!(health(&client, &proxy).await, expect, "{code}");
    };
    let of_api_server = |code: u16| json!({"kind": "Status", "code": code, "message": "no"}).to_string();
    check(200, "success".to_owned(), Some(true)).await;
    check(503, "draining".to_owned(), Some(false)).await;
    check(429, "Too many requests, please try again later.".to_owned(), None).await;
    for code in [403, 429, 500, 504] {
        check(code, of_api_server(code), None).await;
    }
    // That is what it says of a Pod that refuses, Manta's own with the first one.
    for code in [502, 503] {
        check(code, of_api_server(code), Some(false)).await;
    }
}

#[tokio::test]
async fn state_of_clusters_no_longer_polled_is_dropped() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let mut state = ServeState::new();
    round(&poll(&dashboard), &mut state).await;
    assert!(state.contains_key("c1"));
    round(&ServePoll::default(), &mut state).await;
    assert!(state.is_empty());
}
