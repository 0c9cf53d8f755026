//! The agent against a real kube-apiserver, with pods that are shells and small servers.

#![allow(clippy::print_stderr, reason = "the report of a test without a harness")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use manta_agent::gpus::{self, Gpus};
use manta_agent::images::{self, Catalog, Mapping, PackageRule};
use manta_agent::logs::LogQuery;
use manta_agent::mounts::Mounts;
use manta_agent::network::egress::Internet;
use manta_agent::pod::Backoff;
use manta_agent::runtime::cgroup::Cgroups;
use manta_agent::runtime::{IsolatedProcess, enter_namespaces};
use manta_agent::{Agent, Config, network};
use manta_testkit::{ControlPlane, Tally, within};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn main() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().to_path_buf();
    let ended = enter_namespaces(move |process| run(process, &path));
    manta_agent::clean_leftovers(&dir.path().join("state"));
    match ended {
        Ok(0) => {}
        Ok(code) => {
            drop(dir);
            std::process::exit(code);
        }
        Err(error) => {
            let mut tally = Tally::default();
            tally.skip("pods", &error.to_string());
            tally.finish();
        }
    }
}

fn run(process: IsolatedProcess, dir: &Path) -> i32 {
    network::prepare_node_network().expect("the node's network");
    let plane = ControlPlane::start().expect("a control plane");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
    runtime.block_on(async {
        let spawners = process.connect().expect("spawners");
        let client = plane.client().await.expect("a client");
        let config = Config {
            node_name: "local".into(),
            state: dir.join("state"),
            cpu_milli: 4000,
            memory_bytes: 4 << 30,
            gpus: fake_gpus(&dir.join("machine")),
            catalog: Catalog {
                mappings: vec![
                    Mapping { image: "tools".into(), entrypoint: vec!["sh".into(), "-c".into()], ..Mapping::default() },
                    Mapping { image: "slow".into(), requirements: Some(slow_requirements(dir)), ..Mapping::default() },
                ],
                fallbacks: ["docker-save", "oci"].map(|format| archived_image(dir, format)).to_vec(),
                rules: vec![installed_package(&dir.join("images"))],
                folder: dir.join("images"),
                ..Catalog::default()
            },
            progress: std::sync::Arc::new(|_| ()),
            backoff: Backoff::LOCAL,
            eager_readiness: true,
            host_paths: false,
            mounts: Mounts::default(),
            cluster_ca: "CA".into(),
            api_backend: None,
            env_without_cgroups: vec![("CGROUP".into(), "none".into())],
            internet: Internet::default(),
            shared_host: None,
        };
        let stop = CancellationToken::new();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let agent =
            tokio::spawn(Agent::run(config, client.clone(), spawners.containers, spawners.host, stop.clone(), |a| {
                let _ = sender.send(a);
            }));
        let Ok(handle) = receiver.await else {
            eprintln!("the agent did not start: {:?}", agent.await);
            return 1;
        };
        let passed = tests(&client, &handle, dir).await;
        stop.cancel();
        within("the end of the agent", agent).await.expect("an end").expect("no panic").expect("an orderly end");
        i32::from(!passed)
    })
}

