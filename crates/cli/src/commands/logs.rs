//! `manta logs`: prints what the nodes of a Ray cluster print.

use crate::connect::{ConnectionArgs, Target};
use crate::explain::log_name;
use crate::head;
use crate::output::print_note;
use crate::program_output;
use crate::records::{RecordsArgs, kept_in, recorded, subject};
use crate::resource::Reference;
use crate::signals::StopSignals;
use anyhow::{Context, bail};
use futures::stream::try_unfold;
use futures::{AsyncBufRead, AsyncBufReadExt, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt};
use manta_logic::explain::evidence::Pod as KeptPod;
use manta_logic::explain::{Log, LogSource, Subject, explain};
use manta_logic::post_mortem::{Kept, Record};
use std::io;
use std::process::ExitCode;

/// Print the logs of the head of a Ray cluster, job or service, or of other nodes
///
/// Where the Pods are gone, it prints the last lines that the operator kept, those of the driver included.
/// manta job logs prints the output of a job itself; manta ray log downloads Ray's log files.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    records: RecordsArgs,
    /// Name of a Ray cluster, or TYPE/NAME
    #[arg(value_name = "CLUSTER | TYPE/NAME")]
    resource: Reference,
    /// Follow the log, until interrupted
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
        let printing = async {
            match args.records.connect(&args.connection).await? {
                Some(target) => print(&target, &args).await,
                None => print_recorded(&args),
            }
        };
        stop.unless_stopped(printing).await.unwrap_or(Ok(ExitCode::SUCCESS))
    })
}

