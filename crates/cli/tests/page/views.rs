//! Every view, and that what it shows is live.

use crate::objects::{
    self, TRACEBACK, cluster_spec, failed_job, group, job_spec, object, plant_cluster, plant_cron_job, plant_service,
    ready, upgrading,
};
use crate::world::{Served, World, check_complaints, dialog_closed};
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use manta_logic::explain::Subject;
use manta_logic::post_mortem::{Limits, Occasion, config_map};
use manta_operator::dashboard::{Client, Route};
use manta_operator::evidence::{Sources, gather};
use manta_testkit::{Tab, eventually};
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How soon a change must be on screen.
const LIVE: Duration = Duration::from_secs(1);

pub(crate) async fn the_overview_shows_all_kinds_and_finds_them(world: &World) -> Result<()> {
    let namespace = world.namespace("overview").await?;
    let spec = cluster_spec(&[group("workers", 2, 1)]);
    world.create(object("RayCluster", &namespace, "alpha", &spec, &ready(2, 2))).await?;
    let blocked = json!({"conditions": [{"type": "RayClusterPodsBlocked", "status": "True", "reason": "X",
        "message": "beta-head: no node has enough memory", "lastTransitionTime": objects::ago(1)}]});
    world.create(object("RayCluster", &namespace, "beta", &spec, &blocked)).await?;
    world.create(object("RayJob", &namespace, "gamma", &job_spec(), &failed_job())).await?;
    plant_cron_job(world, &namespace, "delta").await?;
    plant_service(world, &namespace, "epsilon").await?;
    let tab = world.open().await?;
    for (name, state) in
        [("alpha", "ready"), ("beta", "blocked"), ("gamma", "Failed"), ("delta", "Scheduled"), ("epsilon", "Upgrading")]
    {
        tab.fill("#search", &format!("overview/{name}")).await?;
        tab.until(&format!(
            "[...document.querySelectorAll('.table-space .row')].some((row) => row.querySelector('.name').textContent === {} \
             && row.querySelector('.state').textContent === {})",
            json!(name),
            json!(state)
        ))
        .await?;
    }
    tab.fill("#search", "overview").await?;
    tab.sees(".why", "no node has enough memory").await?;
    tab.click(".tile", "Jobs").await?;
    tab.until("[...document.querySelectorAll('.table-space .c-kind')].every((cell) => cell.textContent === 'Job')")
        .await?;
    tab.click(".chip", "Needs attention").await?;
    tab.until(
        "[...document.querySelectorAll('.table-space .row .pill')].every((pill) => pill.classList.contains('bad'))",
    )
    .await?;
    tab.click(".chip", "Needs attention").await?;
    tab.click(".tile", "Jobs").await?;
    let names = "[...document.querySelectorAll('.table-space .row')].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((row) => row.querySelector('.name').textContent)";
    tab.until(&format!("{names}[0] === 'alpha'")).await?;
    tab.click(".table-head button", "Name").await?;
    tab.until(&format!("{names}[0] !== 'alpha'")).await?;
    // The rows scroll in the table, however many there are: those that are not on screen are not drawn.
    tab.eval("document.querySelector('.table-space').style.minHeight = '100000px'").await?;
    let fits = "document.querySelector('.table-rows').clientHeight < innerHeight";
    ensure!(tab.eval(fits).await? == true, "the table is as high as all of its rows");
    check_complaints(&tab)
}

pub(crate) async fn the_keyboard_is_enough(world: &World) -> Result<()> {
    let namespace = world.namespace("keyboard").await?;
    for name in ["one", "two"] {
        world.create(object("RayCluster", &namespace, name, &cluster_spec(&[]), &ready(0, 0))).await?;
    }
    let tab = world.open().await?;
    tab.sees("#main", "State").await?;
    tab.press("/").await?;
    tab.until("document.activeElement.id === 'search'").await?;
    tab.send("Input.insertText", json!({"text": "keyboard/"})).await?;
    tab.until("document.querySelectorAll('.table-space .row').length === 2").await?;
    tab.press("Escape").await?;
    tab.press("j").await?;
    tab.press("j").await?;
    tab.until("document.querySelector('.row.selected .name')?.textContent === 'two'").await?;
    tab.press("k").await?;
    tab.until("document.querySelector('.row.selected .name')?.textContent === 'one'").await?;
    tab.press("?").await?;
    tab.sees("dialog", "next row").await?;
    tab.click("dialog button", "Close").await?;
    dialog_closed(&tab).await?;
    tab.press("Enter").await?;
    tab.sees("h1", "one").await?;
    // Tab goes on at the start of the new view, whose name is said.
    tab.until("document.activeElement.id === 'main'").await?;
    tab.sees("#announcer", "RayCluster one in keyboard").await?;
    tab.press("Escape").await?;
    tab.until("document.querySelector('#search')").await?;
    tab.sees("#announcer", "Overview").await?;
    check_complaints(&tab)
}

