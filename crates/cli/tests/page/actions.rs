//! Every action, as a person performs it, and what the API server has afterwards.

use crate::objects::{cluster_spec, failed_job, group, job_spec, object, plant_cluster, ready};
use crate::world::{Served, World, check_complaints, dialog_closed};
use anyhow::{Result, ensure};
use kube::api::ListParams;
use manta_testkit::{User, eventually};
use serde_json::{Value, json};

pub(crate) async fn manifests_are_checked_while_they_are_written(world: &World) -> Result<()> {
    let namespace = world.namespace("create").await?;
    let tab = world.open().await?;
    tab.press("n").await?;
    tab.click(".templates button", "Cluster").await?;
    tab.sees(".fine", "Nothing to fix in 1 object").await?;
    let replace = |from: &str, to: &str| {
        format!(
            "(() => {{ const area = document.querySelector('textarea'); area.value = area.value.replace({}, {}); area.dispatchEvent(new Event('input')); }})()",
            json!(from),
            json!(to)
        )
    };
    tab.eval(&replace("minReplicas: 0", "minReplicas: none")).await?;
    // The words of the CRD's own schema, at the line.
    tab.sees(".finding.error", "must be an integer").await?;
    tab.until("document.querySelector('.gutter .error')").await?;
    tab.until("document.querySelector('button.primary').ariaDisabled === 'true'").await?;
    tab.eval(&replace("minReplicas: none", "minReplicas: 0")).await?;
    tab.sees(".fine", "Nothing to fix").await?;
    tab.eval(&replace("name: demo", "name: from-template")).await?;
    tab.fill("input[name=namespace]", &namespace).await?;
    tab.click("button.primary", "Create").await?;
    tab.sees("h1", "from-template").await?;
    ensure!(world.ray("RayCluster", &namespace).get_opt("from-template").await?.is_some());
    // Nothing is overwritten.
    tab.eval("location.hash = '#/new'").await?;
    tab.click(".templates button", "Cluster").await?;
    tab.sees(".fine", "Nothing to fix in 1 object").await?;
    tab.eval(&replace("name: demo", "name: from-template")).await?;
    tab.fill("input[name=namespace]", &namespace).await?;
    tab.click("button.primary", "Create").await?;
    tab.sees(".toast.bad", "already exists").await?;
    Ok(())
}

pub(crate) async fn a_cluster_is_scaled_suspended_and_resumed(world: &World) -> Result<()> {
    let namespace = world.namespace("scale").await?;
    let spec = cluster_spec(&[group("a", 1, 1), group("b", 2, 1)]);
    world.create(object("RayCluster", &namespace, "elastic", &spec, &ready(3, 3))).await?;
    let api = world.ray("RayCluster", &namespace);
    let tab = world.open_object("RayCluster", &namespace, "elastic").await?;
    tab.click(".actions button", "Scale").await?;
    tab.fill("dialog input[aria-label='Replicas of b']", "5").await?;
    tab.click("dialog button", "Scale").await?;
    tab.until("document.querySelectorAll('.cells .cell.missing').length === 1 + 1 + 5").await?;
    dialog_closed(&tab).await?;
    let groups = api.get("elastic").await?.data["spec"]["workerGroupSpecs"].clone();
    ensure!(groups[0]["replicas"] == 1 && groups[1]["replicas"] == 5, "{groups}");
    tab.click(".actions button", "Scale").await?;
    tab.fill("dialog input[aria-label='Replicas of b']", "50").await?;
    tab.click("dialog button", "Scale").await?;
    tab.sees(".toast.bad", "between 0 and 8").await?;
    // An empty field is no zero. Nothing is changed, not even the group before it.
    tab.fill("dialog input[aria-label='Replicas of a']", "3").await?;
    tab.eval("(() => { const field = document.querySelector(\"dialog input[aria-label='Replicas of b']\"); field.value = ''; field.dispatchEvent(new Event('input')); })()").await?;
    tab.click("dialog button", "Scale").await?;
    tab.sees(".toast.bad", "Worker group b needs a number of replicas").await?;
    tab.click("dialog button", "Cancel").await?;
    dialog_closed(&tab).await?;
    let groups = api.get("elastic").await?.data["spec"]["workerGroupSpecs"].clone();
    ensure!(groups[0]["replicas"] == 1 && groups[1]["replicas"] == 5, "{groups}");
    tab.click(".actions button", "Suspend").await?;
    tab.click("dialog button.primary", "Suspend").await?;
    dialog_closed(&tab).await?;
    tab.click(".actions button", "Resume").await?;
    eventually("it is resumed", async || {
        ensure!(api.get("elastic").await?.data["spec"]["suspend"] == false, "not yet");
        Ok(())
    })
    .await?;
    check_complaints(&tab)
}

