//! Connects the API server's logs, exec and port-forward to the agent's pods.

use futures::FutureExt;
use manta_agent::exec::Streams;
use manta_agent::logs::LogQuery;
use manta_agent::{Agent, RequestError};
use manta_apiserver::node::{
    Duplex, ExecOptions, ExecStreams, LogOptions, LogStream, NodeBackend, NodeError, PodRef, PodUsage, Usage,
};
use std::sync::Arc;
use tokio::sync::mpsc;

pub(super) fn node_backend(agent: Agent) -> NodeBackend {
    let (for_logs, for_exec, for_dial, for_usage) = (agent.clone(), agent.clone(), agent.clone(), agent);
    NodeBackend {
        logs: Arc::new(move |pod, options| logs(for_logs.clone(), pod, options).boxed()),
        exec: Arc::new(move |pod, options, streams| exec(for_exec.clone(), pod, options, streams).boxed()),
        dial: Arc::new(move |pod, port| dial(for_dial.clone(), pod, port).boxed()),
        usage: Arc::new(move || usage(for_usage.clone()).boxed()),
    }
}

async fn usage(agent: Agent) -> Vec<PodUsage> {
    // Reads files of the control groups, one after the other.
    let used = tokio::task::spawn_blocking(move || agent.usage()).await.unwrap_or_default();
    let pod = |(uid, containers): (String, Vec<(String, manta_agent::ContainerUsage)>)| PodUsage {
        uid,
        window_seconds: containers.iter().map(|(_, used)| used.window_seconds).max().unwrap_or(1),
        containers: containers
            .into_iter()
            .map(|(name, used)| (name, Usage { cpu_nanos: used.cpu_nanos, memory_bytes: used.memory_bytes }))
            .collect(),
    };
    used.into_iter().map(pod).collect()
}

async fn logs(agent: Agent, pod: PodRef, options: LogOptions) -> Result<LogStream, NodeError> {
    let ago = |seconds: i64| jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
    let query = LogQuery {
        follow: options.follow,
        timestamps: options.timestamps,
        tail_lines: options.tail_lines,
        limit_bytes: options.limit_bytes,
        since: options.since_time.or_else(|| options.since_seconds.map(ago)),
    };
    agent.logs(uid(&pod)?, &options.container, options.previous, query).await.map_err(|e| with_pod_name(e, &pod))
}

async fn exec(agent: Agent, pod: PodRef, options: ExecOptions, streams: ExecStreams) -> Result<i32, NodeError> {
    let (resize_tx, resize) = mpsc::channel(4);
    let mut sizes = streams.resize;
    let forwarder = tokio::spawn(async move {
        while let Some(size) = sizes.recv().await {
            if resize_tx.send((size.width, size.height)).await.is_err() {
                return;
            }
        }
    });
    let streams = Streams {
        stdin: options.stdin.then_some(streams.stdin),
        stdout: streams.stdout,
        stderr: streams.stderr,
        resize,
    };
    let exit_code = agent.exec(uid(&pod)?, &options.container, options.command, options.tty, streams).await;
    forwarder.abort();
    exit_code.map_err(|e| with_pod_name(e, &pod))
}

async fn dial(agent: Agent, pod: PodRef, port: u16) -> Result<Box<dyn Duplex>, NodeError> {
    let stream = agent.dial(uid(&pod)?, port).await.map_err(|e| with_pod_name(e, &pod))?;
    Ok(Box::new(stream))
}

fn uid(pod: &PodRef) -> Result<&str, NodeError> {
    let uid = pod.object.pointer("/metadata/uid").and_then(|v| v.as_str());
    uid.ok_or_else(|| NodeError::NotFound(format!("pod {}/{} has no uid", pod.namespace, pod.name)))
}

/// Replaces the pod's uid, which the agent uses, by the name that users know.
fn with_pod_name(error: RequestError, pod: &PodRef) -> NodeError {
    let text = |text: String| text.replace(uid(pod).unwrap_or_default(), &pod.name);
    match error {
        RequestError::NotFound(why) => NodeError::NotFound(text(why)),
        RequestError::BadRequest(why) => NodeError::BadRequest(text(why)),
        RequestError::Internal(why) => NodeError::Internal(text(why)),
    }
}
