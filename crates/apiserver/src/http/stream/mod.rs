//! Logs, exec, attach, port-forward and proxy: bytes between clients and pods.
//!
//! Exec and attach speak Kubernetes' channel protocol over WebSocket: the first byte of each message names a
//! channel (0 in, 1 out, 2 error, 3 result, 4 size, and with v5 255 to close one).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt, TryStreamExt};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::path::{Place, Query};
use super::respond;
use crate::error::ApiError;
use crate::node::{ExecOptions, ExecStreams, LogOptions, NodeBackend, NodeError, PodRef, TerminalSize};
use crate::ops::{Cluster, Target};
use crate::selector::{LabelRule, labels_match};
use crate::store::Span;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESULT: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
/// Messages in flight in each direction.
const DEPTH: usize = 16;

pub(super) async fn serve(
    cluster: &Arc<Cluster>,
    target: Target<'_>,
    subresource: &str,
    place: &Place,
    request: Request,
    query: &Query,
) -> Result<Response, ApiError> {
    let Some(node) = cluster.node() else {
        return Err(ApiError::unavailable("there is no node that runs pods"));
    };
    if subresource == "proxy" {
        return proxy(cluster, &node, target, place, request).await;
    }
    let object = Arc::new(cluster.get(target)?.value());
    let pod = PodRef { namespace: target.namespace.into(), name: target.name.into(), object };
    match subresource {
        "log" => logs(&node, pod, query).await,
        "portforward" => port_forward(node, pod, request, query).await,
        "exec" | "attach" => exec(node, pod, request, query, subresource == "exec").await,
        _ => Err(ApiError::no_such_path()),
    }
}

/// The container that is meant; a pod with one container needs no name.
fn container(pod: &PodRef, query: &Query) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<String> {
        let all = pod.object["spec"][list].as_array().into_iter().flatten();
        all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
    };
    let (main, initial) = (names("containers"), names("initContainers"));
    let annotated = pod.object["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    let default = annotated.filter(|name| main.iter().any(|known| known == name));
    let ephemeral = names("ephemeralContainers");
    match query.get("container").or(default) {
        Some(name) if main.iter().chain(&initial).chain(&ephemeral).any(|known| known == name) => Ok(name.to_owned()),
        Some(name) => Err(ApiError::bad_request(format!("container {name} is not valid for pod {}", pod.name))),
        None if main.len() == 1 => Ok(main.concat()),
        None => {
            let mut text =
                format!("a container name must be specified for pod {}, choose one of: [{}]", pod.name, main.join(" "));
            if !initial.is_empty() {
                text.push_str(&format!(" or one of the init containers: [{}]", initial.join(" ")));
            }
            Err(ApiError::bad_request(text))
        }
    }
}

fn node_error(error: NodeError) -> ApiError {
    match error {
        NodeError::BadRequest(text) => ApiError::bad_request(text),
        NodeError::NotFound(_) => ApiError::no_such_path(),
        NodeError::Internal(text) => ApiError::internal(text),
    }
}

async fn logs(node: &NodeBackend, pod: PodRef, query: &Query) -> Result<Response, ApiError> {
    let count = |key: &str| query.number(key).and_then(|number| u64::try_from(number).ok());
    let since_time = query.get("sinceTime").map(str::parse).transpose();
    let options = LogOptions {
        container: container(&pod, query)?,
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        tail_lines: count("tailLines"),
        limit_bytes: count("limitBytes"),
        since_seconds: query.number("sinceSeconds"),
        since_time: since_time.map_err(|_| ApiError::bad_request("sinceTime is no RFC 3339 time"))?,
    };
    let stream = (node.logs)(pod, options).await.map_err(node_error)?;
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

async fn upgrade(request: Request, protocols: &'static [&'static str]) -> Result<WebSocketUpgrade, ApiError> {
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|_| {
        ApiError::bad_request("unable to upgrade: this path speaks WebSocket (v5.channel.k8s.io, v4.channel.k8s.io)")
    })?;
    Ok(upgrade.protocols(protocols.iter().copied()))
}

async fn exec(
    node: NodeBackend,
    pod: PodRef,
    request: Request,
    query: &Query,
    run: bool,
) -> Result<Response, ApiError> {
    let options = ExecOptions {
        container: container(&pod, query)?,
        command: if run { query.all("command").map(str::to_owned).collect() } else { Vec::new() },
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr"),
        tty: query.flag("tty"),
    };
    if run && options.command.is_empty() {
        return Err(ApiError::bad_request("you must specify at least one command for the container"));
    }
    let upgrade = upgrade(request, &["v5.channel.k8s.io", "v4.channel.k8s.io"]).await?;
    Ok(upgrade.on_upgrade(move |socket| carry(socket, node, pod, options)))
}

