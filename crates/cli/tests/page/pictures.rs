//! Takes the pictures of the documentation: `make page-pictures`.

use crate::objects::{
    self, cluster_spec, failed_job, group, job_spec, made_by, object, plant_cluster, plant_cron_job, plant_service,
    pod, ready,
};
use crate::world::World;
use anyhow::Result;
use serde_json::json;
use std::path::{Path, PathBuf};

/// What the job that fails has printed.
const DRIVER: &str = "\
2026-01-01 09:41:03,118 INFO worker.py:1852 -- Connecting to existing Ray cluster at address: 10.0.0.1:6379...
2026-01-01 09:41:03,131 INFO worker.py:2024 -- Connected to Ray cluster.
loading 1,281,167 images from s3://research/imagenet
epoch 1: loss 0.71, 2,143 images/s
Traceback (most recent call last):
  File \"/home/ray/train.py\", line 42, in <module>
    main()
  File \"/home/ray/train.py\", line 31, in main
    batch = batch.to(\"cuda:7\")
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
";

/// Returns the folder for the pictures, if they are wanted.
pub(crate) fn wanted() -> Option<PathBuf> {
    std::env::var_os("MANTA_PAGE_PICTURES").map(PathBuf::from)
}

pub(crate) async fn take(folder: &Path) -> Result<()> {
    let world = World::start().await?;
    plant(&world).await?;
    std::fs::create_dir_all(folder)?;
    let tab = world.open().await?;
    let views = [
        ("overview", "#/", "document.querySelectorAll('.table-space .row').length > 8", "light"),
        ("overview-dark", "#/", "true", "dark"),
        ("cluster", "#/RayCluster/research/vision", "document.querySelectorAll('button.cell').length === 15", "light"),
        ("job", "#/RayJob/research/train-resnet", "document.querySelector('.traceback')", "light"),
        ("service", "#/RayService/serving/chat", "document.querySelectorAll('.side').length === 2", "dark"),
        ("cron-job", "#/RayCronJob/research/report", "document.querySelector('.timeline .run-mark.missed')", "light"),
    ];
    for (name, address, shown, scheme) in views {
        tab.prefer("prefers-color-scheme", scheme).await?;
        // The log of a job comes last.
        tab.resize(1280, if name == "job" { 1060 } else { 860 }).await?;
        tab.eval(&format!("location.hash = '{address}'")).await?;
        tab.until(shown).await?;
        if address.matches('/').count() == 3 {
            tab.until("document.querySelector('.explain .cause')").await?;
        }
        if name == "job" {
            // No Ray runs here, so the driver's output is handed to the log as the server would.
            let output = json!({"source": "Ray job train-abc", "text": DRIVER, "end": ""});
            tab.until("document.querySelector('.log-bar button')").await?;
            tab.eval(&format!("document.querySelector('.log').manta.log.receive({output})")).await?;
        }
        // Two frames, so that everything is drawn.
        tab.eval(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 600))))",
        )
        .await?;
        std::fs::write(folder.join(format!("page-{name}.png")), tab.screenshot().await?)?;
    }
    tab.prefer("prefers-color-scheme", "light").await?;
    tab.eval("location.hash = '#/new'").await?;
    tab.click(".templates button", "Job").await?;
    tab.eval("(() => { const area = document.querySelector('textarea'); area.value = area.value.replace('replicas: 1', 'replicas: one').replace('HTTPMode', 'HttpMode'); area.dispatchEvent(new Event('input')); })()").await?;
    tab.until("document.querySelector('.finding.error')").await?;
    tab.until("document.querySelector('.gutter .error')").await?;
    std::fs::write(folder.join("page-new.png"), tab.screenshot().await?)?;
    Ok(())
}

async fn plant(world: &World) -> Result<()> {
    let research = world.namespace("research").await?;
    let serving = world.namespace("serving").await?;
    plant_cluster(world, &research, "vision").await?;
    plant_service(world, &serving, "chat").await?;
    plant_cron_job(world, &research, "report").await?;
    world.create(object("RayJob", &research, "train-resnet", &job_spec(), &failed_job())).await?;
    let running = json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "jobId": "embed-1",
        "rayClusterName": "embed-k2", "startTime": objects::ago(8), "rayJobInfo": {"startTime": objects::ago(5)},
        "rayClusterStatus": ready(2, 2)});
    let embed = world.create(object("RayJob", &research, "embed-corpus", &job_spec(), &running)).await?;
    let cluster = object("RayCluster", &research, "embed-k2", &cluster_spec(&[group("workers", 2, 1)]), &ready(2, 2));
    world.create(made_by(cluster, &embed)).await?;
    world.create_pod(&research, pod("embed-k2-head", "embed-k2", "head", "headgroup", &objects::Is::Ready)).await?;
    let mut suspended = cluster_spec(&[group("workers", 4, 1)]);
    suspended["suspend"] = true.into();
    world.create(object("RayCluster", &research, "weekend", &suspended, &json!({"state": "suspended"}))).await?;
    let blocked = json!({"conditions": [{"type": "RayClusterPodsBlocked", "status": "True", "reason": "Unschedulable",
        "message": "llm-head: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu", "lastTransitionTime": objects::ago(9)}]});
    world.create(object("RayCluster", &serving, "llm", &cluster_spec(&[group("gpu", 2, 1)]), &blocked)).await?;
    Ok(())
}
