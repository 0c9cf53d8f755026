//! Keeps the output of jobs that have no submitter pod: in HTTPMode it is gone with the cluster.

use anyhow::Context;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use reqwest::StatusCode;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::progress::ray_resource;
use crate::auth_token;
use crate::connect::Target;
use crate::resource::{Kind, Reference};

/// How many lines of a finished job are shown.
const SHOWN_LINES: usize = 20;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// After how many questions the log of a running job is copied.
const TICKS_PER_COPY: u64 = 50;
/// How many questions may fail one after the other before they become rarer, or before a job that is over is given up.
const MAX_FAILURES: u32 = 20;
/// The longest reply: whatever listens on the dashboard's port of a pod must not fill this machine's memory.
const MAX_REPLY: usize = 64 << 20;

/// What Ray calls a job that has ended.
const ENDED: [&str; 3] = ["SUCCEEDED", "FAILED", "STOPPED"];
/// What a RayJob calls it, also when Ray never had the job.
const DEPLOYMENT_ENDED: [&str; 2] = ["Complete", "Failed"];

/// How often a job is asked for; the dashboard is on this machine.
const PACE: Pace = Pace { poll: Duration::from_millis(100), retry: Duration::from_secs(1) };

#[derive(Clone, Copy)]
struct Pace {
    poll: Duration,
    /// While nobody answers.
    retry: Duration,
}

/// A job whose output is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    namespace: String,
    name: String,
    id: String,
    /// The RayCluster that it runs on.
    cluster: String,
    /// Where its dashboard listens.
    address: String,
}

/// How much of a job's output was kept.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    Whole,
    /// The end may be missing, for this reason.
    Beginning(String),
    Nothing(String),
}

/// Reads the token that a cluster asks for now.
type ReadToken = Box<dyn Fn() -> BoxFuture<'static, anyhow::Result<Option<String>>> + Send + Sync>;

/// A job that is followed.
struct Followed {
    id: String,
    /// Whether its status has shown that Ray has it, so that a lost output is worth a line.
    is_at_ray: Arc<AtomicBool>,
    /// Cancelled when the job is over or gone: its cluster may go at any time.
    over: CancellationToken,
}

/// Follows every job in HTTPMode into a file of `folder`, and prints its end; never returns.
pub(crate) async fn keep(client: &Client, folder: &Path, has_service_names: bool, print: &(dyn Fn(String) + Sync)) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ray_resource("RayJob"));
    let mut jobs = watcher(api, watcher::Config::default()).boxed();
    let mut known: HashMap<String, Followed> = HashMap::new();
    let mut following = JoinSet::new();
    loop {
        tokio::select! {
            Some(event) = jobs.next() => {
                let (job, is_gone, is_old) = match event {
                    Ok(watcher::Event::Apply(job)) => (job, false, false),
                    Ok(watcher::Event::InitApply(job)) => (job, false, true),
                    Ok(watcher::Event::Delete(job)) => (job, true, false),
                    _ => continue,
                };
                let key = format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any());
                let running = running(&job, has_service_names).filter(|_| !is_gone);
                // Deleted, suspended, or tried again under another id.
                if known.get(&key).is_some_and(|before| Some(&before.id) != running.as_ref().map(|job| &job.id))
                    && let Some(before) = known.remove(&key)
                {
                    before.over.cancel();
                }
                let Some(running) = running else { continue };
                let file = folder.join(file_name(&key, &running.id));
                let is_over = is_over(&job);
                let followed = known.entry(key).or_insert_with(|| {
                    let (over, is_at_ray) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
                    if !(is_over && file.exists()) {
                        following.spawn(follow(client.clone(), running.clone(), file, over.clone(), is_at_ray.clone()));
                    }
                    Followed { id: running.id, is_at_ray, over }
                });
                // What ended under an earlier run may be gone, and was reported then.
                let ended_before = is_old && is_over;
                if !ended_before && job.data["status"]["jobStatus"].as_str().is_some_and(|status| !status.is_empty()) {
                    followed.is_at_ray.store(true, Relaxed);
                }
                if is_over {
                    followed.over.cancel();
                }
            }
            Some(Ok((job, file, kept, is_at_ray))) = following.join_next() => {
                if !is_at_ray && matches!(kept, Kept::Nothing(_)) {
                    continue;
                }
                let line = |text: &str| format!("{:<11} {:<44} {text}", "RayJob", format!("{}/{}", job.namespace, job.name));
                if !matches!(kept, Kept::Nothing(_)) {
                    let text = std::fs::read_to_string(&file).unwrap_or_default();
                    last_lines(&text).iter().for_each(|text| print(line(&format!("| {text}"))));
                }
                print(line(&describe(&kept, &file)));
            }
            else => return,
        }
    }
}