pub(crate) async fn enter_presses_what_has_the_focus(world: &World) -> Result<()> {
    let namespace = world.namespace("enter").await?;
    world.create(object("RayCluster", &namespace, "first", &cluster_spec(&[]), &ready(0, 0))).await?;
    let tab = world.open().await?;
    tab.fill("#search", "enter/").await?;
    // The rows of other scenarios go with the next frame, and one of them would be selected before that.
    tab.until(
        "[...document.querySelectorAll('.table-space .name')].map((name) => name.textContent).join() === 'first'",
    )
    .await?;
    tab.press("Escape").await?;
    tab.press("j").await?;
    tab.until("document.querySelector('.row.selected')").await?;
    // A row is selected, but the focus is on a button, and then on a link.
    tab.eval("document.getElementById('search').focus()").await?;
    tab.press("Tab").await?;
    tab.until("document.activeElement.matches('.chip')").await?;
    tab.press("Enter").await?;
    tab.until("document.querySelector('.chip').ariaPressed === 'true'").await?;
    tab.press("Enter").await?;
    tab.until("document.querySelector('.chip').ariaPressed === 'false'").await?;
    ensure!(tab.eval("location.hash").await? == "#/", "no row was opened");
    // Back among the rows, it opens the one that is selected.
    tab.press("k").await?;
    tab.press("Enter").await?;
    tab.sees("h1", "first").await?;
    tab.eval("document.querySelector('#top .brand').focus()").await?;
    tab.press("Tab").await?;
    tab.press("Tab").await?;
    tab.press("Enter").await?;
    tab.sees("h1", "Operator").await?;
    check_complaints(&tab)
}

pub(crate) async fn an_explanation_follows_the_pods(world: &World) -> Result<()> {
    let namespace = world.namespace("follows").await?;
    world.create(object("RayCluster", &namespace, "slow", &cluster_spec(&[group("g", 1, 1)]), &json!({}))).await?;
    let starting = objects::pod("slow-g-0", "slow", "worker", "g", &objects::Is::Starting);
    world.create_pod(&namespace, starting).await?;
    let tab = world.open_object("RayCluster", &namespace, "slow").await?;
    tab.until("document.querySelector('.explain .cause')").await?;
    let failing = objects::pod("slow-g-0", "slow", "worker", "g", &objects::Is::Failing);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &namespace);
    let patch = Patch::Merge(json!({"status": failing["status"]}));
    pods.patch_status("slow-g-0", &PatchParams::default(), &patch).await?;
    // The status of the cluster itself says nothing of it.
    tab.sees(".explain .cause", "cannot be pulled").await?;
    check_complaints(&tab)
}

pub(crate) async fn a_cluster_is_drawn_pod_by_pod(world: &World) -> Result<()> {
    let namespace = world.namespace("clusters").await?;
    plant_cluster(world, &namespace, "research").await?;
    let tab = world.open_object("RayCluster", &namespace, "research").await?;
    let cells = |group: &str, class: &str| {
        format!(
            "[...document.querySelectorAll('.group')].find((g) => g.querySelector('h3').textContent === '{group}')?.querySelectorAll('.cell.{class}').length"
        )
    };
    for (group, class, count) in [
        ("Head", "ready", 1),
        ("cpu", "ready", 4),
        ("gpu", "ready", 1),
        ("gpu", "failed", 1),
        ("gpu", "missing", 1),
        ("gpu", "marked", 1),
        ("tpu", "ready", 4),
        ("tpu", "starting", 4),
    ] {
        tab.until(&format!("{} === {count}", cells(group, class))).await?;
    }
    tab.until("document.querySelectorAll('.block').length === 2").await?;
    tab.sees(".wish", "autoscaler wants 3, and 1 Pod gone").await?;
    tab.sees(".condition", "RayClusterProvisioned").await?;
    tab.sees(".event", "Failed to pull image").await?;
    tab.sees(".event", "CreatedHeadPod").await?;
    // The same first line as that of `manta explain`.
    tab.sees(".explain .cause", "of the worker Pod research-gpu-1 of group gpu cannot be pulled").await?;
    tab.eval("document.querySelector('button.cell.failed').click()").await?;
    tab.sees(".pod", "ImagePullBackOff").await?;
    tab.sees(".pod", "node-a").await?;
    // Without a node there is no log, and the page says so.
    tab.click(".pod button", "Log").await?;
    tab.until("document.querySelector('.log-bar')?.textContent.length > 40").await?;
    check_complaints(&tab)
}

