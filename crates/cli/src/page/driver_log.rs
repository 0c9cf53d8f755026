//! The output of a job's driver, wherever it is: the submitter's Pod, Ray itself, or what local mode has kept.

use super::Page;
use super::dashboard::{self, PORT, TOKEN_HEADER};
use super::live::Outlet;
use super::pod_log::{self, Choice, MAX_CHUNK, Utf8};
use super::session::Session;
use super::stream;
use crate::connect::Target;
use crate::job::{follow_log, is_terminal, log_config, log_path};
use crate::local::kept_job_output;
use crate::resource::Kind;
use anyhow::ensure;
use http::{HeaderName, HeaderValue, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use manta_logic::job::dashboard::JobInfo;
use manta_logic::labels;
use serde_json::{Value, json};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// How long the log of a job may take to appear once the job has an id, and how often it is asked for.
const START_TIMEOUT: Duration = Duration::from_mins(1);
const INTERVAL: Duration = Duration::from_secs(1);
/// The container that submits a job in SidecarMode.
const SUBMITTER: &str = "ray-job-submitter";

/// Sends the output of a RayJob until it ends.
pub(super) async fn follow(page: &Page, session: &Session, namespace: &str, name: &str, outlet: &Outlet) {
    let target = Target { namespace: namespace.to_owned(), ..session.target.clone() };
    let job = match target.ray_api(Kind::Job).get_opt(name).await {
        Ok(job) => job.map(|job| job.data).unwrap_or_default(),
        Err(error) => return outlet.fail(&super::failure::sentence(&error)).await,
    };
    let text = |path: &str| job.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(choice) = submitter(&target, name, text("/status/rayClusterName"), text("/spec/submissionMode")).await {
        let pod = &choice.pod;
        outlet.send(&json!({"source": format!("Pod {pod}")})).await;
        return pod_log::follow(&target, &choice, outlet).await;
    }
    let Some(id) = text("/status/jobId") else {
        return outlet.fail("the job has not been submitted yet").await;
    };
    // Written to the end, also while it is still being written: a job's cluster may be gone the moment it has ended.
    let kept = page.job_output.as_deref().and_then(|folder| kept_job_output(folder, namespace, name, id));
    let is_over = matches!(text("/status/jobDeploymentStatus"), Some("Complete" | "Failed"));
    match kept.filter(|_| is_over) {
        Some(kept) => {
            outlet.send(&json!({"source": "the output that local mode has kept"})).await;
            if let Err(error) = send_file(&kept, outlet).await {
                outlet.fail(&format!("cannot read {}: {error}", kept.display())).await;
            }
        }
        None => {
            let Some(cluster) = text("/status/rayClusterName") else {
                return outlet.fail("the job has no cluster any more").await;
            };
            if let Err(error) = follow_ray(&target, cluster, id, is_over, outlet).await {
                outlet.fail(&format!("{error:#}")).await;
            }
        }
    }
}

/// Returns the container that submits the job, if there is one.
async fn submitter(target: &Target, name: &str, cluster: Option<&str>, mode: Option<&str>) -> Option<Choice> {
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let (selector, container) = match mode {
        Some("HTTPMode" | "InteractiveMode") => return None,
        Some("SidecarMode") => {
            (format!("{}={},{}={}", labels::CLUSTER, cluster?, labels::NODE_TYPE, labels::HEAD), Some(SUBMITTER))
        }
        _ => (format!("{}={name},{}=RayJob", labels::ORIGINATED_FROM_CR_NAME, labels::ORIGINATED_FROM_CRD), None),
    };
    let mut found = pods.list(&ListParams::default().labels(&selector)).await.ok()?.items;
    // Attempts follow each other; the latest one counts.
    found.sort_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
    let pod = found.last()?.name_any();
    let container = container.map(str::to_owned);
    Some(Choice { namespace: target.namespace.clone(), pod, container, previous: false })
}

/// Follows the log that Ray serves. A slow browser slows it down, and misses nothing.
async fn follow_ray(target: &Target, cluster: &str, id: &str, is_over: bool, outlet: &Outlet) -> anyhow::Result<()> {
    let token = dashboard::token(target, cluster).await?;
    let bearer = token.map(|token| HeaderValue::try_from(format!("Bearer {token}"))).transpose()?;
    let connect = || async {
        let head = dashboard::head_of(target, cluster).await?;
        let mut request = format!("ws://127.0.0.1:{PORT}{}", log_path(id)).into_client_request()?;
        request.headers_mut().extend(bearer.clone().map(|value| (HeaderName::from_static(TOKEN_HEADER), value)));
        stream::websocket(target, &head, PORT, request, log_config()).await
    };
    let deadline = Instant::now() + if is_over { Duration::ZERO } else { START_TIMEOUT };
    let first = loop {
        match connect().await {
            Ok(stream) => break Mutex::new(Some(stream)),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(error) => {
                if !outlet.send(&json!({"waiting": format!("{error:#}")})).await {
                    return Ok(());
                }
                tokio::time::sleep(INTERVAL).await;
            }
        }
    };
    let open = || {
        let taken = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let connect = &connect;
        async move {
            match taken {
                Some(stream) => Ok(stream),
                None => connect().await,
            }
        }
    };
    let has_ended = || async {
        let status = status_of(target, cluster, id, bearer.as_ref()).await;
        status.is_ok_and(|status| is_terminal(&status))
    };
    outlet.send(&json!({"source": format!("Ray job {id}")})).await;
    let mut text = Utf8::default();
    let send = |bytes: Vec<u8>| {
        let pieces: Vec<String> = bytes.chunks(MAX_CHUNK).map(|piece| text.decode(piece)).collect();
        async move {
            for piece in pieces {
                ensure!(outlet.send(&json!({"text": piece})).await, "the browser is gone");
            }
            Ok(())
        }
    };
    follow_log(open, has_ended, send).await?;
    outlet.send(&json!({"end": ""})).await;
    Ok(())
}

/// Asks Ray for the status of a job.
async fn status_of(target: &Target, cluster: &str, id: &str, bearer: Option<&HeaderValue>) -> anyhow::Result<String> {
    let head = dashboard::head_of(target, cluster).await?;
    let request = Request::get(format!("/api/jobs/{id}"));
    let request = bearer.into_iter().fold(request, |request, value| request.header(TOKEN_HEADER, value));
    let info: JobInfo = serde_json::from_str(&stream::read(target, &head, PORT, request).await?)?;
    Ok(info.status)
}

async fn send_file(path: &std::path::Path, outlet: &Outlet) -> io::Result<()> {
    use tokio::io::AsyncReadExt;
    let mut file = tokio::fs::File::open(path).await?;
    let mut text = Utf8::default();
    let mut buffer = vec![0; MAX_CHUNK];
    loop {
        let length = file.read(&mut buffer).await?;
        if length == 0 {
            outlet.send(&json!({"end": ""})).await;
            return Ok(());
        }
        if !outlet.send(&json!({"text": text.decode(&buffer[..length])})).await {
            return Ok(());
        }
    }
}
