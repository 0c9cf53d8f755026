//! The operator as a process: its servers, leader election, and waiting for the API server.

use crate::args::{Process, gates};
use crate::leader::{Candidate, Fence, Lost, run_terms};
use crate::metrics::client::MetricsLayer;
use crate::metrics::protected::{self, Reviews};
use crate::metrics::{Metrics, Telemetry};
use crate::run::{Settings, Term};
pub use crate::webhooks::WebhookError;
use crate::webhooks::{ServedCertificate, TlsListener, Webhook};
use crate::{platform, probes};
use axum::middleware::from_fn_with_state;
use kube::client::ClientBuilder;
use kube::{Client, Config};
use manta_logic::config::{BatchScheduler, Platform};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// How often an unavailable API server is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The first minor version of Kubernetes 1 that can restart single containers.
const MIN_MINOR_FOR_CONTAINER_RESTART: u32 = 35;

/// Identifies the operator in the API server's logs.
const USER_AGENT: &str = concat!("manta/", env!("CARGO_PKG_VERSION"));

/// Why the process ends.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot listen on {address} for {what}: {error}; choose another address with {flag}, or 0 for none")]
    Listen { address: String, what: &'static str, flag: &'static str, error: std::io::Error },
    #[error("cannot make a client for the API server: {0}")]
    Client(kube::Error),
    #[error("the API server refuses to list its APIs: {0}")]
    Refused(kube::Error),
    #[error("SidecarSubmitterRestart feature gate requires K8s 1.35+: current version {0} is below 1.35")]
    TooOld(String),
    #[error(
        "no served scheduling.k8s.io API version available for kubernetes-was-v1alpha2: scheduling.k8s.io/v1alpha2 API is \
         not available: start the API server with --runtime-config=scheduling.k8s.io/v1alpha2=true and the gate \
         GenericWorkload, or the operator without the gate KubernetesWAS"
    )]
    NoWorkloadApi,
    #[error(transparent)]
    Lost(#[from] Lost),
    #[error(transparent)]
    Webhook(#[from] WebhookError),
}

/// Runs the operator until it is stopped or loses leadership to another.
pub async fn run(
    mut config: Config,
    mut settings: Settings,
    process: Process,
    stop: CancellationToken,
) -> Result<(), ProcessError> {
    let metrics = listen(process.metrics_address.as_deref(), "metrics", "--metrics-addr").await?;
    let health = listen(process.probe_address.as_deref(), "probes", "--health-probe-bind-address").await?;
    let webhook_address = process.webhooks.as_ref().map(|webhooks| webhooks.address.as_str());
    let webhooks = listen(webhook_address, "webhooks", "--webhook-bind-address").await?;
    let gates: std::collections::BTreeMap<_, _> = gates::by_name(&settings.config.gates).into();
    info!(featureGates = ?gates, "Loaded feature gates");
    if let Some(scheduler) = settings.config.batch_scheduler {
        info!(?scheduler, "Feature flag batch-scheduler is enabled");
    }
    let servers = TaskTracker::new();
    // The servers outlive the running passes.
    let servers_stop = CancellationToken::new();
    let _close = servers_stop.clone().drop_guard();
    let (current, telemetry) = watch::channel(Telemetry::default());
    if let Some(listener) = health {
        let router = probes::probes(telemetry.clone(), settings.config.gates.ray_cron_job);
        servers.spawn(probes::serve(listener, router, "probes", servers_stop.clone()));
    }

    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
    let counts = Arc::clone(&current.borrow().metrics);
    let client = fenced_client(&config, &counts, CancellationToken::new())?;
    if let Some(listener) = metrics {
        let router = probes::metrics(telemetry.clone(), process.kuberay_metrics);
        if process.secure_metrics {
            let router = router.layer(from_fn_with_state(Reviews::new(client.clone()), protected::check));
            let listener = TlsListener::start(listener, &own_certificate()?, &servers, servers_stop.clone())?;
            servers.spawn(probes::serve(listener, router, "metrics", servers_stop.clone()));
        } else {
            servers.spawn(probes::serve(listener, router, "metrics", servers_stop.clone()));
        }
    }
    let Some(platform) = wait_for_server(&client, settings.config.gates.sidecar_submitter_restart, &stop).await? else {
        return Ok(());
    };
    if settings.config.batch_scheduler == Some(BatchScheduler::KubernetesWorkloads) && !platform.workload_api {
        return Err(ProcessError::NoWorkloadApi);
    }
    settings.config.platform = platform;
    if let Some((listener, args)) = webhooks.zip(process.webhooks) {
        let (config, metrics) = (settings.config.clone(), Arc::clone(&counts));
        Webhook { listener, args, config, metrics, client: client.clone() }.start(&servers, servers_stop.clone())?;
    }
    let candidate = process.leader_election.then(|| {
        let namespace = process.leader_election_namespace.as_deref().unwrap_or(client.default_namespace());
        Candidate::new(client.clone(), namespace, &settings)
    });
    let new_term = |term: &Term| {
        let telemetry = Telemetry { metrics: Arc::clone(&counts), ..Telemetry::default() };
        current.send_replace(telemetry.clone());
        Ok((fenced_client(&config, &counts, term.lost.clone())?, telemetry))
    };
    let ended: Result<(), ProcessError> = run_terms(new_term, settings, candidate, &stop).await;
    if ended.is_err() {
        stop.cancel();
    }
    servers_stop.cancel();
    servers.close();
    if ended.is_ok() {
        servers.wait().await;
    }
    ended
}

/// Returns a new self-signed certificate: it keeps tokens from those who listen in, and identifies nobody.
fn own_certificate() -> Result<Arc<ServedCertificate>, WebhookError> {
    let unusable = |error: rcgen::Error| WebhookError::Unusable(error.to_string());
    let key = rcgen::KeyPair::generate().map_err(unusable)?;
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).map_err(unusable)?;
    let certificate = params.self_signed(&key).map_err(unusable)?;
    let served = ServedCertificate::default();
    served.set(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())?;
    Ok(Arc::new(served))
}

