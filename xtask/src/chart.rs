//! Our operator as its chart installs it: its arguments, the token of its service account, its rules.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use manta_testkit::{ControlPlane, helm_command, permissions};
use serde_json::Value;

use crate::workspace;

const NAMESPACE: &str = "ray-system";
/// The release, its service account and its ClusterRole.
const NAME: &str = "kuberay-operator";

/// An installed chart.
#[derive(Debug)]
pub(crate) struct Chart {
    /// Has nothing but the service account's token.
    pub(crate) kubeconfig: PathBuf,
    /// What the Deployment's container is started with.
    pub(crate) arguments: Vec<String>,
}

impl Chart {
    /// Installs the chart with Helm, or changes it; the gates are written as the operator's flag takes them.
    pub(crate) fn install(plane: &ControlPlane, gates: &str, scheduler: &str) -> Result<Self> {
        let mut command = helm_command()?;
        command
            .args(["upgrade", "--install", "--set", &format!("batchScheduler.name={scheduler}"), NAME])
            .arg(workspace::root().join("deploy/helm/manta-operator"));
        command.args(["--create-namespace", "--namespace", NAMESPACE, "--kubeconfig"]).arg(plane.kubeconfig_path());
        for (index, gate) in gates.split(',').enumerate() {
            let (name, on) = gate.split_once('=').with_context(|| format!("{gate} is no gate"))?;
            let entry = format!("featureGates[{index}]");
            command.args(["--set", &format!("{entry}.name={name},{entry}.enabled={on}")]);
        }
        let output = command.output().context("cannot start helm")?;
        if !output.status.success() {
            bail!("the chart cannot be installed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let deployment = get(plane, "deployment", NAME)?;
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone();
        Ok(Self {
            kubeconfig: plane.kubeconfig_of_account(NAMESPACE, NAME)?,
            arguments: serde_json::from_value(arguments).context("the chart's container has no arguments")?,
        })
    }

    /// Everything that its roles permit, as `verb resource.group`.
    pub(crate) fn permissions(plane: &ControlPlane) -> Result<BTreeSet<String>> {
        let mut all = permissions(&get(plane, "clusterrole", NAME)?);
        all.extend(permissions(&get(plane, "role", &format!("{NAME}-leader-election"))?));
        Ok(all)
    }
}

fn get(plane: &ControlPlane, kind: &str, name: &str) -> Result<Value> {
    let text = plane.kubectl(&["get", kind, name, "--namespace", NAMESPACE, "--output=json"])?;
    serde_json::from_str(&text).with_context(|| format!("{kind} {name} is not JSON"))
}
