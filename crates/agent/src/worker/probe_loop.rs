//! Runs the probes of a pod's containers when they are due, and records the results.

use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::events::EventType;

use super::{Event, Worker};
use crate::pod::probe::ProbeKind;
use crate::pod::{self, Record};
use crate::probes::{self, ProbeTarget};
use crate::shared_host::HostPod;

impl Worker {
    /// Starts the probes that are due; returns the time of the next one.
    pub(super) fn run_due_probes(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut wake: Option<Timestamp> = None;
        let mut due = Vec::new();
        for ((name, kind), probing) in &mut self.counters {
            let Some(record) = self.records.get(name).filter(|r| r.is_running() && !r.stopping) else { continue };
            if probing.in_flight || is_blocked(record, *kind) {
                continue;
            }
            if probing.counter.due() <= now {
                probing.in_flight = true;
                let timeout = Duration::try_from(probing.counter.timeout()).unwrap_or(Duration::from_secs(1));
                due.push((name.clone(), *kind, timeout));
            } else {
                wake = Some(wake.map_or(probing.counter.due(), |at| at.min(probing.counter.due())));
            }
        }
        for (name, kind, timeout) in due {
            self.start_probe(name, kind, timeout);
        }
        wake
    }

    fn start_probe(&mut self, name: String, kind: ProbeKind, timeout: Duration) {
        let spec = self.pod.spec.as_ref();
        let container = spec.and_then(|s| pod::container(s, &name));
        let (Some(container), Some(run)) = (container, self.handle.run(&name)) else { return };
        let mut container = container;
        if let (Some(one), Some(ip)) = (&self.shared.config.shared_host, self.ip) {
            (one.adapt)(&mut container, &HostPod::new(&self.shared.agent_id(), ip));
        }
        let Some(probe) = kind.of(&container).cloned() else { return };
        let ip = self.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let target = ProbeTarget { container, ip, inside: run.inside };
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            let answer = probes::probe(&target, &probe, timeout).await;
            let _ = sender.send(Event::Probed { container: name, id: run.id, kind, answer });
        });
    }

    pub(super) fn probed(&mut self, name: &str, id: u64, kind: ProbeKind, answer: Result<(), String>) {
        if self.handle.run(name).is_none_or(|run| run.id != id) {
            return;
        }
        let Some(probing) = self.counters.get_mut(&(name.to_owned(), kind)) else { return };
        probing.in_flight = false;
        let verdict = probing.counter.record(answer.is_ok(), Timestamp::now());
        if let Err(why) = &answer {
            let note = format!("{} probe failed: {}", kind.title(), why.trim_end());
            tracing::debug!(container = name, "{note}");
            if kind != ProbeKind::Readiness || verdict.is_some() {
                self.event(EventType::Warning, "Unhealthy", note);
            }
        }
        let record = self.record(name);
        match (kind, verdict) {
            (_, None) => {}
            (ProbeKind::Startup, Some(true)) => record.started = true,
            (ProbeKind::Readiness, Some(ok)) => record.ready = ok,
            (ProbeKind::Liveness, Some(true)) => {}
            (ProbeKind::Startup | ProbeKind::Liveness, Some(false)) => {
                let title = kind.title().to_lowercase();
                record.unhealthy = Some(format!("Container {name} failed {title} probe, will be restarted"));
            }
        }
    }
}

/// Readiness and liveness probes wait for the startup probe, which runs until it succeeds.
fn is_blocked(record: &Record, kind: ProbeKind) -> bool {
    match kind {
        ProbeKind::Startup => record.started,
        ProbeKind::Readiness | ProbeKind::Liveness => !record.started,
    }
}
