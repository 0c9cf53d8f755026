//! Measures the page with thousands of clusters: `make page-bench`.

use crate::objects::{cluster_spec, group, object, ready};
use crate::world::{Served, World};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use manta_testkit::Tally;
use serde_json::json;
use std::time::{Duration, Instant};

/// What must hold.
const FIRST_VIEW: Duration = Duration::from_secs(1);
const MEMORY: u64 = 50 << 20;
const LONGEST_FRAME: f64 = 200.0;
const MOST_ROWS: u64 = 100;
const CHANGES_PER_SECOND: u32 = 100;
const SECONDS: u32 = 20;

/// Returns the number of clusters, if this run is a measurement.
pub(crate) fn wanted() -> Option<usize> {
    std::env::var("MANTA_PAGE_CLUSTERS").ok()?.parse().ok()
}

pub(crate) async fn run(clusters: usize, tally: &mut Tally) {
    let start = Instant::now();
    let measured = measure(clusters).await;
    if let Err(error) = &measured {
        println!("{error:#}");
    }
    tally.record("bench::thousands_of_clusters", measured.is_ok(), start.elapsed());
}

async fn measure(clusters: usize) -> Result<()> {
    let world = World::start().await?;
    let namespace = world.namespace("many").await?;
    let name = |index: usize| format!("cluster-{index:05}");
    let spec = cluster_spec(&[group("cpu", 4, 1), group("gpu", 2, 1)]);
    let all =
        (0..clusters).map(|index| world.create(object("RayCluster", &namespace, &name(index), &spec, &ready(6, 6))));
    futures::stream::iter(all).buffer_unordered(8).try_for_each(|_| async { Ok(()) }).await?;
    println!("{clusters} clusters exist");

    // A page that was just started, as a person sees it who opens the printed address.
    let page = Served::start(world.folder.path(), "fresh", &world.plane.kubeconfig_path(), &[]).await?;
    let tab = world.browser.open("about:blank").await?;
    tab.send("Page.navigate", json!({"url": page.url})).await?;
    tab.until("document.querySelector('.total')?.textContent.includes('objects')").await?;
    let drawn = |tab| async move { first_view(tab).await };
    let cold = drawn(&tab).await?;
    // Again, now that the server has listed everything.
    tab.send("Page.navigate", json!({"url": "about:blank"})).await?;
    tab.send("Page.navigate", json!({"url": page.url})).await?;
    tab.until("document.querySelector('.total')?.textContent.includes('objects')").await?;
    let warm = drawn(&tab).await?;
    let rows = tab.eval("document.querySelector('.total').textContent").await?;
    let drawn = tab.eval("document.querySelectorAll('.table-rows .row').length").await?;
    let drawn = drawn.as_u64().context("no rows")?;
    println!("first view: {cold:.0} ms right after the start, {warm:.0} ms later; {rows}, {drawn} rows drawn");
    ensure!(drawn < MOST_ROWS, "{drawn} rows are drawn, and only those on screen should be");

    let frames = "new Promise((done) => { const times = []; let last = performance.now(); const end = last + LENGTH; const next = (now) => { times.push(now - last); last = now; if (now < end) requestAnimationFrame(next); else done([times.length, Math.max(...times), times.filter((t) => t > 50).length]); }; requestAnimationFrame(next); })";
    let frames = frames.replace("LENGTH", &(SECONDS * 1000).to_string());
    let api = world.ray("RayCluster", &namespace);
    let change = async {
        let mut tick = tokio::time::interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
        for number in 0..CHANGES_PER_SECOND * SECONDS {
            tick.tick().await;
            let index = usize::try_from(number).unwrap_or_default() * 7919 % clusters;
            world
                .set_status(
                    &api,
                    &name(index),
                    &json!({"state": format!("state-{number}"), "readyWorkerReplicas": number % 7}),
                )
                .await?;
        }
        anyhow::Ok(Instant::now())
    };
    let start = Instant::now();
    let (frames, changed) = tokio::join!(tab.eval(&frames), change);
    let (frames, took) = (frames?, changed? - start);
    let longest = frames[1].as_f64().context("no frames")?;
    let rate = f64::from(CHANGES_PER_SECOND * SECONDS) / took.as_secs_f64();
    println!("{rate:.0} changes a second: {} frames, the longest {longest:.0} ms, {} over 50 ms", frames[0], frames[2]);
    let memory = resident(page.process.pid())?;
    println!("memory of the server: {:.1} MB", memory as f64 / 1e6);
    ensure!(Duration::from_secs_f64(warm / 1000.0) < FIRST_VIEW, "the first view took {warm} ms");
    ensure!(Duration::from_secs_f64(cold / 1000.0) < FIRST_VIEW, "the first view took {cold} ms right after the start");
    ensure!(longest < LONGEST_FRAME, "a frame took {longest} ms");
    ensure!(memory < MEMORY, "the server holds {memory} bytes");
    Ok(())
}

/// Returns how many milliseconds after the navigation the first rows were drawn.
async fn first_view(tab: &manta_testkit::Tab) -> Result<f64> {
    let time = tab.eval("performance.getEntriesByName('first-rows')[0]?.startTime").await?;
    time.as_f64().context("the page did not mark its first rows")
}

/// Returns the resident memory of a process.
fn resident(pid: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? * 1024)
}