async fn tests(client: &Client, agent: &Agent, dir: &Path) -> bool {
    let t = Test { client: client.clone(), agent: agent.clone(), pipe: dir.join(PIPE) };
    let all: Vec<(&str, futures::future::BoxFuture<'_, ()>)> = vec![
        ("a_pod_runs_and_prints", t.a_pod_runs_and_prints().boxed()),
        ("pods_end_as_their_processes_do", t.pods_end_as_their_processes_do().boxed()),
        ("services_and_names_reach_ready_pods", t.services_and_names_reach_ready_pods().boxed()),
        ("configuration_reaches_the_container", t.configuration_reaches_the_container().boxed()),
        (
            "containers_without_a_control_group_get_the_variables_for_it",
            t.containers_without_a_control_group_get_the_variables_for_it().boxed(),
        ),
        ("init_containers_and_sidecars", t.init_containers_and_sidecars().boxed()),
        ("unhealthy_containers_are_restarted", t.unhealthy_containers_are_restarted().boxed()),
        ("pods_that_cannot_run_report_why", t.pods_that_cannot_run_report_why().boxed()),
        ("hooks_run_and_grace_is_given", t.hooks_run_and_grace_is_given().boxed()),
        ("an_archive_is_a_root_file_system", t.an_archive_is_a_root_file_system().boxed()),
        ("a_pod_is_deleted_while_its_image_is_installed", t.a_pod_is_deleted_while_its_image_is_installed().boxed()),
        (
            "an_image_that_runs_as_another_version_is_reported",
            t.an_image_that_runs_as_another_version_is_reported().boxed(),
        ),
        ("a_gpu_belongs_to_one_pod", t.a_gpu_belongs_to_one_pod().boxed()),
        ("containers_read_what_clients_type", t.containers_read_what_clients_type().boxed()),
        ("exec_and_ports_reach_inside", t.exec_and_ports_reach_inside().boxed()),
    ];
    let tally = std::sync::Mutex::new(Tally::default());
    futures::future::join_all(all.into_iter().map(|(name, test)| async {
        let began = Instant::now();
        let test = std::panic::AssertUnwindSafe(test).catch_unwind();
        let done = tokio::time::timeout(Duration::from_secs(120), test).await;
        tally.lock().expect("no panic").record(name, matches!(done, Ok(Ok(()))), began.elapsed());
    }))
    .await;
    tally.into_inner().expect("no panic").finish()
}

struct Test {
    client: Client,
    agent: Agent,
    /// Holds up the installation of an image.
    pipe: PathBuf,
}

