//! Starts a container: image, volumes, environment, limits, root file system, process.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::net::unix::pipe;

use super::handle::Run;
use crate::agent::{self, Config, Shared};
use crate::downward_api::NodeValues;
use crate::env;
use crate::environments;
use crate::exec::ExecTarget;
use crate::guards::{self, Guard};
use crate::images::Environment;
use crate::logs;
use crate::names;
use crate::network::{GATEWAY, PodNetwork, RESOLVER};
use crate::node;
use crate::quantity::Amount;
use crate::runtime::beneath::Owner;
use crate::runtime::cgroup;
use crate::runtime::cgroup::Limits;
use crate::runtime::confinement::{Confinement, Seccomp};
use crate::runtime::lock;
use crate::runtime::rootfs::{self, Bind, RootfsSpec};
use crate::runtime::{ContainerJob, Process, SpawnError, Stdio};
use crate::security_context;
use crate::shared_host::{self, HostPod, SharedHost};
use crate::tokens::Tokens;
use crate::volumes::{self, Credentials, Volume, disk};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is needed to start a container.
pub(super) struct StartRequest {
    pub(super) pod: Pod,
    pub(super) container: Container,
    pub(super) attempt: i32,
    pub(super) ip: Option<Ipv4Addr>,
    pub(super) hostname: String,
    pub(super) network: Option<PodNetwork>,
    pub(super) tokens: Arc<Tokens>,
}

pub(super) struct Started {
    pub(super) run: Run,
    pub(super) process: Process,
    pub(super) image_id: String,
    pub(super) container: Container,
}

