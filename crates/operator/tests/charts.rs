//! The charts, rendered and installed with Helm, and the operator with exactly their permissions.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod harness;

use anyhow::{Context, Result, ensure};
use harness::{Harness, small_cluster, state};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Config, ResourceExt};
use manta_api::{RayJob, RayService};
use manta_operator::args::Arguments;
use manta_operator::process;
use manta_testkit::{ControlPlane, Kubelet, Options, eventually, helm, helm_command, permissions, within};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

fn chart(name: &str) -> String {
    format!("{DEPLOY}/helm/{name}")
}

fn render(name: &str, release: &str, settings: &str) -> Result<String> {
    let chart = chart(name);
    let mut args = vec!["template", release, &chart, "--namespace", "ray-system", "--skip-tests"];
    for setting in settings.split_whitespace() {
        args.extend(["--set", setting]);
    }
    helm(&args)
}

#[test]
fn the_operator_chart_accepts_kuberay_values() -> Result<()> {
    // Settings, text that must be rendered, and text that must not.
    let table: &[(&str, &[&str], &[&str])] = &[
        (
            "",
            &[
                "kind: ClusterRole\n",
                "name: kuberay-operator-leader-election",
                "name: rayjob-editor-role",
                "- --enable-metrics=true",
                "- --enable-leader-election=true",
                "- --qps=100\n",
                "- --burst=200\n",
                "- --feature-gates=RayClusterStatusConditions=true,RayJobDeletionPolicy=true,",
                "app.kubernetes.io/component: kuberay-operator",
                "path: /readyz",
                "image: \"manta:0.1.0\"",
                "- /manager\n",
            ],
            &[
                "services/proxy",
                "--watch-namespace",
                "kind: ConfigMap",
                "kind: ServiceMonitor",
                "podgroups",
                "volumes:",
                "kind: PodDisruptionBudget",
                "kind: NetworkPolicy",
                "topologySpreadConstraints",
            ],
        ),
        ("nameOverride=ray fullnameOverride=x", &["app.kubernetes.io/name: ray\n", "name: x-leader-election"], &[]),
        ("fullnameOverride= nameOverride=x", &["name: kuberay-operator-x\n"], &[]),
        (
            "replicas=2 priorityClassName=high",
            &["replicas: 2", "priorityClassName: high", "kind: PodDisruptionBudget", "maxUnavailable: 1"],
            &["RollingUpdate"],
        ),
        ("replicas=2 podDisruptionBudget.enabled=false", &["replicas: 2"], &["kind: PodDisruptionBudget"]),
        (
            "networkPolicy.enabled=true",
            &["policyTypes: [Ingress, Egress]", "- port: probes", "- port: http\n  egress:", "- port: 6443"],
            &["webhook-server", "from:"],
        ),
        (
            "networkPolicy.enabled=true webhooks.enabled=true networkPolicy.apiServerTo[0].ipBlock.cidr=10.0.0.1/32 \
             networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=mon",
            &["- port: webhook-server", "cidr: 10.0.0.1/32", "team: mon"],
            &[],
        ),
        (
            "postMortem.volume.persistentVolumeClaim.claimName=records",
            &[
                "- --post-mortem-directory=/var/lib/manta/post-mortems",
                "mountPath: /var/lib/manta/post-mortems",
                "name: post-mortems\n          persistentVolumeClaim:\n            claimName: records",
            ],
            &[],
        ),
        ("image.repository=r image.tag=7 image.pullPolicy=Always", &["image: \"r:7\"", "imagePullPolicy: Always"], &[]),
        (
            "watchNamespace[0]=a watchNamespace[1]=b",
            &["- --watch-namespace\n            - \"a,b\"", "kind: ClusterRole\n"],
            &[],
        ),
        (
            "singleNamespaceInstall=true watchNamespace[0]=a watchNamespace[1]=b",
            &["namespace: a\n", "namespace: b\n", "kind: Role\n"],
            &["kind: ClusterRole\n", "editor-role"],
        ),
        ("singleNamespaceInstall=true", &["- \"ray-system\"", "kind: Role\n"], &["kind: ClusterRole"]),
        (
            "singleNamespaceInstall=true crNamespacedRbacEnable=false leaderElectionEnabled=false",
            &["--enable-leader-election=false"],
            &["kind: Role", "kind: ClusterRole"],
        ),
        ("rbacEnable=false", &["kind: Deployment"], &["rbac.authorization.k8s.io/v1"]),
        (
            "serviceAccount.create=false serviceAccount.name=",
            &["serviceAccountName: default"],
            &["kind: ServiceAccount\nmetadata"],
        ),
        (
            "logging.baseDir=/logs logging.fileName=x.log logging.sizeLimit=1Gi logging.stdoutEncoder=console",
            &["- /logs/x.log", "mountPath: /logs", "sizeLimit: 1Gi", "- console"],
            &[],
        ),
        (
            "logging.stdoutEncoder= logging.fileEncoder=",
            &["- --log-stdout-encoder\n            - json\n            - --log-file-encoder\n            - json\n"],
            &[],
        ),
        (
            "componentOverride=c",
            &["    app.kubernetes.io/component: c\nspec:", "        app.kubernetes.io/component: c\n"],
            &[],
        ),
        (
            "batchScheduler.enabled=true",
            &["- --enable-batch-scheduler", "scheduling.volcano.sh", "scheduling.x-k8s.io"],
            &[],
        ),
        (
            "batchScheduler.name=volcano",
            &["- --batch-scheduler=volcano", "scheduling.volcano.sh"],
            &["scheduling.x-k8s.io"],
        ),
        (
            "featureGates[0].name=KubernetesWAS featureGates[0].enabled=true",
            &["- --feature-gates=KubernetesWAS=true\n", "resources: [podgroups, workloads]"],
            &[],
        ),
        ("useKubernetesProxy=true", &["- --use-kubernetes-proxy=true", "services/proxy", "pods/proxy"], &[]),
        ("useKubernetesProxy=false", &["- --use-kubernetes-proxy=false"], &["services/proxy"]),
        (
            "configuration.enabled=true configuration.defaultPodLabels.team=ml useKubernetesProxy=true",
            &[
                "- /etc/kuberay/config.yaml",
                "useKubernetesProxy: true",
                "team: ml",
                "kind: ConfigMap",
                "name: kuberay-operator-config",
            ],
            &["- --enable-metrics"],
        ),
        (
            "metrics.serviceMonitor.enabled=true metrics.serviceMonitor.namespace=mon metrics.serviceMonitor.interval=5s",
            &["kind: ServiceMonitor", "namespace: mon", "interval: 5s", "honorLabels: true"],
            &[],
        ),
        (
            "metrics.secure=true metrics.serviceMonitor.enabled=true configuration.enabled=true",
            &[
                "- --secure-metrics\n",
                "name: system:auth-delegator",
                "name: kuberay-operator-metrics-reader",
                "nonResourceURLs: [/metrics]",
                "scheme: https",
            ],
            &[],
        ),
        ("metrics.secure=true rbacEnable=false", &["- --secure-metrics\n"], &["system:auth-delegator"]),
        (
            "env[0].name=CLUSTER_DOMAIN env[0].value=abc.com",
            &["- name: CLUSTER_DOMAIN\n              value: abc.com"],
            &[],
        ),
        (
            "webhooks.enabled=true",
            &[
                "kind: ValidatingWebhookConfiguration",
                "- --webhook-self-signed-for=kuberay-validating-webhook-configuration",
                "- name: ENABLE_WEBHOOKS\n              value: \"true\"",
                "path: /validate-ray-io-v1-raycronjob",
                "name: kuberay-operator-webhook",
                "resourceNames: [kuberay-webhook-certificate]",
                "failurePolicy: Fail",
                "replicas: 2",
                "maxUnavailable: 0",
                "kind: PodDisruptionBudget",
                "topologyKey: kubernetes.io/hostname",
            ],
            &["namespaceSelector", "cert-manager.io/inject-ca-from", "kind: Certificate", "volumes:", "Recreate"],
        ),
        ("webhooks.enabled=true replicas=3", &["replicas: 3"], &[]),
        ("webhooks.enabled=true webhooks.minReplicas=1", &["replicas: 1"], &["kind: PodDisruptionBudget"]),
        (
            "webhooks.enabled=true leaderElectionEnabled=false",
            &["replicas: 1", "type: Recreate"],
            &["kind: PodDisruptionBudget"],
        ),
        (
            "webhooks.enabled=true webhooks.certificates=cert-manager webhooks.failurePolicy=Ignore",
            &[
                "cert-manager.io/inject-ca-from: ray-system/serving-cert",
                "- kuberay-webhook-service.ray-system.svc.cluster.local",
                "mountPath: /tmp/k8s-webhook-server/serving-certs",
                "failurePolicy: Ignore",
                "containerPort: 9443",
            ],
            &["self-signed-for", "kuberay-operator-webhook"],
        ),
        (
            "webhooks.enabled=true singleNamespaceInstall=true watchNamespace[0]=a watchNamespace[1]=b env[0].name=X",
            &["values: [a, b]", "- name: X\n"],
            &[],
        ),
        ("labels.a=b annotations.c=d", &["a: b", "c: d"], &[]),
        ("service.type=NodePort service.port=9", &["type: NodePort", "port: 9\n"], &[]),
    ];
    for (settings, present, absent) in table {
        let text = render("manta-operator", "kuberay-operator", settings)?;
        for part in *present {
            assert!(text.contains(part), "{settings}: {part:?} is missing in\n{text}");
        }
        for part in *absent {
            assert!(!text.contains(part), "{settings}: {part:?} is in\n{text}");
        }
    }
    for (settings, expect) in [
        ("reconcileConcurrency=0", "values.reconcileConcurrency must be a positive integer, got \"0\""),
        ("kubeClient.qps=fast", "values.kubeClient.qps must be a valid float number, got \"fast\""),
        ("webhooks.enabled=true webhooks.certificates=x", "values.webhooks.certificates must be self-signed or cert"),
        ("kubeClient.burst=-1", "values.kubeClient.burst must be a non-negative integer, got \"-1\""),
    ] {
        let error = render("manta-operator", "kuberay-operator", settings).unwrap_err().to_string();
        assert!(error.contains(expect), "{settings}: {error}");
    }
    Ok(())
}