pub(crate) async fn containers_that_crashed_have_two_logs(world: &World) -> Result<()> {
    let namespace = world.namespace("crashed").await?;
    world.create(object("RayCluster", &namespace, "again", &cluster_spec(&[group("g", 1, 1)]), &ready(0, 1))).await?;
    let mut worker = objects::pod("again-g-0", "again", "worker", "g", &objects::Is::Ready);
    let ended = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    worker["status"]["containerStatuses"][0]["restartCount"] = 2.into();
    worker["status"]["containerStatuses"][0]["lastState"] = ended;
    let done = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
    worker["status"]["initContainerStatuses"] = json!([{"name": "wait-gcs-ready", "image": "ray", "imageID": "",
        "ready": true, "restartCount": 0, "state": done}]);
    world.create_pod(&namespace, worker).await?;
    let tab = world.open_object("RayCluster", &namespace, "again").await?;
    tab.click("button.cell", "").await?;
    tab.sees(".containers", "ended before by OOMKilled (137)").await?;
    tab.click(".pod button", "Log before the restart").await?;
    let label = "document.querySelector('.log-lines')?.ariaLabel";
    tab.until(&format!("{label} === 'Log of again-g-0, ray-worker, before its restart'")).await?;
    tab.click(".containers button", "wait-gcs-ready").await?;
    tab.until(&format!("{label} === 'Log of again-g-0, wait-gcs-ready'")).await?;
    check_complaints(&tab)
}

pub(crate) async fn a_log_shows_a_line_before_it_is_complete(world: &World) -> Result<()> {
    let namespace = world.namespace("progress").await?;
    world.create(object("RayJob", &namespace, "bar", &job_spec(), &failed_job())).await?;
    world.create(object("RayCluster", &namespace, "train-x1", &cluster_spec(&[]), &json!({}))).await?;
    let tab = world.open_object("RayJob", &namespace, "bar").await?;
    // Its Ray is not there, so what it prints is handed to the log as the server would.
    tab.sees(".log-bar", "no head at the moment").await?;
    let print = |text: &str| format!("document.querySelector('.log').manta.log.receive({{text: {}}})", json!(text));
    let lines = "[...document.querySelectorAll('.log .line')].map((line) => line.textContent).join('|')";
    for (text, expect) in [
        ("start\n 10%|#", "start| 10%|#"),
        ("\r 20%|##", "start| 20%|##"),
        ("\r 30%|###\r", "start| 30%|###"),
        ("\n", "start| 30%|###"),
        ("end", "start| 30%|###|end"),
    ] {
        tab.eval(&print(text)).await?;
        tab.until(&format!("{lines} === {}", json!(expect))).await?;
    }
    // One below the other, as they are in a terminal.
    let tops = "[...document.querySelectorAll('.log .line')].map((line) => line.getBoundingClientRect().top)";
    tab.until(&format!("{tops}.map((top, index, all) => Math.round(top - all[0])).join() === '0,18,36'")).await?;
    tab.fill(".log-bar input[type=search]", "END").await?;
    tab.sees(".log mark", "end").await?;
    tab.sees(".log-bar", "3 lines").await?;
    check_complaints(&tab)
}

