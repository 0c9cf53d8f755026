//! `manta demo`: runs a cluster, a job and a service with real Ray on this machine, then cleans up.

use super::explain::one;
use crate::records::RecordsArgs;
use crate::connect::Target;
use crate::explain::text;
use crate::local::{self, Local, LocalArgs};
use crate::output::print_line;
use crate::resource::{Kind, Reference};
use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use manta_agent::{environments, runtime::memory};
use serde_json::Value;
use std::future::Future;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLUSTER: &str = include_str!("../../../../examples/raycluster.yaml");
const JOB: &str = include_str!("../../../../examples/rayjob.yaml");
const SERVICE: &str = include_str!("../../../../examples/rayservice.yaml");
/// How long one step may take; generous, because the machine may be busy.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the installation of Ray may take; generous, because the connection may be slow.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(3600);

/// How often containers of a Pod are restarted before the demo gives up.
const MAX_RESTARTS: i32 = 4;

/// Run a RayCluster, a RayJob and a RayService on this machine, then clean up
///
/// Needs Python 3. The first run installs Ray into its own environment. Exits with 0 only if every step
/// succeeded.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    local: LocalArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let folder = std::env::temp_dir().join(format!("manta-demo-{}", std::process::id()));
    let options = args.local.options(folder.clone(), None, 0)?.quiet();
    let done = local::run(options, async |local| {
        let result = tokio::select! {
            result = demo(&local, started) => result,
            () = local.stop.cancelled() => Err(anyhow::anyhow!("interrupted")),
        };
        if result.is_err() && !local.stop.is_cancelled() {
            explain(&local).await;
        }
        (local, result)
    });
    let _ = std::fs::remove_dir_all(&folder);
    if matches!(done, Ok(ExitCode::SUCCESS)) {
        print_line(&format!("cleaned up; {:.1} s in total", started.elapsed().as_secs_f64()));
    }
    done
}

