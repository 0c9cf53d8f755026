//! Attacks by whoever may create pods: paths, names and numbers in a specification.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use manta_agent::guards::{self, Guard};
use serde_json::{Value, json};

use crate::node::{Node, SECRET, phase, poll, shell};

pub(crate) fn attacks(node: &Node) -> Vec<(&'static str, BoxFuture<'_, ()>)> {
    vec![
        ("claim_a_folder_of_the_host", claim_a_folder(node).boxed()),
        ("mount_a_link_by_sub_path", sub_path_through_a_link(node).boxed()),
        ("leave_a_volume_by_sub_path", sub_path_upwards(node).boxed()),
        ("mount_through_proc_self_root", mount_through_proc(node).boxed()),
        ("mount_through_a_link_in_a_volume", mount_through_a_link(node).boxed()),
        ("make_directories_outside_by_working_dir_and_home", directories_outside(node).boxed()),
        ("use_a_host_path_without_leave", host_path(node).boxed()),
        ("leave_a_volume_by_the_path_of_a_key", key_path(node).boxed()),
        ("use_paths_as_names", names(node).boxed()),
        ("ask_for_privileges", privileges(node).boxed()),
        ("see_the_hosts_processes", host_processes(node).boxed()),
        ("undo_mounts_without_a_seccomp_filter", locked_mounts(node).boxed()),
        ("run_the_agents_own_program", own_program(node).boxed()),
        ("use_the_root_of_a_shared_range", neighbours_files(node).boxed()),
        ("write_an_endless_termination_message", termination_message(node).boxed()),
        ("use_extreme_numbers", extreme_numbers(node).boxed()),
        ("use_more_memory_than_the_limit", memory(node).boxed()),
        ("read_the_data_of_a_deleted_claim", deleted_claim(node).boxed()),
        ("delete_files_of_the_host_through_a_link", link_at_the_end(node).boxed()),
    ]
}

/// Three attacks that succeed without the guard they are aimed at.
pub(crate) fn unguarded(node: &Node) -> Vec<(&'static str, BoxFuture<'_, ()>)> {
    vec![
        ("without_its_guard_a_link_leads_out_by_sub_path", unguarded_sub_path(node).boxed()),
        ("without_its_guard_a_user_namespace_can_be_made", unguarded_seccomp(node).boxed()),
        ("without_its_guard_a_claim_can_name_anothers_folder", unguarded_claim(node).boxed()),
    ]
}

fn with_volume(script: &str, volume: Value, mount: Value) -> Value {
    let mut spec = shell(script);
    let (mut volume, mut mount) = (volume, mount);
    (volume["name"], mount["name"]) = (json!("v"), json!("v"));
    spec["volumes"] = json!([volume]);
    spec["containers"][0]["volumeMounts"] = json!([mount]);
    spec
}

fn claiming(node: &Node, name: &str) -> Value {
    let victim = node.victim.display().to_string();
    let name = if name.is_empty() { victim } else { name.to_owned() };
    with_volume("cat /v/file", json!({"persistentVolumeClaim": {"claimName": name}}), json!({"mountPath": "/v"}))
}

async fn claim_a_folder(node: &Node) {
    for (name, claim) in [("claim-1", ""), ("claim-2", "../../victim"), ("claim-3", ".."), ("claim-4", "no-such-claim")]
    {
        node.refused(name, claiming(node, claim), &["\"v\"", "laim"]).await;
    }
}