pub(crate) async fn a_failed_job_says_why_first(world: &World) -> Result<()> {
    let namespace = world.namespace("jobs").await?;
    world.create(object("RayJob", &namespace, "train", &job_spec(), &failed_job())).await?;
    let tab = world.open_object("RayJob", &namespace, "train").await?;
    tab.sees(".failure", "exit code 1").await?;
    tab.sees(".failure .error", "torch.cuda.OutOfMemoryError: CUDA out of memory").await?;
    tab.sees(".traceback", "line 31, in main").await?;
    let before = tab
        .eval("document.querySelector('.failure').compareDocumentPosition(document.querySelector('.phases')) & 4")
        .await?;
    ensure!(before == 4, "the failure comes before the phases");
    ensure!(TRACEBACK.contains("epoch 1"));
    tab.until("document.querySelectorAll('.phase').length >= 3").await?;
    tab.sees(".phase-list", "Running 14m").await?;
    tab.until("document.querySelectorAll('.attempt.failed').length === 3").await?;
    check_complaints(&tab)
}

pub(crate) async fn a_stopped_job_has_not_failed(world: &World) -> Result<()> {
    let namespace = world.namespace("stopped").await?;
    let mut status = failed_job();
    status["jobDeploymentStatus"] = "Complete".into();
    status["jobStatus"] = "STOPPED".into();
    status["message"] = "Job was stopped by the user.".into();
    world.create(object("RayJob", &namespace, "enough", &job_spec(), &status)).await?;
    let tab = world.open_object("RayJob", &namespace, "enough").await?;
    tab.sees(".facts", "STOPPED").await?;
    ensure!(tab.eval("document.querySelector('.failure')").await?.is_null(), "nobody failed");
    check_complaints(&tab)
}

pub(crate) async fn a_service_shows_both_clusters_of_an_upgrade(world: &World) -> Result<()> {
    let namespace = world.namespace("services").await?;
    plant_service(world, &namespace, "chat").await?;
    let tab = world.open_object("RayService", &namespace, "chat").await?;
    tab.until("document.querySelectorAll('.side').length === 2").await?;
    let traffic =
        "[...document.querySelectorAll('.gauge.traffic [role=meter]')].map((meter) => meter.ariaValueNow).join()";
    tab.until(&format!("{traffic} === '70,30'")).await?;
    tab.sees(".deployments", "1 of 2 replicas run").await?;
    tab.sees(".applications", "Deploying app 'chat'").await?;
    // It takes its time, as every upgrade does.
    tab.until("document.querySelector('.explain.working .cause')").await?;
    let api = world.ray("RayService", &namespace);
    world.set_status(&api, "chat", &upgrading("chat", 80)).await?;
    tab.until(&format!("{traffic} === '20,80'")).await?;
    let mut done = upgrading("chat", 100);
    done["activeServiceStatus"] = done["pendingServiceStatus"].clone();
    done["pendingServiceStatus"] = json!(null);
    done["conditions"][1]["status"] = "False".into();
    world.set_status(&api, "chat", &done).await?;
    tab.until("document.querySelectorAll('.side').length === 1").await?;
    tab.sees(".object", "No longer used").await?;
    check_complaints(&tab)
}

pub(crate) async fn a_cron_job_marks_the_runs_it_missed(world: &World) -> Result<()> {
    let namespace = world.namespace("cron").await?;
    plant_cron_job(world, &namespace, "report").await?;
    let tab = world.open_object("RayCronJob", &namespace, "report").await?;
    tab.until("document.querySelectorAll('.timeline .run-mark.missed').length >= 2").await?;
    tab.until("document.querySelectorAll('.timeline .run-mark.done').length === 3").await?;
    tab.until("document.querySelectorAll('.timeline .run-mark.bad').length === 1").await?;
    tab.until("document.querySelectorAll('.timeline .run-mark.coming').length >= 3").await?;
    tab.sees(".card-head", "Europe/Berlin").await?;
    check_complaints(&tab)
}

