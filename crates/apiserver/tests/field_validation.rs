//! Fields that a body has twice.

use http::Request;
use http_body_util::BodyExt;
use manta_apiserver::{Options, Server};

#[tokio::test]
async fn repeated_keys_of_yaml_are_refused_or_warned_about() {
    let server = Server::start(Options::default()).await.expect("the server starts");
    let client = server.client();
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  k: a\n  k: b\n";
    let why = r#"line 6: key \"k\" already set in map"#;
    for (validation, code, in_header, in_body) in
        [("Strict", 400, false, true), ("Warn", 201, true, false), ("Ignore", 200, false, false)]
    {
        let path =
            format!("/api/v1/namespaces/default/configmaps/m?fieldManager=me&force=true&fieldValidation={validation}");
        let request = Request::patch(path).header("Content-Type", "application/apply-patch+yaml");
        let response = client.send(request.body(body.as_bytes().to_vec().into()).expect("a request")).await;
        let response = response.expect("an answer");
        assert_eq!(response.status().as_u16(), code, "{validation}");
        let warnings: Vec<_> = response.headers().get_all("warning").iter().cloned().collect();
        let warns = warnings.iter().any(|warning| warning.to_str().is_ok_and(|text| text.contains(why)));
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!((warns, text.contains(why)), (in_header, in_body), "{validation}: {text}");
        assert!(code == 400 || text.contains(r#""data":{"k":"b"}"#), "the last one wins: {text}");
    }
    server.stop().await;
}
