//! `…/proxy`: HTTP requests passed on to a port of a pod, or of a pod behind a service.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::TryStreamExt;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::super::respond;
use super::{RequestInfo, node_error};
use crate::error::ApiError;
use crate::node::{NodeBackend, PodRef};
use crate::ops::{Cluster, Target};
use crate::selector::{LabelRule, labels_match};
use crate::store::ListRange;

/// Passes an HTTP request on to a port of a pod, or of a pod behind a service.
pub(super) async fn serve(
    cluster: &Cluster,
    node: &NodeBackend,
    target: Target<'_>,
    info: &RequestInfo,
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
        "services" => service_backend(cluster, target, port)?,
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
    let slash = if request.uri().path().ends_with('/') && !info.rest.is_empty() { "/" } else { "" };
    let (mut head, body) = request.into_parts();
    head.uri = format!("/{}{slash}{query}", info.rest.join("/"))
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

/// Returns a ready pod of a service, and the target port on it.
pub(crate) fn service_backend(cluster: &Cluster, target: Target<'_>, port: &str) -> Result<(Value, u16), ApiError> {
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
    let span = ListRange { namespace: Some(target.namespace), ..ListRange::default() };
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