/// Why a container did not start.
pub(super) enum StartError {
    /// Something is missing; the start is retried.
    Retry { reason: &'static str, message: String, retry: SignedDuration },
    /// The process was created and could not execute its program.
    Failed { message: String },
}

impl StartError {
    fn retry(reason: &'static str, message: impl ToString) -> Self {
        Self::Retry { reason, message: message.to_string(), retry: SignedDuration::from_secs(3) }
    }
}

pub(super) async fn start(shared: &Arc<Shared>, request: StartRequest) -> Result<Started, StartError> {
    let StartRequest { pod, mut container, attempt, ip, hostname, network, tokens } = request;
    let config_error = |e: &dyn std::fmt::Display| StartError::retry("CreateContainerConfigError", e);
    names::check(&pod).map_err(|e| config_error(&e))?;
    let mut confinement = security_context::confinement(&pod, &container, shared.ids).map_err(|e| config_error(&e))?;
    if !guards::is_on(Guard::Seccomp) {
        confinement.seccomp = Seccomp::Unconfined;
    }
    if !shared.cgroups.limits_processes() {
        confinement.max_processes = Some(cgroup::max_processes());
    }
    let (root_owner, user) = (shared.ids.owner(0, 0), shared.ids.owner(confinement.uid, confinement.gid));
    let (Some(network), Some(address)) = (network, ip) else {
        return Err(StartError::retry("ContainerCreating", "the pod has no network yet"));
    };
    let ip = address.to_string();
    let image = container.image.clone().unwrap_or_default();
    let environment = environments::provide(shared, &image).await.map_err(|message| StartError::Retry {
        reason: "ErrImagePull",
        message,
        retry: SignedDuration::from_secs(10),
    })?;

    let volumes =
        provide_volumes(shared, &pod, &ip, &tokens).await.map_err(|e| StartError::retry("ContainerCreating", e))?;
    if let Some(one) = &shared.config.shared_host {
        adapt_to_shared_host(shared, one, &mut container, address, &volumes)?;
    }
    let values = values(shared, &ip);
    let sources = shared.stores.sources(pod.metadata.namespace.as_deref().unwrap_or_default());
    let mut base = base_env(&shared.config, &environment, &hostname);
    let name = format!("{}-{attempt}", container.name);
    let folder = shared.pod_folder(uid(&pod)).join("containers").join(&name);
    let is_isolated = shared.config.shared_host.is_none();
    if !is_isolated {
        // The home of the image would be a user's home on this host.
        base.iter_mut().filter(|(name, _)| name == "HOME").for_each(|(_, home)| *home = text(&folder.join("root")));
    }
    let env = env::environment(&pod, &container, &base, &sources, &values).map_err(|e| config_error(&e))?;
    let argv = env::command(&container, &environment.entrypoint, &env);

    let mounts = volumes::mounts(&container, &volumes.plan, &env).map_err(|e| config_error(&e))?;

    let io =
        |e: std::io::Error| StartError::retry("CreateContainerError", format!("cannot prepare the container: {e}"));
    let (root, termination_log) = (folder.join("root"), folder.join("termination-log"));
    disk::make_dir(&root, 0o755, root_owner).map_err(io)?;
    disk::write_file(&termination_log, "", 0o666, user).map_err(io)?;

    let limits = limits(&container);
    let group = shared.cgroups.create(&format!("{}.{name}", uid(&pod)), limits, &folder.join("cgroup")).map_err(io)?;
    let mut wanted = RootfsSpec {
        same: environment.path.iter().flat_map(|p| environments::folders(p)).collect(),
        cgroup: Some(group.view()),
        dirs: vec![home(&env)],
        binds: etc_files(shared, &pod, &ip, &hostname).map_err(io)?,
        root: root_owner,
        user,
        read_only_root: container.security_context.as_ref().is_some_and(|c| c.read_only_root_filesystem == Some(true)),
    };
    wanted.binds.extend(accounts(&folder, &confinement, root_owner, &home(&env)).map_err(io)?);
    if let Some(path) = &environment.path {
        wanted.binds.push(login_path(&folder, path, root_owner).map_err(io)?);
    }
    let message_path = container.termination_message_path.clone().unwrap_or_else(|| "/dev/termination-log".to_owned());
    if !rootfs::is_mountable(Path::new(&message_path)) {
        let why = "terminationMessagePath cannot be in /proc or /sys; leave it out";
        return Err(config_error(&format!("container {}: {why}", container.name)));
    }
    wanted.binds.push(bind(termination_log.clone(), message_path.into(), false));
    for mount in mounts {
        let place = volumes.dirs.get(&mount.volume).cloned().unwrap_or_default();
        let mut entry = bind(place, mount.target.into(), mount.read_only);
        match mount.sub_path {
            Some(part) if guards::is_on(Guard::SubPath) => {
                disk::prepare_sub_path(&entry.source, Path::new(&part), root_owner).map_err(|e| {
                    let why = format!("volumeMounts[].subPath {part:?} of volume \"{}\"", mount.volume);
                    config_error(&format!("container {}: {why}: {e}", container.name))
                })?;
                entry.sub_path = Some(part.into());
            }
            Some(part) => entry.source = entry.source.join(part),
            None => {}
        }
        wanted.binds.push(entry);
    }

    let cwd = container.working_dir.clone().filter(|d| !d.is_empty()).map_or_else(|| home(&env), PathBuf::from);
    wanted.dirs.push(cwd.clone());
    let job = ContainerJob {
        argv,
        env: env.clone(),
        cwd: cwd.clone(),
        root: is_isolated.then_some(root),
        mounts: if is_isolated { rootfs::plan(&wanted, &rootfs::look, &rootfs::list) } else { Vec::new() },
        cgroups: group.procs_files(),
        confinement: confinement.clone(),
        tty: false,
    };
    let (stdout, out) = pipe::pipe().map_err(io)?;
    let (stderr, err) = pipe::pipe().map_err(io)?;
    let stdio = Stdio {
        stdin: std::fs::File::open("/dev/null").map_err(io)?.into(),
        stdout: stdout.into_blocking_fd().map_err(io)?,
        stderr: stderr.into_blocking_fd().map_err(io)?,
    };
    let log_path = shared.log_folder(uid(&pod)).join(&container.name).join(format!("{attempt}.log"));
    let log = logs::record(log_path.clone(), out, err).await.map_err(io)?;
    let process = match shared.containers.container(job, stdio, &network.namespaces()).await {
        Ok(process) => process,
        Err(SpawnError::Start(message)) => {
            group.remove();
            return Err(StartError::Failed { message });
        }
        Err(error) => return Err(StartError::retry("RunContainerError", error)),
    };
    let spawner = shared.containers.clone();
    let inside =
        ExecTarget { spawner, pid: process.pid, is_isolated, env, cwd, cgroups: group.procs_files(), confinement };
    let run = Run {
        id: process.id,
        shown_id: format!("manta://{}/{}/{}", uid(&pod), container.name, attempt),
        started: Timestamp::now(),
        inside,
        group,
        log,
        log_path,
        scratch: folder,
        termination_log,
        message_from_logs: container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
        over_limit: Arc::new(AtomicBool::new(false)),
    };
    Ok(Started { run, process, image_id: environment.id, container })
}

/// Adapts a container to the network and files that it shares with the host.
fn adapt_to_shared_host(
    shared: &Shared,
    one: &SharedHost,
    container: &mut Container,
    ip: Ipv4Addr,
    volumes: &Volumes,
) -> Result<(), StartError> {
    let host_pod = HostPod::new(&shared.agent_id(), ip);
    let folder = || -> std::io::Result<()> {
        if let Some(parent) = host_pod.folder.parent() {
            lock::make_private(parent)?;
        }
        lock::make_private(&host_pod.folder)
    };
    folder().map_err(|e| {
        let why = format!("cannot use the folder {}: {e}", host_pod.folder.display());
        StartError::retry("ContainerCreating", why)
    })?;
    let table = Arc::clone(&shared.table.borrow());
    shared_host::resolve_service_names(container, &table).map_err(|why| StartError::retry("ContainerCreating", why))?;
    let mounts = container.volume_mounts.iter().flatten().filter(|m| m.mount_path != "/dev/shm");
    let dirs: Vec<(String, PathBuf)> = mounts
        .filter_map(|m| {
            let place = volumes.dirs.get(&m.name)?;
            Some((m.mount_path.clone(), m.sub_path.as_ref().map_or(place.clone(), |part| place.join(part))))
        })
        .collect();
    shared_host::rewrite_volume_paths(container, &dirs);
    (one.adapt)(container, &host_pod);
    Ok(())
}

/// Rewrites mounted files whose sources have changed.
pub(super) async fn refresh(shared: &Arc<Shared>, pod: &Pod, ip: &str, tokens: &Tokens) -> Result<(), String> {
    let (plan, dirs) = (plan_volumes(shared, pod, ip, tokens).await?, dirs(shared, pod));
    for (name, volume) in plan.iter().filter(|(_, v)| matches!(v, Volume::Files(_))) {
        // Only volumes that are mounted already; the others are set up when a container starts.
        if dirs.pod.join("volumes").join(name).exists() {
            disk::set_up(&dirs, name, volume).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

struct Volumes {
    plan: BTreeMap<String, Volume>,
    dirs: BTreeMap<String, PathBuf>,
}

async fn provide_volumes(shared: &Arc<Shared>, pod: &Pod, ip: &str, tokens: &Tokens) -> Result<Volumes, String> {
    let plan = plan_volumes(shared, pod, ip, tokens).await?;
    let folders = dirs(shared, pod);
    let mut dirs = BTreeMap::new();
    for (name, volume) in &plan {
        let path = disk::set_up(&folders, name, &without_mounts(shared, volume))
            .map_err(|e| format!("MountVolume.SetUp failed for volume \"{name}\" : {e}"))?;
        dirs.insert(name.clone(), path);
    }
    Ok(Volumes { plan, dirs })
}

/// Without a mount namespace a memory volume is a folder: a mount would be visible to the whole host.
fn without_mounts(shared: &Shared, volume: &Volume) -> Volume {
    match volume {
        Volume::Memory { .. } if shared.config.shared_host.is_some() => Volume::Empty,
        other => other.clone(),
    }
}

async fn plan_volumes(
    shared: &Arc<Shared>,
    pod: &Pod,
    ip: &str,
    tokens: &Tokens,
) -> Result<BTreeMap<String, Volume>, String> {
    let sources = shared.stores.sources(pod.metadata.namespace.as_deref().unwrap_or_default());
    let tokens = tokens.get(&shared.client, pod, &volumes::token_kinds(pod)).await?;
    let credentials = Credentials { ca: shared.config.cluster_ca.clone(), tokens };
    volumes::plan(pod, &sources, &values(shared, ip), &credentials, shared.config.host_paths).map_err(|e| e.to_string())
}

/// Writes `/etc/hosts`, `/etc/resolv.conf` and `/etc/hostname` of a pod.
fn etc_files(shared: &Shared, pod: &Pod, ip: &str, hostname: &str) -> std::io::Result<Vec<Bind>> {
    let folder = shared.pod_folder(uid(pod)).join("etc");
    let owner = shared.ids.owner(0, 0);
    disk::make_dir(&folder, 0o755, owner)?;
    let spec = pod.spec.as_ref();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let subdomain = spec.and_then(|s| s.subdomain.as_deref()).filter(|s| !s.is_empty());
    let full = subdomain.map(|s| format!("{hostname}.{s}.{namespace}.svc.cluster.local\t")).unwrap_or_default();
    let mut hosts =
        format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{ip}\t{full}{hostname}\n");
    for alias in spec.iter().flat_map(|s| s.host_aliases.iter().flatten()) {
        hosts.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    let resolver = format!(
        "search {namespace}.svc.cluster.local svc.cluster.local cluster.local\nnameserver {RESOLVER}\noptions ndots:5\n"
    );
    let files = [("hosts", hosts), ("resolv.conf", resolver), ("hostname", format!("{hostname}\n"))];
    let mut binds = Vec::new();
    for (name, text) in files {
        let source = folder.join(name);
        disk::write_file(&source, &text, 0o644, owner)?;
        binds.push(bind(source, Path::new("/etc").join(name), false));
    }
    Ok(binds)
}

/// Writes a profile that adds the environment to the search path of login shells.
fn login_path(folder: &Path, environment: &Path, owner: Owner) -> std::io::Result<Bind> {
    let source = folder.join("profile.sh");
    let quoted = text(&environment.join("bin")).replace('\'', "'\\''");
    disk::write_file(&source, &format!("export PATH='{quoted}':\"$PATH\"\n"), 0o644, owner)?;
    Ok(bind(source, "/etc/profile.d/manta.sh".into(), true))
}

/// Writes the container's own `/etc/passwd` and `/etc/group`.
fn accounts(folder: &Path, confinement: &Confinement, owner: Owner, home: &Path) -> std::io::Result<[Bind; 2]> {
    let (uid, gid) = (confinement.uid, confinement.gid);
    let mut users = format!("root:x:0:0:root:{}:/bin/bash\n", if uid == 0 { text(home) } else { "/root".into() });
    let mut groups = "root:x:0:\n".to_owned();
    if uid != 0 && uid != 65534 {
        users.push_str(&format!("user:x:{uid}:{gid}:user:{}:/bin/bash\n", text(home)));
    }
    if gid != 0 && gid != 65534 {
        groups.push_str(&format!("user:x:{gid}:\n"));
    }
    users.push_str("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    groups.push_str("nogroup:x:65534:\n");
    let (passwd, group) = (folder.join("passwd"), folder.join("group"));
    disk::write_file(&passwd, &users, 0o644, owner)?;
    disk::write_file(&group, &groups, 0o644, owner)?;
    Ok([bind(passwd, "/etc/passwd".into(), false), bind(group, "/etc/group".into(), false)])
}

fn bind(source: PathBuf, target: PathBuf, read_only: bool) -> Bind {
    Bind { source, sub_path: None, target, read_only }
}

pub(super) fn dirs(shared: &Shared, pod: &Pod) -> disk::VolumeDirs {
    let group = pod.spec.as_ref().and_then(|s| s.security_context.as_ref()).and_then(|c| c.fs_group);
    disk::VolumeDirs {
        pod: shared.pod_folder(uid(pod)),
        claims: shared.config.state.join("claims"),
        owner: shared.ids.owner(0, group.and_then(|gid| u32::try_from(gid).ok()).unwrap_or(0)),
        has_group: group.is_some(),
    }
}

fn values(shared: &Shared, ip: &str) -> NodeValues {
    NodeValues { pod_ip: ip.to_owned(), host_ip: GATEWAY.to_string(), allocatable: node::capacity(&shared.config) }
}

fn base_env(config: &Config, environment: &Environment, hostname: &str) -> Vec<(String, String)> {
    let path = match &environment.path {
        Some(path) => format!("{}:{SYSTEM_PATH}", path.join("bin").display()),
        None => SYSTEM_PATH.to_owned(),
    };
    let mut env = vec![("PATH".to_owned(), path), ("HOME".to_owned(), "/root".to_owned())];
    env.extend(agent::base_env(config, hostname).into_iter().map(|(k, v)| (k.to_owned(), v)));
    for (name, value) in &environment.env {
        match env.iter_mut().find(|(n, _)| n == name) {
            Some(entry) => entry.1.clone_from(value),
            None => env.push((name.clone(), value.clone())),
        }
    }
    env
}

fn limits(container: &Container) -> Limits {
    let resources = container.resources.as_ref();
    let limit = |name: &str| resources.and_then(|r| r.limits.as_ref()).and_then(|m| m.get(name));
    let request = |name: &str| resources.and_then(|r| r.requests.as_ref()).and_then(|m| m.get(name));
    let milli = |q| Amount::of(Some(q)).milli();
    Limits {
        memory: limit("memory").map(|q| Amount::of(Some(q)).ceil()).filter(|n| *n > 0),
        cpu_milli: request("cpu").or(limit("cpu")).map(milli).filter(|n| *n > 0),
        cpu_limit_milli: limit("cpu").map(milli).filter(|n| *n > 0),
    }
}

fn home(env: &[(String, String)]) -> PathBuf {
    env.iter().find(|(name, _)| name == "HOME").map_or_else(|| "/".into(), |(_, value)| PathBuf::from(value))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}
