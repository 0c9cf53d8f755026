//! Starts a container: image, volumes, environment, limits, root file system, process.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use kube::Api;
use kube::runtime::events::EventType;
use manta_quantity::Quantity;
use tokio_util::sync::CancellationToken;

use super::etc_files::{self, bind};
use super::handle::Run;
use super::pod_volumes::{self, PodVolumes};
use super::streams::{self, ContainerStreams, Input};
use crate::agent::{self, Config, Shared};
use crate::env;
use crate::environments::{self, Pull};
use crate::exec::ExecTarget;
use crate::gpus::{self, GpuView, Visibility};
use crate::guards::{self, Guard};
use crate::images::Environment;
use crate::logs::Log;
use crate::names;
use crate::network::PodNetwork;
use crate::runtime::beneath::Owner;
use crate::runtime::cgroup::{self, Limits};
use crate::runtime::confinement::{Confinement, Seccomp};
use crate::runtime::lock;
use crate::runtime::rootfs::{self, Bind, Overlay, RootfsSpec};
use crate::runtime::{ContainerJob, Process, SpawnError};
use crate::security_context;
use crate::shared_host::{self, HostPod, SharedHost};
use crate::sysctls;
use crate::tokens::Tokens;
use crate::volumes::{self, disk};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where images look for the libraries of a GPU's driver; NVIDIA's own images have it in their `LD_LIBRARY_PATH`.
const DRIVER_FOLDER: &str = "/usr/local/nvidia/lib64";

/// What is needed to start a container.
pub(super) struct StartRequest {
    pub(super) pod: Pod,
    pub(super) container: Container,
    pub(super) attempt: i32,
    pub(super) ip: Option<Ipv4Addr>,
    pub(super) hostname: String,
    pub(super) network: Option<PodNetwork>,
    pub(super) tokens: Arc<Tokens>,
    /// Cancelled when the container is stopped before it runs.
    pub(super) stop: CancellationToken,
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
    /// It was stopped while it waited for its image.
    Stopped,
}

impl StartError {
    fn retry(reason: &'static str, message: impl ToString) -> Self {
        Self::Retry { reason, message: message.to_string(), retry: SignedDuration::from_secs(3) }
    }

    /// The specification cannot be honoured, or something that it refers to is missing.
    fn config(message: impl ToString) -> Self {
        Self::retry("CreateContainerConfigError", message)
    }

    fn prepare(error: std::io::Error) -> Self {
        Self::retry("CreateContainerError", format!("cannot prepare the container: {error}"))
    }
}

