//! The worker of one pod: carries out the actions of [`pod::next`] and writes the status.

mod etc_files;
mod handle;
mod pod_volumes;
mod probe_loop;
mod start;
mod stop;
mod streams;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::EventType;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::agent::Shared;
use crate::network::{self, GATEWAY, PodNetwork};
use crate::pod::probe::{Counter, ProbeKind};
use crate::pod::{self, Action, Deletion, Exit, Observed, Record, Records, RunState, Sandbox, Wait};
use crate::runtime::Status;
use crate::shared_host::HostPod;
use crate::sysctls;
use crate::tokens::Tokens;
use crate::volumes;

pub use handle::ContainerUsage;
pub(crate) use handle::PodHandle;
use handle::Run;
use start::{StartError, Started};
pub(crate) use streams::Input;

/// How many times the files of a pod are removed, and the time in between.
const REMOVAL_TRIES: u32 = 10;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(100);

/// An event of the pod's containers.
enum Event {
    Started { container: String, result: Result<Box<Started>, StartError> },
    Exited { container: String, id: u64, status: Status },
    Probed { container: String, id: u64, kind: ProbeKind, answer: Result<(), String> },
    HookFailed { container: String, id: u64, why: String },
}

pub(crate) struct Worker {
    shared: Arc<Shared>,
    /// The newest version, its status replaced by what was written last.
    pod: Pod,
    uid: String,
    seen: watch::Receiver<Option<Arc<Pod>>>,
    handle: Arc<PodHandle>,
    stop: CancellationToken,
    records: Records,
    sandbox: Sandbox,
    sandbox_retry: Option<Timestamp>,
    ip: Option<Ipv4Addr>,
    deletion: Deletion,
    accepted: Timestamp,
    written: Option<PodStatus>,
    counters: BTreeMap<(String, ProbeKind), Probing>,
    sender: mpsc::UnboundedSender<Event>,
    events: mpsc::UnboundedReceiver<Event>,
    tasks: JoinSet<()>,
    stoppers: BTreeMap<String, AbortHandle>,
    /// Containers that are being started, and what ends their wait for an image.
    starting: BTreeMap<String, CancellationToken>,
    tokens: Arc<Tokens>,
}

struct Probing {
    counter: Counter,
    in_flight: bool,
}