/// No rendered Role or ClusterRole permits listing or watching Secrets.
#[test]
fn secrets_are_never_listed() -> Result<()> {
    for settings in ["", "singleNamespaceInstall=true", "useKubernetesProxy=true", "batchScheduler.enabled=true"] {
        let text = render("manta-operator", "kuberay-operator", settings)?;
        let verbs: Vec<_> = text.split("resources: [secrets]").skip(1).filter_map(|rest| rest.lines().nth(1)).collect();
        assert_eq!(verbs, ["    verbs: [get, create, delete, patch]"], "{settings}");
        assert!(!text.contains("\"*\"") && !text.contains("[*]"), "{settings}: no wildcard");
    }
    Ok(())
}

/// The garbage collector may leave anything that the operator created.
#[test]
fn what_the_operator_creates_it_may_delete() -> Result<()> {
    let text = render("manta-operator", "kuberay-operator", "batchScheduler.enabled=true useKubernetesProxy=true")?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let is_operators = |role: &&Value| role["kind"] == "ClusterRole" && role["metadata"]["name"] == "kuberay-operator";
    let granted = permissions(documents.iter().find(is_operators).context("no ClusterRole")?);
    // A claim is taken over, events expire, and the proxy is no object.
    let exceptions = ["persistentvolumeclaims", "events.events.k8s.io", "services/proxy"];
    let created = granted.iter().filter_map(|permission| permission.strip_prefix("create "));
    let kept: Vec<&str> = created.filter(|kind| !granted.contains(&format!("delete {kind}"))).collect();
    assert!(kept.iter().all(|kind| exceptions.contains(kind)), "{kept:?}");
    Ok(())
}