async fn print(target: &Target, args: &Args) -> anyhow::Result<ExitCode> {
    let object = match target.ray_api(args.resource.kind).get_opt(&args.resource.name).await {
        Ok(Some(object)) => object,
        Ok(None) if print_of_gone(target, args).await? => return Ok(ExitCode::SUCCESS),
        Ok(None) => return Err(target.not_found(&args.resource).await),
        Err(error) => return Err(target.failed(&format!("cannot get {}", args.resource), error)),
    };
    let cluster = head::cluster_of(&args.resource, &object.data)?;
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let found = pods.list(&ListParams::default().labels(&format!("ray.io/cluster={cluster}"))).await;
    let found = found.map_err(|error| target.failed("cannot list Pods", error))?.items;
    let chosen: Vec<&Pod> = found.iter().filter(|pod| is_chosen(pod, &args.node)).collect();
    // Without access to ConfigMaps, there are the logs of what exists.
    let known = Subject { uid: object.uid().unwrap_or_default(), ..subject(&target.namespace, &args.resource) };
    let kept = args.records.kept(target, &known, std::slice::from_ref(&cluster)).await.unwrap_or_default();
    if found.is_empty() && kept.end.is_some() {
        return print_kept(&kept, args);
    }
    if chosen.is_empty() && kept_logs(&kept).any(|(log, pods)| is_kept_chosen(log, pods, &args.node)) {
        return print_kept(&kept, args);
    }
    if chosen.is_empty() {
        let names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
        bail!("Ray cluster {cluster} {}", no_such_node(&names, args));
    }
    let is_gone = |pod: &str| found.iter().all(|found| found.name_any() != pod);
    for pod in kept.failures.iter().filter_map(failed_pod).filter(|pod| is_gone(pod)) {
        print_note(&format!("Pod {pod} was replaced; --node {pod} prints its last lines."));
    }
    let has_prefix = chosen.len() > 1;
    let mut lines = Vec::new();
    for pod in chosen {
        let prefix = if has_prefix { format!("{} | ", pod.name_any()) } else { String::new() };
        match open(target, &pods, pod, args).await {
            Ok(stream) => lines.push(lines_of(stream, prefix).boxed()),
            // One node that has no log yet does not hide the others.
            Err(error) if has_prefix => print_note(&format!("{error:#}")),
            Err(error) => return Err(error),
        }
    }
    let mut lines = futures::stream::select_all(lines);
    while let Some(line) = lines.next().await {
        program_output::print(&line.context("the log ended early")?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns what a Ray cluster with these Pods lacks.
fn no_such_node(names: &[String], args: &Args) -> String {
    match names {
        [] => format!("has no Pods; manta explain {} says why", args.resource),
        names => format!(
            "has no node {}; use head, worker, all, the name of a worker group, or one of: {}",
            args.node,
            names.join(", ")
        ),
    }
}

/// Returns the lines of a log, which need not be UTF-8, each with a prefix.
fn lines_of<R: AsyncBufRead + Unpin>(log: R, prefix: String) -> impl Stream<Item = io::Result<Vec<u8>>> {
    try_unfold((log, prefix), async |(mut log, prefix)| {
        let mut line = prefix.clone().into_bytes();
        if log.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        Ok(Some((line, (log, prefix))))
    })
}

/// Prints what the operator kept of an object that is gone. Returns whether there is such a record.
async fn print_of_gone(target: &Target, args: &Args) -> anyhow::Result<bool> {
    let kept = args.records.kept(target, &subject(&target.namespace, &args.resource), &[]).await?;
    if kept.end.is_none() {
        return Ok(false);
    }
    print_kept(&kept, args)?;
    Ok(true)
}

/// Prints what is in the records of a directory alone.
fn print_recorded(args: &Args) -> anyhow::Result<ExitCode> {
    let directory = args.records.directory().context("records are read from a directory")?;
    let references = std::slice::from_ref(&args.resource);
    let subject = recorded(directory, args.connection.given_namespace(), references)?;
    print_kept(&kept_in(directory, &subject, &[])?, args)
}

/// Prints the last lines that the operator kept of Pods that are gone, or says which there are.
fn print_kept(kept: &Kept, args: &Args) -> anyhow::Result<ExitCode> {
    let logs: Vec<&Log> =
        kept_logs(kept).filter(|(log, pods)| is_kept_chosen(log, pods, &args.node)).map(|(log, _)| log).collect();
    if logs.is_empty() {
        let mut names: Vec<&str> = kept_logs(kept).map(|(log, _)| log.pod.as_str()).filter(|it| !it.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        let those = if names.is_empty() { "no others".to_owned() } else { format!("those of {}", names.join(", ")) };
        bail!("no log of {} was kept for node {}; there are {those}", args.resource, args.node);
    }
    print_note(&format!("The Pods are gone; these are the last lines of {} that the operator kept.", args.resource));
    for log in logs {
        print_note(&format!("{}:", log_name(log)));
        let skipped = args.tail.map_or(0, |tail| log.lines.len().saturating_sub(usize::try_from(tail).unwrap_or(0)));
        let lines: String = log.lines.iter().skip(skipped).map(|line| format!("{line}\n")).collect();
        program_output::print(lines.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the logs of Pods that were replaced and of those at the end, with the Pods of their record.
fn kept_logs(kept: &Kept) -> impl Iterator<Item = (&Log, &[KeptPod])> {
    let of_failures = kept.failures.iter().flat_map(|record| {
        let failed = failed_pod(record);
        let is_about = move |log: &&Log| failed.as_deref() == Some(log.pod.as_str());
        record.evidence.logs.iter().filter(is_about).map(move |log| (log, record.evidence.pods.as_slice()))
    });
    let of_end = kept.end.iter().flat_map(|record| {
        record.evidence.logs.iter().map(move |log| (log, record.evidence.pods.as_slice()))
    });
    of_failures.chain(of_end)
}

/// Returns the Pod that a record was written about.
fn failed_pod(record: &Record) -> Option<String> {
    explain(&record.evidence).cause.object.strip_prefix("Pod ").map(str::to_owned)
}

/// Returns whether a log that was kept is meant by a node's name, type or group; the driver's output counts as the head's.
fn is_kept_chosen(log: &Log, pods: &[KeptPod], node: &str) -> bool {
    let group = || pods.iter().find(|pod| pod.metadata.name == log.pod)?.metadata.labels.get("ray.io/group");
    match (node, log.source) {
        ("all", _) | ("head", LogSource::Driver | LogSource::Head) | ("worker", LogSource::Worker) => true,
        (name, _) => log.pod == name || group().is_some_and(|group| group == name),
    }
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
    fn a_cluster_without_pods_has_no_names_to_choose_from() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let args = <Line as clap::Parser>::parse_from(["logs", "a", "--node", "gpu"]).args;
        assert_eq!(no_such_node(&[], &args), "has no Pods; manta explain raycluster/a says why");
        let expect = "has no node gpu; use head, worker, all, the name of a worker group, or one of: a-head";
        assert_eq!(no_such_node(&["a-head".to_owned()], &args), expect);
    }

    #[tokio::test]
    async fn lines_need_not_be_text() {
        let check = async |log: &[u8], expect: &[&[u8]]| {
            let lines: Vec<Vec<u8>> = lines_of(log, "h | ".to_owned()).map(Result::unwrap).collect().await;
            assert_eq!(lines, expect, "{log:?}");
        };
        check(b"one\n\xff\n", &[b"h | one\n", b"h | \xff\n"]).await;
        check(b"no end", &[b"h | no end\n"]).await;
        check(b"", &[]).await;
    }

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