/// Whether the worker continues.
#[derive(PartialEq)]
enum Flow {
    Continue,
    Done,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        pod: Arc<Pod>,
        seen: watch::Receiver<Option<Arc<Pod>>>,
        handle: Arc<PodHandle>,
        stop: CancellationToken,
    ) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let now = Timestamp::now();
        let written = pod.status.clone();
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            records: pod::recover(&pod, now),
            pod: Arc::unwrap_or_clone(pod),
            shared,
            seen,
            handle,
            stop,
            sandbox: Sandbox::Absent,
            sandbox_retry: None,
            ip: None,
            deletion: Deletion::None,
            accepted: now,
            written,
            counters: BTreeMap::new(),
            sender,
            events,
            tasks: JoinSet::new(),
            stoppers: BTreeMap::new(),
            starting: BTreeMap::new(),
            tokens: Arc::default(),
        }
    }

    pub(crate) async fn run(mut self) {
        self.observe_pod();
        loop {
            let now = Timestamp::now();
            let next = pod::next(&Observed {
                pod: &self.pod,
                records: &self.records,
                sandbox: &self.sandbox,
                deletion: self.deletion,
                accepted: self.accepted,
                host_ip: &GATEWAY.to_string(),
                backoff: self.shared.config.backoff,
                now,
            });
            self.publish(next.status).await;
            let mut acted = false;
            for action in next.actions {
                if action == Action::CreateSandbox && self.sandbox_retry.is_some_and(|at| at > now) {
                    continue;
                }
                acted = true;
                if self.act(action).await == Flow::Done {
                    self.clean_up().await;
                    return;
                }
            }
            if acted {
                continue;
            }
            let probe_at = self.run_due_probes(now);
            let renew_at = self.renew_tokens(now);
            let wake = [next.wake, probe_at, self.sandbox_retry, renew_at].into_iter().flatten().min();
            if self.wait(wake).await == Flow::Done {
                self.shut_down().await;
                return;
            }
            while self.tasks.try_join_next().is_some() {}
        }
    }

    async fn wait(&mut self, wake: Option<Timestamp>) -> Flow {
        let delay = wake.map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
        let alarm = async {
            match delay {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        let mut sources = self.shared.stores.sources_changed.clone();
        sources.mark_unchanged();
        tokio::select! {
            () = self.stop.cancelled() => return Flow::Done,
            changed = self.seen.changed() => {
                if changed.is_err() {
                    self.deletion = Deletion::Gone;
                }
                self.observe_pod();
            }
            Some(event) = self.events.recv() => self.handle(event).await,
            _ = sources.changed() => self.refresh_volumes(),
            () = alarm => {}
        }
        Flow::Continue
    }

    /// Takes over the newest version of the pod.
    fn observe_pod(&mut self) {
        let Some(fresh) = self.seen.borrow_and_update().clone() else {
            self.deletion = Deletion::Gone;
            return;
        };
        let mut fresh = Arc::unwrap_or_clone(fresh);
        if fresh.metadata.deletion_timestamp.is_some() && self.deletion != Deletion::Gone {
            let seconds = fresh.metadata.deletion_grace_period_seconds.unwrap_or(30);
            self.deletion = Deletion::Graceful { seconds };
        }
        if let Some(written) = &self.written {
            let mut status = written.clone();
            keep_foreign_conditions(&mut status, fresh.status.as_ref());
            fresh.status = Some(status);
        }
        self.pod = fresh;
    }

    async fn handle(&mut self, event: Event) {
        match event {
            Event::Started { container, result } => self.started(container, result),
            Event::Exited { container, id, status } => self.exited(&container, id, status).await,
            Event::Probed { container, id, kind, answer } => self.probed(&container, id, kind, answer),
            Event::HookFailed { container, id, why } => {
                if self.handle.run(&container).is_some_and(|run| run.id == id) {
                    self.record(&container).unhealthy = Some(why);
                }
            }
        }
    }

    async fn act(&mut self, action: Action) -> Flow {
        match action {
            Action::CreateSandbox => self.create_sandbox().await,
            Action::Start { container } => self.start(container),
            Action::Stop { container, grace, why } => self.stop_container(&container, grace, &why),
            Action::RemoveSandbox => self.remove_sandbox().await,
            Action::Finish => return self.finish().await,
        }
        Flow::Continue
    }

    async fn create_sandbox(&mut self) {
        self.sandbox_retry = None;
        let on_node = self.is_on_node_network() && self.shared.config.shared_host.is_none();
        let ip = if on_node { Some(GATEWAY) } else { self.shared.lock(&self.shared.ipam).take() };
        let made = match ip {
            Some(ip) if on_node => Ok((ip, PodNetwork::Node)),
            Some(ip) if self.shared.config.shared_host.is_some() => Ok((ip, PodNetwork::Loopback(ip))),
            Some(ip) => {
                // Those that are not allowed keep the containers from starting.
                let sysctls = sysctls::settings(&self.pod).unwrap_or_default();
                network::create_pod(ip, self.hostname(), sysctls).await.map(|network| (ip, network))
            }
            None => Err(std::io::Error::other("no pod addresses are left")),
        };
        match made {
            Ok((ip, network)) => {
                self.handle.set_network(Some(network));
                self.ip = Some(ip);
                self.sandbox = Sandbox::Ready { ip: ip.to_string() };
            }
            Err(error) => {
                if let Some(ip) = ip {
                    self.shared.lock(&self.shared.ipam).release(ip);
                }
                self.event(
                    EventType::Warning,
                    "FailedCreatePodSandBox",
                    format!("Failed to create pod sandbox: {error}"),
                );
                self.sandbox_retry = Some(Timestamp::now() + jiff::SignedDuration::from_secs(5));
            }
        }
    }

    fn start(&mut self, name: String) {
        let spec = self.pod.spec.as_ref();
        let Some(container) = spec.and_then(|s| pod::container(s, &name)) else { return };
        let reset = self.shared.config.backoff.reset;
        let record = self.record(&name);
        record.begin(reset);
        let attempt = record.restarts;
        let stop = CancellationToken::new();
        self.starting.insert(name.clone(), stop.clone());
        let request = start::StartRequest {
            pod: self.pod.clone(),
            container,
            attempt,
            ip: self.ip,
            hostname: self.hostname(),
            network: self.handle.network(),
            tokens: Arc::clone(&self.tokens),
            stop,
        };
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        self.tasks.spawn(async move {
            let result = start::start(&shared, request).await.map(Box::new);
            let _ = sender.send(Event::Started { container: name, result });
        });
    }

    fn started(&mut self, name: String, result: Result<Box<Started>, StartError>) {
        let now = Timestamp::now();
        self.starting.remove(&name);
        match result {
            Ok(started) => {
                let Started { run, mut process, image_id, container } = *started;
                let id = run.id;
                let has = |kind: ProbeKind| kind.of(&container).is_some();
                let record = self.record(&name);
                record.state = RunState::Running { id: run.shown_id.clone(), since: now };
                record.image_id = image_id;
                record.started = !has(ProbeKind::Startup);
                record.ready = !has(ProbeKind::Readiness);
                // A stop requested during the start is requested again by the next pass.
                record.stopping = false;
                for kind in ProbeKind::ALL {
                    self.counters.remove(&(name.clone(), kind));
                    if let Some(probe) = kind.of(&container) {
                        let counter = Counter::new(kind, probe, now, self.shared.config.eager_readiness);
                        self.counters.insert((name.clone(), kind), Probing { counter, in_flight: false });
                    }
                }
                let sender = self.sender.clone();
                let (exited, log) = (name.clone(), run.log.clone());
                self.tasks.spawn(async move {
                    let status = process.wait().await;
                    // Who sees the end of a container also sees all of its output.
                    log.wait_until_complete().await;
                    let _ = sender.send(Event::Exited { container: exited, id, status });
                });
                self.post_start(&container, &run);
                self.handle.insert(&name, run);
                self.event(EventType::Normal, "Started", format!("Started container {name}"));
            }
            Err(StartError::Retry { reason, message, retry }) => {
                let event = if reason == "ContainerCreating" { "FailedMount" } else { "Failed" };
                self.event(EventType::Warning, event, message.clone());
                let wait = Wait { reason: reason.to_owned(), message: Some(message) };
                let record = self.record(&name);
                record.stopping = false;
                record.state = RunState::Blocked { wait, retry: now + retry };
            }
            Err(StartError::Stopped) => {
                let wait = Wait { reason: "ContainerCreating".to_owned(), message: None };
                let record = self.record(&name);
                record.stopping = false;
                record.state = RunState::Blocked { wait, retry: now };
            }
            Err(StartError::Failed { message }) => {
                self.event(EventType::Warning, "Failed", format!("Error: {message}"));
                let record = self.record(&name);
                record.end(Exit {
                    id: String::new(),
                    code: 128,
                    reason: "StartError".to_owned(),
                    message: Some(message),
                    started: now,
                    finished: now,
                });
            }
        }
    }

    async fn exited(&mut self, name: &str, id: u64, status: Status) {
        let Some(run) = self.handle.take_run(name, id) else { return };
        if let Some(task) = self.stoppers.remove(name) {
            task.abort();
        }
        self.counters.retain(|(container, _), _| container != name);
        let now = Timestamp::now();
        let oom = run.was_oom_killed();
        let message = run.termination_message(status.code()).await;
        let exit = Exit {
            id: run.shown_id.clone(),
            code: status.code(),
            reason: match status.code() {
                _ if oom => "OOMKilled",
                0 => "Completed",
                _ => "Error",
            }
            .to_owned(),
            message,
            started: run.started,
            finished: now,
        };
        self.record(name).end(exit);
        self.tasks.spawn(async move { run.discard().await });
    }

    async fn remove_sandbox(&mut self) {
        self.handle.set_network(None);
        let ip = self.ip.take();
        if let Some(ip) = ip {
            let _ = tokio::fs::remove_dir_all(HostPod::new(&self.shared.agent_id(), ip).folder).await;
            self.shared.lock(&self.shared.ipam).release(ip);
        }
        self.sandbox = Sandbox::Removed { ip: ip.map(|ip| ip.to_string()) };
        self.release_gpus();
        self.remove_files().await;
    }

    /// Removes the pod object after everything has stopped.
    async fn finish(&mut self) -> Flow {
        if self.deletion != Deletion::Gone {
            let pods: Api<Pod> = self.api();
            let params = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
                ..DeleteParams::default()
            };
            let name = self.pod.metadata.name.clone().unwrap_or_default();
            match pods.delete(&name, &params).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                Err(error) => {
                    tracing::warn!(pod = %name, %error, "cannot delete the pod; retrying");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    return Flow::Continue;
                }
            }
        }
        Flow::Done
    }

    fn release_gpus(&self) {
        self.shared.lock(&self.shared.gpus).release(&self.uid);
    }

    async fn clean_up(&mut self) {
        self.release_gpus();
        self.remove_files().await;
        let logs = self.shared.log_folder(&self.uid);
        let _ = tokio::fs::remove_dir_all(logs).await;
    }

    /// Stops all containers when the agent stops, with a short grace period.
    async fn shut_down(&mut self) {
        let running = self.handle.all_runs();
        for run in running {
            self.shared.containers.kill(run, nix::libc::SIGTERM);
        }
        let patience = tokio::time::sleep(Duration::from_secs(3));
        tokio::pin!(patience);
        while !self.handle.all_runs().is_empty() {
            tokio::select! {
                Some(event) = self.events.recv() => {
                    if let Event::Exited { container, id, .. } = event
                        && let Some(run) = self.handle.take_run(&container, id)
                    {
                        run.discard().await;
                    }
                }
                () = &mut patience => break,
            }
        }
        for run in self.handle.all_runs() {
            self.shared.containers.kill(run, nix::libc::SIGKILL);
        }
        self.tasks.shutdown().await;
    }

    async fn remove_files(&self) {
        let mut tries = 0;
        loop {
            let dirs = pod_volumes::dirs(&self.shared, &self.pod);
            let removed = tokio::task::spawn_blocking(move || volumes::disk::remove(&dirs)).await;
            let Ok(Err(error)) = removed else { return };
            tries += 1;
            // A process that is being killed may still create files.
            if error.kind() != std::io::ErrorKind::DirectoryNotEmpty || tries == REMOVAL_TRIES {
                return tracing::warn!(pod = ?self.pod.metadata.name, %error, "cannot remove the pod's files");
            }
            tokio::time::sleep(REMOVAL_INTERVAL).await;
        }
    }

    /// Starts the renewal of tokens that are due; returns when to look again.
    fn renew_tokens(&mut self, now: Timestamp) -> Option<Timestamp> {
        let at = self.tokens.renew_at()?;
        if at > now {
            return Some(at);
        }
        self.tokens.postpone(now);
        self.rewrite_files();
        self.tokens.renew_at()
    }

    /// Updates mounted ConfigMaps and Secrets.
    fn refresh_volumes(&mut self) {
        let (maps, secrets) = volumes::references(&self.pod);
        if maps.is_empty() && secrets.is_empty() {
            return;
        }
        self.rewrite_files();
    }

    /// Writes the files of mounted ConfigMaps, Secrets and tokens again where they have changed.
    fn rewrite_files(&mut self) {
        if self.ip.is_none() {
            return;
        }
        let (shared, pod, tokens) = (Arc::clone(&self.shared), self.pod.clone(), Arc::clone(&self.tokens));
        let ip = self.ip.map(|ip| ip.to_string()).unwrap_or_default();
        self.tasks.spawn(async move {
            if let Err(error) = pod_volumes::refresh(&shared, &pod, &ip, &tokens).await {
                tracing::debug!(pod = ?pod.metadata.name, %error, "cannot update mounted files");
            }
        });
    }

    async fn publish(&mut self, status: PodStatus) {
        if self.deletion == Deletion::Gone || self.written.as_ref() == Some(&status) {
            return;
        }
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            // The scheduler gives them away as soon as it sees this status.
            self.release_gpus();
        }
        let name = self.pod.metadata.name.clone().unwrap_or_default();
        let patch = serde_json::json!({"metadata": {"uid": self.uid}, "status": status});
        match self.api().patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {
                self.pod.status = Some(status.clone());
                self.written = Some(status);
            }
            Err(kube::Error::Api(failure)) if failure.code == 404 || failure.code == 409 => {
                // Deleted, or replaced by a pod of the same name: the watch is about to report it.
                self.written = Some(status);
            }
            Err(error) => tracing::warn!(pod = %name, %error, "cannot update the pod's status"),
        }
    }

    fn event(&mut self, type_: EventType, reason: &str, note: String) {
        self.shared.record_event(&self.pod, type_, reason, &note);
    }

    fn record(&mut self, name: &str) -> &mut Record {
        self.records.entry(name.to_owned()).or_default()
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.shared.client.clone(), self.pod.metadata.namespace.as_deref().unwrap_or("default"))
    }

    fn is_on_node_network(&self) -> bool {
        self.pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
    }

    fn hostname(&self) -> String {
        if self.is_on_node_network() {
            return self.shared.config.node_name.clone();
        }
        let named = self.pod.spec.as_ref().and_then(|s| s.hostname.clone()).filter(|h| !h.is_empty());
        let name = named.or_else(|| self.pod.metadata.name.clone()).unwrap_or_default();
        // A host name has at most 63 characters and does not end in a dash.
        name.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned()
    }
}

