//! cert-manager issues the certificates of Ray clusters and of the operator's webhooks.

mod certificates;

use crate::harness::{Harness, small_cluster};
use crate::{Operator, admin, free_address};
use anyhow::{Context, Result, ensure};
use certificates::{Issued, handshake};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use manta_testkit::{ControlPlane, Neighbour, Supervised, eventually, helm};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tokio::sync::OnceCell;

const NAMESPACE: &str = "cert-manager";
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/manta-operator");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-neighbours builds cert-manager and runs it"]
async fn a_cluster_gets_certificates_that_survive_rotation() -> Result<()> {
    cert_manager().await?;
    let harness = Harness::new("mtls").await?;
    let flags = ["--feature-gates=RayClusterMTLS=true".to_owned(), "--metrics-addr=0".to_owned()];
    let operator = Operator::start(&harness, admin().await?, &flags)?;
    let mut spec = small_cluster();
    spec["tlsOptions"] = json!({"enabled": true});
    harness.create("secure", spec).await?;
    harness.until_ready("secure").await?;

    let pods = harness.pods().await?;
    for pod in &pods {
        let secret = if is_head(pod) { "ray-head-secret-secure" } else { "ray-worker-secret-secure" };
        assert!(mounts(pod, secret), "{} does not mount {secret}: {:?}", pod.name_any(), pod.spec);
    }
    // The certificates are for the addresses of the Pods, which are only known once they run.
    let address = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap();
    let head_address = address(pods.iter().find(|pod| is_head(pod)).context("no head")?);
    let worker_addresses: Vec<String> = pods.iter().filter(|pod| !is_head(pod)).map(address).collect();
    assert_eq!(worker_addresses.len(), 2);
    let (head, worker) = eventually("certificates for the Pods' addresses", async || {
        let head = issued(&harness, "ray-head-secret-secure").await?;
        let worker = issued(&harness, "ray-worker-secret-secure").await?;
        handshake(&worker, &head, &head_address).await.context("a worker calls the head")?;
        for address in &worker_addresses {
            handshake(&head, &worker, address).await.context("the head calls a worker")?;
        }
        Ok((head, worker))
    })
    .await?;
    let foreign = handshake(&worker, &head, "203.0.113.1").await;
    assert!(foreign.is_err(), "the certificate is for other addresses, too");

    renew(&harness, "ray-head-cert-secure").await?;
    let renewed = eventually("another certificate of the head", async || {
        let renewed = issued(&harness, "ray-head-secret-secure").await?;
        ensure!(renewed.certificate != head.certificate, "the old one");
        Ok(renewed)
    })
    .await?;
    assert_eq!(renewed.authority, head.authority, "the same CA");
    handshake(&worker, &renewed, &head_address).await.context("workers trust the renewed certificate")?;
    handshake(&renewed, &worker, &worker_addresses[0]).await.context("and the head trusts theirs")?;
    harness.until_ready("secure").await?;
    let uids = |pods: &[Pod]| pods.iter().filter_map(ResourceExt::uid).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(uids(&harness.pods().await?), uids(&pods), "rotation replaces no Pod");

    // The Secrets go with the cluster: each is owned by its Certificate.
    for name in ["ray-head-secret-secure", "ray-worker-secret-secure"] {
        let owners = secrets(&harness).get(name).await?.metadata.owner_references.unwrap_or_default();
        assert!(owners.iter().any(|owner| owner.kind == "Certificate"), "{name}: {owners:?}");
    }
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-neighbours builds cert-manager and runs it"]
async fn the_chart_gets_certificates_for_its_webhooks() -> Result<()> {
    cert_manager().await?;
    let harness = Harness::new("hooked").await?;
    let namespace = &harness.namespace;
    let address = free_address().await?;
    let configuration = install_webhooks(&harness, address.port()).await?;
    let serving =
        eventually("the webhooks' certificate", async || issued(&harness, "webhook-server-cert").await).await?;

    // What the kubelet does with the volume of the Deployment.
    let folder = tempfile::tempdir()?;
    serving.write(folder.path())?;
    let flags = [
        format!("--webhook-cert-dir={}", folder.path().display()),
        format!("--webhook-bind-address={address}"),
        "--metrics-addr=0".to_owned(),
    ];
    let operator = Operator::start(&harness, admin().await?, &flags)?;
    until_enforced(&harness, &configuration, &serving).await?;

    renew(&harness, "serving-cert").await?;
    let renewed = eventually("another certificate of the webhooks", async || {
        let renewed = issued(&harness, "webhook-server-cert").await?;
        ensure!(renewed.certificate != serving.certificate, "the old one");
        Ok(renewed)
    })
    .await?;
    renewed.write(folder.path())?;
    until_enforced(&harness, &configuration, &renewed).await?;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(harness.client.clone());
    configurations.delete(&configuration, &Default::default()).await.with_context(|| namespace.clone())?;
    operator.stop().await
}

/// Applies the chart's Issuer, Certificate and webhook configuration, and routes its Service to this machine.
///
/// Returns the name of the configuration. It is for one namespace, so that other tests are not affected.
async fn install_webhooks(harness: &Harness, port: u16) -> Result<String> {
    let namespace = &harness.namespace;
    let settings = ["webhooks.enabled=true", "webhooks.certificates=cert-manager", "singleNamespaceInstall=true"];
    let mut args = vec!["template", "kuberay-operator", CHART, "--namespace", namespace, "--skip-tests"];
    settings.iter().for_each(|setting| args.extend(["--set", setting]));
    let rendered: Vec<Value> = serde_saphyr::from_multiple(&helm(&args)?)?;
    let of_kind = |kind: &str| rendered.iter().find(|object| object["kind"] == kind).with_context(|| kind.to_owned());
    for kind in ["Issuer", "Certificate"] {
        let object: DynamicObject = serde_json::from_value(of_kind(kind)?.clone())?;
        resources(&harness.client, namespace, kind).create(&PostParams::default(), &object).await?;
    }
    let mut configuration = of_kind("ValidatingWebhookConfiguration")?.clone();
    let service = configuration["webhooks"][0]["clientConfig"]["service"]["name"].as_str().unwrap().to_owned();
    let alias = json!({"metadata": {"name": service}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let services: Api<Service> = Api::namespaced(harness.client.clone(), namespace);
    services.create(&PostParams::default(), &serde_json::from_value(alias)?).await?;
    configuration["metadata"]["name"] = json!(namespace);
    for webhook in configuration["webhooks"].as_array_mut().context("no webhooks")? {
        webhook["clientConfig"]["service"]["port"] = json!(port);
        webhook["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    }
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(harness.client.clone());
    configurations.create(&PostParams::default(), &serde_json::from_value(configuration)?).await?;
    Ok(namespace.clone())
}

/// Waits until the API server trusts this certificate, calls the webhook with it, and rejects a bad object.
async fn until_enforced(harness: &Harness, configuration: &str, serving: &Issued) -> Result<()> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(harness.client.clone());
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let bad = json!({"metadata": {"name": "a".repeat(60)}, "spec": small_cluster()});
    let bad = serde_json::from_value(bad)?;
    eventually("the webhook to be called", async || {
        for webhook in configurations.get(configuration).await?.webhooks.unwrap_or_default() {
            // After a renewal the bundle holds the old certificate, too.
            let bundle = webhook.client_config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default();
            let (bundle, authority) = (str::from_utf8(&bundle)?, str::from_utf8(&serving.authority)?);
            ensure!(bundle.contains(authority.trim()), "{} does not trust the certificate", webhook.name);
        }
        let error = harness.clusters().create(&params, &bad).await.err().context("it was accepted")?.to_string();
        ensure!(error.contains("no more than 53 characters"), "{error}");
        Ok(())
    })
    .await
}

fn is_head(pod: &Pod) -> bool {
    pod.labels().get("ray.io/node-type").is_some_and(|kind| kind == "head")
}

/// Whether every container of a Pod that runs Ray mounts the Secret and is told to use TLS.
fn mounts(pod: &Pod, secret: &str) -> bool {
    let spec = pod.spec.clone().unwrap_or_default();
    let volumes = spec.volumes.unwrap_or_default();
    let volume = volumes.iter().find(|v| v.secret.as_ref().is_some_and(|s| s.secret_name.as_deref() == Some(secret)));
    let Some(volume) = volume else { return false };
    spec.containers.iter().all(|container| {
        let uses = container.env.iter().flatten().any(|e| e.name == "RAY_USE_TLS" && e.value.as_deref() == Some("1"));
        uses && container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name)
    })
}

fn secrets(harness: &Harness) -> Api<Secret> {
    Api::namespaced(harness.client.clone(), &harness.namespace)
}

async fn issued(harness: &Harness, secret: &str) -> Result<Issued> {
    let data = secrets(harness).get(secret).await?.data.unwrap_or_default();
    let part = |key: &str| data.get(key).map(|bytes| bytes.0.clone()).with_context(|| format!("{secret} has no {key}"));
    Ok(Issued { authority: part("ca.crt")?, certificate: part("tls.crt")?, key: part("tls.key")? })
}

/// Asks cert-manager to issue a certificate again, as `cmctl renew` does.
async fn renew(harness: &Harness, certificate: &str) -> Result<()> {
    let api = resources(&harness.client, &harness.namespace, "Certificate");
    eventually("the request to renew", async || {
        let mut live = api.get(certificate).await?;
        let conditions = live.data["status"]["conditions"].as_array_mut().context("no conditions")?;
        conditions.retain(|condition| condition["type"] != "Issuing");
        conditions.push(json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "a test renews it",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }));
        Ok(api.replace_status(certificate, &PostParams::default(), &live).await.map(drop)?)
    })
    .await
}

fn resources(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// cert-manager's three processes, which end with this one.
struct CertManager {
    _processes: Vec<Supervised>,
}

/// Returns the cert-manager of all tests, which the first of them starts.
async fn cert_manager() -> Result<&'static CertManager> {
    static RUNNING: OnceCell<CertManager> = OnceCell::const_new();
    RUNNING.get_or_try_init(CertManager::start).await
}

impl CertManager {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::shared();
        plane.install_cert_manager_crds().await?;
        plane.kubectl(&["create", "namespace", NAMESPACE])?;
        let port = free_address().await?.port();
        let webhook = [
            format!("--secure-port={port}"),
            format!("--healthz-port={}", free_address().await?.port()),
            "--metrics-listen-address=0".to_owned(),
            format!("--dynamic-serving-ca-secret-namespace={NAMESPACE}"),
            "--dynamic-serving-ca-secret-name=cert-manager-webhook-ca".to_owned(),
            "--dynamic-serving-dns-names=localhost".to_owned(),
        ];
        let started = [
            start("controller", plane.folder(), &plane.kubeconfig_path(), &[])?,
            start("webhook", plane.folder(), &plane.kubeconfig_path(), &webhook)?,
            start("cainjector", plane.folder(), &plane.kubeconfig_path(), &[])?,
        ];
        let client = plane.client().await?;
        register_webhook(&client, port).await?;
        until_validated(&client).await?;
        Ok(Self { _processes: started.into() })
    }
}

