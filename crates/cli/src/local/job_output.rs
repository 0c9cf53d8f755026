//! Keeps the output of jobs that have no submitter pod: in HTTPMode it is gone with the cluster.

use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;

use super::progress::ray_resource;

/// How many lines of a finished job are shown.
const SHOWN_LINES: usize = 20;
/// How often a job is asked for; the dashboard is on this machine.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// After how many questions the log of a running job is copied.
const TICKS_PER_COPY: u64 = 50;
/// How many questions may fail between two copies.
const MAX_FAILURES: u32 = 20;
/// The longest reply: whatever listens on the dashboard's port of a pod must not fill this machine's memory.
const MAX_REPLY: usize = 64 << 20;

/// What Ray calls a job that has ended.
const ENDED: [&str; 3] = ["SUCCEEDED", "FAILED", "STOPPED"];

/// A job whose output is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    /// As users know it.
    name: String,
    id: String,
    /// Where its dashboard listens.
    address: String,
}

/// Follows every job in HTTPMode into a file of `folder`, and prints its end; never returns.
pub(crate) async fn keep(client: &Client, folder: &Path, has_service_names: bool, print: &(dyn Fn(String) + Sync)) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ray_resource("RayJob"));
    let mut jobs = watcher(api, watcher::Config::default()).boxed();
    let mut known: HashSet<(String, String)> = HashSet::new();
    let mut following = JoinSet::new();
    loop {
        tokio::select! {
            Some(event) = jobs.next() => {
                let name = |job: &DynamicObject| format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any());
                let job = match event {
                    Ok(watcher::Event::Apply(job) | watcher::Event::InitApply(job)) => job,
                    Ok(watcher::Event::Delete(job)) => {
                        let gone = name(&job);
                        known.retain(|(name, _)| *name != gone);
                        continue;
                    }
                    _ => continue,
                };
                let data = &job.data;
                let Some(job) = running(name(&job), data, has_service_names) else { continue };
                let file = folder.join(file_name(&job));
                if known.insert((job.name.clone(), job.id.clone())) && !is_kept(data, &file) {
                    following.spawn(follow(job, file));
                }
            }
            Some(Ok((job, file))) = following.join_next() => {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                for line in last_lines(&text) {
                    print(format!("{:<11} {:<44} | {line}", "RayJob", job.name));
                }
                print(format!("{:<11} {:<44} output kept in {}", "RayJob", job.name, file.display()));
            }
            else => return,
        }
    }
}

/// Returns what to follow of a RayJob, once Ray has it.
fn running(name: String, job: &Value, has_service_names: bool) -> Option<Running> {
    let text = |path: &str| job.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    // A short job is over when its status is looked at for the second time.
    if text("/spec/submissionMode") != Some("HTTPMode") || text("/status/jobStatus").is_none() {
        return None;
    }
    let address = if has_service_names { text("/status/dashboardURL")? } else { "127.0.0.1:8265" };
    Some(Running { name, id: text("/status/jobId")?.to_owned(), address: address.to_owned() })
}

/// Returns whether an earlier run of local mode has kept the whole output of a job.
fn is_kept(job: &Value, file: &Path) -> bool {
    ENDED.iter().any(|status| job["status"]["jobStatus"] == *status) && file.exists()
}

/// Returns the name of the file; a job's id may hold any characters.
fn file_name(job: &Running) -> PathBuf {
    let safe = |text: &str| text.replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)), "_");
    format!("{}_{}.log", safe(&job.name), safe(&job.id)).into()
}

async fn follow(job: Running, file: PathBuf) -> (Running, PathBuf) {
    if let Err(error) = write_log(&job, &file).await {
        tracing::warn!(job = %job.name, error = %format!("{error:#}"), "the job's output may be incomplete");
    }
    (job, file)
}

/// Asks for the job until it has ended, and writes its log. The cluster goes soon after, so the last question must come at
/// once.
async fn write_log(job: &Running, file: &Path) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let url = format!("http://{}/api/jobs/{}", job.address.trim_start_matches("http://"), job.id);
    let client = client()?;
    let get = async |url: &str| get(&client, url, MAX_REPLY).await;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    let mut failures = 0;
    for tick in 0_u64.. {
        ticks.tick().await;
        let asked = get(&url).await;
        let is_over = asked.as_ref().is_ok_and(|info| ENDED.iter().any(|status| info["status"] == *status));
        let got = match asked {
            // Now and then while it runs, for a cluster that is deleted under its job.
            Ok(_) if is_over || tick % TICKS_PER_COPY == 0 => get(&format!("{url}/logs")).await,
            Ok(_) => continue,
            Err(error) => Err(error),
        };
        match got {
            Ok(reply) => {
                std::fs::write(file, reply["logs"].as_str().unwrap_or_default())?;
                failures = 0;
                if is_over {
                    break;
                }
            }
            Err(error) if failures == MAX_FAILURES => return Err(error),
            Err(_) => failures += 1,
        }
    }
    Ok(())
}

/// Returns a client that goes nowhere but where it is sent.
fn client() -> reqwest::Result<reqwest::Client> {
    let direct = reqwest::redirect::Policy::none();
    reqwest::Client::builder().timeout(REQUEST_TIMEOUT).no_proxy().redirect(direct).build()
}

async fn get(client: &reqwest::Client, url: &str, limit: usize) -> anyhow::Result<Value> {
    let mut response = client.get(url).send().await?.error_for_status()?;
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
    fn output_that_an_earlier_run_has_kept_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.log");
        let check = |status: &str, expect: bool| {
            assert_eq!(is_kept(&json!({"status": {"jobStatus": status}}), &file), expect, "{status}");
        };
        check("SUCCEEDED", false);
        std::fs::write(&file, "hello").unwrap();
        check("SUCCEEDED", true);
        check("FAILED", true);
        check("RUNNING", false);
    }

    #[test]
    fn jobs_without_a_submitter_pod_are_followed() {
        let job = |mode: &str, status: &str| {
            json!({"spec": {"submissionMode": mode}, "status": {
                "jobStatus": status, "jobId": "a/../b", "dashboardURL": "x-head-svc.d.svc.cluster.local:8265"}})
        };
        let found = |job: &Value| running("d/x".into(), job, true);
        assert_eq!(found(&job("K8sJobMode", "RUNNING")), None);
        assert_eq!(found(&job("HTTPMode", "")), None);
        assert_eq!(found(&json!({"spec": {"submissionMode": "HTTPMode"}})), None);
        let got = found(&job("HTTPMode", "PENDING")).unwrap();
        assert_eq!(got.address, "x-head-svc.d.svc.cluster.local:8265");
        assert_eq!(file_name(&got), Path::new("d_x_a_.._b.log"));
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
            get(&client().unwrap(), &url, 1 << 20).await.map_err(|error| error.to_string())
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
