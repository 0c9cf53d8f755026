//! Installs our Helm chart and reads the operator's arguments, token and permissions from it.

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
    /// The service account's token is its only credential.
    pub(crate) kubeconfig: PathBuf,
    /// The arguments of the Deployment's container.
    pub(crate) arguments: Vec<String>,
}

impl Chart {
    /// Installs or upgrades the chart with Helm; the gates have the form of the operator's flag.
    pub(crate) fn install(plane: &ControlPlane, gates: &str, scheduler: &str) -> Result<Self> {
        let mut command = helm_command()?;
        command
            .args(["upgrade", "--install", "--set", &format!("batchScheduler.name={scheduler}"), NAME])
            .arg(workspace::root().join("deploy/helm/manta-operator"));
        command.args(["--create-namespace", "--namespace", NAMESPACE, "--kubeconfig"]).arg(plane.kubeconfig_path());
        for (index, gate) in gates.split(',').enumerate() {
            let (name, on) = gate.split_once('=').with_context(|| format!("{gate} is not a feature gate"))?;
            let entry = format!("featureGates[{index}]");
            command.args(["--set", &format!("{entry}.name={name},{entry}.enabled={on}")]);
        }
        let output = command.output().context("cannot start helm")?;
        if !output.status.success() {
            bail!("cannot install the chart: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let deployment = get(plane, "deployment", NAME)?;
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone();
        Ok(Self {
            kubeconfig: plane.kubeconfig_of_account(NAMESPACE, NAME)?,
            arguments: serde_json::from_value(arguments).context("the chart's container has no arguments")?,
        })
    }

    /// Returns all permissions of its roles, as `verb resource.group`.
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