fn start(process: &str, folder: &Path, kubeconfig: &Path, flags: &[String]) -> Result<Supervised> {
    let mut command = Command::new(Neighbour::CertManager.program()?);
    command.arg(process).arg(format!("--kubeconfig={}", kubeconfig.display())).args(flags);
    Supervised::start(folder, &format!("cert-manager-{process}"), &command)
}

/// Registers cert-manager's own webhooks; its cainjector makes the API server trust them.
async fn register_webhook(client: &Client, port: u16) -> Result<()> {
    for (kind, path, resources) in [
        ("MutatingWebhookConfiguration", "mutate", json!(["certificaterequests"])),
        ("ValidatingWebhookConfiguration", "validate", json!(["*/*"])),
    ] {
        let configuration = json!({
            "metadata": {
                "name": "cert-manager-webhook",
                "annotations": {"cert-manager.io/inject-ca-from-secret": format!("{NAMESPACE}/cert-manager-webhook-ca")},
            },
            "webhooks": [{
                "name": "webhook.cert-manager.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 30,
                "clientConfig": {"url": format!("https://localhost:{port}/{path}")},
                "rules": [{"apiGroups": ["cert-manager.io", "acme.cert-manager.io"], "apiVersions": ["v1"],
                           "operations": ["CREATE", "UPDATE"], "resources": resources}],
            }],
        });
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        api.create(&PostParams::default(), &serde_json::from_value(configuration)?).await?;
    }
    Ok(())
}

/// Waits until cert-manager's webhook rejects an Issuer with two types, which the CRD accepts.
async fn until_validated(client: &Client) -> Result<()> {
    let spec = json!({"selfSigned": {}, "ca": {"secretName": "none"}});
    let bad: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "bad"}, "spec": spec,
    }))?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    eventually("cert-manager's webhook", async || {
        let refused = resources(client, NAMESPACE, "Issuer").create(&params, &bad).await;
        let error = refused.err().context("it was accepted")?.to_string();
        ensure!(error.contains("may not specify more than one issuer type"), "{error}");
        Ok(())
    })
    .await
}