pub(super) async fn start(shared: &Arc<Shared>, request: StartRequest) -> Result<Started, StartError> {
    let StartRequest { pod, mut container, attempt, ip, hostname, network, tokens, stop } = request;
    names::check(&pod).map_err(StartError::config)?;
    check_runtime_class(shared, &pod).await?;
    let (Some(network), Some(address)) = (network, ip) else {
        return Err(StartError::retry("ContainerCreating", "the pod has no network yet"));
    };
    let ip = address.to_string();
    let image = container.image.clone().unwrap_or_default();
    let report = |pull: Pull| report_pull(shared, &pod, &image, &pull);
    let provided = tokio::select! {
        // An installation takes minutes, and nothing of the container exists yet.
        () = stop.cancelled() => return Err(StartError::Stopped),
        provided = environments::provide(shared, &image, &report) => provided,
    };
    let environment = provided.map_err(|message| StartError::Retry {
        reason: "ErrImagePull",
        message,
        retry: SignedDuration::from_secs(10),
    })?;
    if let Some(warning) = environment.warning.as_deref().filter(|_| attempt == 0) {
        shared.record_event(&pod, EventType::Warning, "ImageDiffers", warning);
    }
    let confinement = confine(shared, &pod, &container, environment.user.unwrap_or_default())?;
    let volumes = pod_volumes::set_up(shared, &pod, &ip, &tokens).await;
    let volumes = volumes.map_err(|e| StartError::retry("ContainerCreating", e))?;
    let mounts = shared.config.mounts.of_pod(&pod).map_err(StartError::config)?;
    if let Some(one) = &shared.config.shared_host {
        adapt_to_shared_host(shared, one, &mut container, address, &volumes, &mounts)?;
    }

    let name = format!("{}-{attempt}", container.name);
    let folder = shared.pod_folder(uid(&pod)).join("containers").join(&name);
    let is_isolated = shared.config.shared_host.is_none();
    let gpus = gpu_view(shared, &pod, &container)?;
    let mut base = announced_services(shared, &pod);
    base.extend(base_env(&shared.config, &environment, &hostname));
    base.extend(gpus.env.clone());
    if environment.root.is_some() && !gpus.driver.is_empty() {
        base.push(driver_path(&base));
    }
    base.extend(shared.config.internet.env.clone());
    if !shared.cgroups.is_real() {
        base.extend(shared.config.env_without_cgroups.clone());
    }
    if container.tty == Some(true) {
        base.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    if !is_isolated {
        // The home of the image would be a user's home on this host.
        base.iter_mut().filter(|(name, _)| name == "HOME").for_each(|(_, home)| *home = text(&folder.join("root")));
    }
    let sources = shared.stores.sources(pod.metadata.namespace.as_deref().unwrap_or_default());
    let env = env::environment(&pod, &container, &base, &sources, &pod_volumes::values(shared, &ip));
    let env = env.map_err(StartError::config)?;
    let argv = env::command(&container, &environment, &env);
    let cwd = container.working_dir.clone().filter(|d| !d.is_empty()).map(PathBuf::from);
    let cwd = cwd.or_else(|| environment.cwd.clone()).unwrap_or_else(|| home(&env));

    let (root, termination_log) = (folder.join("root"), folder.join("termination-log"));
    let (owner, user) = (shared.ids.owner(0, 0), shared.ids.owner(confinement.uid, confinement.gid));
    disk::make_dir(&root, 0o755, owner).map_err(StartError::prepare)?;
    disk::write_file(&termination_log, "", 0o666, user).map_err(StartError::prepare)?;
    let cgroup = format!("{}.{name}", uid(&pod));
    let group = shared.cgroups.create(&cgroup, limits(&container), &folder.join("cgroup"));
    let group = group.map_err(StartError::prepare)?;

    let mut spec = RootfsSpec {
        same: environment.path.iter().flat_map(|p| environments::folders(p)).chain(gpus.libraries).collect(),
        reduced: gpus.lists,
        cgroup: Some(group.view()),
        dirs: vec![home(&env), cwd.clone()],
        binds: etc_files::network(&pod, &ip, &hostname, &shared.pod_folder(uid(&pod)).join("etc"), owner)
            .map_err(StartError::prepare)?,
        root: owner,
        user,
        is_image: environment.root.is_some(),
        read_only_root: container.security_context.as_ref().is_some_and(|c| c.read_only_root_filesystem == Some(true)),
    };
    if !spec.is_image {
        let accounts = etc_files::accounts(&confinement, &home(&env), &folder, owner);
        spec.binds.extend(accounts.map_err(StartError::prepare)?);
    }
    if let Some(path) = &environment.path {
        spec.binds.push(etc_files::login_path(path, &folder, owner).map_err(StartError::prepare)?);
    }
    // An image has files of its own where others see the host's.
    let is_missing =
        |(source, target): &&(PathBuf, PathBuf)| spec.is_image || source != target || !rootfs::is_shown(source);
    let files: Vec<_> = shared.config.internet.files.iter().filter(is_missing).cloned().collect();
    spec.binds.extend(files.into_iter().map(|(source, target)| bind(source, target, true)));
    if spec.is_image {
        let named = |path: PathBuf| Some((Path::new(DRIVER_FOLDER).join(path.file_name()?), path));
        let libraries = gpus.driver.into_iter().filter_map(named);
        spec.binds.extend(libraries.map(|(target, source)| bind(source, target, true)));
    }
    spec.binds.push(termination_message(&container, &termination_log)?);
    spec.binds.extend(gpus.nodes.into_iter().map(|node| bind(node.source, node.target, false)));
    spec.binds.extend(mounts);
    spec.binds.extend(volume_mounts(&container, &volumes, &env, owner)?);

    let job = ContainerJob {
        argv,
        env: env.clone(),
        cwd: cwd.clone(),
        root: is_isolated.then_some(root),
        overlay: overlay(&environment, &folder, owner).map_err(StartError::prepare)?,
        mounts: if is_isolated { rootfs::plan(&spec, &rootfs::look, &rootfs::list) } else { Vec::new() },
        cgroups: group.procs_files(),
        confinement: confinement.clone(),
        tty: container.tty == Some(true),
    };
    let log_path = shared.log_folder(uid(&pod)).join(&container.name).join(format!("{attempt}.log"));
    let (process, log, input) = match spawn(shared, job, &container, &network, &log_path).await {
        Ok(started) => started,
        Err(error) => {
            group.remove();
            return Err(error);
        }
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
        measured: Arc::default(),
        input,
    };
    Ok(Started { run, process, image_id: environment.id, container })
}

/// The handlers of RuntimeClasses that containers here stand for: GPUs need no runtime of their own.
const RUNTIME_HANDLERS: [&str; 2] = ["runc", "nvidia"];

/// Refuses a pod whose RuntimeClass asks for another way to run containers.
async fn check_runtime_class(shared: &Shared, pod: &Pod) -> Result<(), StartError> {
    let name = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref()).filter(|name| !name.is_empty());
    let Some(name) = name else { return Ok(()) };
    let classes: Api<RuntimeClass> = Api::all(shared.client.clone());
    let found = classes.get_opt(name).await.map_err(StartError::config)?;
    match found.map(|class| class.handler) {
        Some(handler) if RUNTIME_HANDLERS.contains(&&*handler) => Ok(()),
        Some(handler) => Err(StartError::config(format!(
            "no runtime for {handler:?} is configured: RuntimeClass {name} is not available on a local node, whose \
             handlers are {}; leave out runtimeClassName",
            RUNTIME_HANDLERS.join(" and ")
        ))),
        None => Err(StartError::config(format!("RuntimeClass {name:?} not found"))),
    }
}

