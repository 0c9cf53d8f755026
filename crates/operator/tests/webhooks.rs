//! The admission webhooks against a real kube-apiserver, with self-signed certificates and with those in a folder.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod harness;

use anyhow::{Context, Result, ensure};
use harness::{Harness, small_cluster};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Config};
use manta_api::RayCluster;
use manta_operator::args::Arguments;
use manta_operator::process::{self, ProcessError};
use manta_testkit::{ControlPlane, eventually, within};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// An operator with webhooks for one namespace.
struct WebhookHarness {
    harness: Harness,
    address: SocketAddr,
    metrics: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ProcessError>>,
}

impl WebhookHarness {
    async fn start(name: &str, flags: impl Fn(&Harness) -> Vec<String>) -> Result<Self> {
        let harness = Harness::new(name).await?;
        // Released here and bound again by the operator.
        let free = async || Ok::<_, anyhow::Error>(TcpListener::bind("127.0.0.1:0").await?.local_addr()?);
        let (address, metrics) = (free().await?, free().await?);
        let mut line = flags(&harness);
        line.extend([
            format!("--webhook-bind-address={address}"),
            format!("--metrics-addr={metrics}"),
            format!("--watch-namespace={}", harness.namespace),
            "--health-probe-bind-address=0".to_owned(),
            "--enable-leader-election=false".to_owned(),
        ]);
        let env = |name: &str| (name == "ENABLE_WEBHOOKS").then(|| "true".to_owned());
        let arguments = Arguments::read(line, env, |_| Err(String::new()))?;
        let file = Kubeconfig::read_from(ControlPlane::shared().kubeconfig_path())?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.default_namespace.clone_from(&harness.namespace);
        let stop = CancellationToken::new();
        let task = tokio::spawn(process::run(config, arguments.settings, arguments.process, stop.clone()));
        Ok(Self { harness, address, metrics, stop, task })
    }

    /// Configures the API server to call this operator for this namespace only.
    async fn configure(&self, bundle: Option<&str>) -> Result<()> {
        let namespace = &self.harness.namespace;
        let webhook = |kind: &str| {
            let mut webhook = json!({
                "name": format!("v{kind}.kb.io"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 10,
                "clientConfig": {"url": format!("https://{}/validate-ray-io-v1-{kind}", self.address)},
                "rules": [{"apiGroups": ["ray.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                           "resources": [format!("{kind}s")]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            });
            if let Some(bundle) = bundle {
                webhook["clientConfig"]["caBundle"] = json!(bundle);
            }
            webhook
        };
        let kinds = ["raycluster", "rayjob", "rayservice", "raycronjob"];
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace}, "webhooks": kinds.map(webhook),
        });
        self.configurations().create(&PostParams::default(), &serde_json::from_value(configuration)?).await?;
        Ok(())
    }

    fn configurations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.harness.client.clone())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.harness.client.clone(), &self.harness.namespace)
    }