async fn demo(local: &Local, started: Instant) -> anyhow::Result<ExitCode> {
    let mut steps = Steps { started, times: Vec::new() };
    steps.run_within(INSTALL_TIMEOUT, "Ray on this machine", prepare(local)).await?;
    let peak = AtomicU64::new(0);
    let print = |line: String| print_line(&format!("      {line}"));
    let all = async {
        steps.run("local mode: API server, operator, node agent", async { Ok("up".to_owned()) }).await?;
        steps.run("RayCluster demo: 1 head, 2 workers", cluster(local)).await?;
        steps.run("RayJob hello: actors on all nodes", job(local)).await?;
        remove(local, "RayJob", "hello").await?;
        remove(local, "RayCluster", "demo").await?;
        steps.run("RayService greeter: an HTTP endpoint", service(local)).await?;
        anyhow::Ok(())
    };
    tokio::select! {
        done = all => done?,
        () = local::print_changes(&local.client, &print) => bail!("the API server stopped"),
        () = measure(&peak) => {}
        pod = keeps_failing(local) => bail!("Pod {pod} keeps failing"),
    }
    print_line("");
    for (name, seconds) in &steps.times {
        print_line(&format!("  {seconds:6.1} s  {name}"));
    }
    let used = match peak.load(Ordering::Relaxed) >> 20 {
        // Pods without a PID namespace of their own are not told apart from this process.
        0 => String::new(),
        mib => format!("; pods used {mib} MiB at most"),
    };
    print_line(&format!("  {:6.1} s  from the start{used}", started.elapsed().as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}

struct Steps {
    started: Instant,
    times: Vec<(&'static str, f64)>,
}

impl Steps {
    async fn run(
        &mut self,
        name: &'static str,
        step: impl Future<Output = anyhow::Result<String>>,
    ) -> anyhow::Result<()> {
        self.run_within(STEP_TIMEOUT, name, step).await
    }

    /// Runs one step and prints when it starts, when it ends and its result.
    async fn run_within(
        &mut self,
        timeout: Duration,
        name: &'static str,
        step: impl Future<Output = anyhow::Result<String>>,
    ) -> anyhow::Result<()> {
        print_line(&format!("[{:5.1} s] {name}", self.started.elapsed().as_secs_f64()));
        let start = Instant::now();
        let result = match tokio::time::timeout(timeout, step).await {
            Ok(result) => result.with_context(|| name.to_owned())?,
            Err(_) => bail!("{name}: timed out after {} s", timeout.as_secs()),
        };
        let seconds = start.elapsed().as_secs_f64();
        print_line(&format!("[{:5.1} s] {name}: {result}", self.started.elapsed().as_secs_f64()));
        self.times.push((name, seconds));
        Ok(())
    }
}

/// Finds a Ray environment, or installs one.
async fn prepare(local: &Local) -> anyhow::Result<String> {
    match local::find_ray(&local.catalog, local::RAY_VERSION) {
        local::Found::Ready(what) => Ok(what),
        local::Found::Missing { recipe, path } => {
            print_line("      not installed yet; the first run downloads about 500 MB");
            let made = environments::make(&local.machine, &recipe, &path, &local::show_installation).await;
            made.map_err(anyhow::Error::msg)?;
            Ok(recipe.to_string())
        }
    }
}

async fn cluster(local: &Local) -> anyhow::Result<String> {
    local::apply_text(&local.client, "raycluster.yaml", CLUSTER).await?;
    let status = wait_for_status(local, "RayCluster", "demo", |status| (status["state"] == "ready").then(|| status.clone())).await?;
    Ok(format!("ready, head at {}", status["head"]["podIP"].as_str().unwrap_or("?")))
}

async fn job(local: &Local) -> anyhow::Result<String> {
    local::apply_text(&local.client, "rayjob.yaml", JOB).await?;
    let status = wait_for_status(local, "RayJob", "hello", |status| {
        let over = ["Complete", "Failed", "ValidationFailed"].iter().any(|s| status["jobDeploymentStatus"] == *s);
        over.then(|| status.clone())
    })
    .await?;
    let head = get(local, "RayCluster", "demo").await?.data["status"]["head"]["podIP"].as_str().unwrap_or("").to_owned();
    let id = status["jobId"].as_str().context("the job has no id")?;
    let url = format!("http://{head}:8265/api/jobs/{id}/logs");
    let logs: Value = reqwest::get(&url).await?.json().await.context("cannot read the job's log")?;
    let logs = logs["logs"].as_str().unwrap_or_default();
    // Ray logs the entrypoint first; the output of the script follows.
    let own = logs.lines().skip_while(|line| *line != "\"").skip(1).filter(|line| !line.is_empty());
    for line in own {
        print_line(&format!("      | {line}"));
    }
    if status["jobStatus"] != "SUCCEEDED" {
        bail!("the job ended with {}: {}", status["jobStatus"], status["message"]);
    }
    if !logs.contains("sum of squares: 506") {
        bail!("the job did not print its result");
    }
    Ok("SUCCEEDED".to_owned())
}

async fn service(local: &Local) -> anyhow::Result<String> {
    local::apply_text(&local.client, "rayservice.yaml", SERVICE).await?;
    wait_for_status(local, "RayService", "greeter", |status| {
        let conditions = status["conditions"].as_array()?;
        conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True").then_some(())
    })
    .await?;
    // Through its Service, as another pod would call it.
    let host = if local.has_pod_networks { "greeter-serve-svc.default.svc.cluster.local" } else { "127.0.0.1" };
    let url = &format!("http://{host}:8000/?name=manta");
    let response = reqwest::get(url).await.with_context(|| format!("cannot call {url}"))?;
    let (code, text) = (response.status(), response.text().await?);
    if !code.is_success() || text != "hello manta" {
        bail!("{url} returned {code}: {text}");
    }
    Ok(format!("GET {url} -> {} {text:?}", code.as_u16()))
}

/// Waits until `want` finds what it looks for in the status of an object.
async fn wait_for_status<T>(local: &Local, kind: &str, name: &str, want: impl Fn(&Value) -> Option<T>) -> anyhow::Result<T> {
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tick.tick().await;
        if let Some(found) = want(&get(local, kind, name).await?.data["status"]) {
            return Ok(found);
        }
    }
}

/// Returns the name of a Pod whose containers were restarted too often to go on; Ray's own time-outs restart a few on a
/// machine that is very busy.
async fn keeps_failing(local: &Local) -> String {
    let pods: Api<Pod> = Api::default_namespaced(local.client.clone());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let Ok(found) = pods.list(&ListParams::default()).await else { continue };
        let restarts = |pod: &Pod| -> i32 {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            statuses.map(|status| status.restart_count).sum()
        };
        if let Some(pod) = found.iter().find(|pod| restarts(pod) >= MAX_RESTARTS) {
            return pod.name_any();
        }
    }
}

/// Prints why the demo does not go on, as `manta explain` does.
async fn explain(local: &Local) {
    let target = Target {
        client: local.client.clone(),
        namespace: "default".to_owned(),
        context: None,
        url: String::new(),
    };
    for (kind, name) in [(Kind::Service, "greeter"), (Kind::Job, "hello"), (Kind::Cluster, "demo")] {
        let reference = Reference { kind, name: name.to_owned() };
        if let Ok(Some(found)) = one(&target, &RecordsArgs::default(), &reference).await
            && found.recorded.is_none()
            && !found.explanation.cause.is_well
        {
            print_line("");
            return text(&found.explanation, None).lines().for_each(print_line);
        }
    }
}

async fn get(local: &Local, kind: &str, name: &str) -> anyhow::Result<DynamicObject> {
    Ok(api(local, kind).get(name).await?)
}

async fn remove(local: &Local, kind: &str, name: &str) -> anyhow::Result<()> {
    api(local, kind).delete(name, &DeleteParams::default()).await.with_context(|| format!("cannot delete {kind} {name}"))?;
    Ok(())
}

fn api(local: &Local, kind: &str) -> Api<DynamicObject> {
    Api::default_namespaced_with(local.client.clone(), &local::ray_resource(kind))
}

/// Keeps the largest sum of memory seen in pods; never returns.
async fn measure(peak: &AtomicU64) {
    let own = memory::pid_namespace_of(i32::try_from(std::process::id()).unwrap_or_default());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let Ok(used) = tokio::task::spawn_blocking(memory::by_pid_namespace).await else { continue };
        let sum = used.iter().filter(|(namespace, _)| Some(**namespace) != own).map(|(_, bytes)| bytes).sum();
        peak.fetch_max(sum, Ordering::Relaxed);
    }
}