/// Records the kubelet's events about images.
fn report_pull(shared: &Shared, pod: &Pod, image: &str, pull: &Pull) {
    let (reason, note) = describe_pull(image, pull);
    shared.record_event(pod, EventType::Normal, reason, &note);
}

/// Returns reason and note of an event about an image, in the kubelet's words.
fn describe_pull(image: &str, pull: &Pull) -> (&'static str, String) {
    match pull {
        Pull::Started => ("Pulling", format!("Pulling image \"{image}\"")),
        Pull::Progress(progress) => ("Pulling", format!("Pulling image \"{image}\": {progress}")),
        Pull::Done(None) => ("Pulled", format!("Container image \"{image}\" already present on machine")),
        Pull::Done(Some(took)) => {
            ("Pulled", format!("Successfully pulled image \"{image}\" in {:.1}s", took.as_secs_f64()))
        }
    }
}

/// Decides the restrictions of a container, or refuses what its specification asks for.
fn confine(shared: &Shared, pod: &Pod, container: &Container, user: (u32, u32)) -> Result<Confinement, StartError> {
    sysctls::settings(pod).map_err(StartError::config)?;
    let confinement = security_context::confinement(pod, container, user, shared.ids);
    let mut confinement = confinement.map_err(StartError::config)?;
    if !guards::is_on(Guard::Seccomp) {
        confinement.seccomp = Seccomp::Unconfined;
    }
    if !shared.cgroups.limits_processes() {
        confinement.max_processes = Some(cgroup::max_processes());
    }
    Ok(confinement)
}

/// Returns the image that the container begins with, and makes the directories for its changes.
fn overlay(environment: &Environment, folder: &Path, owner: Owner) -> std::io::Result<Option<Overlay>> {
    let Some(image) = environment.root.clone() else { return Ok(None) };
    let (changes, work) = (folder.join("changes"), folder.join("work"));
    disk::make_dir(&changes, 0o755, owner)?;
    disk::make_dir(&work, 0o755, owner)?;
    Ok(Some(Overlay { image, changes, work }))
}

/// Returns what the container sees of the machine's GPUs, reserving those that its pod asks for.
fn gpu_view(shared: &Shared, pod: &Pod, container: &Container) -> Result<GpuView, StartError> {
    let own = shared.lock(&shared.gpus).claim(pod, container);
    let own = own.map_err(|why| StartError::retry("UnexpectedAdmissionError", why))?;
    let visibility = if shared.config.shared_host.is_some() { Visibility::All } else { Visibility::Own };
    Ok(gpus::view(&shared.config.gpus.found, &own, visibility))
}

/// Returns the variable by which the programs of an image find the driver, besides what the image looks for.
fn driver_path(base: &[(String, String)]) -> (String, String) {
    const NAME: &str = "LD_LIBRARY_PATH";
    let own = base.iter().rev().find(|(name, value)| name == NAME && !value.is_empty());
    let path = own.map_or(DRIVER_FOLDER.to_owned(), |(_, own)| format!("{DRIVER_FOLDER}:{own}"));
    (NAME.to_owned(), path)
}

/// Returns the mount of the file that the container writes its termination message to.
fn termination_message(container: &Container, file: &Path) -> Result<Bind, StartError> {
    let target = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
    if !rootfs::is_mountable(Path::new(target)) {
        let why = "terminationMessagePath cannot be in /proc or /sys; leave it out";
        return Err(StartError::config(format!("container {}: {why}", container.name)));
    }
    Ok(bind(file.to_path_buf(), target.into(), false))
}

