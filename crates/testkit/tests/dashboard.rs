//! The fake dashboard over HTTP: modes, token, kill and revive.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use manta_testkit::{DashboardMode, FakeDashboard};
use serde_json::json;

/// Sends one raw request and returns the whole response, or why there was none.
async fn ask(address: SocketAddr, method: &str, path: &str, header: &str, body: &str) -> std::io::Result<String> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: ray\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let exchange = move || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    tokio::task::spawn_blocking(exchange).await.expect("no panic")
}

#[tokio::test]
async fn responses_follow_the_mode() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let at = dashboard.address();
    dashboard.set_job("a", &json!({"status": "RUNNING"}));
    let job = "/api/jobs/a";
    assert!(ask(at, "GET", job, "", "").await.unwrap().contains("RUNNING"));
    dashboard.set_mode(DashboardMode::Answers(200, "<html>sign in</html>".into()));
    assert!(ask(at, "GET", job, "", "").await.unwrap().contains("<html>"));
    dashboard.set_mode(DashboardMode::RefusesWrites(500, "out of order".into()));
    assert!(ask(at, "GET", job, "", "").await.unwrap().contains("RUNNING"));
    assert!(ask(at, "POST", "/api/jobs/", "", "{}").await.unwrap().starts_with("HTTP/1.1 500"));
    dashboard.set_mode(DashboardMode::Broken);
    assert_eq!(ask(at, "GET", job, "", "").await.unwrap_or_default(), "");
    dashboard.set_mode(DashboardMode::Slow(Duration::from_millis(300)));
    let start = Instant::now();
    assert!(ask(at, "GET", job, "", "").await.unwrap().contains("RUNNING"));
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(dashboard.writes().len(), 1);
    assert_eq!(dashboard.asked().len(), 5);
}

#[tokio::test]
async fn a_required_token_is_checked() {
    let dashboard = FakeDashboard::start().await.unwrap();
    dashboard.require_token("secret");
    let at = dashboard.address();
    for (header, expect) in [
        ("", "401"),
        ("X-Ray-Authorization: Bearer wrong\r\n", "403"),
        ("x-ray-authorization: Bearer secret\r\n", "200"),
    ] {
        let answer = ask(at, "GET", "/api/jobs/", header, "").await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expect}")), "{header}: {answer}");
    }
    assert!(ask(at, "GET", "/-/healthz", "", "").await.unwrap().ends_with("success"), "the proxy needs no token");
    dashboard.set_proxy_healthy(false);
    assert!(ask(at, "GET", "/-/healthz", "", "").await.unwrap().starts_with("HTTP/1.1 503"));
}

#[tokio::test]
async fn a_revived_dashboard_has_lost_its_jobs() {
    let mut dashboard = FakeDashboard::start().await.unwrap();
    let at = dashboard.address();
    dashboard.set_job("a", &json!({}));
    dashboard.kill().await;
    assert!(ask(at, "GET", "/api/jobs/a", "", "").await.is_err());
    dashboard.revive().await.unwrap();
    assert!(ask(at, "GET", "/api/jobs/a", "", "").await.unwrap().starts_with("HTTP/1.1 404"));
}
