//! axe-core on every view. It comes from npm into the cache; without it the scenario is ignored.

use crate::objects::{failed_job, job_spec, object, plant_cluster, plant_cron_job, plant_service};
use crate::world::{World, dialog_closed};
use anyhow::{Context, Result, ensure};
use manta_testkit::{Tab, cache_folder};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const VERSION: &str = "4.10.3";

/// Returns why a scenario cannot run.
pub(crate) fn lacks(scenario: &str) -> Option<String> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    let missing = || MISSING.get_or_init(|| axe().err().map(|error| format!("no axe-core: {error:#}"))).clone();
    scenario.starts_with("accessibility").then(missing).flatten()
}

/// Returns the script, which npm fetches the first time.
fn axe() -> Result<PathBuf> {
    let folder = cache_folder()?.join(format!("axe-core-{VERSION}"));
    let script = folder.join("node_modules/axe-core/axe.min.js");
    if !script.is_file() {
        std::fs::create_dir_all(&folder)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&folder);
        let fetched = npm.arg(format!("axe-core@{VERSION}")).stdout(Stdio::null()).status();
        ensure!(fetched.context("npm is not installed")?.success() && script.is_file(), "npm cannot fetch it");
    }
    Ok(script)
}

pub(crate) async fn axe_finds_nothing_serious(world: &World) -> Result<()> {
    let namespace = world.namespace("axe").await?;
    plant_cluster(world, &namespace, "cluster").await?;
    plant_service(world, &namespace, "service").await?;
    plant_cron_job(world, &namespace, "cron").await?;
    world.create(object("RayJob", &namespace, "job", &job_spec(), &failed_job())).await?;
    let tab = world.open().await?;
    let script = std::fs::read_to_string(axe()?)?;
    for scheme in ["light", "dark"] {
        tab.prefer("prefers-color-scheme", scheme).await?;
        tab.until(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches")).await?;
        check(&tab, &script, "#/", "document.querySelector('.table-space .row')", scheme).await?;
        let cluster = format!("#/RayCluster/{namespace}/cluster");
        check(&tab, &script, &cluster, "document.querySelectorAll('button.cell').length === 15", scheme).await?;
        tab.click("button.cell.failed", "").await?;
        tab.click(".pod button", "Log").await?;
        check(&tab, &script, &cluster, "document.querySelector('.log-lines')", scheme).await?;
        tab.click(".actions button", "Delete").await?;
        check(&tab, &script, &cluster, "document.querySelector('dialog[open]')", scheme).await?;
        tab.click("dialog button", "Cancel").await?;
        dialog_closed(&tab).await?;
        check(&tab, &script, &format!("#/RayJob/{namespace}/job"), "document.querySelector('.traceback')", scheme)
            .await?;
        check(&tab, &script, &format!("#/RayService/{namespace}/service"), "document.querySelector('.side')", scheme)
            .await?;
        check(&tab, &script, &format!("#/RayCronJob/{namespace}/cron"), "document.querySelector('.run-mark')", scheme)
            .await?;
        check(&tab, &script, "#/new", "document.querySelector('.templates button')", scheme).await?;
        let operator = "document.querySelector('h1')?.textContent.includes('Operator')";
        check(&tab, &script, "#/operator", operator, scheme).await?;
    }
    Ok(())
}

async fn check(tab: &Tab, script: &str, address: &str, shown: &str, scheme: &str) -> Result<()> {
    tab.eval(&format!("if (location.hash !== '{address}') location.hash = '{address}'")).await?;
    tab.until(shown).await?;
    // Evaluated by the debugger, which the page's policy does not bind.
    tab.eval(&format!("if (!window.axe) {{ {script} }}")).await?;
    let found = tab.eval("axe.run().then(({violations}) => violations)").await?;
    let describe = |violation: &Value| {
        let nodes: Vec<&str> = violation["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|node| node["html"].as_str())
            .take(3)
            .collect();
        format!("{} ({}): {nodes:?} {}", violation["id"], violation["impact"], violation["nodes"][0]["failureSummary"])
    };
    let is_serious = |violation: &&Value| violation["impact"] == "serious" || violation["impact"] == "critical";
    let serious: Vec<String> = found.as_array().into_iter().flatten().filter(is_serious).map(describe).collect();
    ensure!(serious.is_empty(), "{address} in {scheme}: {serious:#?}");
    Ok(())
}
