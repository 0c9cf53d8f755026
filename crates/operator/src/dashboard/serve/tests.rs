//! Serve's API and proxies, against a dashboard that can be wrong in every way.

use super::*;
use crate::dashboard::client::Route;
use crate::dashboard::jobs::tests::{client, endpoint};
use manta_logic::service::dashboard::{Config, Proxy};
use manta_testkit::{DashboardMode as Mode, FakeDashboard};
use serde_json::json;

fn watch(dashboard: &FakeDashboard, put: Option<Put>) -> Watch {
    let address = dashboard.address();
    let proxy = Proxy {
        namespace: "ns".into(),
        pod: "head".into(),
        uid: "u".into(),
        ip: address.ip().to_string(),
        port: address.port().into(),
    };
    let cluster = ClusterWatch { cluster: "c1".into(), dashboard: Some(endpoint(dashboard)), put, proxy: Some(proxy) };
    Watch { clusters: vec![cluster] }
}

fn put(text: &str, capacity: Option<i32>) -> Put {
    let body = json!({"applications": [{"name": text}], "target_capacity": capacity});
    Put { config: Config { text: text.into(), capacity }, body: Ok(body), again_when_lost: true }
}

/// One round, from what is known so far.
async fn round(watch: &Watch, known: &mut Known) -> (bool, bool) {
    let round = watch.ask(&client(Route::Direct), known.clone()).await;
    *known = round.known;
    (round.reached, round.news)
}

#[tokio::test]
async fn edge_25_what_cannot_be_read() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let (client, endpoint) = (client(Route::Direct), endpoint(&dashboard));
    let check = async |status: u16, body: &str, expect: &str| {
        dashboard.set_mode(Mode::Answers(status, body.to_owned()));
        let said = details(&client, &endpoint).await;
        let said =
            said.map_or_else(|error| error.to_string(), |details| format!("{} apps", details.applications.len()));
        assert_eq!(said, expect);
    };
    check(400, "bad", "failed to get serve details: GetServeDetails fail: 400 Bad Request bad").await;
    check(500, "oh", "failed to get serve details: GetServeDetails fail: 500 Internal Server Error oh").await;
    let html = "failed to get serve details: GetServeDetails failed. Failed to unmarshal bytes: <html>";
    check(200, "<html>", html).await;
    check(200, "{}", "0 apps").await;
    check(200, r#"{"applications": {"a": {"status": "RUNNING", "route_prefix": null}}}"#, "1 apps").await;
    let asked = dashboard.asked();
    assert!(asked.iter().all(|asked| asked.path.contains("api_type=declarative")), "{asked:?}");

    let nowhere = manta_logic::job::dashboard::DashboardEndpoint { address: "://x".to_owned(), ..endpoint.clone() };
    let error = details(&client, &nowhere).await.unwrap_err().to_string();
    assert!(error.starts_with("failed to get serve details: failed to parse dashboard URL: "), "{error}");
    dashboard.set_mode(Mode::Slow(std::time::Duration::from_secs(60)));
    let patient = crate::dashboard::Client::direct(None, std::time::Duration::from_millis(50));
    let error = details(&patient, &endpoint).await.unwrap_err();
    assert!(matches!(error, ServeError::Unread(NoAnswer::TimeOut(_))), "the cause is kept: {error:?}");
}

#[tokio::test]
async fn edge_26_tokens_go_along() {
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
async fn a_configuration_is_submitted_once_and_again_when_it_is_lost() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let mut known = Known::new();
    let wanted = watch(&dashboard, Some(put("a", None)));
    assert_eq!(round(&wanted, &mut known).await, (true, true));
    let cluster = &known["c1"];
    assert_eq!(cluster.submitted, Some(Config { text: "a".into(), capacity: None }));
    assert_eq!(cluster.details().unwrap().applications.len(), 1, "what counts is the answer after it");
    assert_eq!(cluster.put.as_ref().map(|put| (put.only_capacity, put.result.is_ok())), Some((false, true)));
    assert_eq!(cluster.proxy, Some(("u".into(), true)));
    assert_eq!(round(&wanted, &mut known).await, (true, false));
    assert_eq!(dashboard.writes().len(), 1);

    let wanted = watch(&dashboard, Some(put("a", Some(50))));
    round(&wanted, &mut known).await;
    assert!(known["c1"].put.as_ref().is_some_and(|put| put.only_capacity));
    assert_eq!(dashboard.serve_config().unwrap()["target_capacity"], 50);

    let empty = json!({"applications": []});
    submit(&client(Route::Direct), &endpoint(&dashboard), &empty).await.unwrap();
    round(&wanted, &mut known).await;
    assert_eq!(dashboard.serve_config().unwrap()["applications"][0]["name"], "a");
    assert!(known["c1"].put.as_ref().is_some_and(|put| !put.only_capacity));
}

#[tokio::test]
async fn refusals_and_silence_are_known() {
    let mut dashboard = FakeDashboard::start().await.unwrap();
    let bad = Put { body: Err("no YAML".into()), ..put("a", None) };
    let wanted = watch(&dashboard, Some(bad));
    let mut known = Known::new();
    assert_eq!(round(&wanted, &mut known).await, (true, true));
    assert_eq!(known["c1"].put.as_ref().unwrap().result, Err("no YAML".into()));
    assert_eq!(round(&wanted, &mut known).await, (true, false), "told once");

    dashboard.set_proxy_healthy(false);
    round(&wanted, &mut known).await;
    assert_eq!(known["c1"].proxy, Some(("u".into(), false)));

    dashboard.set_mode(Mode::Answers(500, "out of order".into()));
    let error = submit(&client(Route::Direct), &endpoint(&dashboard), &json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "UpdateDeployments fail: 500 Internal Server Error out of order");

    let wanted_again = watch(&dashboard, Some(put("a", None)));
    dashboard.set_mode(Mode::Answers(200, "{}".into()));
    assert!(round(&wanted_again, &mut known).await.1, "submitted, and lost at once");
    assert_eq!(round(&wanted_again, &mut known).await, (true, false), "trying again is no news");

    dashboard.kill().await;
    assert_eq!(round(&wanted, &mut known).await, (false, true));
    let heard = known["c1"].heard.as_ref().unwrap().answer.as_ref().unwrap_err();
    assert!(heard.starts_with("failed to get Serve application statuses from the dashboard."), "{heard}");
}

#[tokio::test]
async fn clusters_that_are_followed_no_more_are_forgotten() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let mut known = Known::new();
    round(&watch(&dashboard, None), &mut known).await;
    assert!(known.contains_key("c1"));
    round(&Watch::default(), &mut known).await;
    assert!(known.is_empty());
}
