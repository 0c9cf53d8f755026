//! Stops a container: its preStop hook, the stop signal, and SIGKILL after the grace period.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use kube::runtime::events::EventType;

use super::handle::Run;
use super::{Event, Worker};
use crate::exec;
use crate::pod;
use crate::probes::{self, ProbeTarget};

/// The least time between the stop signal and SIGKILL after a preStop hook.
const LEAST_GRACE: Duration = Duration::from_secs(2);

impl Worker {
    pub(super) fn stop_container(&mut self, name: &str, grace: i64, why: &str) {
        self.record(name).stopping = true;
        let Some(run) = self.handle.run(name) else {
            if let Some(start) = self.starting.get(name) {
                start.cancel();
            }
            return;
        };
        self.event(EventType::Normal, "Killing", format!("Stopping container {name}: {why}"));
        let spec = self.pod.spec.as_ref();
        let container = spec.and_then(|s| pod::container(s, name));
        let signal = stop_signal(container.as_ref());
        let ip = self.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let spawner = self.shared.containers.clone();
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        let task = self.tasks.spawn(async move {
            let mut left = grace;
            if !grace.is_zero() {
                let began = tokio::time::Instant::now();
                let lifecycle = container.as_ref().and_then(|c| c.lifecycle.clone());
                if let (Some(hook), Some(container)) = (lifecycle.and_then(|l| l.pre_stop), container) {
                    let target = ProbeTarget { container, ip, inside: run.inside.clone() };
                    if let Ok(Err(why)) = tokio::time::timeout(grace, run_hook(&target, &hook)).await {
                        tracing::info!(%why, "preStop hook failed");
                    }
                    left = grace.saturating_sub(began.elapsed()).max(LEAST_GRACE);
                }
                spawner.kill(run.id, signal);
                tokio::time::sleep(left).await;
            }
            spawner.kill(run.id, nix::libc::SIGKILL);
        });
        // Aborted when the container exits.
        self.stoppers.insert(name.to_owned(), task);
    }

    /// Runs the postStart hook; a failure stops the container.
    pub(super) fn post_start(&mut self, container: &Container, run: &Run) {
        let Some(hook) = container.lifecycle.as_ref().and_then(|l| l.post_start.clone()) else { return };
        let ip = self.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let target = ProbeTarget { container: container.clone(), ip, inside: run.inside.clone() };
        let (sender, id, name) = (self.sender.clone(), run.id, container.name.clone());
        self.tasks.spawn(async move {
            if let Err(why) = run_hook(&target, &hook).await {
                let why = format!("PostStartHook failed: {why}");
                let _ = sender.send(Event::HookFailed { container: name, id, why });
            }
        });
    }
}

async fn run_hook(target: &ProbeTarget, hook: &LifecycleHandler) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let command = action.command.clone().unwrap_or_default();
        let (code, output) = exec::capture(&target.inside, command, 4 << 10).await?;
        return if code == 0 { Ok(()) } else { Err(format!("exit code {code}: {}", output.trim_end())) };
    }
    if let Some(action) = &hook.http_get {
        return probes::http_get(target, action, Duration::from_secs(30)).await;
    }
    if let Some(action) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or_default())).await;
    }
    Ok(())
}

fn stop_signal(container: Option<&Container>) -> i32 {
    let named = container.and_then(|c| c.lifecycle.as_ref()).and_then(|l| l.stop_signal.as_deref());
    named.and_then(|name| name.parse::<nix::sys::signal::Signal>().ok()).map_or(nix::libc::SIGTERM, |s| s as i32)
}
