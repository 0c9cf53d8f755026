//! The submitter against a minimal HTTP and WebSocket server in place of Ray.

use super::*;
use futures::{SinkExt, StreamExt};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// What the fake Ray returns.
#[derive(Default)]
struct Ray {
    /// The response to a submission: status line and body.
    submitted: (&'static str, &'static str),
    /// The log, one stream per connection, and whether the stream is closed properly or breaks.
    streams: Vec<(Vec<&'static str>, bool)>,
    /// The job's status from now on.
    status: &'static str,
    requests: Vec<String>,
}

async fn serve(ray: Ray) -> (String, Arc<Mutex<Ray>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let shared = Arc::new(Mutex::new(ray));
    let ray = Arc::clone(&shared);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            respond(stream, &ray).await;
        }
    });
    (address, shared)
}

async fn respond(mut stream: TcpStream, ray: &Mutex<Ray>) {
    let mut head = [0; 2048];
    let read = stream.peek(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    if head.contains("/logs/tail") {
        let (log, is_closed_properly) = ray.lock().unwrap().streams.remove(0);
        ray.lock().unwrap().requests.push(head);
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        for line in log {
            socket.send(Message::Text(line.into())).await.unwrap();
        }
        if is_closed_properly {
            let frame = CloseFrame { code: 1000.into(), reason: "".into() };
            let _ = socket.close(Some(frame)).await;
            while let Some(Ok(_)) = socket.next().await {}
        }
        return;
    }
    let mut bytes = vec![0; 4096];
    let read = stream.read(&mut bytes).await.unwrap();
    let mut request = String::from_utf8_lossy(&bytes[..read]).into_owned();
    if request.starts_with("POST") && !request.contains('{') {
        let read = stream.read(&mut bytes).await.unwrap();
        request += &String::from_utf8_lossy(&bytes[..read]);
    }
    let (line, body) = {
        let mut ray = ray.lock().unwrap();
        ray.requests.push(request.clone());
        match request.starts_with("POST") {
            true => (ray.submitted.0, ray.submitted.1.to_owned()),
            false => ("200 OK", format!("{{\"status\": \"{}\"}}", ray.status)),
        }
    };
    let response = format!("HTTP/1.1 {line}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    stream.write_all(response.as_bytes()).await.unwrap();
}

fn args(flags: &[&str]) -> Args {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }
    let words = ["submitter"].iter().chain(flags).chain(&["--", "python", "x.py"]).map(ToString::to_string);
    <Cli as clap::Parser>::try_parse_from(words).unwrap().args
}

/// Runs the submitter and returns what it printed and its result.
async fn submit(ray: Ray, flags: &[&str]) -> (String, Result<(), String>, Arc<Mutex<Ray>>) {
    let (address, shared) = serve(ray).await;
    let mut out = Vec::new();
    let environment = |name: &str| match name {
        "RAY_DASHBOARD_ADDRESS" => Some(address.clone()),
        "RAY_JOB_SUBMISSION_ID" => Some("id".to_owned()),
        "RAY_AUTH_TOKEN" => Some("secret".to_owned()),
        _ => None,
    };
    let result = submit_and_follow(&args(flags), environment, &mut out).await;
    (String::from_utf8(out).unwrap(), result.map_err(|error| format!("{error:#}")), shared)
}

const ACCEPTED: (&str, &str) = ("200 OK", "{\"job_id\": \"id\"}");

#[tokio::test]
async fn a_successful_job_is_submitted_followed_and_reported() {
    let ray =
        Ray { submitted: ACCEPTED, streams: vec![(vec!["one\n", "two\n"], true)], status: "SUCCEEDED", ..Ray::default() };
    let (out, result, ray) = submit(ray, &["--entrypoint-num-cpus", "1.1", "--runtime-env-json", "{\"pip\":[]}"]).await;
    assert_eq!(result, Ok(()));
    let expect = "SUCC -- Job 'id' submitted successfully\nINFO -- Tailing logs until the job finishes:\none\ntwo\n\
                  SUCC -- Job 'id' succeeded\n";
    assert_eq!(out, expect);
    let requests = ray.lock().unwrap().requests.clone();
    assert!(requests[0].starts_with("POST /api/jobs/ HTTP/1.1"), "{}", requests[0]);
    let body = &requests[0][requests[0].find('{').unwrap()..];
    let expect = r#"{"entrypoint":"python x.py","entrypoint_num_cpus":1.1,"runtime_env":{"pip":[]},"submission_id":"id"}"#;
    assert_eq!(body, expect);
    for request in &requests {
        assert!(request.to_lowercase().contains("x-ray-authorization: bearer secret"), "{request}");
    }
}

#[tokio::test]
async fn a_failed_job_fails_the_submitter() {
    let ray = Ray { submitted: ACCEPTED, streams: vec![(vec![], true)], status: "FAILED", ..Ray::default() };
    let (_, result, _) = submit(ray, &[]).await;
    assert_eq!(result, Err("Job 'id' ended with status FAILED".to_owned()));
}

#[tokio::test]
async fn a_job_that_was_already_submitted_is_only_followed() {
    let taken = ("500 Internal Server Error", "already exists. Please use a different submission_id.");
    let ray = Ray { submitted: taken, streams: vec![(vec!["all\n"], true)], status: "SUCCEEDED", ..Ray::default() };
    let (out, result, _) = submit(ray, &[]).await;
    assert_eq!(result, Ok(()));
    assert!(out.starts_with("INFO -- Job 'id' has already been submitted, tailing logs.\n"), "{out}");
    assert!(out.contains("\nall\n"));
}

#[tokio::test]
async fn a_broken_log_stream_is_reopened_without_repeating_lines() {
    let streams = vec![(vec!["one\n"], false), (vec!["one\n", "two\n"], true)];
    let ray = Ray { submitted: ACCEPTED, streams, status: "RUNNING", ..Ray::default() };
    let (address, shared) = serve(ray).await;
    let job = Job::new(&address, "id", None);
    let mut out = Vec::new();
    job.follow(&mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!((out.matches("one\n").count(), out.matches("two\n").count()), (1, 1), "{out}");
    assert_eq!(shared.lock().unwrap().streams.len(), 0);
}

#[tokio::test]
async fn refused_and_invalid_submissions_are_reported() {
    let refused = Ray { submitted: ("400 Bad Request", "no such resource"), ..Ray::default() };
    let (_, result, _) = submit(refused, &[]).await;
    assert_eq!(result, Err("SubmitJob fail: 400 Bad Request no such resource".to_owned()));
    let (_, result, ray) = submit(Ray::default(), &["--entrypoint-resources", "{\"a\": \"b\"}"]).await;
    assert_eq!(result, Err("--entrypoint-resources: a must be a number".to_owned()));
    assert!(ray.lock().unwrap().requests.is_empty());
    let (_, result, _) = submit(Ray::default(), &["--metadata-json", "["]).await;
    assert!(result.unwrap_err().starts_with("--metadata-json is not a JSON object: "));
}

#[tokio::test]
async fn missing_environment_variables_are_named() {
    let check = async |given: &'static [&str], expect: &str| {
        let environment = |name: &str| given.contains(&name).then(|| "x".to_owned());
        let error = submit_and_follow(&args(&[]), environment, &mut Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), expect);
    };
    check(&[], "missing RAY_DASHBOARD_ADDRESS in environment variables").await;
    check(&["RAY_DASHBOARD_ADDRESS"], "missing RAY_JOB_SUBMISSION_ID in environment variables").await;
}