pub(crate) async fn a_failed_job_is_retried(world: &World) -> Result<()> {
    let namespace = world.namespace("retry").await?;
    world.create(object("RayJob", &namespace, "flaky", &job_spec(), &failed_job())).await?;
    let tab = world.open_object("RayJob", &namespace, "flaky").await?;
    tab.click(".actions button", "Retry").await?;
    tab.until("/^#\\/RayJob\\/retry\\/flaky-.{5}$/.test(location.hash)").await?;
    let jobs = world.ray("RayJob", &namespace).list(&ListParams::default()).await?.items;
    ensure!(jobs.len() == 2, "the old job stays");
    let new = jobs.iter().find(|job| job.metadata.name.as_deref() != Some("flaky")).unwrap();
    ensure!(new.data["spec"]["entrypoint"] == job_spec()["entrypoint"] && new.data["status"].is_null());
    check_complaints(&tab)
}

pub(crate) async fn deleting_names_what_goes(world: &World) -> Result<()> {
    let namespace = world.namespace("delete").await?;
    plant_cluster(world, &namespace, "doomed").await?;
    let api = world.ray("RayCluster", &namespace);
    let tab = world.open_object("RayCluster", &namespace, "doomed").await?;
    tab.until("document.querySelectorAll('button.cell').length === 15").await?;
    tab.click(".actions button", "Delete").await?;
    tab.sees("dialog", "15 Pods").await?;
    tab.sees("dialog .consequence", "doomed-cpu-0").await?;
    // Enter presses what has the focus.
    tab.until("document.activeElement.textContent === 'Cancel'").await?;
    tab.press("Enter").await?;
    dialog_closed(&tab).await?;
    ensure!(api.get_opt("doomed").await?.is_some());
    tab.click(".actions button", "Delete").await?;
    tab.click("dialog button.danger", "Delete doomed").await?;
    tab.sees(".pill", "deleted").await?;
    ensure!(api.get_opt("doomed").await?.is_none());
    check_complaints(&tab)
}