pub(crate) async fn the_operator_shows_who_leads_and_what_comes_next(world: &World) -> Result<()> {
    let namespace = world.namespace("operator").await?;
    let tab = world.open().await?;
    // A busy machine may press the second key when the first one counts no longer.
    eventually("the keys g and p lead to the operator", async || {
        tab.press("g").await?;
        tab.press("p").await?;
        ensure!(tab.eval("location.hash").await? == "#/operator", "not yet");
        Ok(())
    })
    .await?;
    tab.sees(".notice", "No operator holds a Lease here").await?;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &namespace);
    let spec = json!({"holderIdentity": "manta-7_x", "renewTime": "2026-01-01T00:00:00.000000Z"});
    let lease = json!({"metadata": {"name": manta_operator::leader::LEASE}, "spec": spec});
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    tab.sees(".sub", "Leader: manta-7_x").await?;
    tab.sees(".notice", "Its metrics cannot be read").await?;
    // A holder that would lead elsewhere is asked nothing.
    let evil = json!({"spec": {"holderIdentity": "x/exec?command=id&y=_1"}});
    leases.patch(manta_operator::leader::LEASE, &PatchParams::default(), &Patch::Merge(&evil)).await?;
    tab.sees(".notice", "is no name of an object").await?;

    world.create(object("RayCluster", &namespace, "next", &cluster_spec(&[]), &json!({}))).await?;
    tab.click(".card button", "Work it out").await?;
    tab.sees(".change", "the cluster has no head Pod").await?;
    tab.until("[...document.querySelectorAll('.change .verb')].every((verb) => verb.textContent)").await?;
    leases.delete(manta_operator::leader::LEASE, &DeleteParams::default()).await?;
    check_complaints(&tab)
}

/// Runs `change`, and returns how long after it an expression is true in the browser, by the browser's own clock.
async fn delay(tab: &Tab, expression: &str, change: impl Future<Output = Result<()>>) -> Result<Duration> {
    let watch = format!(
        "new Promise((seen) => {{ const look = () => ({expression}) ? seen(Date.now()) : requestAnimationFrame(look); look(); }})"
    );
    let (seen, changed) = tokio::join!(tab.eval(&watch), async {
        change.await?;
        anyhow::Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
    });
    let seen = Duration::from_millis(seen?.as_f64().unwrap_or_default() as u64);
    Ok(seen.saturating_sub(changed?))
}

pub(crate) async fn changes_arrive_within_a_second(world: &World) -> Result<()> {
    let namespace = world.namespace("live").await?;
    world.create(object("RayCluster", &namespace, "moving", &cluster_spec(&[]), &ready(0, 0))).await?;
    let api = world.ray("RayCluster", &namespace);
    let overview = world.open().await?;
    overview.fill("#search", "live/moving").await?;
    overview.sees(".table-space .state", "ready").await?;
    let detail = world.open_object("RayCluster", &namespace, "moving").await?;
    detail.sees(".pill", "ready").await?;
    let mut round = 0;
    // A busy machine may delay anything once; it is not the page that is slow, if the next change is in time.
    eventually("changes arrive within a second", async || {
        round += 1;
        let state = format!("state-{round}");
        let status = json!({"state": state});
        let change = world.set_status(&api, "moving", &status);
        let row = delay(
            &overview,
            &format!("document.querySelector('.table-space .state')?.textContent === '{state}'"),
            change,
        )
        .await?;
        let pods = format!("moving-worker-{round}");
        let pod = objects::pod(&pods, "moving", "worker", "gone", &objects::Is::Ready);
        let shown = format!("[...document.querySelectorAll('.cell')].some((cell) => cell.title.startsWith('{pods}'))");
        let cell = delay(&detail, &shown, world.create_pod(&namespace, pod)).await?;
        println!("a row changes after {} ms, a Pod appears after {} ms", row.as_millis(), cell.as_millis());
        ensure!(row < LIVE && cell < LIVE, "{row:?} {cell:?}");
        Ok(())
    })
    .await?;
    check_complaints(&detail)
}

pub(crate) async fn a_deleted_object_stays_on_screen(world: &World) -> Result<()> {
    let namespace = world.namespace("deleted").await?;
    world.create(object("RayJob", &namespace, "short", &job_spec(), &failed_job())).await?;
    let tab = world.open_object("RayJob", &namespace, "short").await?;
    tab.sees(".failure", "exit code 1").await?;
    world.ray("RayJob", &namespace).delete("short", &DeleteParams::default()).await?;
    tab.sees(".pill", "deleted").await?;
    tab.sees(".notice", "last known state").await?;
    tab.sees(".failure", "exit code 1").await?;
    check_complaints(&tab)
}

