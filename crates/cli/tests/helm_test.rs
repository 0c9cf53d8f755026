//! `helm test` on a real kube-apiserver with RBAC: its Pod's command runs with exactly the permissions of the chart.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use manta_testkit::{ControlPlane, Kubelet, Options, Play, Supervised, User, eventually, helm_command, within};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MANTA: &str = env!("CARGO_BIN_EXE_manta");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/manta-operator");
const NAMESPACE: &str = "ray-system";
const RELEASE: &str = "kuberay-operator";
const TEST_POD: &str = "kuberay-operator-test";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_test_checks_a_tiny_ray_cluster() -> Result<()> {
    let plane = ControlPlane::start_with(Options { rbac: true, ..Options::default() })?;
    let notes = helm(&plane, &["install", RELEASE, CHART, "--create-namespace"]).await?;
    ensure!(notes.contains("helm test kuberay-operator --namespace ray-system"), "{notes}");
    let mut operator = Command::new(MANTA);
    operator.arg("operator").arg("--kubeconfig").arg(plane.kubeconfig_of_account(NAMESPACE, RELEASE)?);
    operator.args(["--metrics-addr=0", "--health-probe-bind-address=0"]);
    let _operator = Supervised::start(plane.folder(), "operator", &operator)?;

    // The Pod of the test stays pending until its command has succeeded here.
    let kubelet = Kubelet::start(plane.client_for(User::Kubelet).await?, None);
    let succeeded = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&succeeded);
    let play = move |pod: &Pod| {
        let waits = Play::Waiting { reason: "ContainerCreating".to_owned(), message: String::new() };
        let state = if flag.load(Ordering::SeqCst) { Play::Succeeded } else { waits };
        (pod.name_any() == TEST_POD).then_some(state)
    };
    kubelet.rule(play).await?;

    let client = plane.client().await?;
    let (tested, ran) =
        tokio::join!(within("helm test", helm(&plane, &["test", RELEASE, "--timeout", "110s"])), async {
            let ran = run_test_pod(&plane, &client).await;
            succeeded.store(true, Ordering::SeqCst);
            // A new rule makes the fake kubelet look at all pods again.
            kubelet.rule(|_| None).await?;
            ran
        });
    let output = ran?;
    ensure!(output.contains("ready after") && output.contains("deleted RayCluster"), "{output}");
    let report = tested??;
    ensure!(report.contains("Phase:          Succeeded"), "{report}");
    let left = plane.kubectl(&["get", "serviceaccounts,roles,pods", "--namespace", NAMESPACE, "--output=name"])?;
    ensure!(!left.contains(TEST_POD), "the hooks are deleted: {left}");
    Ok(())
}

/// Runs the command of the test Pod as its service account, and returns its output.
async fn run_test_pod(plane: &ControlPlane, client: &Client) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = eventually("the Pod of helm test", async || {
        let all = pods.list(&ListParams::default()).await?;
        all.into_iter().find(|pod| pod.name_any() == TEST_POD).context("no such Pod yet")
    })
    .await?;
    let spec = pod.spec.context("a spec")?;
    let container = spec.containers.first().context("a container")?;
    ensure!(container.command.as_deref() == Some(&["/manta".to_owned()][..]), "{:?}", container.command);
    let account = spec.service_account_name.context("a service account")?;
    let mut command = tokio::process::Command::new(MANTA);
    command.args(container.args.iter().flatten()).arg("--kubeconfig");
    command.arg(plane.kubeconfig_of_account(NAMESPACE, &account)?).stdin(Stdio::null()).kill_on_drop(true);
    let output = within("the smoke test", command.output()).await??;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{text}");
    Ok(text)
}

async fn helm(plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let mut command = tokio::process::Command::from(helm_command()?);
    command.args(args).args(["--namespace", NAMESPACE, "--kubeconfig"]).arg(plane.kubeconfig_path());
    let output = command.kill_on_drop(true).output().await.context("cannot start helm")?;
    ensure!(output.status.success(), "helm {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