/// An init container plants a link, the container mounts it.
fn linked(node: &Node) -> Value {
    let mut spec = with_volume("cat /m/file", json!({"emptyDir": {}}), json!({"mountPath": "/m", "subPath": "link"}));
    let plant = format!("ln -s {} /v/link", node.victim.display());
    spec["initContainers"] = json!([{"name": "i", "image": "tools:1", "command": ["sh", "-c", plant],
                                     "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]);
    spec
}

async fn sub_path_through_a_link(node: &Node) {
    node.refused("linked", linked(node), &["subPath", "symbolic link"]).await;
}

async fn sub_path_upwards(node: &Node) {
    for (name, part) in [("up-1", "../../.."), ("up-2", "a/../../.."), ("up-3", "/etc")] {
        let spec = with_volume("true", json!({"emptyDir": {}}), json!({"mountPath": "/m", "subPath": part}));
        node.refused(name, spec, &["leads outside it"]).await;
    }
    let mut spec = with_volume("true", json!({"emptyDir": {}}), json!({"mountPath": "/m", "subPathExpr": "$(WAY)"}));
    spec["containers"][0]["env"] = json!([{"name": "WAY", "value": "../../../.."}]);
    node.refused("up-4", spec, &["leads outside it"]).await;
}

async fn mount_through_proc(node: &Node) {
    for (name, path) in
        [("proc-1", "/proc/self/root/tmp"), ("proc-2", "/a/../proc/1/root"), ("proc-3", "/sys/fs/cgroup")]
    {
        node.refused(name, with_volume("true", json!({"emptyDir": {}}), json!({"mountPath": path})), &["mountPath"])
            .await;
    }
    let mut spec = shell("true");
    spec["containers"][0]["terminationMessagePath"] = json!("/proc/self/root/tmp/x");
    node.refused("proc-4", spec, &["terminationMessagePath"]).await;
}

/// A link in one volume is on the way to the mount point of another.
async fn mount_through_a_link(node: &Node) {
    let mut spec = shell("ls -a /v/link/ 2>&1; exit 0");
    let plant = format!("ln -s {} /v/link; ln -s /proc/self/root /v/proc", node.victim.display());
    spec["initContainers"] = json!([{"name": "i", "image": "tools:1", "command": ["sh", "-c", plant],
                                     "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/v/link/planted"},
        {"name": "w", "mountPath": "/v/proc/tmp/planted"},
    ]);
    node.create("through", spec).await;
    // Whether it starts with the link resolved inside its own root or is refused, nothing appears outside.
    node.until("through", |p| matches!(phase(p), Some("Succeeded" | "Failed")).then_some(())).await;
    node.assert_untouched();
    assert!(!std::path::Path::new("/tmp/planted").exists());
    node.delete("through").await;
}

async fn directories_outside(node: &Node) {
    let outside = format!("/../../../../../../../..{}/planted", node.victim.display());
    let mut spec = shell("pwd; echo $HOME");
    spec["containers"][0]["workingDir"] = json!(outside);
    spec["containers"][0]["env"] = json!([{"name": "HOME", "value": outside}]);
    node.create("outside", spec).await;
    let text = node.output("outside").await;
    assert!(text.contains("planted"), "the directories are made inside: {text}");
    node.assert_untouched();
    node.delete("outside").await;
}

async fn host_path(node: &Node) {
    let volume = json!({"hostPath": {"path": node.victim.display().to_string()}});
    node.refused("host-path", with_volume("true", volume, json!({"mountPath": "/v"})), &["--allow-host-path"]).await;
}

async fn key_path(node: &Node) {
    let maps: Api<ConfigMap> = Api::namespaced(node.client.clone(), "default");
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "map"}, "data": {"k": "v"}})).expect("a map");
    maps.create(&PostParams::default(), &map).await.expect("created");
    for (name, path) in [("key-1", "../../../planted"), ("key-2", "/etc/planted"), ("key-3", "a/../../b")] {
        let volume = json!({"configMap": {"name": "map", "items": [{"key": "k", "path": path}]}});
        node.refused(name, with_volume("true", volume, json!({"mountPath": "/v"})), &["leads outside it"]).await;
    }
}

async fn names(node: &Node) {
    let mut spec = shell("true");
    spec["containers"][0]["name"] = json!("../../../../victim/planted");
    node.refused("name-1", spec, &["spec.containers[].name"]).await;
    let mut spec = shell("true");
    spec["volumes"] = json!([{"name": "../../../../victim", "emptyDir": {}}]);
    node.refused("name-2", spec, &["spec.volumes[].name"]).await;
}

async fn privileges(node: &Node) {
    for (name, context, word) in [
        ("privileged", json!({"privileged": true}), "securityContext.privileged"),
        ("admin", json!({"capabilities": {"add": ["SYS_ADMIN"]}}), "capabilities.add SYS_ADMIN"),
        ("all", json!({"capabilities": {"add": ["ALL"]}}), "capabilities.add ALL"),
        ("unmasked", json!({"procMount": "Unmasked"}), "procMount"),
        ("profile", json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}), "seccompProfile"),
        ("non-root", json!({"runAsNonRoot": true}), "runAsUser"),
    ] {
        let mut spec = shell("true");
        spec["containers"][0]["securityContext"] = context;
        node.refused(name, spec, &[word]).await;
    }
}

async fn host_processes(node: &Node) {
    for (name, field) in [("host-pid", "hostPID"), ("host-ipc", "hostIPC")] {
        let mut spec = shell("true");
        spec[field] = json!(true);
        node.refused(name, spec, &[field]).await;
    }
    node.create("processes", shell("ls /proc | grep -c '^[0-9]'; cat /proc/1/comm; ls /proc/sys/kernel/hostname"))
        .await;
    let text = node.output("processes").await;
    let count: u32 = text.lines().next().and_then(|line| line.parse().ok()).unwrap_or(u32::MAX);
    assert!(count <= 5 && text.contains("bash"), "only its own processes: {text}");
    node.delete("processes").await;
}