    /// Returns the API server's response to creating a RayCluster, as a dry run.
    async fn dry_run(&self, name: &str, spec: Value) -> Result<(), String> {
        let cluster: RayCluster = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        let params = PostParams { dry_run: true, ..PostParams::default() };
        match self.harness.clusters().create(&params, &cluster).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits until the API server rejects a bad name, so it calls the webhook and trusts its certificate.
    async fn until_enforced(&self) -> Result<()> {
        let long = "a".repeat(60);
        let error = eventually("the webhook to be called", async || {
            let error = self.dry_run(&long, small_cluster()).await.err().context("it was accepted")?;
            ensure!(error.contains("no more than 53 characters"), "{error}");
            Ok(error)
        })
        .await?;
        let expect = format!(
            "422 admission webhook \"vraycluster.kb.io\" denied the request: RayCluster.ray.io \"{long}\" is invalid: \
             metadata.name: Invalid value: \"{long}\": RayCluster name should be no more than 53 characters"
        );
        ensure!(error == expect, "the server returned {error:?}, not {expect}");
        Ok(())
    }

    async fn stop(self) -> Result<()> {
        self.configurations().delete(&self.harness.namespace, &Default::default()).await?;
        self.stop.cancel();
        Ok(within("the end of the operator", self.task).await???)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_signed_webhook_validates_objects() -> Result<()> {
    let flags = |harness: &Harness| vec![format!("--webhook-self-signed-for={}", harness.namespace)];
    let webhooks = WebhookHarness::start("hook", flags).await?;
    // The operator waits for the configuration, then generates a certificate for the host in it.
    webhooks.configure(None).await?;
    webhooks.until_enforced().await?;
    assert_eq!(webhooks.dry_run("good", small_cluster()).await, Ok(()));
    let mut bad = small_cluster();
    bad["workerGroupSpecs"][0]["minReplicas"] = json!(-1);
    let error = webhooks.dry_run("bad", bad.clone()).await.unwrap_err();
    assert!(error.contains("is invalid: spec: Invalid value: worker group"), "{error}");
    assert!(error.ends_with("has negative minReplicas -1"), "{error}");

    // An update that makes a stored object invalid is rejected; deleting it is allowed.
    webhooks.harness.create("stored", small_cluster()).await?;
    let patch = Patch::Merge(json!({"spec": {"workerGroupSpecs": bad["workerGroupSpecs"]}}));
    let refused = webhooks.harness.clusters().patch("stored", &PatchParams::default(), &patch).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422), "{refused:?}");
    webhooks.harness.clusters().delete("stored", &Default::default()).await?;

    // The configuration trusts the certificate in the Secret.
    let name = "kuberay-webhook-certificate";
    let first = webhooks.secrets().get(name).await?;
    let bundle = |configuration: &ValidatingWebhookConfiguration| {
        configuration.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.clone()
    };
    let configuration = webhooks.configurations().get(&webhooks.harness.namespace).await?;
    assert_eq!(bundle(&configuration).as_ref(), first.data.as_ref().unwrap().get("ca.crt"));

    let text = reqwest::get(format!("http://{}/metrics", webhooks.metrics)).await?.text().await?;
    for line in [
        "controller_runtime_webhook_requests_total{webhook=\"/validate-ray-io-v1-raycluster\",code=\"200\"}",
        "controller_runtime_webhook_requests_in_flight{webhook=\"/validate-ray-io-v1-raycluster\"} 0",
        "controller_runtime_webhook_latency_seconds_count{webhook=\"/validate-ray-io-v1-raycluster\"}",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    webhooks.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_in_a_folder_are_served_and_reloaded() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let renew = || -> Result<String> {
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()])?.self_signed(&key)?.pem();
        std::fs::write(folder.path().join("tls.crt"), &certificate)?;
        std::fs::write(folder.path().join("tls.key"), key.serialize_pem())?;
        use base64::Engine;
        Ok(base64::engine::general_purpose::STANDARD.encode(certificate))
    };
    let bundle = renew()?;
    let flags = |_: &Harness| vec![format!("--webhook-cert-dir={}", folder.path().display())];
    let webhooks = WebhookHarness::start("folder", flags).await?;
    webhooks.configure(Some(&bundle)).await?;
    webhooks.until_enforced().await?;

    // As when cert-manager renews: the files change, and the bundle with them.
    let bundle = renew()?;
    let namespace = webhooks.harness.namespace.clone();
    let kinds = ["raycluster", "rayjob", "rayservice", "raycronjob"];
    let entry = |kind| json!({"name": format!("v{kind}.kb.io"), "clientConfig": {"caBundle": bundle}});
    let patch = Patch::Strategic(json!({"webhooks": kinds.map(entry)}));
    webhooks.configurations().patch(&namespace, &PatchParams::default(), &patch).await?;
    webhooks.until_enforced().await?;
    webhooks.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_certificate_is_an_error_at_start() -> Result<()> {
    let webhooks = WebhookHarness::start("bare", |_| vec!["--webhook-cert-dir=/nowhere".to_owned()]).await?;
    let ended = within("the end of the operator", webhooks.task).await??;
    let text = ended.unwrap_err().to_string();
    assert!(text.starts_with("cannot read the webhook's certificate /nowhere/tls.crt: "), "{text}");
    Ok(())
}
