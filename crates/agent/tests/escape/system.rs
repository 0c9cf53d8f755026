//! Attacks by a process in a container: system calls, the kernel's files, other processes, the network.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use nix::libc;
use serde_json::json;

use crate::node::{ESCAPED, Node, SECRET, shell};

/// What every script begins with: `call` makes a system call and returns its error number, `held` ends the attack.
const PRELUDE: &str = r#"
import ctypes, errno, glob, os, socket, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    return 0 if libc.syscall(ctypes.c_long(number), *args) >= 0 else ctypes.get_errno()
def held(why):
    print('held:', why); sys.exit(0)
def escaped(how):
    print('ESCAPED:', how); sys.exit(1)
def must_fail(number, *args):
    code = call(number, *args)
    held(errno.errorcode.get(code)) if code in (errno.EPERM, errno.ENOSYS, errno.EACCES) else escaped(errno.errorcode.get(code, code))
def cannot_write(path, text='x'):
    try:
        with open(path, 'w') as f: f.write(text)
    except OSError as e: return e
    escaped(path + ' was written')
def cannot_read(path):
    try:
        with open(path, 'rb') as f: found = f.read(64)
    except OSError as e: return e
    if found: escaped(path + ' was read')
    return 'empty'
def cannot_connect(family, address):
    try: socket.socket(family, socket.SOCK_STREAM).connect(address)
    except OSError as e: return e
    escaped('connected')
"#;