/// Carries bytes between a socket and a process until the process ends.
async fn carry(socket: WebSocket, node: NodeBackend, pod: PodRef, options: ExecOptions) {
    let (mut sender, mut receiver) = socket.split();
    let (input, stdin) = mpsc::channel(DEPTH);
    let (stdout, mut output) = mpsc::channel(DEPTH);
    let (stderr, mut errors) = mpsc::channel(DEPTH);
    let (sizes, resize) = mpsc::channel(DEPTH);
    let mut input = options.stdin.then_some(input);
    let streams = ExecStreams { stdin, stdout, stderr, resize };
    let mut process = (node.exec)(pod, options, streams);
    let mut result = None;
    let (mut open_out, mut open_err) = (true, true);
    while result.is_none() || open_out || open_err {
        tokio::select! {
            ended = &mut process, if result.is_none() => result = Some(ended),
            piece = output.recv(), if open_out => match piece {
                Some(piece) => if sender.send(frame(STDOUT, &piece)).await.is_err() { return },
                None => open_out = false,
            },
            piece = errors.recv(), if open_err => match piece {
                Some(piece) => if sender.send(frame(STDERR, &piece)).await.is_err() { return },
                None => open_err = false,
            },
            message = receiver.next() => match message {
                Some(Ok(Message::Binary(bytes))) => accept(&bytes, &mut input, &sizes).await,
                Some(Ok(Message::Text(text))) => accept(text.as_bytes(), &mut input, &sizes).await,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                // The client is gone: dropping the future ends the process.
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
            },
        }
    }
    let status = outcome(result.unwrap_or(Ok(0)));
    // The client may have left without waiting for the result.
    let _ = sender.send(frame(RESULT, status.to_string().as_bytes())).await;
    let _ = sender.send(farewell()).await;
}

/// The end that clients take for an orderly one; kubectl reads any other as a failure of every channel.
fn farewell() -> Message {
    Message::Close(Some(CloseFrame { code: 1000, reason: "".into() }))
}

async fn accept(bytes: &[u8], input: &mut Option<mpsc::Sender<Bytes>>, sizes: &mpsc::Sender<TerminalSize>) {
    let Some((channel, content)) = bytes.split_first() else { return };
    match *channel {
        STDIN if !content.is_empty() => {
            if let Some(sender) = input
                && sender.send(Bytes::copy_from_slice(content)).await.is_err()
            {
                *input = None;
            }
        }
        RESIZE => {
            if let Ok(size) = serde_json::from_slice(content) {
                // A size that comes while older ones wait is dropped; the next one will tell.
                let _ = sizes.try_send(size);
            }
        }
        CLOSE if content == [STDIN] => *input = None,
        _ => {}
    }
}

fn frame(channel: u8, content: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(content.len() + 1);
    bytes.extend_from_slice(&[channel]);
    bytes.extend_from_slice(content);
    Message::Binary(bytes.freeze())
}

/// The `Status` that ends an exec.
fn outcome(result: Result<i32, NodeError>) -> Value {
    match result {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: command terminated with exit code {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => {
            json!({"metadata": {}, "status": "Failure", "message": error.to_string(), "reason": "InternalError", "code": 500})
        }
    }
}

/// Port-forward over WebSocket: for each port a data and an error channel, begun by the port's number.
async fn port_forward(node: NodeBackend, pod: PodRef, request: Request, query: &Query) -> Result<Response, ApiError> {
    let ports: Vec<u16> = query
        .all("ports")
        .flat_map(|list| list.split(','))
        .map(|port| port.parse().map_err(|_| ApiError::bad_request(format!("invalid port {port:?}"))))
        .collect::<Result<_, _>>()?;
    if ports.is_empty() {
        return Err(ApiError::bad_request("you must specify at least 1 port"));
    }
    let upgrade = upgrade(request, &["v4.channel.k8s.io", "portforward.k8s.io"]).await?;
    Ok(upgrade.on_upgrade(move |socket| forward(socket, node, pod, ports)))
}

async fn forward(socket: WebSocket, node: NodeBackend, pod: PodRef, ports: Vec<u16>) {
    let (mut sender, mut receiver) = socket.split();
    let (outgoing, mut messages) = mpsc::channel::<Message>(DEPTH);
    let mut writers = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    for (index, port) in ports.iter().enumerate() {
        let Ok(channel) = u8::try_from(index * 2) else { return };
        for below in [channel, channel + 1] {
            if sender.send(frame(below, &port.to_le_bytes())).await.is_err() {
                return;
            }
        }
        match (node.dial)(pod.clone(), *port).await {
            Ok(connection) => {
                let (mut reader, writer) = tokio::io::split(connection);
                writers.push(Some(writer));
                let outgoing = outgoing.clone();
                tasks.spawn(async move {
                    let mut buffer = vec![0; 16 << 10];
                    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
                        if outgoing.send(frame(channel, &buffer[..read])).await.is_err() {
                            return;
                        }
                    }
                });
            }
            Err(error) => {
                writers.push(None);
                if sender.send(frame(channel + 1, error.to_string().as_bytes())).await.is_err() {
                    return;
                }
            }
        }
    }
    drop(outgoing);
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => if sender.send(message).await.is_err() { return },
                None => break,
            },
            message = receiver.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    let Some((channel, content)) = bytes.split_first() else { continue };
                    if let Some(Some(writer)) = writers.get_mut(usize::from(channel / 2))
                        && writer.write_all(content).await.is_err()
                    {
                        break;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
    let _ = sender.send(farewell()).await;
}