/// Keeps the conditions that others have written.
fn keep_foreign_conditions(status: &mut PodStatus, fresh: Option<&PodStatus>) {
    const OURS: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let Some(fresh) = fresh.and_then(|s| s.conditions.as_ref()) else { return };
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|c| OURS.contains(&&*c.type_));
    conditions.extend(fresh.iter().filter(|c| !OURS.contains(&&*c.type_)).cloned());
}

impl Run {
    async fn termination_message(&self, code: i32) -> Option<String> {
        let text = tail_of(&self.termination_log).await.unwrap_or_default();
        match (text.is_empty(), self.message_from_logs && code != 0) {
            (false, _) => Some(text),
            (true, true) => Some(self.log.tail(80, 2048).await).filter(|t| !t.is_empty()),
            (true, false) => None,
        }
    }
}

/// Most bytes of a termination message, as in the kubelet.
const MAX_MESSAGE: u64 = 4096;

/// Reads the end of a file that a container may have made as large as it likes.
async fn tail_of(path: &std::path::Path) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncSeekExt};
    let mut file = tokio::fs::File::open(path).await?;
    let length = file.metadata().await?.len();
    file.seek(std::io::SeekFrom::Start(length.saturating_sub(MAX_MESSAGE))).await?;
    let mut bytes = Vec::new();
    file.take(MAX_MESSAGE).read_to_end(&mut bytes).await?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    // Bytes that are no text become longer when they are replaced.
    while text.len() as u64 > MAX_MESSAGE {
        text.pop();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn termination_messages_are_cut_at_4_kib() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let check = async |written: Vec<u8>, expect: usize| {
            std::fs::write(&path, written).unwrap();
            assert_eq!(tail_of(&path).await.unwrap().len(), expect);
        };
        check(b"why\n".to_vec(), 4).await;
        check(vec![b'x'; 1 << 20], 4096).await;
        check(vec![0xff; 5000], 4095).await;
        check("é".repeat(4000).into_bytes(), 4096).await;
        assert!(tail_of(&dir.path().join("none")).await.is_err());
    }
}