/// Starts the attacker's pod, and a neighbour with a Secret.
pub(crate) async fn prepare(node: &Node) -> Pod {
    let secrets: Api<Secret> = Api::namespaced(node.client.clone(), "default");
    let secret = json!({"metadata": {"name": "neighbour"}, "stringData": {"key": SECRET}});
    let secret: Secret = serde_json::from_value(secret).expect("a secret");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    let mut neighbour = shell("NEIGHBOUR=1 exec sleep infinity");
    neighbour["containers"][0]["volumeMounts"] = json!([{"name": "s", "mountPath": "/secret"}]);
    neighbour["volumes"] = json!([{"name": "s", "secret": {"secretName": "neighbour"}}]);
    node.create("neighbour", neighbour).await;

    let mut attacker = shell("exec sleep infinity");
    attacker["containers"][0]["image"] = json!("python:1");
    attacker["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    attacker["containers"][0]["resources"] = json!({"limits": {"memory": "512Mi"}});
    attacker["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    node.create("attacker", attacker).await;
    node.running("neighbour").await;
    node.running("attacker").await
}

pub(crate) async fn must_fail(node: &Node, attacker: &Pod, script: String) {
    let (code, output) = node.exec(attacker, &["/usr/bin/python3", "-c", &script]).await;
    assert!(code == 0 && output.starts_with("held") && !output.contains(ESCAPED), "exit code {code}: {output}");
    node.assert_untouched();
}

/// The attacks, by name, as Python programs that print `held` when they failed.
pub(crate) fn attacks(node: &Node) -> Vec<(&'static str, String)> {
    let victim = node.victim.join("file").display().to_string();
    let (environment, state) = (node.environment.display().to_string(), node.state.display().to_string());
    let (host_port, node_port) = (node.host_port, node.node_port);
    let mount = |source: &str, target: &str, kind: &str, flags: u64| {
        format!("must_fail({}, b'{source}', b'{target}', b'{kind}', {flags}, None)", libc::SYS_mount)
    };
    let simple = |number: libc::c_long, args: &str| format!("must_fail({number}{args})");
    let (remount, bind, read_only) = (libc::MS_REMOUNT, libc::MS_BIND, 0);
    let attacks: Vec<(&'static str, String)> = vec![
        ("read_the_password_file", "held(cannot_read('/etc/shadow'))".into()),
        (
            "list_the_hosts_accounts",
            "users = [l.split(':')[0] for l in open('/etc/passwd')]\n\
             held(users) if set(users) <= {'root', 'user', 'nobody'} else escaped(users)"
                .into(),
        ),
        ("read_a_file_of_the_host", format!("held(cannot_read('{victim}'))")),
        ("read_the_agents_state", format!("escaped('{state}') if os.path.exists('{state}') else held('not there')")),
        (
            "read_through_proc_self_root",
            format!("cannot_read('/proc/self/root{victim}')\nheld(cannot_read('/proc/1/root/../../..{victim}'))"),
        ),
        (
            "leave_a_chroot",
            format!(
                "os.makedirs('/v/jail', exist_ok=True)\nroot = os.open('/', os.O_RDONLY)\nos.chroot('/v/jail')\n\
                 os.fchdir(root)\nfor _ in range(64): os.chdir('..')\nos.chroot('.')\nheld(cannot_read('{victim}'))"
            ),
        ),
        ("write_to_the_environment", format!("held(cannot_write('{environment}/bin/planted'))")),
        ("change_a_tool_of_the_host", "held(cannot_write('/usr/bin/planted'))".into()),
        ("remount_the_environment_writable", mount("", &environment, "", remount | bind | read_only)),
        ("remount_the_kernels_settings_writable", mount("", "/proc/sys", "", remount | bind | read_only)),
        ("unmount_a_mask", simple(libc::SYS_umount2, ", b'/proc/kcore', 2")),
        ("mount_a_file_system", mount("x", "/v", "tmpfs", 0)),
        ("mount_the_kernels_processes_again", mount("x", "/v", "proc", 0)),
        ("clone_a_mount", simple(libc::SYS_open_tree, ", -100, b'/proc/sys', 1")),
        ("change_the_attributes_of_a_mount", simple(libc::SYS_mount_setattr, ", -100, b'/proc/sys', 0, None, 0")),
        ("pivot_the_root", simple(libc::SYS_pivot_root, ", b'/v', b'/v'")),
        ("unshare_a_user_namespace", simple(libc::SYS_unshare, &format!(", {}", libc::CLONE_NEWUSER))),
        (
            "clone_into_a_user_namespace",
            format!(
                "pid = libc.syscall(ctypes.c_long({}), ctypes.c_ulong({}), None, None, None, None)\n\
                 if pid == 0: os._exit(0)\nescaped(pid) if pid > 0 else held(errno.errorcode.get(ctypes.get_errno()))",
                libc::SYS_clone,
                libc::CLONE_NEWUSER | libc::SIGCHLD
            ),
        ),
        ("clone3_into_a_user_namespace", simple(libc::SYS_clone3, ", b'\\0' * 88, 88")),
        (
            "enter_the_namespaces_of_process_1",
            format!("fd = os.open('/proc/1/ns/mnt', os.O_RDONLY)\nmust_fail({}, fd, 0)", libc::SYS_setns),
        ),
        ("set_the_core_pattern", "held(cannot_write('/proc/sys/kernel/core_pattern', '|/v/run'))".into()),
        ("set_a_network_setting", "held(cannot_write('/proc/sys/net/ipv4/ip_forward', '1'))".into()),
        ("trigger_sysrq", "held(cannot_write('/proc/sysrq-trigger', 'h'))".into()),
        ("read_the_kernels_memory", "held((cannot_read('/proc/kcore'), cannot_read('/dev/mem')))".into()),
        ("read_the_kernels_symbols_and_keys", "held((cannot_read('/proc/keys'), cannot_read('/proc/kallsyms')))".into()),
        (
            "write_to_sys",
            "paths = [os.path.join(d, f) for d, _, fs in os.walk('/sys/kernel') for f in fs][:400]\n\
             held([cannot_write(p) for p in paths][-1])"
                .into(),
        ),
        (
            "raise_a_limit_of_a_control_group",
            "paths = [os.path.join(d, f) for d, _, fs in os.walk('/sys/fs/cgroup') for f in fs]\n\
             assert paths, 'no control groups'\nfor path in paths: cannot_write(path, 'max')\n\
             try: os.mkdir('/sys/fs/cgroup/planted')\nexcept OSError as e: held(e)\nescaped('a group was made')"
                .into(),
        ),
        (
            "make_a_device",
            "for kind in (stat.S_IFCHR, stat.S_IFBLK):\n\
             \ttry: os.mknod('/v/device', kind | 0o666, os.makedev(1, 1))\n\texcept OSError as e: pass\n\
             \telse: escaped('a device was made')\nheld('no device')"
                .into(),
        ),
        (
            "find_a_device_of_the_host",
            "known = {'null', 'zero', 'full', 'random', 'urandom', 'tty'}\n\
             found = [p for p in glob.glob('/dev/*') if os.path.exists(p) and not os.path.islink(p) and \
             (stat.S_ISBLK(os.stat(p).st_mode) or stat.S_ISCHR(os.stat(p).st_mode)) and os.path.basename(p) not in known]\n\
             escaped(found) if found else held('none')"
                .into(),
        ),
        ("read_a_key_of_the_user", simple(libc::SYS_keyctl, ", 0, -3, 0")),
        ("plant_a_key", simple(libc::SYS_add_key, ", b'user', b'k', b'v', 1, -3")),
        (
            "trace_a_neighbour",
            "pids = [int(p) for p in os.listdir('/proc') if p.isdigit()]\n\
             others = [p for p in pids if b'NEIGHBOUR=1' in open(f'/proc/{p}/environ', 'rb').read()]\n\
             escaped(others) if others or len(pids) > 6 else held(pids)"
                .into(),
        ),
        (
            "read_a_neighbours_secret",
            format!(
                "for d, _, fs in os.walk('/'):\n\tif d.startswith(('/proc', '/sys', '/usr', '/opt')): continue\n\
                 \tfor f in fs:\n\t\tp = os.path.join(d, f)\n\t\tif os.path.isfile(p) and os.access(p, os.R_OK) and \
                 b'{SECRET}' in open(p, 'rb').read(1 << 20): escaped(p)\nheld('not found')"
            ),
        ),
        (
            "find_a_socket_of_the_agent",
            "fds = [(f, os.readlink('/proc/self/fd/' + f)) for f in os.listdir('/proc/self/fd') if int(f) > 2 and \
             os.path.exists('/proc/self/fd/' + f)]\nbad = [x for x in fds if 'socket' in x[1] or 'memfd' in x[1]]\n\
             unix = open('/proc/net/unix').read().splitlines()[1:]\nescaped((bad, unix)) if bad or unix else held(fds)"
                .into(),
        ),
        ("connect_to_an_abstract_socket", "held(cannot_connect(socket.AF_UNIX, '\\0manta-escape'))".into()),
        ("connect_to_the_hosts_loopback", format!("held(cannot_connect(socket.AF_INET, ('127.0.0.1', {host_port})))")),
        (
            "connect_to_the_nodes_loopback",
            format!(
                "cannot_connect(socket.AF_INET, ('127.0.0.1', {node_port}))\n\
                 held(cannot_connect(socket.AF_INET, ('10.244.0.1', {node_port})))"
            ),
        ),
        (
            "open_a_raw_packet_socket",
            "for family in (socket.AF_PACKET, socket.AF_VSOCK, 38):\n\
             \ttry: socket.socket(family, socket.SOCK_RAW)\n\texcept OSError as e: pass\n\telse: escaped(family)\n\
             held('none')"
                .into(),
        ),
        ("change_the_host_name", simple(libc::SYS_sethostname, ", b'x', 1")),
        ("open_a_file_by_handle", simple(libc::SYS_open_by_handle_at, ", -100, b'\\0' * 64, 0")),
        ("load_a_kernel_module", simple(libc::SYS_finit_module, ", 0, b'', 0")),
        ("load_a_bpf_program", simple(libc::SYS_bpf, ", 5, b'\\0' * 128, 128")),
        ("open_a_performance_counter", simple(libc::SYS_perf_event_open, ", b'\\0' * 128, 0, -1, -1, 0")),
        ("use_io_uring", simple(libc::SYS_io_uring_setup, ", 1, b'\\0' * 128")),
        ("use_userfaultfd", simple(libc::SYS_userfaultfd, ", 0")),
        ("reboot_the_machine", simple(libc::SYS_reboot, ", 0, 0, 0, None")),
        ("set_the_clock", simple(libc::SYS_settimeofday, ", b'\\0' * 16, None")),
        ("read_the_kernels_log", simple(libc::SYS_syslog, ", 3, b'\\0' * 64, 64")),
        (
            "write_to_a_running_program",
            "errors = []\nfor path in ('/proc/1/exe', '/proc/self/exe'):\n\
             \ttry: os.open(path, os.O_WRONLY)\n\texcept OSError as e: errors.append(e)\n\telse: escaped(path)\nheld(errors)"
                .into(),
        ),
        (
            "start_processes_without_end",
            "limits = open('/proc/self/limits').read()\nrlimit = [l.split()[2] for l in limits.splitlines() if 'processes' in l][0]\n\
             group = [open(p).read().strip() for p in glob.glob('/sys/fs/cgroup/pids/pids.max') + glob.glob('/sys/fs/cgroup/pids.max')]\n\
             values = [int(v) for v in group + [rlimit] if v.isdigit()]\n\
             held(values) if values and min(values) <= 32768 else escaped((group, rlimit))"
                .into(),
        ),
    ];
    attacks.into_iter().map(|(name, body)| (name, format!("{PRELUDE}\n{body}\n"))).collect()
}

/// What must be true of the processes themselves.
pub(crate) fn checks<'a>(node: &'a Node, attacker: &'a Pod) -> Vec<(&'static str, BoxFuture<'a, ()>)> {
    vec![
        ("processes_hold_the_default_capabilities_at_most", status_of_processes(node, attacker).boxed()),
        ("root_inside_is_nobody_outside", root_is_nobody(node, attacker).boxed()),
        ("exec_is_not_traceable_on_its_way_in", exec_is_not_traceable(node, attacker).boxed()),
        ("the_token_is_the_pods_own_and_short_lived", token(node).boxed()),
    ]
}

async fn status_of_processes(node: &Node, attacker: &Pod) {
    for process in ["1", "self"] {
        let fields = ["CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb", "Seccomp", "NoNewPrivs"].join("|");
        let script = format!("grep -E '^({fields}):' /proc/{process}/status | sort | tr -s '\\t\\n' '  '");
        let (_, text) = node.exec(attacker, &["sh", "-c", &script]).await;
        let (set, none) = ("00000000a80425fb", "0000000000000000");
        let expect =
            format!("CapAmb: {none} CapBnd: {set} CapEff: {set} CapInh: {none} CapPrm: {set} NoNewPrivs: 1 Seccomp: 2");
        assert_eq!(text.trim(), expect, "process {process}");
    }
    let mut other =
        shell("grep -E '^(CapEff|CapBnd|Uid):' /proc/self/status | tr -s '\\t\\n' '  '; id -u; touch /x 2>&1");
    other["containers"][0]["securityContext"] = json!({
        "runAsUser": 1234, "runAsGroup": 7, "runAsNonRoot": true, "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    node.create("restricted", other).await;
    let text = node.output("restricted").await;
    let none = "0000000000000000";
    assert!(text.starts_with(&format!("Uid: 1234 1234 1234 1234 CapEff: {none} CapBnd: {none} 1234\n")), "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
    node.delete("restricted").await;
}

async fn root_is_nobody(node: &Node, attacker: &Pod) {
    let (_, map) = node.exec(attacker, &["cat", "/proc/self/uid_map"]).await;
    let fields: Vec<u64> = map.split_whitespace().map(|f| f.parse().expect("a number")).collect();
    if node.is_root {
        assert!(fields[0] == 0 && fields[1] > 65_536 && fields[2] == 65_536, "{map}");
        // A process of the container, as the node sees it.
        let uids: Vec<String> = std::fs::read_dir("/proc")
            .expect("processes")
            .flatten()
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok())
            .filter(|status| status.starts_with("Name:\tsleep\n"))
            .filter_map(|status| status.lines().find_map(|l| l.strip_prefix("Uid:\t").map(str::to_owned)))
            .collect();
        assert!(!uids.is_empty() && uids.iter().all(|uid| uid.starts_with(&fields[1].to_string())), "{uids:?}");
    } else {
        assert_eq!(fields, [0, 0, 1]);
    }
}

/// A process of the container watches for newcomers and tries to read their descriptors and memory before they exec.
async fn exec_is_not_traceable(node: &Node, attacker: &Pod) {
    let spy = r#"
import os, sys
open('/v/ready', 'w').close()
seen = []
while not os.path.exists('/v/stop'):
    for p in [p for p in os.listdir('/proc') if p.isdigit()]:
        try:
            exe = os.readlink(f'/proc/{p}/exe')
            if 'escape' in exe: seen.append(('exe', exe, os.listdir(f'/proc/{p}/fd')))
        except OSError: pass
print('ESCAPED' if seen else 'held', seen[:3])
"#;
    let command = ["/usr/bin/python3", "-c", spy];
    let watching = node.exec(attacker, &command);
    let entering = async {
        crate::node::poll(|| async { (node.exec(attacker, &["test", "-e", "/v/ready"]).await.0 == 0).then_some(()) })
            .await;
        for _ in 0..30 {
            node.exec(attacker, &["true"]).await;
        }
        node.exec(attacker, &["touch", "/v/stop"]).await;
    };
    let ((_, output), ()) = futures::join!(watching, entering);
    assert!(output.starts_with("held"), "{output}");
}

async fn token(node: &Node) {
    let pod = node.create("token", shell("cat /var/run/secrets/kubernetes.io/serviceaccount/token")).await;
    let token = node.output("token").await;
    assert_ne!(token.trim(), node.admin_token);
    let script = "import base64, json, sys; part = sys.argv[1].split('.')[1]; \
                  claims = json.loads(base64.urlsafe_b64decode(part + '=' * (-len(part) % 4))); \
                  print(claims['sub'], claims['exp'] - claims['iat'])";
    let decoded = tokio::process::Command::new("/usr/bin/python3").args(["-c", script, token.trim()]).output().await;
    let decoded = String::from_utf8(decoded.expect("python").stdout).expect("text");
    let (subject, life) = decoded.trim().split_once(' ').unwrap_or_default();
    assert_eq!(subject, "system:serviceaccount:default:default", "{pod:?}");
    assert!(life.parse::<i64>().is_ok_and(|seconds| seconds <= 3607), "{decoded}");
    node.delete("token").await;
}