/// Says how much of a job's output is in a file.
fn describe(kept: &Kept, file: &Path) -> String {
    match kept {
        Kept::Whole => format!("output kept in {}", file.display()),
        Kept::Beginning(why) => format!("output kept in {}, perhaps without its end: {why}", file.display()),
        Kept::Nothing(why) => format!("output could not be kept: {why}"),
    }
}

/// Returns what to follow of a RayJob, from the moment that it is submitted: when its status says that Ray has it, a short
/// one may be over, and its cluster gone.
fn running(job: &DynamicObject, has_service_names: bool) -> Option<Running> {
    let text = |path: &str| job.data.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    if text("/spec/submissionMode") != Some("HTTPMode") {
        return None;
    }
    // Written before the job is submitted.
    let url = text("/status/dashboardURL")?;
    let address = if has_service_names { url } else { "127.0.0.1:8265" };
    Some(Running {
        namespace: job.namespace().unwrap_or_default(),
        name: job.name_any(),
        id: text("/status/jobId")?.to_owned(),
        cluster: text("/status/rayClusterName").unwrap_or_default().to_owned(),
        address: address.to_owned(),
    })
}

fn has_ended(status: &Value) -> bool {
    ENDED.iter().any(|ended| status == ended)
}

/// Returns whether nothing more will come of a RayJob's attempt.
fn is_over(job: &DynamicObject) -> bool {
    let status = &job.data["status"];
    has_ended(&status["jobStatus"]) || DEPLOYMENT_ENDED.iter().any(|ended| status["jobDeploymentStatus"] == *ended)
}

/// Returns the file with the output of a job, if it was kept.
pub(crate) fn kept(folder: &Path, namespace: &str, name: &str, id: &str) -> Option<PathBuf> {
    let file = folder.join(file_name(&format!("{namespace}/{name}"), id));
    file.is_file().then_some(file)
}

/// Returns the name of the file; a job's id may hold any characters.
fn file_name(name: &str, id: &str) -> PathBuf {
    let safe = |text: &str| text.replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)), "_");
    format!("{}_{}.log", safe(name), safe(id)).into()
}

async fn follow(
    client: Client,
    job: Running,
    file: PathBuf,
    over: CancellationToken,
    is_at_ray: Arc<AtomicBool>,
) -> (Running, PathBuf, Kept, bool) {
    let target = Target { client, namespace: job.namespace.clone(), context: None, url: String::new() };
    let cluster = Reference { kind: Kind::Cluster, name: job.cluster.clone() };
    let read_token: ReadToken = Box::new(move || {
        let (target, cluster) = (target.clone(), cluster.clone());
        async move { auth_token::asked_by(&target, &cluster).await }.boxed()
    });
    let kept = match write_log(&job, &file, &over, PACE, &read_token).await {
        Ok(()) => Kept::Whole,
        Err(error) if file.exists() => Kept::Beginning(format!("{error:#}")),
        Err(error) => Kept::Nothing(format!("{error:#}")),
    };
    (job, file, kept, is_at_ray.load(Relaxed))
}

/// Asks for the job until it has ended, and writes its log. The cluster goes soon after, so the last question must come at
/// once. Fails only when the job is over and its dashboard no longer answers.
async fn write_log(
    job: &Running,
    file: &Path,
    over: &CancellationToken,
    pace: Pace,
    read_token: &ReadToken,
) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let url = format!("http://{}/api/jobs/{}", job.address.trim_start_matches("http://"), job.id);
    let client = client()?;
    let mut token: Option<String> = None;
    let mut ticks = tokio::time::interval(pace.poll);
    // Those since the last answer, and those of them since the job is over.
    let (mut failures, mut late_failures) = (0_u32, 0_u32);
    for tick in 0_u64.. {
        ticks.tick().await;
        // Now and then while it runs, for a cluster that is deleted under its job.
        let copies = tick % TICKS_PER_COPY == 0;
        let asked = ask(&client, &url, token.as_deref(), copies, file).await;
        let error = match asked {
            Ok(true) => break,
            Ok(false) => {
                (failures, late_failures) = (0, 0);
                continue;
            }
            // The job is not submitted yet; once it is, it may be over within a second.
            Err(error) if status_of(&error) == Some(StatusCode::NOT_FOUND) && !over.is_cancelled() => {
                failures = 0;
                continue;
            }
            // The cluster asks for a token, or for a new one.
            Err(error) if matches!(status_of(&error), Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
                match read_token().await {
                    Ok(Some(new)) if token.as_ref() != Some(&new) => {
                        token = Some(new);
                        continue;
                    }
                    Ok(_) => error,
                    Err(why) => why,
                }
            }
            Err(error) => error,
        };
        failures = failures.saturating_add(1);
        late_failures += u32::from(over.is_cancelled());
        if late_failures > MAX_FAILURES {
            return Err(error);
        }
        if failures > MAX_FAILURES && !over.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(pace.retry) => {}
                () = over.cancelled() => {}
            }
        }
    }
    Ok(())
}