pub(crate) async fn a_viewer_without_rights_is_told_why(world: &World) -> Result<()> {
    let namespace = world.namespace("guarded").await?;
    let spec = cluster_spec(&[group("workers", 1, 1)]);
    world.create(object("RayCluster", &namespace, "visible", &spec, &ready(1, 1))).await?;
    let rules = json!([
        {"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    ]);
    let page = world.page_for_operator_user("viewer", &namespace, rules).await?;
    let tab = world.open_page(&page.url).await?;
    // All namespaces are not this viewer's to list, but one is.
    tab.sees(".notice.bad", "cannot list resource").await?;
    // The view of an object needs nothing from the overview.
    let object = format!("location.hash = '#/RayCluster/{namespace}/visible'");
    tab.eval(&object).await?;
    tab.sees(".object .pill", "ready").await?;
    tab.eval("location.hash = '#/'").await?;
    tab.fill(".notice input[name=namespace]", &namespace).await?;
    tab.click(".notice button", "Show").await?;
    tab.sees(".table-space .name", "visible").await?;
    tab.eval(&object).await?;
    tab.sees(".object .pill", "ready").await?;
    for action in ["Scale", "Suspend", "Delete"] {
        tab.until(&disabled(action, "You may not")).await?;
    }
    tab.sees("#main", "events is forbidden").await?;
    // Whoever enables the button by hand is refused by the API server.
    let uid = world.ray("RayCluster", &namespace).get("visible").await?.metadata.uid.unwrap();
    let order =
        json!({"kind": "RayCluster", "namespace": namespace, "name": "visible", "uid": uid, "action": "delete"});
    let reply = reqwest::Client::new().post(format!("{}/api/act", page.origin()));
    let reply = reply.bearer_auth(page.secret()).body(order.to_string()).send().await?;
    ensure!(reply.status() == 403, "{}", reply.status());
    Ok(())
}

/// Rights to read one kind of object in a namespace, and to do some things to it.
fn rules_for_clusters(verbs: &[&str]) -> Value {
    let verbs = [&["get", "list", "watch"], verbs].concat();
    json!([{"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": verbs}])
}

pub(crate) async fn what_cannot_be_read_is_neither_awaited_nor_denied(world: &World) -> Result<()> {
    let namespace = world.namespace("clusters-only").await?;
    plant_cluster(world, &namespace, "visible").await?;
    let rules = rules_for_clusters(&["patch", "delete"]);
    let page = world.page_for_operator_user("clusters-only", &namespace, rules).await?;
    let tab = world.open_page(&page.url).await?;
    tab.sees(".notice.bad", "Nothing can be read").await?;
    tab.fill(".notice input[name=namespace]", &namespace).await?;
    tab.click(".notice button", "Show").await?;
    tab.sees(".table-space .name", "visible").await?;
    tab.sees(".notice.bad", "Jobs, Services, Cron jobs cannot be read").await?;
    tab.until("document.querySelector('.total').textContent === '1 object'").await?;
    tab.sees(".tile", "cannot be read").await?;
    tab.eval(&format!("location.hash = '#/RayCluster/{namespace}/visible'")).await?;
    tab.sees("#main", "pods is forbidden").await?;
    tab.click(".actions button", "Delete").await?;
    tab.sees("dialog .notice", "Its Pods cannot be read").await?;
    ensure!(tab.eval("document.querySelector('dialog').textContent.includes('Nothing else')").await? == false);
    tab.click("dialog button", "Cancel").await?;
    dialog_closed(&tab).await?;
    // Suspending is a patch, scaling an update. A button that cannot be used can be reached, and says why.
    tab.until(&disabled("Scale", "You may not update rayclusters")).await?;
    tab.eval("document.querySelector('.crumbs a').focus()").await?;
    tab.press("Tab").await?;
    tab.until("document.activeElement.textContent === 'Scale'").await?;
    tab.press("Enter").await?;
    tab.sees(".toast", "You may not update rayclusters").await?;
    ensure!(tab.eval("document.querySelector('dialog')").await?.is_null());
    tab.click(".actions button", "Suspend").await?;
    tab.sees("dialog", "Suspend visible").await?;
    check_complaints(&tab)
}

pub(crate) async fn rights_are_those_of_the_objects_namespace(world: &World) -> Result<()> {
    let namespace = world.namespace("mine").await?;
    let page = world.page_for_operator_user("mine", &namespace, rules_for_clusters(&["create"])).await?;
    let tab = world.open_page(&page.url).await?;
    tab.eval("location.hash = '#/new'").await?;
    tab.click(".templates button", "Cluster").await?;
    tab.fill("input[name=namespace]", "default").await?;
    tab.until(&disabled("Create", "You may not create rayclusters in namespace default")).await?;
    // The manifest names a namespace itself, which counts.
    let name = json!(format!("name: demo\n  namespace: {namespace}"));
    tab.eval(&format!("(() => {{ const area = document.querySelector('textarea'); area.value = area.value.replace('name: demo', {name}); area.dispatchEvent(new Event('input')); }})()")).await?;
    tab.click("button.primary", "Create").await?;
    tab.sees("h1", "demo").await?;
    check_complaints(&tab)
}

/// Is true once a button cannot be pressed, and says why.
fn disabled(button: &str, why: &str) -> String {
    format!(
        "[...document.querySelectorAll('button')].some((b) => b.textContent === '{button}' && b.ariaDisabled === 'true' && document.getElementById(b.getAttribute('aria-describedby')).textContent.includes('{why}'))"
    )
}

pub(crate) async fn a_token_opens_a_page_with_its_own_rights(world: &World) -> Result<()> {
    let kubeconfig = world.plane.kubeconfig_path();
    let page = Served::start(world.folder.path(), "shared", &kubeconfig, &["--ask-token"]).await?;
    let tab = world.browser.open(&page.url).await?;
    tab.fill("input[name=token]", "nonsense").await?;
    tab.click("button", "Sign in").await?;
    tab.sees(".notice.bad", "refuses the token").await?;
    tab.fill("input[name=token]", &token_of(world, User::Operator)?).await?;
    tab.click("button", "Sign in").await?;
    tab.sees("#top", "operator").await?;
    tab.sees(".notice.bad", "cannot list resource").await?;
    // Another viewer of the same server sees everything, and neither sees what the other may.
    let other = world.browser.open(&page.url).await?;
    other.fill("input[name=token]", &token_of(world, User::Admin)?).await?;
    other.click("button", "Sign in").await?;
    other.sees(".connection", "live").await?;
    other.until("document.querySelector('.table-space .row') && !document.querySelector('.notice.bad')").await?;
    tab.until("!document.querySelector('.table-space .row')").await
}

pub(crate) async fn a_page_under_another_name_has_no_dashboards(world: &World) -> Result<()> {
    let namespace = world.namespace("elsewhere").await?;
    plant_cluster(world, &namespace, "far").await?;
    let kubeconfig = world.plane.kubeconfig_path();
    let flags = ["--ask-token", "--allow-host", "page.example"];
    let page = Served::start(world.folder.path(), "elsewhere", &kubeconfig, &flags).await?;
    for (host, expect) in [("page.example", "only where this page is served on loopback"), ("localhost", "")] {
        let url = page.url.replace("127.0.0.1", host);
        let tab = world.browser.open(&url).await?;
        tab.fill("input[name=token]", &token_of(world, User::Admin)?).await?;
        tab.click("button", "Sign in").await?;
        tab.sees(".connection", "live").await?;
        tab.eval(&format!("location.hash = '#/RayCluster/{namespace}/far'")).await?;
        tab.until("document.querySelector('button.cell.ready')").await?;
        let why = "document.getElementById(document.querySelector('button.dashboard').getAttribute('aria-describedby'))?.textContent || ''";
        tab.until(&format!("({why}).includes('{expect}') && Boolean({why}) === {}", !expect.is_empty())).await?;
    }
    Ok(())
}

/// Returns the token in the kubeconfig of a user.
fn token_of(world: &World, user: User) -> Result<String> {
    let text = std::fs::read_to_string(world.plane.kubeconfig_path_for(user))?;
    let token = text.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap_or_default();
    Ok(token.trim_matches('"').to_owned())
}
