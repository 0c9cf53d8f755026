//! `manta history serve`, on a directory as KubeRay's collector leaves it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SESSION: &str = "session_2026-03-01_08-30-00_123456_1";

/// A server that ends with the test.
struct Server {
    child: Child,
    address: String,
    client: reqwest::Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(root: &Path) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
        command.args(["history", "serve", "--no-live", "--listen", "127.0.0.1:0", "--allow-host", "History.corp"]);
        command.arg("--storage-root-dir").arg(root);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("history of Ray clusters: ").context(line.clone())?;
        let address = address.trim_end_matches("/select_cluster").to_owned();
        Ok(Self { child, address, client: reqwest::Client::builder().no_proxy().build()? })
    }

    async fn get(&self, path: &str, cookies: &str) -> Result<(u16, String)> {
        let reply = self.client.get(format!("{}{path}", self.address)).header("cookie", cookies).send().await?;
        Ok((reply.status().as_u16(), reply.text().await?))
    }

    async fn json(&self, path: &str, cookies: &str) -> Result<Value> {
        let (code, text) = self.get(path, cookies).await?;
        anyhow::ensure!(code == 200, "{path}: {code} {text}");
        serde_json::from_str(&text).with_context(|| text.clone())
    }

    /// Enters a cluster and returns the cookies to send.
    async fn enter(&self, path: &str) -> Result<String> {
        let reply = self.client.get(format!("{}{path}", self.address)).send().await?;
        anyhow::ensure!(reply.status() == 200, "{path}: {}", reply.status());
        let set = reply.headers().get_all("set-cookie").iter();
        let pairs = set.filter_map(|cookie| Some(cookie.to_str().ok()?.split(';').next()?.to_owned()));
        Ok(pairs.collect::<Vec<_>>().join("; "))
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Writes what the collector stores about a job's cluster with one node and one task.
fn store(root: &Path) {
    let history = format!("cluster-history/rayjob/ns/train/train-x/{SESSION}");
    write(root, &format!("cluster-metadata/rayjob/ns_train_train-x/{SESSION}"), "");
    write(root, "cluster-metadata/raycluster/ns_old/session_2026-02-01_08-30-00_1_1", "");
    let node = json!({"sessionName": SESSION, "nodeDefinitionEvent": {"nodeId": "BQ==", "hostname": "h", "nodeIpAddress": "10.0.0.1"}});
    write(root, &format!("{history}/05/node_events/05-2026-03-01-08-1.jsonl"), &format!("{node}\n"));
    let task = json!({"taskDefinitionEvent": {"taskId": "AQID", "taskName": "work", "jobId": "BA==",
        "taskFunc": {"pythonFunctionDescriptor": {"functionName": "work"}}}});
    let ran = json!({"taskLifecycleEvent": {"taskId": "AQID", "stateTransitions": [
        {"state": "FINISHED", "timestamp": "2026-03-01T08:31:00Z"}]}});
    let job = json!({"driverJobDefinitionEvent": {"jobId": "BA==", "entrypoint": "python x.py"}});
    write(
        root,
        &format!("{history}/05/job_events/04/05-2026-03-01-08-2.jsonl"),
        &format!("{task}\n{ran}\n{job}\n{{cut"),
    );
    write(root, &format!("{history}/05/logs/raylet.out"), "one\ntwo\nthree\n");
    let event = json!({"event_id": "e1", "custom_fields": {"job_id": "04"}, "severity": "ERROR", "message": "the node is full"});
    write(root, &format!("{history}/05/logs/events/event_RAYLET.log"), &format!("{event}\n"));
    write(
        root,
        &format!("{history}/fetched_endpoints/restful__api__jobs"),
        r#"[{"job_id": "04", "status": "FAILED", "message": "exit code 1"}]"#,
    );
    write(
        root,
        &format!("{history}/fetched_endpoints/restful__api__v0__cluster_metadata"),
        r#"{"rayVersion": "2.60.0"}"#,
    );
    write(
        root,
        &format!("{history}/fetched_endpoints/restful__api__v0__placement_groups?detail=1&limit=10000"),
        r#"{"groups": 1}"#,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_sites_are_not_answered() -> Result<()> {
    let folder = tempfile::tempdir()?;
    store(folder.path());
    let server = Server::start(folder.path())?;
    let code = async |name: &str, value: &str| -> Result<u16> {
        let request = server.client.get(format!("{}/clusters", server.address)).header(name, value);
        Ok(request.send().await?.status().as_u16())
    };
    assert_eq!(code("host", "localhost:8080").await?, 200);
    assert_eq!(code("host", "history.corp").await?, 200, "it was allowed");
    assert_eq!(code("host", "attacker.example").await?, 403, "a name that resolves to this machine");
    assert_eq!(code("origin", "https://attacker.example").await?, 403);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_cluster_answers_as_rays_dashboard_does() -> Result<()> {
    let folder = tempfile::tempdir()?;
    store(folder.path());
    let server = Server::start(folder.path())?;
    assert_eq!(server.get("/readz", "").await?, (200, "ok".to_owned()));
    assert_eq!(server.get("/livez", "").await?, (200, "ok".to_owned()));
    let clusters = server.json("/clusters", "").await?;
    assert_eq!(
        (&clusters[0]["name"], &clusters[0]["ownerKind"], &clusters[0]["ownerName"]),
        (&json!("train-x"), &json!("rayjob"), &json!("train"))
    );
    assert_eq!(clusters[0]["createTime"], "2026-03-01T08:30:00Z");
    assert_eq!(clusters[1]["name"], "old");
    let (code, page) = server.get("/select_cluster", "").await?;
    assert!(code == 200 && page.contains("/enter_cluster/ns/rayjob/train/session_2026"), "{page}");

    assert_eq!(server.get("/api/jobs/", "").await?.0, 400, "no cluster is chosen");
    assert_eq!(server.get("/enter_cluster/ns/rayjob/none", "").await?.0, 404);
    assert_eq!(server.get("/enter_cluster/ns/pod/none", "").await?.0, 400);
    assert_eq!(server.get("/enter_cluster/ns", "").await?.0, 400);
    let lost = format!("cluster_name=c; cluster_namespace=ns; session_name={SESSION}");
    let (code, text) = server.get("/api/jobs/", &lost).await?;
    assert_eq!((code, text.as_str()), (503, "session snapshot not in cache; reload via /enter_cluster"));

    let cookies = server.enter("/enter_cluster/ns/rayjob/train").await?;
    assert!(cookies.contains("cluster_name=train-x") && cookies.contains("owner_kind=rayjob"), "{cookies}");
    assert_eq!(server.enter(&format!("/enter_cluster/ns/rayjob/train/{SESSION}")).await?, cookies);
    let jobs = server.json("/api/jobs/", &cookies).await?;
    assert_eq!((&jobs[0]["job_id"], &jobs[0]["entrypoint"]), (&json!("04"), &json!("python x.py")));
    assert_eq!(jobs[0]["status"], "FAILED", "as the dashboard reported");
    assert_eq!(server.json("/api/jobs/04", &cookies).await?["message"], "exit code 1");
    assert_eq!(server.get("/api/jobs/none", &cookies).await?.0, 404);
    let tasks = server
        .json(
            "/api/v0/tasks?detail=1&limit=10&filter_keys=state&filter_predicates=%3D&filter_values=finished",
            &cookies,
        )
        .await?;
    let task = &tasks["data"]["result"]["result"][0];
    assert_eq!(
        (&task["task_id"], &task["state"], &task["name"]),
        (&json!("010203"), &json!("FINISHED"), &json!("work"))
    );
    let summary = server.json("/api/v0/tasks/summarize", &cookies).await?;
    assert_eq!(
        summary["data"]["result"]["result"]["node_id_to_summary"]["cluster"]["summary"]["work"]["state_counts"]["FINISHED"],
        1
    );
    assert_eq!(server.json("/api/v0/tasks/timeline", &cookies).await?, json!([]));
    let nodes = server.json("/nodes?view=summary", &cookies).await?;
    assert_eq!(nodes["data"]["summary"][0]["raylet"]["nodeId"], "05");
    assert_eq!(server.json("/nodes?view=hostNameList", &cookies).await?["data"]["hostNameList"], json!(["h"]));
    assert_eq!(server.json("/nodes/05", &cookies).await?["data"]["detail"]["ip"], "10.0.0.1");
    assert_eq!(server.json("/logical/actors", &cookies).await?["data"]["actors"], json!({}));
    assert_eq!(server.json("/api/v0/cluster_metadata", &cookies).await?["rayVersion"], "2.60.0");
    assert_eq!(server.json("/api/v0/placement_groups?detail=1&limit=10000", &cookies).await?["groups"], 1);
    assert_eq!(server.json("/api/serve/applications/", &cookies).await?, json!({}));
    assert_eq!(server.json("/timezone", &cookies).await?["value"], "Etc/UTC");
    assert_eq!(server.json("/events", &cookies).await?["data"]["events"]["04"][0]["message"], "the node is full");
    assert_eq!(server.json("/events?job_id=05", &cookies).await?["data"]["events"], json!([]));
    assert!(server.json("/api/cluster_status?format=1", &cookies).await?["data"]["clusterStatus"].is_string());
    let logs = server.json("/api/v0/logs?node_id=05", &cookies).await?;
    assert_eq!(logs["data"]["result"]["raylet"], json!(["raylet.out"]));
    assert_eq!(
        server.get("/api/v0/logs/file?node_id=05&filename=raylet.out&lines=2", &cookies).await?,
        (200, "two\nthree\n".to_owned())
    );
    let out = "/api/v0/logs/file?node_id=05&filename=..%2F..%2F..%2Fsecret";
    assert_eq!(server.get(out, &cookies).await?.0, 404);
    assert_eq!(server.get("/api/v0/logs/stream?node_id=05", &cookies).await?.0, 501);
    assert_eq!(server.get("/api/grafana_health", &cookies).await?.0, 501);
    assert_eq!(server.get("/api/none", &cookies).await?.0, 404);
    let posted = server.client.post(format!("{}/api/jobs/", server.address)).header("cookie", &cookies).send().await?;
    assert_eq!(posted.status(), 405, "history is not written");
    Ok(())
}

#[test]
fn a_directory_without_history_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
    let output = command.args(["history", "serve", "--storage-root-dir"]).arg(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("has no folder cluster-metadata"), "{text}");
}
