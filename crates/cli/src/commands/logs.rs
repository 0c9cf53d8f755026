//! `manta logs`: prints what the nodes of a Ray cluster print.

use crate::connect::{ConnectionArgs, Target};
use crate::head;
use crate::output::{print_note, without_controls, write_stdout};
use crate::resource::Reference;
use crate::signals::StopSignals;
use anyhow::{Context, bail};
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use std::process::ExitCode;

/// Print the logs of the head of a Ray cluster, job or service, or of other nodes
///
/// manta job logs prints the output of a job itself; manta ray log downloads Ray's log files.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Name of a Ray cluster, or TYPE/NAME
    #[arg(value_name = "CLUSTER | TYPE/NAME")]
    resource: Reference,
    /// Print what comes, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Which nodes: head, worker, all, a worker group or a Pod
    #[arg(long, value_name = "NODE", default_value = "head")]
    node: String,
    /// Container [default: the one of Ray]
    #[arg(long, value_name = "NAME")]
    container: Option<String>,
    /// Print the last lines only
    #[arg(long, value_name = "NUMBER")]
    tail: Option<i64>,
    /// Print the logs of the containers that ran before
    #[arg(short, long, conflicts_with = "follow")]
    previous: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    super::run_async(async {
        let mut stop = StopSignals::listen()?;
        let target = args.connection.connect().await?;
        tokio::select! {
            done = print(&target, &args) => done,
            () = stop.recv() => Ok(ExitCode::SUCCESS),
        }
    })
}

async fn print(target: &Target, args: &Args) -> anyhow::Result<ExitCode> {
    let object = target.get_ray(&args.resource).await?;
    let cluster = head::cluster_of(&args.resource, &object.data)?;
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let found = pods.list(&ListParams::default().labels(&format!("ray.io/cluster={cluster}"))).await;
    let found = found.map_err(|error| target.failed("cannot list Pods", error))?.items;
    let chosen: Vec<&Pod> = found.iter().filter(|pod| is_chosen(pod, &args.node)).collect();
    if chosen.is_empty() {
        let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
        bail!(
            "Ray cluster {cluster} has no node {}; use head, worker, all, the name of a worker group, or one of: {}",
            args.node,
            names.join(", ")
        );
    }
    let has_prefix = chosen.len() > 1;
    let mut lines = Vec::new();
    for pod in chosen {
        let prefix = if has_prefix { format!("{} | ", pod.name_any()) } else { String::new() };
        match open(target, &pods, pod, args).await {
            Ok(stream) => lines.push(stream.lines().map_ok(move |line| format!("{prefix}{line}\n")).boxed()),
            // One node that has no log yet does not hide the others.
            Err(error) if has_prefix => print_note(&format!("{error:#}")),
            Err(error) => return Err(error),
        }
    }
    let mut lines = futures::stream::select_all(lines);
    while let Some(line) = lines.next().await {
        let line = without_controls(&line.context("the log ended early")?);
        write_stdout(|out| out.write_all(line.as_bytes()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn open(
    target: &Target,
    pods: &Api<Pod>,
    pod: &Pod,
    args: &Args,
) -> anyhow::Result<impl futures::AsyncBufRead + Unpin + Send + use<>> {
    let ray = pod.spec.as_ref().and_then(|spec| spec.containers.first()).map(|container| container.name.clone());
    let params = LogParams {
        container: args.container.clone().or(ray),
        follow: args.follow,
        tail_lines: args.tail,
        previous: args.previous,
        ..LogParams::default()
    };
    let name = pod.name_any();
    let stream = pods.log_stream(&name, &params).await;
    Ok(Box::pin(stream.map_err(|error| target.failed(&format!("cannot read the log of {name}"), error))?))
}

/// Returns whether a Pod is meant by a node's name, type or group.
fn is_chosen(pod: &Pod, node: &str) -> bool {
    let label = |name: &str| pod.labels().get(name).map(String::as_str);
    let node_type = label("ray.io/node-type");
    match node {
        "all" => node_type.is_some(),
        "head" | "worker" => node_type == Some(node),
        name => pod.name_any() == name || label("ray.io/group") == Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_are_chosen_by_type_group_or_name() {
        let pod = |name: &str, kind: &str, group: &str| -> Pod {
            let labels = json!({"ray.io/node-type": kind, "ray.io/group": group});
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
        };
        let pods = [pod("h", "head", "headgroup"), pod("w1", "worker", "gpu"), pod("w2", "worker", "cpu")];
        let check = |node: &str, expect: &[&str]| {
            let names: Vec<String> = pods.iter().filter(|pod| is_chosen(pod, node)).map(|pod| pod.name_any()).collect();
            assert_eq!(names, expect, "{node}");
        };
        check("head", &["h"]);
        check("worker", &["w1", "w2"]);
        check("all", &["h", "w1", "w2"]);
        check("gpu", &["w1"]);
        check("w2", &["w2"]);
        check("nothing", &[]);
    }
}