pub(crate) async fn a_lost_connection_deletes_nothing(world: &World) -> Result<()> {
    let namespace = world.namespace("lost").await?;
    plant_cluster(world, &namespace, "there").await?;
    let page = Served::start(world.folder.path(), "lost", &world.plane.kubeconfig_path(), &[]).await?;
    let tab = world.open_page(&page.url).await?;
    tab.eval(&format!("location.hash = '#/RayCluster/{namespace}/there'")).await?;
    let cells = "document.querySelectorAll('button.cell').length";
    tab.until(&format!("{cells} === 15")).await?;
    drop(page);
    tab.sees(".connection", "connection lost").await?;
    tab.sees(".object .notice", "may be out of date").await?;
    tab.until("document.querySelector('.object .pill .state').textContent === 'ready'").await?;
    ensure!(tab.eval(cells).await? == 15, "its Pods are still drawn");
    // What is gone when the connection is there again was deleted meanwhile.
    let rejoined = tab
        .eval(
            "import('/object.js').then(({ Model }) => {
                const model = new Model({ kind: 'RayCluster', namespace: 'd', name: 'c' });
                const states = [];
                const note = () => states.push(`${model.isDeleted} ${model.pods().map((pod) => pod.name)}`);
                const pod = (name) => ['pod', name, { name }];
                model.receive({ put: [['object', 'c', {}], pod('p'), pod('q')], ready: ['object', 'pod'] });
                note();
                model.lost();
                note();
                model.receive({ put: [['object', 'c', {}], pod('q')], ready: ['object'] });
                note();
                model.receive({ put: [pod('r')], ready: ['pod'] });
                note();
                model.lost();
                model.receive({ ready: ['object', 'pod'] });
                note();
                model.lost();
                note();
                // The Pods of a cluster go with it.
                model.receive({ put: [['cluster', 'k', {}], ['pod', 's', { name: 's', cluster: 'k' }]] });
                note();
                model.lost();
                model.receive({ ready: ['cluster'] });
                note();
                return states.join();
            })",
        )
        .await?;
    ensure!(rejoined == "false p,q,false p,q,false p,q,false q,r,true ,true ,true s,true ", "{rejoined}");
    Ok(())
}

pub(crate) async fn a_silent_connection_is_given_up(world: &World) -> Result<()> {
    let namespace = world.namespace("silent").await?;
    world.create(object("RayCluster", &namespace, "quiet", &cluster_spec(&[]), &ready(0, 0))).await?;
    let tab = world.open_object("RayCluster", &namespace, "quiet").await?;
    tab.sees(".object .pill", "ready").await?;
    // The server says something every 15 s, so 20 s from now are no silence yet.
    tab.eval(
        "import('/server.js').then(({ onConnection, giveUpSilent }) => {
            window.states = [];
            onConnection((state) => window.states.push(state));
            giveUpSilent(Date.now() + 20000);
            window.states.push('later');
            giveUpSilent(Date.now() + 46000);
        })",
    )
    .await?;
    tab.until("window.states.join() === 'live,later,lost,live'").await?;
    let status = json!({"state": "suspended"});
    world.set_status(&world.ray("RayCluster", &namespace), "quiet", &status).await?;
    tab.sees(".object .pill", "suspended").await?;
    check_complaints(&tab)
}

pub(crate) async fn a_deleted_object_is_explained_from_its_record(world: &World) -> Result<()> {
    let namespace = world.namespace("remembered").await?;
    world.create(object("RayJob", &namespace, "lost", &job_spec(), &failed_job())).await?;
    let tab = world.open_object("RayJob", &namespace, "lost").await?;
    tab.sees(".explain .cause", "OutOfMemoryError").await?;
    // What the operator records, which it does some time after the deletion.
    let sources = Sources {
        client: world.client.clone(),
        dashboards: Client::new(world.client.clone(), Route::ApiServerProxy),
        cluster_domain: String::new(),
        workloads: true,
    };
    let name = |text: &str| text.to_owned();
    let subject =
        Subject { kind: name("RayJob"), namespace: namespace.clone(), name: name("lost"), uid: String::new() };
    let evidence = gather(&sources, &subject, Timestamp::now()).await?.context("no evidence")?;
    let record = config_map(&evidence, Occasion::Deleted, &Limits::default());
    world.ray("RayJob", &namespace).delete("lost", &DeleteParams::default()).await?;
    tab.sees(".pill", "deleted").await?;
    tab.sees(".explain", "the operator's record of it is awaited").await?;
    tab.sees(".explain .cause", "OutOfMemoryError").await?;
    let records: Api<ConfigMap> = Api::namespaced(world.client.clone(), &namespace);
    records.create(&PostParams::default(), &serde_json::from_value(record)?).await?;
    tab.sees(".explain", "this is the operator's record of").await?;
    // Also for somebody who never saw it, from the list of what is gone.
    let later = world.open().await?;
    later.click(".chip", "Gone…").await?;
    later.sees(".gone .message", "OutOfMemoryError").await?;
    later.click(".gone a", &format!("RayJob {namespace}/lost")).await?;
    later.sees(".notice", "There is no RayJob lost").await?;
    later.sees(".explain", "this is the operator's record of").await?;
    later.sees(".explain .cause", "OutOfMemoryError").await?;
    check_complaints(&tab)?;
    check_complaints(&later)
}