impl Test {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, name: &str, spec: Value) -> Pod {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
                         "metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("created")
    }

    /// Waits until the pod is as wanted.
    async fn until<T>(&self, name: &str, want: impl Fn(&Pod) -> Option<T>) -> T {
        poll(|| async {
            let pod = self.pods().get_opt(name).await.expect("the API")?;
            want(&pod)
        })
        .await
    }

    async fn phase(&self, name: &str, phase: &str) -> Pod {
        self.until(name, |p| (p.status.as_ref()?.phase.as_deref() == Some(phase)).then(|| p.clone())).await
    }

    async fn ready(&self, name: &str) -> Pod {
        self.until(name, |p| {
            let mut conditions = p.status.iter().flat_map(|s| s.conditions.iter().flatten());
            conditions.any(|c| c.type_ == "Ready" && c.status == "True").then(|| p.clone())
        })
        .await
    }

    async fn logs(&self, pod: &Pod, container: &str, previous: bool) -> String {
        let uid = pod.metadata.uid.as_deref().expect("a uid");
        let mut stream = self.agent.logs(uid, container, previous, LogQuery::default()).await.expect("a log");
        let mut text = Vec::new();
        while let Some(piece) = stream.next().await {
            text.extend_from_slice(&piece.expect("a piece"));
        }
        String::from_utf8(text).expect("text")
    }

    async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.expect("deleted");
        poll(|| async { self.pods().get_opt(name).await.expect("the API").is_none().then_some(()) }).await;
    }

    async fn a_pod_runs_and_prints(&self) {
        self.create("prints", shell("Always", "echo hello; trap 'exit 0' TERM; sleep infinity & wait")).await;
        let pod = self.ready("prints").await;
        let status = pod.status.clone().expect("a status");
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert!(status.pod_ip.is_some_and(|ip| ip.starts_with("10.244.")));
        poll(|| async { (self.logs(&pod, "c", false).await == "hello\n").then_some(()) }).await;
        self.delete("prints").await;
    }

    async fn pods_end_as_their_processes_do(&self) {
        self.create("good", shell("Never", "exit 0")).await;
        self.create("bad", shell("Never", "echo why > /dev/termination-log; exit 3")).await;
        self.phase("good", "Succeeded").await;
        let pod = self.phase("bad", "Failed").await;
        let state = pod.status.expect("status").container_statuses.expect("statuses")[0].state.clone().expect("state");
        let end = state.terminated.expect("terminated");
        assert_eq!((end.exit_code, end.reason.as_deref(), end.message.as_deref()), (3, Some("Error"), Some("why\n")));
        self.delete("good").await;
        self.delete("bad").await;
    }

    async fn services_and_names_reach_ready_pods(&self) {
        let serve = "echo found > index.html; exec python3 -c \"import http.server as h; \
                     h.ThreadingHTTPServer(('0.0.0.0', 8000), h.SimpleHTTPRequestHandler).serve_forever()\"";
        let mut server = shell("Always", serve);
        server["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 8000}]);
        server["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/index.html", "port": "web"}});
        server["terminationGracePeriodSeconds"] = json!(0);
        self.create("server", server).await;
        let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
        for (name, spec) in [
            ("web", json!({"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": "web"}]})),
            ("headless", json!({"clusterIP": "None", "selector": {"app": "server"}, "ports": [{"port": 8000}]})),
        ] {
            let service = json!({"metadata": {"name": name}, "spec": spec});
            let service: Service = serde_json::from_value(service).expect("a service");
            services.create(&PostParams::default(), &service).await.expect("created");
        }
        self.ready("server").await;
        let fetch = "python3 -c \"import urllib.request as u, time\n\
                     for url in ['http://web', 'http://web.default:80', 'http://headless.default.svc.cluster.local:8000']:\n\
                     \tprint(u.urlopen(url, timeout=5).read().decode().strip())\n\
                     try: u.urlopen('http://nowhere.example', timeout=5)\n\
                     except OSError as e: print('no such name' if 'Name or service' in str(e) else e)\"";
        self.create("client", shell("OnFailure", fetch)).await;
        let pod = self.phase("client", "Succeeded").await;
        assert_eq!(self.logs(&pod, "c", false).await, "found\nfound\nfound\nno such name\n");
        self.delete("server").await;
        self.delete("client").await;
    }

    async fn configuration_reaches_the_container(&self) {
        let map = json!({"metadata": {"name": "settings"}, "data": {"a": "1", "b": "2"}});
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let map: ConfigMap = serde_json::from_value(map).expect("a map");
        maps.create(&PostParams::default(), &map).await.expect("created");
        let mut spec = shell(
            "Never",
            "echo $A $NAME $HOSTNAME $(Q) $ME; cat /etc/settings/b; echo; cat /dev/shm/x 2>&1 | head -c 3; echo; \
             df -B1 --output=size /dev/shm | tail -1 | tr -d ' '; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; \
             echo; cut -c1-2 /var/run/secrets/kubernetes.io/serviceaccount/token; cat /etc/x/sub/y; pwd",
        );
        spec["containers"][0]["env"] = json!([
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "Q", "value": "x"},
            {"name": "ME", "value": "$(NAME)-me"},
        ]);
        spec["initContainers"] = json!([{"name": "i", "image": "tools", "command": ["sh", "-c", "mkdir -p /d/sub; echo kept > /d/sub/y"],
                                         "volumeMounts": [{"name": "d", "mountPath": "/d"}]}]);
        spec["containers"][0]["workingDir"] = json!("/work/here");
        spec["containers"][0]["volumeMounts"] = json!([
            {"name": "s", "mountPath": "/etc/settings"}, {"name": "m", "mountPath": "/dev/shm"},
            {"name": "d", "mountPath": "/etc/x"},
            {"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
        ]);
        spec["volumes"] = json!([
            {"name": "s", "configMap": {"name": "settings"}},
            {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}, {"name": "d", "emptyDir": {}},
            {"name": "t", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]}},
        ]);
        spec["serviceAccountName"] = json!("default");
        self.create("configured", spec).await;
        let pod = self.phase("configured", "Succeeded").await;
        let text = self.logs(&pod, "c", false).await;
        let expect = "1 configured configured x configured-me\n2\ncat\n8388608\ndefault\ney\nkept\n/work/here\n";
        assert_eq!(text, expect);
        self.delete("configured").await;
    }

    /// Whether there are control groups depends on who runs the tests.
    async fn containers_without_a_control_group_get_the_variables_for_it(&self) {
        let probe = "pods-test-probe";
        let expect = if Cgroups::detect(probe, 1).is_real() { "\n" } else { "none\n" };
        Cgroups::sweep(probe);
        self.create("grouped", shell("Never", "echo $CGROUP")).await;
        let pod = self.phase("grouped", "Succeeded").await;
        assert_eq!(self.logs(&pod, "c", false).await, expect);
        self.delete("grouped").await;
    }

    async fn init_containers_and_sidecars(&self) {
        let c = |name: &str, script: &str| {
            json!({"name": name, "image": "tools", "command": ["sh", "-c", script],
                   "volumeMounts": [{"name": "d", "mountPath": "/d"}]})
        };
        let mut sidecar = c("side", "trap 'exit 0' TERM; touch /d/side; sleep infinity & wait");
        sidecar["restartPolicy"] = json!("Always");
        sidecar["startupProbe"] = json!({"exec": {"command": ["test", "-e", "/d/side"]}, "periodSeconds": 1});
        let spec = json!({
            "restartPolicy": "Never",
            "initContainers": [c("first", "echo 1 > /d/first"), sidecar],
            "containers": [c("main", "cat /d/first && test -e /d/side && echo both")],
            "volumes": [{"name": "d", "emptyDir": {}}],
        });
        self.create("ordered", spec).await;
        let pod = self.phase("ordered", "Succeeded").await;
        assert_eq!(self.logs(&pod, "main", false).await, "1\nboth\n");
        self.delete("ordered").await;
    }

    async fn unhealthy_containers_are_restarted(&self) {
        let mut spec =
            shell("Always", "echo run; touch /tmp/ok; sleep 1; rm /tmp/ok; trap 'exit 0' TERM; sleep infinity & wait");
        spec["containers"][0]["livenessProbe"] =
            json!({"exec": {"command": ["cat", "/tmp/ok"]}, "periodSeconds": 1, "failureThreshold": 1});
        self.create("unhealthy", spec).await;
        let pod = self
            .until("unhealthy", |p| {
                let status = p.status.as_ref()?.container_statuses.as_ref()?.first()?;
                (status.restart_count >= 1 && status.state.as_ref()?.running.is_some()).then(|| p.clone())
            })
            .await;
        assert_eq!(self.logs(&pod, "c", true).await, "run\n");
        self.create("crash", shell("Always", "exit 1")).await;
        self.until("crash", |p| {
            let status = p.status.as_ref()?.container_statuses.as_ref()?.first()?;
            let waiting = status.state.as_ref()?.waiting.as_ref()?;
            (status.restart_count >= 1 && waiting.reason.as_deref() == Some("CrashLoopBackOff")).then_some(())
        })
        .await;
        self.delete("unhealthy").await;
        self.delete("crash").await;
    }

    async fn pods_that_cannot_run_report_why(&self) {
        let waiting = |p: &Pod| {
            let status = p.status.as_ref()?.container_statuses.as_ref()?.first()?;
            let waiting = status.state.as_ref()?.waiting.as_ref()?;
            Some((waiting.reason.clone()?, waiting.message.clone()?))
        };
        let mut unknown = shell("Always", "true");
        unknown["containers"][0]["image"] = json!("corp/unknown:1");
        self.create("unknown", unknown).await;
        let (reason, message) = self.until("unknown", waiting).await;
        assert!(reason == "ErrImagePull" && message.contains("--images FILE"), "{reason}: {message}");
        let mut missing = shell("Always", "true");
        missing["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "none"}}]);
        self.create("missing", missing).await;
        let (reason, message) = self.until("missing", waiting).await;
        assert_eq!((&*reason, &*message), ("CreateContainerConfigError", "secret \"none\" not found"));
        let mut big = shell("Always", "true");
        big["containers"][0]["resources"] = json!({"requests": {"cpu": "64"}});
        self.create("big", big).await;
        let message = self.until("big", |p| p.status.as_ref()?.conditions.as_ref()?.first()?.message.clone()).await;
        assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu.");
        let absent =
            json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "tools", "command": ["no-such"]}]});
        self.create("absent", absent).await;
        let pod = self.phase("absent", "Failed").await;
        let state = pod.status.expect("status").container_statuses.expect("statuses")[0].state.clone().expect("state");
        let message = state.terminated.expect("terminated").message.expect("a message");
        assert_eq!(message, "exec: \"no-such\": executable file not found in $PATH");
        for name in ["unknown", "missing", "big", "absent"] {
            self.delete(name).await;
        }
    }

    async fn hooks_run_and_grace_is_given(&self) {
        let mut spec = shell("Always", "trap '' TERM; touch /tmp/up; while :; do sleep 0.1; done");
        spec["terminationGracePeriodSeconds"] = json!(1);
        spec["containers"][0]["lifecycle"] = json!({
            "postStart": {"exec": {"command": ["sh", "-c", "echo started > /claim/post"]}},
            "preStop": {"exec": {"command": ["sh", "-c", "echo stopped > /claim/pre"]}},
        });
        spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/claim"}]);
        spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "kept"}}]);
        self.bound_claim("kept").await;
        self.create("hooked", spec).await;
        self.ready("hooked").await;
        self.delete("hooked").await;
        let mut reader = shell("Never", "cat /claim/post /claim/pre");
        reader["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/claim"}]);
        reader["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "kept"}}]);
        self.create("reader", reader).await;
        let pod = self.phase("reader", "Succeeded").await;
        assert_eq!(self.logs(&pod, "c", false).await, "started\nstopped\n");
        self.delete("reader").await;
    }

    /// Creates a claim and binds it as the provisioner of local mode does.
    async fn bound_claim(&self, name: &str) {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), "default");
        let claim = json!({"metadata": {"name": name},
                           "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
        let made = claims.create(&PostParams::default(), &claim).await.expect("created");
        let volume = json!({"spec": {"volumeName": format!("pvc-{}", made.metadata.uid.expect("a uid"))}});
        claims.patch(name, &PatchParams::default(), &Patch::Merge(volume)).await.expect("bound");
        let status = json!({"status": {"phase": "Bound"}});
        claims.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("bound");
    }

    async fn an_archive_is_a_root_file_system(&self) {
        for name in ["docker-save", "oci"] {
            let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": format!("{name}:1")}]});
            self.create(name, spec).await;
            let pod = self
                .until(name, |p| {
                    let phase = p.status.as_ref()?.phase.as_deref()?;
                    matches!(phase, "Succeeded" | "Failed").then(|| p.clone())
                })
                .await;
            let expect = "hello from the image\n1000\nb /home/app\n/home/app\nwrote\ngone\nkept inside\n";
            assert_eq!(self.logs(&pod, "c", false).await, expect, "{name}");
            assert!(!Path::new("/etc/manta-escape").exists());
            self.event(name, "Normal", "Pulling", &format!("Pulling image \"{name}:1\"")).await;
            self.event(name, "Normal", "Pulled", &format!("Successfully pulled image \"{name}:1\" in ")).await;
            self.delete(name).await;
        }
    }

    async fn a_pod_is_deleted_while_its_image_is_installed(&self) {
        let container = json!({"name": "c", "image": "slow:1", "command": ["true"]});
        let spec = json!({"restartPolicy": "Never", "containers": [container]});
        self.create("installs", spec.clone()).await;
        self.event("installs", "Normal", "Pulling", "Pulling image \"slow:1\"").await;
        self.delete("installs").await;
        // The installation goes on; it ends when somebody writes into its pipe.
        self.create("installed", spec).await;
        self.event("installed", "Normal", "Pulling", "Pulling image \"slow:1\"").await;
        let pipe = self.pipe.clone();
        tokio::task::spawn_blocking(move || std::fs::write(pipe, "")).await.expect("no panic").expect("written");
        self.phase("installed", "Succeeded").await;
        self.delete("installed").await;
    }

    async fn an_image_that_runs_as_another_version_is_reported(&self) {
        let image = "corp.example/runtime:1.0.0";
        let container = json!({"name": "c", "image": image, "command": ["true"]});
        self.create("differs", json!({"restartPolicy": "Never", "containers": [container]})).await;
        self.phase("differs", "Succeeded").await;
        let note = format!("image {image} runs runtime 2.0.0, the newest one installed: be exact");
        self.event("differs", "Warning", "ImageDiffers", &note).await;
        let note = format!("Container image \"{image}\" already present on machine");
        self.event("differs", "Normal", "Pulled", &note).await;
        self.delete("differs").await;
    }

    /// Waits for an event about a pod whose note begins like this.
    async fn event(&self, pod: &str, type_: &str, reason: &str, note: &str) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let about = ListParams::default().fields(&format!("involvedObject.name={pod},reason={reason}"));
        poll(|| async {
            let found = events.list(&about).await.expect("events").items;
            let says = |event: &Event| event.message.as_deref().is_some_and(|message| message.starts_with(note));
            found.iter().any(|event| event.type_.as_deref() == Some(type_) && says(event)).then_some(())
        })
        .await;
    }

    async fn a_gpu_belongs_to_one_pod(&self) {
        let see =
            "cd /dev; echo $(ls -d nvidia* dri/* kfd 2>/dev/null) / $NVIDIA_VISIBLE_DEVICES / $CUDA_VISIBLE_DEVICES";
        let with = |count: u32, script: &str| {
            let mut spec = shell("Never", script);
            spec["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": count.to_string()}});
            spec
        };
        self.create("gpu-one", with(1, &format!("{see}; trap 'exit 0' TERM; sleep infinity & wait"))).await;
        let holder = self.ready("gpu-one").await;
        self.create("gpu-none", shell("Never", see)).await;
        let none = self.phase("gpu-none", "Succeeded").await;
        assert_eq!(self.logs(&none, "c", false).await, "/ void /\n");
        self.create("gpu-two", with(2, see)).await;
        let message = self.until("gpu-two", |p| p.status.as_ref()?.conditions.as_ref()?.first()?.message.clone()).await;
        assert_eq!(message, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
        let held =
            poll(|| async { Some(self.logs(&holder, "c", false).await).filter(|text| text.ends_with('\n')) }).await;
        assert_eq!(held, "nvidia0 nvidiactl / 0 / 0\n");
        self.delete("gpu-one").await;
        let two = self.phase("gpu-two", "Succeeded").await;
        assert_eq!(self.logs(&two, "c", false).await, "nvidia0 nvidia1 nvidiactl / 0,1 / 0,1\n");
        for name in ["gpu-none", "gpu-two"] {
            self.delete(name).await;
        }
        // An image has no libraries of the machine. Another test expects to be the first to pull this one.
        self.event("oci", "Normal", "Pulled", "Successfully pulled image \"oci:1\" in ").await;
        let see = "cd /usr/local/nvidia/lib64; echo *; read text < libcuda.so.1; echo $text / $LD_LIBRARY_PATH; \
                   [ -e /dev/nvidia0 ] && echo seen";
        let limits = json!({"limits": {"nvidia.com/gpu": "1"}});
        let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
        let container = json!({"name": "c", "image": "oci:1", "command": [shell, "-c", see], "resources": limits});
        self.create("gpu-image", json!({"restartPolicy": "Never", "containers": [container]})).await;
        let image = self.phase("gpu-image", "Succeeded").await;
        let expect = "libcuda.so.1 libnvidia-ml.so.1\nthe driver / /usr/local/nvidia/lib64\nseen\n";
        assert_eq!(self.logs(&image, "c", false).await, expect);
        self.delete("gpu-image").await;
    }

    async fn containers_read_what_clients_type(&self) {
        self.create("debugged", shell("Always", "trap 'exit 0' TERM; sleep infinity & wait")).await;
        let pod = self.ready("debugged").await;
        let uid = pod.metadata.uid.clone().expect("a uid");
        let shell = |name: &str, tty: bool| {
            json!({"name": name, "image": "tools:1", "command": ["bash"], "stdin": true, "stdinOnce": true, "tty": tty,
                   "imagePullPolicy": "Always", "terminationMessagePolicy": "File"})
        };
        let patch = json!({"spec": {"ephemeralContainers": [shell("pipes", false), shell("terminal", true)]}});
        let params = PatchParams::default();
        let (pods, patch) = (self.pods(), Patch::Strategic(patch));
        pods.patch_subresource("ephemeralcontainers", "debugged", &params, &patch).await.expect("added");
        for (name, expect) in [("pipes", "typed 7\n"), ("terminal", "typed 7\r\n")] {
            self.until("debugged", |p| {
                let mut all = p.status.as_ref()?.ephemeral_container_statuses.iter().flatten();
                all.find(|s| s.name == name)?.state.as_ref()?.running.clone()
            })
            .await;
            let (input, stdin) = tokio::sync::mpsc::channel(4);
            let (stdout, mut out) = tokio::sync::mpsc::channel(64);
            let (stderr, _err) = tokio::sync::mpsc::channel(64);
            let (_sizes, resize) = tokio::sync::mpsc::channel(4);
            input.send("echo typed $((3 + 4)); exit\n".into()).await.expect("input");
            let streams = manta_agent::exec::Streams { stdin: Some(stdin), stdout, stderr, resize };
            self.agent.exec(&uid, name, Vec::new(), name == "terminal", streams).await.expect("attached");
            let mut text = String::new();
            while let Ok(bytes) = out.try_recv() {
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
            assert!(text.contains(expect), "{name}: {text:?}");

            // Its output is in the log, where kubectl looks if it cannot attach.
            let (stdout, stderr) = (tokio::sync::mpsc::channel(1).0, tokio::sync::mpsc::channel(1).0);
            let (_sizes, resize) = tokio::sync::mpsc::channel(1);
            let streams = manta_agent::exec::Streams { stdin: None, stdout, stderr, resize };
            let refused = self.agent.exec(&uid, name, Vec::new(), false, streams).await.expect_err("it has ended");
            assert!(refused.to_string().contains("has ended"), "{refused}");
        }
        self.delete("debugged").await;
    }

    async fn exec_and_ports_reach_inside(&self) {
        let echo = "exec python3 -c \"import socket\ns = socket.create_server(('127.0.0.1', 7000))\n\
                    while True:\n\tc, _ = s.accept()\n\tc.sendall(c.recv(9)[::-1])\n\tc.close()\"";
        let mut spec = shell("Always", echo);
        spec["terminationGracePeriodSeconds"] = json!(0);
        self.create("inside", spec).await;
        let pod = self.ready("inside").await;
        let uid = pod.metadata.uid.clone().expect("a uid");
        let mut stream = poll(|| async { self.agent.dial(&uid, 7000).await.ok() }).await;
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        stream.write_all(b"abc").await.expect("sent");
        let mut back = String::new();
        stream.read_to_string(&mut back).await.expect("answered");
        assert_eq!(back, "cba");

        for (tty, script, expect) in [
            (false, "read x; echo got $x; echo bad >&2; exit 5", ("got line\n", "bad\n", 5)),
            (true, "tty > /dev/null && stty size", ("40 100\r\n", "", 0)),
        ] {
            let (input, stdin) = tokio::sync::mpsc::channel(4);
            let (stdout, mut out) = tokio::sync::mpsc::channel(64);
            let (stderr, mut err) = tokio::sync::mpsc::channel(64);
            let (sizes, resize) = tokio::sync::mpsc::channel(4);
            sizes.send((100, 40)).await.expect("a size");
            if !tty {
                input.send("line\n".into()).await.expect("input");
            }
            let script =
                if tty { format!("until stty size | grep -q 100; do :; done; {script}") } else { script.to_owned() };
            let command = vec!["sh".to_owned(), "-c".to_owned(), script];
            let streams = manta_agent::exec::Streams { stdin: Some(stdin), stdout, stderr, resize };
            let code = self.agent.exec(&uid, "c", command, tty, streams).await.expect("ran");
            let mut texts = (String::new(), String::new());
            while let Some(bytes) = out.recv().await {
                texts.0.push_str(&String::from_utf8_lossy(&bytes));
            }
            while let Some(bytes) = err.recv().await {
                texts.1.push_str(&String::from_utf8_lossy(&bytes));
            }
            assert_eq!((&*texts.0, &*texts.1, code), expect);
        }
        self.delete("inside").await;
    }
}