/// Returns a client that counts its requests, and sends none after the end of a term.
///
/// It retries nothing by itself: a 503 of the API server's proxy is the reply of a dashboard that is down, and passes have
/// their own back-off.
fn fenced_client(config: &Config, metrics: &Arc<Metrics>, over: CancellationToken) -> Result<Client, ProcessError> {
    let mut config = config.clone();
    config.default_retry = false;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let layer = MetricsLayer { host: host.into(), metrics: Arc::clone(metrics) };
    let builder = ClientBuilder::try_from(config).map_err(ProcessError::Client)?;
    Ok(builder.with_layer(&layer).with_layer(&Fence(over)).build())
}

async fn listen(
    address: Option<&str>,
    what: &'static str,
    flag: &'static str,
) -> Result<Option<TcpListener>, ProcessError> {
    let Some(address) = address else { return Ok(None) };
    match probes::listen(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) => Err(ProcessError::Listen { address: address.to_owned(), what, flag, error }),
    }
}

/// Retries until the API server reports its APIs. Returns `None` if stopped before.
async fn wait_for_server(
    client: &Client,
    must_restart_containers: bool,
    stop: &CancellationToken,
) -> Result<Option<Platform>, ProcessError> {
    let mut logged = false;
    loop {
        match detect_platform(client, must_restart_containers).await {
            Ok(platform) => return Ok(Some(platform)),
            Err(ProcessError::Refused(error)) if !is_refusal(&error) => {
                if !logged {
                    warn!(%error, "waiting for the API server");
                    logged = true;
                }
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
    }
}

async fn detect_platform(client: &Client, must_restart_containers: bool) -> Result<Platform, ProcessError> {
    if must_restart_containers {
        let version = client.apiserver_version().await.map_err(ProcessError::Refused)?;
        if platform::minor(&version.minor) < MIN_MINOR_FOR_CONTAINER_RESTART {
            return Err(ProcessError::TooOld(version.git_version));
        }
    }
    platform::detect(client).await.map_err(ProcessError::Refused)
}

/// Returns whether the server rejected the request for good.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_refused_request_is_not_retried_behind_our_back() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let answer = move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            StatusCode::SERVICE_UNAVAILABLE
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
        let config = Config::new(url.parse().unwrap());
        let client = fenced_client(&config, &Arc::default(), CancellationToken::new()).unwrap();
        let request = http::Request::get("/api/v1/namespaces/ns/services/x:dashboard/proxy/api/jobs/").body(Vec::new());
        assert!(client.request_text(request.unwrap()).await.is_err());
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        server.abort();
    }
}