pub(crate) async fn a_tab_that_outlives_its_secret_asks_for_another(world: &World) -> Result<()> {
    let kubeconfig = world.plane.kubeconfig_path();
    let folder = world.folder.path();
    let first = Served::start(folder, "before", &kubeconfig, &[]).await?;
    let tab = world.open_page(&first.url).await?;
    let port = first.origin().rsplit(':').next().unwrap_or_default().to_owned();
    drop(first);
    tab.sees(".connection", "connection lost").await?;
    let second = Served::start(folder, "after", &kubeconfig, &["--port", &port]).await?;
    tab.sees("h1", "Open the printed address").await?;
    tab.sees(".connection", "signed out").await?;
    tab.go("about:blank").await?;
    tab.go(&second.url).await?;
    tab.sees(".connection", "live").await
}

pub(crate) async fn narrow_and_dark_screens_fit(world: &World) -> Result<()> {
    let namespace = world.namespace("screens").await?;
    plant_cluster(world, &namespace, "wide").await?;
    let mut status = ready(9, 15);
    status["conditions"][1]["reason"] = "AReasonThatIsLongerThanMostOfThemAre".into();
    world.set_status(&world.ray("RayCluster", &namespace), "wide", &status).await?;
    let tab = world.open_object("RayCluster", &namespace, "wide").await?;
    for (scheme, background) in [("dark", "rgb(16, 20, 24)"), ("light", "rgb(246, 247, 249)")] {
        tab.prefer("prefers-color-scheme", scheme).await?;
        tab.until(&format!("getComputedStyle(document.body).backgroundColor === '{background}'")).await?;
    }
    tab.resize(390, 800).await?;
    for (address, shown) in [
        // Objects of several kinds and namespaces have one name.
        (
            "#/",
            "[...document.querySelectorAll('.table-space .where')].some((e) => e.innerText.startsWith('Cluster in '))",
        ),
        ("#/new", "document.querySelector('.create textarea')"),
        ("#/operator", "document.querySelector('h1')?.textContent.includes('Operator')"),
        // The explanation comes later than the rest.
        ("#/RayCluster/screens/wide", "document.querySelector('.explain .cause')"),
    ] {
        tab.eval(&format!("location.hash = '{address}'")).await?;
        tab.until(shown).await?;
        if address.ends_with("wide") {
            tab.sees(".condition", "AReasonThatIsLonger").await?;
        }
        tab.until("document.documentElement.scrollWidth <= innerWidth").await?;
    }
    check_complaints(&tab)
}

pub(crate) async fn times_follow_the_chosen_zone(world: &World) -> Result<()> {
    let namespace = world.namespace("zones").await?;
    world.create(object("RayCluster", &namespace, "here", &cluster_spec(&[]), &ready(0, 0))).await?;
    let tab = world.open_object("RayCluster", &namespace, "here").await?;
    tab.send("Emulation.setTimezoneOverride", json!({"timezoneId": "Asia/Tokyo"})).await?;
    tab.eval("location.reload()").await?;
    tab.until("document.querySelector('.sub span')?.title.includes('GMT+9')").await?;
    tab.click("#top button", "admin").await?;
    tab.eval("(() => { const zone = document.querySelector('dialog select'); zone.value = 'UTC'; zone.dispatchEvent(new Event('change')); })()").await?;
    // There is nothing to cancel: the choice counts at once.
    tab.click("dialog button", "Close").await?;
    tab.until("document.querySelector('.sub span')?.title.includes('UTC')").await?;
    check_complaints(&tab)
}