/// Without a filter a process can be root of a further user namespace; what the agent mounted stays as it is.
async fn locked_mounts(node: &Node) {
    let environment = node.environment.display();
    let script = format!(
        r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for namespaces in (0x20000, 0x10000000 | 0x20000):
    if libc.unshare(namespaces) != 0: continue
    for target in ('{environment}', '/proc/sys', '/usr', '/sys'):
        for flags in (32 | 4096, 32):
            if libc.mount(b'', target.encode(), b'', ctypes.c_ulong(flags), None) == 0: print('ESCAPED remount', target)
        if libc.umount2(target.encode(), 2) == 0: print('ESCAPED umount', target)
        try: open(target + '/planted', 'w'); print('ESCAPED write', target)
        except OSError: pass
    for target in ('/proc/kallsyms', '/proc/keys'):
        if libc.umount2(target.encode(), 2) == 0: print('ESCAPED umount', target)
        if os.path.exists(target) and open(target, 'rb').read(16): print('ESCAPED read', target)
    os.makedirs('/tmp/again', exist_ok=True)
    if libc.mount(b'proc', b'/tmp/again', b'proc', ctypes.c_ulong(0), None) == 0: print('ESCAPED a fresh proc')
    if libc.mount(b'{environment}', b'/tmp/again', b'', ctypes.c_ulong(4096), None) == 0:
        try: open('/tmp/again/planted', 'w'); print('ESCAPED bind')
        except OSError: pass
print('held')
"#
    );
    let mut spec = shell("true");
    spec["containers"][0]["image"] = json!("python:1");
    spec["containers"][0]["command"] = json!(["/usr/bin/python3", "-c", script]);
    spec["containers"][0]["securityContext"] = json!({"seccompProfile": {"type": "Unconfined"}});
    node.create("unconfined", spec).await;
    assert_eq!(node.output("unconfined").await, "held\n");
    assert!(!node.environment.join("planted").exists());
    node.delete("unconfined").await;
}

/// Before it becomes the command, a container is a copy of the agent; naming that copy as the command gains nothing.
async fn own_program(node: &Node) {
    let mut spec = shell("true");
    spec["containers"][0]["command"] = json!(["/proc/self/exe"]);
    node.create("own-program", spec).await;
    node.event("own-program", &["/proc/self/exe"]).await;
    node.delete("own-program").await;
}

/// Files of another pod belong to the same ids outside, but no path leads to them.
async fn neighbours_files(node: &Node) {
    let mut spec =
        shell(&format!("ls {0} {0}/pods /proc/1/cwd/../../../.. 2>&1; ls /var/lib /home", node.state.display()));
    spec["containers"][0]["securityContext"] = json!({"runAsUser": 0});
    node.create("shared-ids", spec).await;
    let text = node.output("shared-ids").await;
    assert!(text.contains("cannot access") && !text.contains("volumes"), "{text}");
    node.delete("shared-ids").await;
}

async fn termination_message(node: &Node) {
    node.create("message", shell("head -c 20000000 /dev/zero | tr '\\0' x > /dev/termination-log")).await;
    node.output("message").await;
    let message = node
        .until("message", |p| {
            p.status
                .as_ref()?
                .container_statuses
                .as_ref()?
                .first()?
                .state
                .as_ref()?
                .terminated
                .as_ref()?
                .message
                .clone()
        })
        .await;
    assert_eq!(message.len(), 4096);
    node.delete("message").await;
}

