//! The operator's process against a real kube-apiserver: leader election, probes, metrics and outages.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod harness;

use anyhow::{Context, Result, ensure};
use harness::{Harness, small_cluster};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use manta_operator::Settings;
use manta_operator::args::{Arguments, Process};
use manta_operator::leader::{LEASE, Lost};
use manta_operator::process::{self, ProcessError};
use manta_testkit::{ControlPlane, Kubelet, Options, eventually, within};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ProcessError>>,
}

impl Running {
    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(within("the end of the operator", self.task).await???)
    }
}

/// Returns the arguments of an operator for one harness.
fn arguments(harness: &Harness, host: &str, more: &str) -> Result<(Settings, Process)> {
    let namespace = &harness.namespace;
    let line = format!(
        "--watch-namespace={namespace} --leader-election-namespace={namespace} --metrics-addr=0 \
         --health-probe-bind-address=0 {more}"
    );
    let flags = line.split_whitespace().map(str::to_owned);
    let arguments =
        Arguments::read(flags, |name| (name == "HOSTNAME").then(|| host.to_owned()), |_| Err(String::new()))?;
    Ok((arguments.settings, arguments.process))
}

async fn config() -> Result<Config> {
    let file = Kubeconfig::read_from(ControlPlane::shared().kubeconfig_path())?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

async fn start(harness: &Harness, host: &str, more: &str, config: Config) -> Result<Running> {
    let (settings, process) = arguments(harness, host, more)?;
    let stop = CancellationToken::new();
    let task = tokio::spawn(process::run(config, settings, process, stop.clone()));
    Ok(Running { stop, task })
}

fn leases(harness: &Harness) -> Api<Lease> {
    Api::namespaced(harness.client.clone(), &harness.namespace)
}

/// Waits for a leader. Returns its host.
async fn leader(harness: &Harness) -> Result<String> {
    eventually("a leader", async || {
        let lease = leases(harness).get(LEASE).await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        Ok(holder.split_once('_').with_context(|| format!("the holder is {holder:?}"))?.0.to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_as_soon_as_the_leader_stops() -> Result<()> {
    let harness = Harness::new("lead").await?;
    let a = start(&harness, "a", "", config().await?).await?;
    let b = start(&harness, "b", "", config().await?).await?;
    harness.create("first", small_cluster()).await?;
    harness.until_ready("first").await?;
    assert_eq!(harness.pods().await?.len(), 3);
    let (first, second, expect) = match leader(&harness).await?.as_str() {
        "a" => (a, b, "b"),
        _ => (b, a, "a"),
    };
    first.stop().await?;
    // Released, so that the other need not wait until the Lease expires.
    let holder = leases(&harness).get(LEASE).await?.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    assert!(holder.is_empty() || holder.starts_with(expect), "{holder} still leads");
    harness.create("second", small_cluster()).await?;
    harness.until_ready("second").await?;
    assert_eq!(leader(&harness).await?, expect);
    assert_eq!(harness.pods().await?.len(), 6);
    second.stop().await?;
    let lease = leases(&harness).get(LEASE).await?.spec.unwrap();
    assert_eq!((lease.holder_identity.as_deref(), lease.lease_transitions), (Some(""), Some(1)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_lost_the_lease_ends() -> Result<()> {
    let harness = Harness::new("lost").await?;
    let operator = start(&harness, "a", "", config().await?).await?;
    assert_eq!(leader(&harness).await?, "a");
    let thief = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 600}});
    leases(&harness).patch(LEASE, &PatchParams::default(), &Patch::Merge(thief)).await?;
    let ended = within("the end of the operator", operator.task).await??;
    assert!(matches!(&ended, Err(ProcessError::Lost(Lost::To(holder))) if holder == "thief"), "{ended:?}");
    assert!(operator.stop.is_cancelled());
    harness.create("demo", small_cluster()).await?;
    // A standby syncs its caches, waits for the Lease, and can be stopped while it waits.
    let (probes, metrics) = (free_address().await?, free_address().await?);
    let more = format!("--health-probe-bind-address={probes} --metrics-addr={metrics} --enable-metrics");
    let next = start(&harness, "b", &more, config().await?).await?;
    until_status(&format!("http://{probes}/readyz"), 200).await?;
    let metrics = format!("http://{metrics}/metrics");
    until_metric(&metrics, "leader_election_master_status{name=\"ray-operator-leader\"} 0").await?;
    assert_eq!(harness.pods().await?.len(), 0);
    next.stop().await
}

/// A proxy in front of the API server that can be closed.
struct TcpProxy {
    address: SocketAddr,
    server: String,
    open: Option<(CancellationToken, JoinHandle<()>)>,
}

impl TcpProxy {
    async fn closed(config: &Config) -> Result<Self> {
        let server = config.cluster_url.authority().context("no address")?.to_string();
        // The port is released here and bound again when the proxy opens.
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        Ok(Self { address, server, open: None })
    }

    async fn open(&mut self) -> Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        let close = CancellationToken::new();
        let (server, closed) = (self.server.clone(), close.clone());
        let task = tokio::spawn(async move {
            loop {
                let Some(Ok((mut from, _))) = closed.run_until_cancelled(listener.accept()).await else { return };
                let (server, closed) = (server.clone(), closed.clone());
                tokio::spawn(async move {
                    let Ok(mut to) = TcpStream::connect(server).await else { return };
                    // Both the end of the connection and a cut are fine.
                    let _ = closed.run_until_cancelled(tokio::io::copy_bidirectional(&mut from, &mut to)).await;
                });
            }
        });
        self.open = Some((close, task));
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        if let Some((close, task)) = self.open.take() {
            close.cancel();
            task.await?;
        }
        Ok(())
    }
}

/// Returns an address that nothing listens on.
async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?)
}

/// Waits until the metrics contain this text.
async fn until_metric(url: &str, wanted: &str) -> Result<()> {
    eventually(wanted, async || {
        let text = reqwest::get(url).await?.text().await?;
        ensure!(text.contains(wanted), "{text}");
        Ok(())
    })
    .await
}

async fn until_status(url: &str, wanted: u16) -> Result<String> {
    eventually(&format!("{wanted} from {url}"), async || {
        let response = reqwest::get(url).await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        ensure!(status == wanted, "{status}: {text}");
        Ok(text)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_waits_for_an_unavailable_api_server() -> Result<()> {
    let harness = Harness::new("away").await?;
    let mut config = config().await?;
    let mut proxy = TcpProxy::closed(&config).await?;
    config.cluster_url = format!("https://{}", proxy.address).parse()?;
    let (probes, metrics) = (free_address().await?, free_address().await?);
    let more = format!("--health-probe-bind-address={probes} --metrics-addr={metrics} --enable-metrics");
    let operator = start(&harness, "a", &more, config).await?;

    // Unavailable at start: alive, not ready.
    until_status(&format!("http://{probes}/healthz"), 200).await?;
    let ready = format!("http://{probes}/readyz");
    let missing = until_status(&ready, 503).await?;
    assert!(missing.contains("RayCluster") && missing.contains("Pod"), "{missing}");
    harness.create("first", small_cluster()).await?;
    proxy.open().await?;
    assert_eq!(until_status(&ready, 200).await?, "ok");
    harness.until_ready("first").await?;

    // An outage shorter than the Lease: the operator goes on, and creates nothing twice.
    proxy.close().await?;
    harness.create("second", small_cluster()).await?;
    let metrics = format!("http://{metrics}/metrics");
    until_metric(&metrics, "rest_client_requests_total{code=\"<error>\"").await?;
    proxy.open().await?;
    harness.until_ready("second").await?;
    assert_eq!(harness.pods().await?.len(), 6);

    let text = until_status(&metrics, 200).await?;
    for name in ["first", "second"] {
        assert!(text.contains(&format!("kuberay_cluster_info{{name=\"{name}\"")), "{text}");
    }
    assert!(text.contains("leader_election_master_status{name=\"ray-operator-leader\"} 1"), "{text}");
    assert!(text.contains("rest_client_requests_total{code=\"201\",method=\"POST\""), "{text}");
    operator.stop().await
}

/// An outage longer than the Lease, which ends the term and empties the caches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_survives_an_outage_longer_than_the_lease() -> Result<()> {
    let mut plane = ControlPlane::start()?;
    if plane.is_embedded() {
        println!("skipped: the embedded server is one process, and keeps its port only while it runs");
        return Ok(());
    }
    plane.install_ray_crds().await?;
    let namespace = plane.namespace("outage").await?;
    let client = plane.client().await?;
    let kubelet = Kubelet::start(client.clone(), Some(&namespace));
    let mut harness = Harness { client, namespace, kubelet };
    let file = Kubeconfig::read_from(plane.kubeconfig_path())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let (probes, metrics) = (free_address().await?, free_address().await?);
    let more = format!("--health-probe-bind-address={probes} --metrics-addr={metrics} --enable-metrics");
    let operator = start(&harness, "a", &more, config).await?;
    harness.create("first", small_cluster()).await?;
    harness.until_ready("first").await?;
    let before = pod_names(&harness).await?;

    plane.stop_apiserver()?;
    let (ready, metrics) = (format!("http://{probes}/readyz"), format!("http://{metrics}/metrics"));
    // No longer the leader, and its caches are not synced.
    until_status(&ready, 503).await?;
    let text = until_status(&metrics, 200).await?;
    assert!(text.contains("leader_election_master_status{name=\"ray-operator-leader\"} 0"), "{text}");
    assert!(!operator.task.is_finished());
    plane.start_apiserver()?;

    until_status(&ready, 200).await?;
    harness.kubelet = Kubelet::start(harness.client.clone(), Some(&harness.namespace));
    harness.create("second", small_cluster()).await?;
    harness.until_ready("second").await?;
    let after = pod_names(&harness).await?;
    assert_eq!(after.len(), 6, "{after:?}");
    assert!(before.is_subset(&after), "{before:?} is not part of {after:?}");
    let text = until_status(&metrics, 200).await?;
    assert!(text.contains("leader_election_master_status{name=\"ray-operator-leader\"} 1"), "{text}");
    assert_eq!(leader(&harness).await?, "a");
    operator.stop().await
}

async fn pod_names(harness: &Harness) -> Result<BTreeSet<String>> {
    Ok(harness.pods().await?.into_iter().filter_map(|pod| pod.metadata.name).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_in_use_is_an_error() -> Result<()> {
    let harness = Harness::new("taken").await?;
    let taken = TcpListener::bind("127.0.0.1:0").await?;
    let address = taken.local_addr()?;
    let operator = start(&harness, "a", &format!("--metrics-addr={address}"), config().await?).await?;
    let error = within("the end of the operator", operator.task).await??.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {address} for metrics: ")), "{error}");
    assert!(error.ends_with("choose another address with --metrics-addr, or 0 for none"), "{error}");
    Ok(())
}

/// Serves metrics over TLS, to those only who may get them, with tokens and roles of a real API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secure_metrics_need_a_token_that_may_get_them() -> Result<()> {
    let plane = ControlPlane::start_with(Options { rbac: true, ..Options::default() })?;
    plane.install_ray_crds().await?;
    let namespace = plane.namespace("secure").await?;
    let client = plane.client().await?;
    let kubelet = Kubelet::start(client.clone(), Some(&namespace));
    let harness = Harness { client, namespace, kubelet };
    let file = Kubeconfig::read_from(plane.kubeconfig_path())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let address = free_address().await?;
    let more = format!("--metrics-addr={address} --secure-metrics");
    let operator = start(&harness, "a", &more, config).await?;

    let stranger = token(&harness, "stranger").await?;
    let reader = token(&harness, "reader").await?;
    let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    create::<ClusterRole>(&harness, json!({"metadata": {"name": "metrics-reader"}, "rules": rules})).await?;
    let subject = json!({"kind": "ServiceAccount", "name": "reader", "namespace": harness.namespace});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"});
    let binding = json!({"metadata": {"name": "metrics-reader"}, "roleRef": role, "subjects": [subject]});
    create::<ClusterRoleBinding>(&harness, binding).await?;

    let text = eventually("metrics for the reader", async || scrape(address, Some(&reader)).await).await?;
    assert!(text.contains("# TYPE process_resident_memory_bytes gauge"), "{text}");
    for (who, expect) in [(None, 401), (Some("forged"), 401), (Some(stranger.as_str()), 403)] {
        match scrape(address, who).await.unwrap_err().downcast()? {
            kube::Error::Api(status) => assert_eq!(status.code, expect, "{who:?}"),
            other => panic!("{who:?}: {other}"),
        }
    }
    assert!(reqwest::get(format!("http://{address}/metrics")).await.is_err(), "nothing is served without TLS");
    operator.stop().await
}

async fn create<K>(harness: &Harness, object: serde_json::Value) -> Result<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object)?;
    Ok(Api::all(harness.client.clone()).create(&PostParams::default(), &object).await?)
}

/// Creates a service account and returns a token of it.
async fn token(harness: &Harness, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(harness.client.clone(), &harness.namespace);
    let object = serde_json::from_value(json!({"metadata": {"name": account}}))?;
    accounts.create(&PostParams::default(), &object).await?;
    let request = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let issued = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    issued.status.and_then(|status| status.token).context("no token")
}

/// Reads `/metrics` over TLS; its certificate is signed by itself.
async fn scrape(address: SocketAddr, token: Option<&str>) -> Result<String> {
    let mut config = Config::new(format!("https://{address}").parse()?);
    config.accept_invalid_certs = true;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let request = http::Request::get("/metrics").body(Vec::new())?;
    Ok(Client::try_from(config)?.request_text(request).await?)
}