/// Returns an image in an archive of this format, which is also its name.
fn archived_image(dir: &Path, format: &str) -> Mapping {
    let file = dir.join(format).with_extension("tar");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image.py");
    let made = std::process::Command::new("python3").arg(script).arg(&file).arg(format).status().expect("python3");
    assert!(made.success());
    Mapping { image: format.into(), archive: Some(file), ..Mapping::default() }
}

/// The pipe that a requirements file includes: the installation waits until somebody writes into it.
const PIPE: &str = "pipe.txt";

fn slow_requirements(dir: &Path) -> PathBuf {
    let file = dir.join("slow.txt");
    let made = std::process::Command::new("mkfifo").arg(dir.join(PIPE)).status().expect("mkfifo");
    assert!(made.success());
    std::fs::write(&file, format!("-r {PIPE}\n")).expect("a file");
    file
}

/// Installs version 2.0.0 of a package, empty, and returns the rule for its images.
fn installed_package(folder: &Path) -> PackageRule {
    let environment = folder.join("runtime-2.0.0");
    std::fs::create_dir_all(environment.join("bin")).expect("a folder");
    std::fs::write(environment.join(images::COMPLETE), "").expect("a file");
    PackageRule {
        repositories: vec!["runtime".into()],
        package: "runtime".into(),
        requirement: "runtime=={version}".into(),
        env: Vec::new(),
        exact_hint: "be exact".into(),
    }
}

/// Makes a machine with three GPUs, of which two are offered; the device nodes and libraries are plain files.
fn fake_gpus(root: &Path) -> Gpus {
    std::fs::create_dir_all(root.join("dev")).expect("a folder");
    for name in ["nvidia0", "nvidia1", "nvidia2", "nvidiactl"] {
        std::fs::write(root.join("dev").join(name), "").expect("a file");
    }
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    std::fs::create_dir_all(&libraries).expect("a folder");
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        std::fs::write(libraries.join(name), "the driver\n").expect("a file");
    }
    let found = gpus::find(root, "");
    Gpus { offered: gpus::select(found.clone(), "0,1").expect("a choice"), found }
}

fn shell(policy: &str, script: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "tools:1", "command": ["bash", "-c", script]}]})
}

/// Asks again until there is an answer; the caller has the deadline.
async fn poll<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tick.tick().await;
        if let Some(answer) = ask().await {
            return answer;
        }
    }
}