/// Returns whether the job has ended; writes its log then, and when it `copies`.
async fn ask(
    client: &reqwest::Client,
    url: &str,
    token: Option<&str>,
    copies: bool,
    file: &Path,
) -> anyhow::Result<bool> {
    let info = get(client, url, token, MAX_REPLY).await?;
    let is_over = has_ended(&info["status"]);
    if is_over || copies {
        let reply = get(client, &format!("{url}/logs"), token, MAX_REPLY).await?;
        std::fs::write(file, reply["logs"].as_str().unwrap_or_default())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(is_over)
}

/// Returns the status code of a reply that is an error.
fn status_of(error: &anyhow::Error) -> Option<StatusCode> {
    error.downcast_ref::<reqwest::Error>().and_then(reqwest::Error::status)
}

/// Returns a client that goes nowhere but where it is sent.
fn client() -> reqwest::Result<reqwest::Client> {
    let direct = reqwest::redirect::Policy::none();
    reqwest::Client::builder().timeout(REQUEST_TIMEOUT).no_proxy().redirect(direct).build()
}

async fn get(client: &reqwest::Client, url: &str, token: Option<&str>, limit: usize) -> anyhow::Result<Value> {
    let mut request = client.get(url);
    if let Some(token) = token {
        request = request.header("x-ray-authorization", format!("Bearer {token}"));
    }
    let mut response = request.send().await?.error_for_status()?;
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await? {
        anyhow::ensure!(body.len() + part.len() <= limit, "{url}: the reply is longer than {} MiB", limit >> 20);
        body.extend_from_slice(&part);
    }
    Ok(serde_json::from_slice(&body)?)
}

fn last_lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jobs_without_a_submitter_pod_are_followed() {
        let job = |mode: &str, url: &str| -> DynamicObject {
            let data = json!({"metadata": {"namespace": "d", "name": "x"}, "spec": {"submissionMode": mode}, "status": {
                "jobStatus": "", "jobId": "a/../b", "dashboardURL": url, "rayClusterName": "x-1"}});
            serde_json::from_value(data).unwrap()
        };
        let found = |job: &DynamicObject| running(job, true);
        let url = "x-head-svc.d.svc.cluster.local:8265";
        assert_eq!(found(&job("K8sJobMode", url)), None);
        assert_eq!(found(&job("HTTPMode", "")), None);
        // Before Ray has it.
        let got = found(&job("HTTPMode", url)).unwrap();
        assert_eq!((&*got.cluster, &*got.address), ("x-1", "x-head-svc.d.svc.cluster.local:8265"));
        assert_eq!(file_name("d/x", &got.id), Path::new("d_x_a_.._b.log"));
    }

    #[test]
    fn a_job_is_over_when_either_status_says_so() {
        let check = |job_status: &str, deployment: &str, expect: bool| {
            let data = json!({"metadata": {}, "status": {"jobStatus": job_status, "jobDeploymentStatus": deployment}});
            assert_eq!(is_over(&serde_json::from_value(data).unwrap()), expect, "{job_status} {deployment}");
        };
        check("", "Running", false);
        check("RUNNING", "Running", false);
        check("SUCCEEDED", "Running", true);
        check("PENDING", "Failed", true);
        check("", "Failed", true);
    }

    /// Serves a dashboard; `reply` gets the number of the request and its token, and returns a status code and JSON.
    async fn dashboard(reply: impl Fn(u32, &str) -> (u16, Value) + Send + Sync + 'static) -> Running {
        use std::sync::atomic::{AtomicU32, Ordering};
        let asked = AtomicU32::new(0);
        let reply = std::sync::Arc::new(move |token: &str| reply(asked.fetch_add(1, Ordering::Relaxed), token));
        let router = axum::Router::new().fallback(move |headers: http::HeaderMap| {
            let token = headers.get("x-ray-authorization").and_then(|value| value.to_str().ok());
            let (code, body) = reply(token.unwrap_or_default());
            async move { (StatusCode::from_u16(code).unwrap(), axum::Json(body)) }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Running { namespace: "d".into(), name: "x".into(), id: "1".into(), cluster: "c".into(), address }
    }

    const FAST: Pace = Pace { poll: Duration::from_millis(1), retry: Duration::from_millis(1) };

    fn token(token: Option<&'static str>) -> ReadToken {
        Box::new(move || std::future::ready(Ok(token.map(str::to_owned))).boxed())
    }

    fn ended() -> Value {
        json!({"status": "SUCCEEDED", "logs": "the end\n"})
    }

    #[tokio::test]
    async fn a_cluster_that_asks_for_a_token_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("job-output/a.log");
        let job = dashboard(|_, token| if token == "Bearer s3cret" { (200, ended()) } else { (401, json!({})) }).await;
        let over = CancellationToken::new();
        over.cancel();
        write_log(&job, &file, &over, FAST, &token(Some("s3cret"))).await.unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "the end\n");
        std::fs::remove_file(&file).unwrap();
        let error = write_log(&job, &file, &over, FAST, &token(None)).await.unwrap_err();
        assert!(error.to_string().contains("401"), "{error}");
        assert!(!file.exists());
    }

    #[tokio::test]
    async fn a_job_is_followed_as_long_as_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.log");
        let no_token = token(None);
        let (over, never) = (CancellationToken::new(), CancellationToken::new());
        // The head is being replaced, say.
        let job = dashboard(|asked, _| if asked < 3 * MAX_FAILURES { (503, json!({})) } else { (200, ended()) }).await;
        write_log(&job, &file, &never, FAST, &no_token).await.unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "the end\n");
        std::fs::remove_file(&file).unwrap();
        over.cancel();
        let gone = dashboard(|_, _| (503, json!({}))).await;
        let error = write_log(&gone, &file, &over, FAST, &no_token).await.unwrap_err();
        assert!(error.to_string().contains("503"), "{error}");
    }

    #[tokio::test]
    async fn a_job_that_is_about_to_be_submitted_is_asked_for_without_pauses() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.log");
        let job = dashboard(|asked, _| if asked < 3 * MAX_FAILURES { (404, json!({})) } else { (200, ended()) }).await;
        let pace = Pace { poll: Duration::from_millis(1), retry: Duration::from_hours(1) };
        let (never, no_token) = (CancellationToken::new(), token(None));
        let written = write_log(&job, &file, &never, pace, &no_token);
        tokio::time::timeout(Duration::from_mins(1), written).await.expect("no pause").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "the end\n");
    }

    #[test]
    fn what_is_said_about_the_output_is_true() {
        let file = Path::new("/o/a.log");
        let check = |kept: Kept, expect: &str| assert_eq!(describe(&kept, file), expect);
        check(Kept::Whole, "output kept in /o/a.log");
        check(Kept::Beginning("gone".into()), "output kept in /o/a.log, perhaps without its end: gone");
        check(Kept::Nothing("401".into()), "output could not be kept: 401");
    }

    /// Serves one response, and returns the address.
    async fn serve_once(response: Vec<u8>) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&response).await;
        });
        format!("http://{address}/")
    }

    #[tokio::test]
    async fn replies_are_bounded_and_lead_nowhere_else() {
        let ask = async |response: Vec<u8>| {
            let url = serve_once(response).await;
            get(&client().unwrap(), &url, None, 1 << 20).await.map_err(|error| error.to_string())
        };
        let reply = |body: &str| format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}").into_bytes();
        assert_eq!(ask(reply("{\"logs\": \"x\"}")).await.unwrap()["logs"], "x");
        let long = ask(reply(&" ".repeat(2 << 20))).await.unwrap_err();
        assert!(long.ends_with("the reply is longer than 1 MiB"), "{long}");
        let elsewhere = serve_once(reply("{}")).await;
        let moved = format!("HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n");
        assert!(ask(moved.into_bytes()).await.is_err(), "a redirect was followed");
    }

    #[test]
    fn the_end_of_a_long_output_is_shown() {
        let text: String = (0..50).map(|n| format!("{n}\n")).collect();
        let got = last_lines(&text);
        assert_eq!((got.len(), got[0], got[19]), (20, "30", "49"));
        assert_eq!(last_lines(""), [] as [&str; 0]);
    }
}
