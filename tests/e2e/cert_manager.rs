//! cert-manager, installed by its own chart, runs in pods of local mode and issues certificates.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use manta_testkit::{Neighbour, cert_manager_chart, helm};
use serde_json::json;

use crate::up::folder;
use crate::user::{Machine, User, poll};

const NAMESPACE: &str = "cert-manager";

/// The images of the chart: one program, which is at the root of every pod.
const IMAGES: &str = "images:
- {image: quay.io/jetstack/cert-manager-controller, entrypoint: [/cert-manager, controller], user: 1000}
- {image: quay.io/jetstack/cert-manager-webhook, entrypoint: [/cert-manager, webhook], user: 1000}
- {image: quay.io/jetstack/cert-manager-cainjector, entrypoint: [/cert-manager, cainjector], user: 1000}
";

pub(crate) async fn its_own_manifests_issue_a_certificate() {
    let program = Neighbour::CertManager.program().expect("cert-manager");
    let folder = Arc::new(folder());
    let images = folder.path().join("images.yaml");
    std::fs::write(&images, IMAGES).expect("a mapping");
    let program = format!("{}:/cert-manager:ro", program.display());
    let args = ["--in-memory", "--images", images.to_str().expect("a path"), "--mount", &program];
    let machine = Machine::run(Arc::clone(&folder), &args).await;

    let user = machine.user(NAMESPACE).await;
    machine.kubectl(&["apply", "--filename", &rendered_chart(folder.path())]);
    let deployments: Api<Deployment> = Api::namespaced(user.client.clone(), NAMESPACE);
    poll(|| async {
        let all = deployments.list(&ListParams::default()).await.expect("the API").items;
        let is_up = |one: &Deployment| one.status.as_ref().and_then(|s| s.available_replicas) == Some(1);
        (all.len() == 3 && all.iter().all(is_up)).then_some(())
    })
    .await;

    // The API server calls the webhook once the cainjector has told it which certificate to trust.
    let empty =
        json!({"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "empty"}, "spec": {}});
    poll(|| async {
        let refused = user.try_apply(&empty).await.err()?;
        refused.contains("at least one issuer must be configured").then_some(())
    })
    .await;
    issue(&user).await;
}

/// Issues a certificate from a new CA, and checks that it is there.
async fn issue(user: &User) {
    let issuer = json!({"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "own"},
        "spec": {"selfSigned": {}}});
    let certificate = json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "site"},
        "spec": {"secretName": "site-tls", "dnsNames": ["site.example"], "issuerRef": {"name": "own"}}});
    user.apply(&[issuer, certificate]).await;
    let secrets: Api<Secret> = Api::namespaced(user.client.clone(), &user.namespace);
    let data = poll(|| async { secrets.get_opt("site-tls").await.expect("the API")?.data }).await;
    let pem = |key: &str| String::from_utf8_lossy(&data[key].0).into_owned();
    assert!(pem("tls.crt").starts_with("-----BEGIN CERTIFICATE-----"), "{}", pem("tls.crt"));
    assert!(pem("tls.key").contains("PRIVATE KEY-----"), "a key");
}

/// Renders the chart into a file and returns its path.
fn rendered_chart(folder: &Path) -> String {
    let source = cert_manager_chart().expect("the chart");
    let chart = folder.join("chart");
    let copied = Command::new("cp").args(["--recursive", "--no-preserve=mode"]).arg(&source).arg(&chart).status();
    assert!(copied.is_ok_and(|status| status.success()), "cannot copy {}", source.display());
    std::fs::rename(chart.join("Chart.template.yaml"), chart.join("Chart.yaml")).expect("a chart");
    let mut args = vec!["template", NAMESPACE, chart.to_str().expect("a path"), "--namespace", NAMESPACE];
    // Without it, Helm takes the version of Kubernetes that its own build knows.
    args.extend(["--kube-version", "1.34.0"]);
    // The program serves neither the controller's health nor the check after the installation.
    for setting in ["crds.enabled=true", "startupapicheck.enabled=false", "livenessProbe.enabled=false"] {
        args.extend(["--set", setting]);
    }
    let file = folder.join("cert-manager.yaml");
    std::fs::write(&file, helm(&args).expect("helm renders the chart")).expect("a manifest");
    file.to_str().expect("a path").to_owned()
}