#[tokio::test]
async fn the_operator_is_admitted_to_a_restricted_namespace() -> Result<()> {
    let plane = ControlPlane::shared();
    if plane.is_embedded() {
        println!("skipped: the embedded server has no Pod Security admission");
        return Ok(());
    }
    let client = plane.client().await?;
    let mut namespace: Namespace =
        serde_saphyr::from_str(&std::fs::read_to_string(format!("{DEPLOY}/kustomize/namespace.yaml"))?)?;
    namespace.metadata.name = Some("restricted-operator".to_owned());
    let created = Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "restricted-operator");
    let account = json!({"metadata": {"name": "kuberay-operator"}});
    let account: ServiceAccount = serde_json::from_value(account)?;
    Api::namespaced(client.clone(), "restricted-operator").create(&PostParams::default(), &account).await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let variants = "logging.baseDir=/logs logging.fileName=x.log configuration.enabled=true";
    for settings in ["", "webhooks.enabled=true webhooks.certificates=cert-manager", variants] {
        let text = render("manta-operator", "kuberay-operator", settings)?;
        let deployment = text.split("---\n").find(|part| part.contains("kind: Deployment\n"));
        let deployment: Value = serde_saphyr::from_str(deployment.context("a Deployment")?)?;
        let pod = json!({"metadata": {"name": "operator"}, "spec": deployment["spec"]["template"]["spec"]});
        pods.create(&dry_run, &serde_json::from_value(pod)?).await.with_context(|| settings.to_owned())?;
    }
    let root = json!({"metadata": {"name": "root"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let refused = pods.create(&dry_run, &serde_json::from_value(root)?).await.unwrap_err().to_string();
    assert!(refused.contains("violates PodSecurity"), "{refused}");
    Api::<Namespace>::all(client).delete(&created.name_any(), &DeleteParams::default()).await?;
    Ok(())
}

#[test]
fn kustomize_matches_the_rendered_chart() -> Result<()> {
    let of_helm = ["helm.sh/chart", "app.kubernetes.io/managed-by", "# Source:"];
    for (folder, settings) in [
        ("kustomize", ""),
        ("kustomize/webhooks", "webhooks.enabled=true"),
        ("kustomize/webhooks-cert-manager", "webhooks.enabled=true webhooks.certificates=cert-manager"),
    ] {
        let rendered = render("manta-operator", "kuberay-operator", settings)?;
        let wanted: String = rendered
            .lines()
            .filter(|line| !of_helm.iter().any(|word| line.contains(word)))
            .flat_map(|line| [line, "\n"])
            .collect();
        let path = format!("{DEPLOY}/{folder}/operator.yaml");
        let text = std::fs::read_to_string(&path)?;
        assert!(text == wanted, "{path} differs from the chart; it should read\n{wanted}");
        let namespace = std::fs::read_to_string(format!("{DEPLOY}/{folder}/namespace.yaml"))?;
        assert!(namespace.ends_with("name: ray-system\n"), "{namespace}");
    }
    Ok(())
}

#[test]
fn the_cluster_chart_accepts_kuberay_values() -> Result<()> {
    let table: &[(&str, &[&str], &[&str])] = &[
        (
            "",
            &[
                "name: raycluster-kuberay\n",
                "image: \"rayproject/ray:2.52.0\"",
                "groupName: workergroup",
                "memory: 5Gi",
                "mountPath: /tmp/ray",
            ],
            &["smallGroup", "rayVersion", "enableInTreeAutoscaling", "gcsFaultToleranceOptions"],
        ),
        ("fullnameOverride=x annotations.a=b", &["name: x\n", "a: b"], &[]),
        (
            "head.rayVersion=2.53.0 head.enableInTreeAutoscaling=true head.autoscalerOptions.idleTimeoutSeconds=5",
            &["rayVersion: \"2.53.0\"", "enableInTreeAutoscaling: true", "idleTimeoutSeconds: 5"],
            &[],
        ),
        ("head.rayStartParams.num-cpus=0 head.initArgs.block=true", &["num-cpus: \"0\"", "block: \"true\""], &[]),
        (
            "worker.disabled=true additionalWorkerGroups.smallGroup.disabled=false",
            &["groupName: smallGroup"],
            &["workergroup"],
        ),
        (
            "additionalWorkerGroups.big.replicas=3",
            &["groupName: big", "replicas: 3", "maxReplicas: 2147483647", "cpu: \"1\""],
            &[],
        ),
        ("worker.image.tag=nightly common.containerEnv[0].name=A", &["rayproject/ray:nightly", "- name: A"], &[]),
        (
            "gcsFaultTolerance.enabled=true gcsFaultTolerance.redisAddress=redis:6379 gcsFaultTolerance.redisPassword.value=p",
            &["gcsFaultToleranceOptions:", "redisAddress: redis:6379", "value: p"],
            &["enabled: true"],
        ),
        (
            "service.type=NodePort head.serviceAccountName=sa head.priority=5",
            &["serviceType: NodePort", "serviceAccountName: \"sa\"", "priority: 5"],
            &[],
        ),
        ("head.sidecarContainers[0].name=side imagePullSecrets[0].name=pull", &["- name: side", "- name: pull"], &[]),
    ];
    for (settings, present, absent) in table {
        let text = render("ray-cluster", "raycluster", settings)?;
        for part in *present {
            assert!(text.contains(part), "{settings}: {part:?} is missing in\n{text}");
        }
        for part in *absent {
            assert!(!text.contains(part), "{settings}: {part:?} is in\n{text}");
        }
    }
    Ok(())
}

fn install(plane: &ControlPlane, release: &str, name: &str, namespace: &str, settings: &str) -> Result<()> {
    let output = helm_command()?
        .args(["install", release, &chart(name), "--create-namespace", "--namespace", namespace, "--kubeconfig"])
        .arg(plane.kubeconfig_path())
        .args(settings.split_whitespace().flat_map(|setting| ["--set", setting]))
        .output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chart_permissions_suffice() -> Result<()> {
    let plane = ControlPlane::start_with(Options { rbac: true, ..Options::default() })?;
    install(&plane, "kuberay-operator", "manta-operator", "ray-system", "")?;
    let client = plane.client().await?;
    let namespace = plane.namespace("charts").await?;
    let kubelet = Kubelet::start(client.clone(), Some(&namespace));
    let harness = Harness { client, namespace: namespace.clone(), kubelet };

    let metrics = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let line = ["--health-probe-bind-address=0".to_owned(), format!("--metrics-addr={metrics}")];
    let arguments = Arguments::read(line, |_| None, |_| Err(String::new()))?;
    let config = as_account(&plane, "ray-system").await?;
    let stop = CancellationToken::new();
    let operator = tokio::spawn(process::run(config, arguments.settings, arguments.process, stop.clone()));

    install(&plane, "raycluster", "ray-cluster", &namespace, "")?;
    let mut rich = small_cluster();
    rich["enableInTreeAutoscaling"] = json!(true);
    rich["authOptions"] = json!({"mode": "token"});
    rich["headGroupSpec"]["enableIngress"] = json!(true);
    rich["networkPolicy"] = json!({"mode": "DenyAll"});
    harness.create("rich", rich).await?;
    let job = json!({"metadata": {"name": "job"}, "spec": {"entrypoint": "true", "rayClusterSpec": small_cluster()}});
    let jobs: Api<RayJob> = Api::namespaced(harness.client.clone(), &namespace);
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    let service = json!({"metadata": {"name": "serve"}, "spec": {
        "serveConfigV2": "applications: []", "rayClusterConfig": small_cluster(),
    }});
    let services: Api<RayService> = Api::namespaced(harness.client.clone(), &namespace);
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    let nothing_refused = async || -> Result<()> {
        let text = reqwest::get(format!("http://{metrics}/metrics")).await?.text().await?;
        let refused: Vec<_> = text.lines().filter(|line| line.contains("code=\"403\"")).collect();
        let events = plane.kubectl(&["get", "events.events.k8s.io", "--namespace", &namespace])?;
        anyhow::ensure!(refused.is_empty(), "the chart permits too little: {refused:?}\n{events}");
        Ok(())
    };
    for name in ["raycluster-kuberay", "rich"] {
        let ready = harness.until_ready(name).await;
        nothing_refused().await?;
        ready?;
    }
    // The clusters of the RayJob and the RayService have random names.
    let all = eventually("the clusters of the job and the service", async || {
        let clusters = harness.clusters().list(&ListParams::default()).await?.items;
        let states: Vec<_> = clusters.iter().map(state).collect();
        ensure!(states == ["ready"; 4], "{states:?}");
        Ok(())
    });
    let all = all.await;
    nothing_refused().await?;
    all?;
    // Updates and deletions need other verbs.
    let patch = kube::api::Patch::Merge(json!({"spec": {"workerGroupSpecs": null, "networkPolicy": null}}));
    harness.clusters().patch("rich", &kube::api::PatchParams::default(), &patch).await?;
    let changed = |cluster: &manta_api::RayCluster| {
        cluster.status.as_ref().is_some_and(|status| status.observed_generation == Some(2))
    };
    let changed = harness.until("rich", changed).await;
    nothing_refused().await?;
    changed?;
    for (kind, name) in [
        ("secret", "rich"),
        ("role", "rich"),
        ("rolebinding", "rich"),
        ("serviceaccount", "rich"),
        ("ingress", "rich-head-ingress"),
    ] {
        plane.kubectl(&["get", kind, name, "--namespace", &namespace]).with_context(|| format!("no {kind}"))?;
    }
    stop.cancel();
    within("the end of the operator", operator).await???;
    makes_its_webhook_trusted(&plane).await
}

/// Returns the configuration of a client with only the token of the chart's service account.
async fn as_account(plane: &ControlPlane, namespace: &str) -> Result<Config> {
    let file = Kubeconfig::read_from(plane.kubeconfig_of_account(namespace, "kuberay-operator")?)?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// Checks that with webhooks in one namespace, the operator may generate its certificate and have it trusted.
async fn makes_its_webhook_trusted(plane: &ControlPlane) -> Result<()> {
    let settings = "webhooks.enabled=true singleNamespaceInstall=true";
    install(plane, "hooked", "manta-operator", "hooked", settings)?;
    let line = [
        "--health-probe-bind-address=0",
        "--metrics-addr=0",
        "--watch-namespace=hooked",
        "--webhook-bind-address=127.0.0.1:0",
        "--webhook-self-signed-for=kuberay-validating-webhook-configuration",
    ];
    let env = |name: &str| (name == "ENABLE_WEBHOOKS").then(|| "true".to_owned());
    let arguments = Arguments::read(line.map(str::to_owned), env, |_| Err(String::new()))?;
    let stop = CancellationToken::new();
    let config = as_account(plane, "hooked").await?;
    let operator = tokio::spawn(process::run(config, arguments.settings, arguments.process, stop.clone()));
    let path = "jsonpath={.webhooks[*].clientConfig.caBundle}";
    let configuration =
        ["get", "validatingwebhookconfiguration", "kuberay-validating-webhook-configuration", "-o", path];
    eventually("the webhook trusted", async || {
        let trusted = plane.kubectl(&configuration)?.split_whitespace().count();
        ensure!(trusted >= 4, "{trusted} bundles");
        Ok(())
    })
    .await?;
    plane.kubectl(&["get", "secret", "kuberay-webhook-certificate", "--namespace", "hooked"])?;
    stop.cancel();
    Ok(within("the end of the operator", operator).await???)
}

/// Installs the chart with a batch scheduler and resizes a cluster with exactly the chart's permissions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chart_permissions_suffice_for_batch_schedulers() -> Result<()> {
    let plane = ControlPlane::start_with(Options { rbac: true, ..Options::default() })?;
    plane.install_scheduler_crds().await?;
    let client = plane.client().await?;
    for (scheduler, resource, group) in [
        ("volcano", "podgroups.scheduling.volcano.sh", "ray-demo-pg"),
        ("scheduler-plugins", "podgroups.scheduling.x-k8s.io", "demo"),
    ] {
        let setting = format!("batchScheduler.name={scheduler}");
        let output = helm_command()?
            .args(["upgrade", "--install", "kuberay-operator", &chart("manta-operator"), "--set", &setting])
            .args(["--create-namespace", "--namespace", "ray-system", "--kubeconfig"])
            .arg(plane.kubeconfig_path())
            .output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let namespace = plane.namespace(scheduler).await?;
        let kubelet = Kubelet::start(client.clone(), Some(&namespace));
        let harness = Harness { client: client.clone(), namespace: namespace.clone(), kubelet };
        let metrics = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let line = format!(
            "--batch-scheduler={scheduler} --enable-leader-election=false --health-probe-bind-address=0 \
             --metrics-addr={metrics}"
        );
        let arguments = Arguments::read(line.split_whitespace().map(str::to_owned), |_| None, |_| Err(String::new()))?;
        let config = as_account(&plane, "ray-system").await?;
        let stop = CancellationToken::new();
        let operator = tokio::spawn(process::run(config, arguments.settings, arguments.process, stop.clone()));

        let labels = json!({"ray.io/gang-scheduling-enabled": "true"});
        let cluster = json!({"metadata": {"name": "demo", "labels": labels}, "spec": small_cluster()});
        harness.clusters().create(&PostParams::default(), &serde_json::from_value(cluster)?).await?;
        let ready = harness.until_ready("demo").await;
        let patch = kube::api::Patch::Merge(json!({"spec": {"workerGroupSpecs": null}}));
        harness.clusters().patch("demo", &kube::api::PatchParams::default(), &patch).await?;
        let size = ["get", resource, group, "--namespace", &namespace, "--output", "jsonpath={.spec.minMember}"];
        let shrunk = eventually("a gang that shrinks with its cluster", async || {
            let size = plane.kubectl(&size)?;
            ensure!(size.trim() == "1", "{size} members");
            Ok(())
        });
        let shrunk = shrunk.await;
        let text = reqwest::get(format!("http://{metrics}/metrics")).await?.text().await?;
        let refused: Vec<_> = text.lines().filter(|line| line.contains("code=\"403\"")).collect();
        anyhow::ensure!(refused.is_empty(), "the chart permits too little for {scheduler}: {refused:?}");
        ready?;
        shrunk?;
        stop.cancel();
        within("the end of the operator", operator).await???;
    }
    Ok(())
}

/// The kustomization of each batch scheduler grants the same permissions as the chart.
#[test]
fn kustomize_grants_the_chart_permissions_for_every_batch_scheduler() -> Result<()> {
    let rules = |text: &str| -> Result<Vec<Value>> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
        let role = documents
            .iter()
            .find(|document| document["kind"] == "ClusterRole" && document["metadata"]["name"] == "kuberay-operator");
        Ok(role.context("no ClusterRole")?["rules"].as_array().context("no rules")?.clone())
    };
    let gate = "featureGates[0].name=KubernetesWAS featureGates[0].enabled=true";
    for (folder, settings, flag) in [
        ("volcano", "batchScheduler.name=volcano", "--batch-scheduler=volcano"),
        ("yunikorn", "batchScheduler.name=yunikorn", "--batch-scheduler=yunikorn"),
        ("kai-scheduler", "batchScheduler.name=kai-scheduler", "--batch-scheduler=kai-scheduler"),
        ("scheduler-plugins", "batchScheduler.name=scheduler-plugins", "--batch-scheduler=scheduler-plugins"),
        ("workload-aware", gate, "--feature-gates=KubernetesWAS=true"),
    ] {
        let made =
            ControlPlane::shared().kubectl(&["kustomize", &format!("{DEPLOY}/kustomize-schedulers/{folder}")])?;
        assert!(made.contains(&format!("- {flag}\n")), "{folder}: no {flag} in\n{made}");
        let rendered = render("manta-operator", "kuberay-operator", settings)?;
        assert_eq!(rules(&made)?, rules(&rendered)?, "{folder}");
    }
    Ok(())
}