/// Resolves the volume mounts of a container, creating the `subPath`s that are missing.
fn volume_mounts(
    container: &Container,
    volumes: &PodVolumes,
    env: &[(String, String)],
    owner: Owner,
) -> Result<Vec<Bind>, StartError> {
    let mut binds = Vec::new();
    for mount in volumes::mounts(container, &volumes.plan, env).map_err(StartError::config)? {
        let source = volumes.dirs.get(&mount.volume).cloned().unwrap_or_default();
        let mut entry = bind(source, mount.target.into(), mount.read_only);
        match mount.sub_path {
            Some(part) if guards::is_on(Guard::SubPath) => {
                disk::prepare_sub_path(&entry.source, Path::new(&part), owner).map_err(|e| {
                    let field = format!("volumeMounts[].subPath {part:?} of volume \"{}\"", mount.volume);
                    StartError::config(format!("container {}: {field}: {e}", container.name))
                })?;
                entry.sub_path = Some(part.into());
            }
            Some(part) => entry.source = entry.source.join(part),
            None => {}
        }
        binds.push(entry);
    }
    Ok(binds)
}

/// Starts the process of a container, its output going to a log.
async fn spawn(
    shared: &Shared,
    job: ContainerJob,
    container: &Container,
    network: &PodNetwork,
    log_path: &Path,
) -> Result<(Process, Log, Option<Input>), StartError> {
    let ContainerStreams { stdio, log, input } =
        streams::open(container, log_path).await.map_err(StartError::prepare)?;
    match shared.containers.container(job, stdio, &network.namespaces()).await {
        Ok(process) => Ok((process, log, input)),
        Err(SpawnError::Start(message)) => Err(StartError::Failed { message }),
        Err(error) => Err(StartError::retry("RunContainerError", error)),
    }
}

/// Adapts a container to the network and files that it shares with the host.
fn adapt_to_shared_host(
    shared: &Shared,
    one: &SharedHost,
    container: &mut Container,
    ip: Ipv4Addr,
    volumes: &PodVolumes,
    mounts: &[Bind],
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
    let volume_mounts = container.volume_mounts.iter().flatten().filter(|m| m.mount_path != "/dev/shm");
    let shown = mounts.iter().map(|m| {
        let place = m.sub_path.as_ref().map_or(m.source.clone(), |part| m.source.join(part));
        (text(&m.target), place)
    });
    let dirs: Vec<(String, PathBuf)> = volume_mounts
        .filter_map(|m| {
            let place = volumes.dirs.get(&m.name)?;
            Some((m.mount_path.clone(), m.sub_path.as_ref().map_or(place.clone(), |part| place.join(part))))
        })
        .chain(shown)
        .collect();
    shared_host::rewrite_volume_paths(container, &dirs);
    (one.adapt)(container, &host_pod);
    Ok(())
}

/// Returns the variables of the namespace's Services, unless the pod does without.
fn announced_services(shared: &Shared, pod: &Pod) -> Vec<(String, String)> {
    if pod.spec.as_ref().and_then(|spec| spec.enable_service_links) == Some(false) {
        return Vec::new();
    }
    let services = shared.stores.services.state();
    env::service_variables(services.iter().map(|s| &**s), pod.metadata.namespace.as_deref().unwrap_or_default())
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
    let milli = |q: &QuantityText| Quantity::parse_or_zero(&q.0).milli_value();
    Limits {
        memory: limit("memory").map(|q| Quantity::parse_or_zero(&q.0).value()).filter(|n| *n > 0),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::environments::{Progress, Stage};

    #[test]
    fn the_driver_comes_before_the_libraries_of_the_image() {
        let check = |base: &[(&str, &str)], expect: &str| {
            let base: Vec<_> = base.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(driver_path(&base), ("LD_LIBRARY_PATH".to_owned(), expect.to_owned()));
        };
        check(&[("A", "b")], "/usr/local/nvidia/lib64");
        check(&[("LD_LIBRARY_PATH", "/opt/lib")], "/usr/local/nvidia/lib64:/opt/lib");
    }

    #[test]
    fn pulls_are_described_as_by_the_kubelet() {
        let check = |pull: Pull, expect: (&str, &str)| {
            let (reason, note) = describe_pull("ray:2", &pull);
            assert_eq!((reason, note.as_str()), expect);
        };
        check(Pull::Started, ("Pulling", "Pulling image \"ray:2\""));
        let (what, into) = ("installing ray==2".to_owned(), "/e".into());
        let progress = Progress { what, into, packages: 12, megabytes: 340, stage: Stage::Downloading };
        let expect = "Pulling image \"ray:2\": installing ray==2 into /e: 12 packages, 340 MB";
        check(Pull::Progress(progress), ("Pulling", expect));
        check(Pull::Done(None), ("Pulled", "Container image \"ray:2\" already present on machine"));
        let took = Duration::from_millis(61_250);
        check(Pull::Done(Some(took)), ("Pulled", "Successfully pulled image \"ray:2\" in 61.2s"));
    }
}