async fn memory(node: &Node) {
    let mut spec =
        shell("exec /usr/bin/python3 -c 'import time; x = b\"x\" * (300 << 20); time.sleep(60); print(\"ESCAPED\")'");
    spec["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}, "requests": {"memory": "1Mi"}});
    node.create("greedy", spec).await;
    let reason = node
        .until("greedy", |p| {
            p.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?.terminated.as_ref()?.reason.clone()
        })
        .await;
    assert_eq!(reason, "OOMKilled");
    node.delete("greedy").await;
}

/// Numbers that no calculation can hold; the agent goes on.
async fn extreme_numbers(node: &Node) {
    for (name, number) in [("huge", i64::MAX), ("large", 1_000_000_000_000), ("negative", i64::MIN)] {
        let mut spec = shell("trap 'exit 0' TERM; sleep infinity & wait");
        spec["terminationGracePeriodSeconds"] = json!(number);
        spec["activeDeadlineSeconds"] = json!(number.max(1));
        spec["containers"][0]["livenessProbe"] = json!({
            "exec": {"command": ["true"]}, "periodSeconds": i32::MAX, "timeoutSeconds": i32::MAX,
            "initialDelaySeconds": i32::MIN, "failureThreshold": i32::MAX, "terminationGracePeriodSeconds": number,
        });
        spec["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 0}}});
        spec["containers"][0]["resources"] = json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "9223372036854775807", "memory": "9223372036854775807"}});
        spec["containers"][0]["securityContext"] = json!({"runAsUser": 2_147_483_647});
        if node.try_create(name, spec).await.is_err() {
            continue;
        }
        poll(|| async { node.pods().get_opt(name).await.expect("the API")?.status }).await;
        node.pods().delete(name, &DeleteParams::default()).await.expect("deleted");
        let gone = poll(|| async { node.pods().get_opt(name).await.expect("the API").is_none().then_some(()) });
        if tokio::time::timeout(std::time::Duration::from_secs(10), gone).await.is_err() {
            node.delete(name).await;
        }
    }
    node.create("afterwards", shell("echo alive")).await;
    assert_eq!(node.output("afterwards").await, "alive\n");
    node.delete("afterwards").await;
}

async fn deleted_claim(node: &Node) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(node.client.clone(), "default");
    let claim = json!({"metadata": {"name": "data"},
                       "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
    let pod = |script: &str| {
        with_volume(script, json!({"persistentVolumeClaim": {"claimName": "data"}}), json!({"mountPath": "/v"}))
    };
    claims.create(&PostParams::default(), &claim).await.expect("created");
    node.create("writer", pod("echo first > /v/data && cat /v/data")).await;
    assert_eq!(node.output("writer").await, "first\n");
    node.delete("writer").await;
    node.create("reader", pod("cat /v/data")).await;
    assert_eq!(node.output("reader").await, "first\n", "a claim outlives its pods");
    node.delete("reader").await;
    claims.delete("data", &DeleteParams::default()).await.expect("deleted");
    poll(|| async { claims.get_opt("data").await.expect("the API").is_none().then_some(()) }).await;
    claims.create(&PostParams::default(), &claim).await.expect("created again");
    node.create("later", pod("ls -A /v | wc -l")).await;
    assert_eq!(node.output("later").await, "0\n", "the data went with the first claim");
    node.delete("later").await;
}

/// What a pod leaves in its volumes is removed without following links.
async fn link_at_the_end(node: &Node) {
    let script = format!("ln -s {} /v/link; ln -s /usr /tmp/link; mkdir -m 0 /v/closed", node.victim.display());
    let made = node.create("litter", with_volume(&script, json!({"emptyDir": {}}), json!({"mountPath": "/v"}))).await;
    node.output("litter").await;
    node.delete("litter").await;
    let folder = node.state.join("pods").join(made.metadata.uid.expect("a uid"));
    poll(|| async { (!folder.exists()).then_some(()) }).await;
    node.assert_untouched();
}

async fn unguarded_sub_path(node: &Node) {
    guards::turn_off(Guard::SubPath);
    node.create("unguarded-link", linked(node)).await;
    let text = node.output("unguarded-link").await;
    guards::turn_on(Guard::SubPath);
    assert_eq!(text, SECRET);
    node.delete("unguarded-link").await;
}

async fn unguarded_seccomp(node: &Node) {
    let script = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))";
    let spec = || shell(&format!("/usr/bin/python3 -c '{script}'"));
    node.create("guarded", spec()).await;
    assert_eq!(node.output("guarded").await, "-1\n");
    guards::turn_off(Guard::Seccomp);
    node.create("unguarded", spec()).await;
    let text = node.output("unguarded").await;
    guards::turn_on(Guard::Seccomp);
    assert_eq!(text, "0\n");
    node.delete("guarded").await;
    node.delete("unguarded").await;
}

/// The folder of a claim in another namespace has a name that a claim could have.
async fn unguarded_claim(node: &Node) {
    let folder = "elsewhere-data-0a1b";
    let path = node.state.join("claims").join(folder);
    std::fs::create_dir_all(&path).expect("a claim's folder");
    std::fs::write(path.join("file"), SECRET).expect("its data");
    node.refused("guarded-claim", claiming(node, folder), &["\"v\"", "not found"]).await;
    guards::turn_off(Guard::ClaimLookup);
    node.create("unguarded-claim", claiming(node, folder)).await;
    let text = node.output("unguarded-claim").await;
    guards::turn_on(Guard::ClaimLookup);
    assert_eq!(text, SECRET);
    node.delete("unguarded-claim").await;
}