/// Passes an HTTP request on to a port of a pod, or of a pod behind a service.
async fn proxy(
    cluster: &Cluster,
    node: &NodeBackend,
    target: Target<'_>,
    place: &Place,
    request: Request,
) -> Result<Response, ApiError> {
    // `[scheme:]name[:port]`
    let parts: Vec<&str> = target.name.split(':').collect();
    let (name, port) = match parts.as_slice() {
        [name] => (*name, ""),
        [name, port] => (*name, *port),
        [_, name, port] => (*name, *port),
        _ => return Err(ApiError::bad_request(format!("invalid proxy target {:?}", target.name))),
    };
    let target = Target { name, ..target };
    let (pod, port) = match &*target.resource.plural {
        "services" => behind_service(cluster, target, port)?,
        "pods" => {
            let pod = cluster.get(target)?.value();
            let first = pod["spec"]["containers"][0]["ports"][0]["containerPort"].as_u64().unwrap_or(80);
            (pod, port.parse().unwrap_or_else(|_| u16::try_from(first).unwrap_or(80)))
        }
        _ => return Err(ApiError::no_such_path()),
    };
    let text = |key: &str| pod["metadata"][key].as_str().unwrap_or("").to_owned();
    let reference = PodRef { namespace: text("namespace"), name: text("name"), object: Arc::new(pod.clone()) };
    let connection = (node.dial)(reference, port).await.map_err(node_error)?;
    let io = hyper_util::rt::TokioIo::new(connection);
    let (mut client, driver) = hyper::client::conn::http1::handshake(io)
        .await
        .map_err(|error| ApiError::unavailable(format!("cannot talk to port {port}: {error}")))?;
    tokio::spawn(driver.with_upgrades());
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    // To many servers `/jobs` and `/jobs/` are two places.
    let slash = if request.uri().path().ends_with('/') && !place.rest.is_empty() { "/" } else { "" };
    let (mut head, body) = request.into_parts();
    head.uri = format!("/{}{slash}{query}", place.rest.join("/"))
        .parse()
        .map_err(|_| ApiError::bad_request("the path cannot be passed on"))?;
    head.headers.remove(header::AUTHORIZATION);
    let host = format!("{}:{port}", pod["status"]["podIP"].as_str().unwrap_or("localhost"));
    if let Ok(host) = HeaderValue::from_str(&host) {
        head.headers.insert(header::HOST, host);
    }
    let answer = client.send_request(Request::from_parts(head, body)).await;
    match answer {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let stream = http_body_util::BodyDataStream::new(body).map_err(std::io::Error::other);
            Ok(Response::from_parts(head, Body::from_stream(stream)))
        }
        Err(error) => {
            let text = format!("error trying to reach service: {error}");
            Ok(respond::failure(&ApiError::unavailable(text))).map(|mut response: Response| {
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            })
        }
    }
}

fn behind_service(cluster: &Cluster, target: Target<'_>, port: &str) -> Result<(Value, u16), ApiError> {
    let service = cluster.get(target)?.value();
    let ports: Vec<&Value> = service["spec"]["ports"].as_array().into_iter().flatten().collect();
    let chosen = ports.iter().find(|known| {
        port.is_empty()
            || known["name"] == port
            || known["port"].as_u64().is_some_and(|number| number.to_string() == port)
    });
    let Some(chosen) = chosen else {
        return Err(ApiError::unavailable(format!("no service port {port:?} found for service {:?}", target.name)));
    };
    let rules = LabelRule::from_map(&service["spec"]["selector"]);
    let span = Span { namespace: Some(target.namespace), ..Span::default() };
    let pods = cluster.store.list("pods", &span, |pod| !rules.is_empty() && labels_match(&rules, pod));
    let ready = |pod: &Value| {
        pod["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let found = pods.map(|page| page.entries).unwrap_or_default().iter().map(|entry| entry.value()).find(ready);
    let Some(pod) = found else {
        return Err(ApiError::unavailable(format!("no endpoints available for service {:?}", target.name)));
    };
    let wanted = match &chosen["targetPort"] {
        Value::Number(number) => number.as_u64(),
        Value::String(name) => named_port(&pod, name),
        _ => chosen["port"].as_u64(),
    };
    let number = wanted.and_then(|number| u16::try_from(number).ok());
    number.map(|number| (pod, number)).ok_or_else(|| ApiError::unavailable("the service leads to no port"))
}

fn named_port(pod: &Value, name: &str) -> Option<u64> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.find(|port| port["name"] == name).and_then(|port| port["containerPort"].as_u64())
}
