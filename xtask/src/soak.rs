//! Looks for slow memory growth: creates and deletes many pods in one `manta up`.
//!
//! Pods come in waves. Between two waves no pod is left, so the memory at these points is comparable. Only events are
//! kept, for an hour: after that as many expire as are added, and memory has to stay the same.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use manta_testkit::Supervised;

use crate::operator::{Build, built_manta};
use crate::process::{block_on, print_line};
use crate::usage::Usage;

/// Pods of one wave; a node takes 110.
const WAVE: usize = 50;
/// Minutes after which events expire and memory is steady, with some margin.
const UNTIL_STEADY: u64 = 65;
/// The largest growth of the memory that counts as none.
const TOLERANCE: f64 = 0.10;
/// Timeout for a wave to run, or to be gone; generous, because the machine may be busy.
const WAVE_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of pods
    #[arg(long, env = "PODS", default_value_t = 10_000)]
    pods: usize,
    /// Minutes over which they are created; memory is compared from minute 65 on
    #[arg(long, env = "MINUTES", default_value_t = 120, value_parser = clap::value_parser!(u64).range(UNTIL_STEADY + 5..))]
    minutes: u64,
    /// Program to run [default: this workspace's `manta`, built in release]
    #[arg(long, env = "MANTA", value_name = "PROGRAM")]
    manta: Option<PathBuf>,
}

/// What is known at the end of a wave, when no pod is left.
#[derive(Debug, Clone, Copy)]
struct Sample {
    minutes: f64,
    pods: usize,
    events: usize,
    rss_bytes: u64,
}

/// Runs the soak, prints a table, and returns whether the memory stayed the same.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let program = match &args.manta {
        Some(program) => program.clone(),
        None => built_manta(Build::Release)?,
    };
    let program = program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state");
    let mut command = std::process::Command::new(&program);
    command.args(["up", "--port=0", "--state"]).arg(&state).env("RUST_LOG", "warn");
    let mut process = Supervised::start(folder.path(), "manta", &command)?;
    let samples = block_on(async {
        let client = connect(&mut process, &state).await?;
        soak(&client, &mut process, &program, args).await
    })?;
    process.terminate(Duration::from_secs(60))?;
    report(&samples)
}

/// Waits until local mode is up and returns a client for it.
async fn connect(process: &mut Supervised, state: &Path) -> Result<Client> {
    let end = Instant::now() + Duration::from_secs(300);
    while !process.log_tail(20).contains("local mode is up") {
        process.check()?;
        if Instant::now() > end {
            bail!("local mode did not start within 300 s; the end of its log:\n{}", process.log_tail(15));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let file = kube::config::Kubeconfig::read_from(state.join("kubeconfig"))?;
    let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn soak(client: &Client, process: &mut Supervised, program: &Path, args: &Args) -> Result<Vec<Sample>> {
    let waves = args.pods.div_ceil(WAVE).max(1);
    let pause = Duration::from_secs(args.minutes * 60) / u32::try_from(waves)?;
    let (pods, events): (Api<Pod>, Api<Event>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let mut samples: Vec<Sample> = Vec::new();
    let mut printed = 0.0;
    print_line("| minute | pods so far | events | memory |\n| --- | --- | --- | --- |");
    let start = tokio::time::Instant::now();
    for wave in 0..waves {
        tokio::time::sleep_until(start + pause * u32::try_from(wave)?).await;
        let size = WAVE.min(args.pods - wave * WAVE);
        run_wave(&pods, wave, size).await.with_context(|| format!("wave {wave}: {}", process.log_tail(5)))?;
        process.check()?;
        let sample = Sample {
            minutes: start.elapsed().as_secs_f64() / 60.0,
            pods: wave * WAVE + size,
            events: count(&events).await?,
            rss_bytes: resident(process.pid(), program)?,
        };
        if sample.minutes >= printed || wave + 1 == waves {
            print_line(&sample.row());
            printed = sample.minutes + 5.0;
        }
        samples.push(sample);
    }
    Ok(samples)
}

/// Creates the pods of one wave, waits until they have run, deletes them, and waits until they are gone.
async fn run_wave(pods: &Api<Pod>, wave: usize, size: usize) -> Result<()> {
    futures::stream::iter(0..size)
        .map(|index| async move { pods.create(&PostParams::default(), &pod(wave, index)).await })
        .buffer_unordered(8)
        .try_collect::<Vec<Pod>>()
        .await
        .context("cannot create a pod")?;
    wait_until(pods, |pods| pods.len() == size && pods.iter().all(has_run)).await.context("the pods do not run")?;
    for pod in pods.list(&ListParams::default()).await? {
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(1)).await?;
    }
    wait_until(pods, <[Pod]>::is_empty).await.context("the pods are not deleted")
}

/// Returns a pod that ends at once, or, one in five, one that runs until it is deleted.
fn pod(wave: usize, index: usize) -> Pod {
    let command = if index.is_multiple_of(5) { "echo up; exec sleep 86400" } else { "echo done" };
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": format!("soak-{wave}-{index}")},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "busybox", "command": ["sh", "-c", command],
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    }))
    .expect("a valid pod")
}

fn has_run(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some(if is_endless(pod) { "Running" } else { "Succeeded" })
}

fn is_endless(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.flat_map(|container| container.command.iter().flatten()).any(|part| part.contains("sleep"))
}

async fn wait_until(pods: &Api<Pod>, done: impl Fn(&[Pod]) -> bool) -> Result<()> {
    let end = Instant::now() + WAVE_TIMEOUT;
    loop {
        let list = pods.list(&ListParams::default()).await?.items;
        if done(&list) {
            return Ok(());
        }
        if Instant::now() > end {
            let first = list.iter().find(|pod| !has_run(pod)).or(list.first());
            bail!("{} pods are left after {} s; one is {first:?}", list.len(), WAVE_TIMEOUT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Counts events without transferring them all.
async fn count(events: &Api<Event>) -> Result<usize> {
    let page = events.list_metadata(&ListParams::default().limit(1)).await?;
    let more = page.metadata.remaining_item_count.unwrap_or_default();
    Ok(page.items.len() + usize::try_from(more)?)
}

/// Returns the memory of local mode: all processes below `root` that run the program itself.
fn resident(root: i32, program: &Path) -> Result<u64> {
    let mut family = vec![root];
    let mut index = 0;
    while let Some(&pid) = family.get(index) {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        index += 1;
    }
    let own =
        family.iter().filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program));
    own.map(|pid| Usage::of(*pid).map(|usage| usage.rss_bytes)).sum()
}

impl Sample {
    fn row(&self) -> String {
        let megabytes = self.rss_bytes as f64 / f64::from(1 << 20);
        format!("| {:.0} | {} | {} | {megabytes:.1} MB |", self.minutes, self.pods, self.events)
    }
}

/// Compares the last sample with the first steady one.
fn report(samples: &[Sample]) -> Result<bool> {
    let steady = samples.iter().find(|sample| sample.minutes >= UNTIL_STEADY as f64);
    let (first, last) = steady.zip(samples.last()).context("the soak was too short")?;
    let growth = last.rss_bytes as f64 / first.rss_bytes as f64 - 1.0;
    print_line(&format!(
        "memory changed by {:+.1} % from minute {:.0} to minute {:.0}, at most {:.0} % is allowed",
        growth * 100.0,
        first.minutes,
        last.minutes,
        TOLERANCE * 100.0
    ));
    Ok(growth <= TOLERANCE)
}
