//! One round: things happen, operators die, and at the end everything is as it should be, and then gone.

use super::front::{Front, kubeconfig, listen};
use super::plan::{Event, Round, Server};
use super::process::Operator;
use super::report::Report;
use super::{Stage, front};
use crate::checker::Answer;
use crate::script::Act;
use crate::users::NAMESPACE;
use anyhow::{Context, Result, bail};
use http::Request;
use kube::Client;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// How often the round looks at the clock and at its operators.
const TICK: Duration = Duration::from_millis(50);
/// How often services are asked.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);
/// How long what users do may take; the API server may be away.
const ACT_TIMEOUT: Duration = Duration::from_secs(60);
/// Within this time after the last fault everything must be as the specs ask.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often users delete what they find, at the end.
const DELETION_INTERVAL: Duration = Duration::from_secs(5);

/// Plays a round to its end.
///
/// # Errors
///
/// If an invariant does not hold.
pub(super) async fn play(stage: &Stage, round: &Round, report: &mut Report) -> Result<()> {
    let count = if round.elected { 2 } else { 1 };
    let mut crew =
        Crew { stage, fronts: Vec::new(), operators: Vec::new(), asked: Instant::now(), _serving: Vec::new() };
    for number in 0..count {
        crew.enlist(number, round.elected).await?;
    }
    let undisturbed = round.is_undisturbed();
    let killed = report.kills;
    let played = crew.play(round, undisturbed, report).await;
    report.kills = killed + crew.operators.iter().map(|operator| operator.kills()).sum::<u64>();
    crew.operators.iter().for_each(|operator| operator.stop());
    played?;
    match crew.operators.iter().find_map(|operator| operator.panic()) {
        Some(panic) => bail!("an operator panicked: {panic}"),
        None => Ok(()),
    }
}

/// The operators of a round, with their fronts.
struct Crew<'a> {
    stage: &'a Stage,
    fronts: Vec<Front>,
    operators: Vec<Arc<Operator>>,
    /// When services were last asked.
    asked: Instant,
    _serving: Vec<AbortOnDropHandle<()>>,
}

impl Crew<'_> {
    async fn enlist(&mut self, number: usize, elected: bool) -> Result<()> {
        let stage = self.stage;
        let name = format!("operator-{number}");
        let (folder, ca) = {
            let plane = stage.plane.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            (plane.folder().to_owned(), plane.folder().join("ca.crt"))
        };
        let (listener, address) = listen().await?;
        let config = folder.join(format!("{name}.front"));
        std::fs::write(&config, kubeconfig(address, &ca))
            .with_context(|| format!("cannot write {}", config.display()))?;
        let mut command = Command::new(&stage.manta);
        command.arg("operator").arg("--kubeconfig").arg(config).env("HOSTNAME", &name);
        command.args(["--metrics-addr=0", "--health-probe-bind-address=0", "--use-kubernetes-proxy"]);
        command.args(["--feature-gates=RayCronJob=true", &format!("--watch-namespace={NAMESPACE}")]);
        command
            .args([format!("--enable-leader-election={elected}"), format!("--leader-election-namespace={NAMESPACE}")]);
        let operator = Arc::new(Operator::new(&name, command, &folder, stage.transcript.clone()));
        let front = Front::new(stage.backend.clone(), Arc::clone(&operator));
        self._serving.push(AbortOnDropHandle::new(tokio::spawn(front.clone().serve(listener))));
        self.fronts.push(front);
        self.operators.push(operator);
        Ok(())
    }

    async fn play(&mut self, round: &Round, undisturbed: bool, report: &mut Report) -> Result<()> {
        let start = Instant::now();
        let mut under_way = JoinSet::new();
        for (at, event) in &round.events {
            self.pass_time(start + Duration::from_millis(*at), undisturbed, report).await?;
            self.stage.transcript.line("world", format!("{event:?}"));
            report.count(event);
            self.happen(event, &mut under_way);
        }
        // Outages are over before anything is expected.
        while !under_way.is_empty() {
            self.pass_time(Instant::now() + TICK, undisturbed, report).await?;
            while let Some(ended) = under_way.try_join_next() {
                ended??;
            }
        }
        self.fronts.iter().for_each(Front::spare);
        self.stage.users.suspend_cron_jobs().await;
        self.stage.transcript.line("world", "faults are over");
        let over = Instant::now();
        self.until(|crew| crew.unsettled(round.rest), undisturbed, report).await?;
        report.slowest = report.slowest.max(over.elapsed().saturating_sub(round.rest));
        self.stage.transcript.line("world", "everything is as it should be");
        self.delete_everything(report).await
    }

    /// Starts what happens. It may take a while, as things do when a server is away.
    fn happen(&self, event: &Event, under_way: &mut JoinSet<Result<()>>) {
        let stage = self.stage;
        match event.clone() {
            Event::Act(Act::FailPod(number)) => {
                let (users, kubelet) = (stage.users.clone(), stage.kubelet.clone());
                under_way.spawn(limited(async move {
                    until_ready(&users.client).await;
                    if let Some(pod) = users.pod(number).await {
                        kubelet.fail(&pod).await;
                    }
                }));
            }
            Event::Act(Act::Silence(seconds)) => {
                stage.backend.ray.silence(Instant::now() + Duration::from_secs(seconds.into()));
            }
            Event::Act(Act::Amnesia) => stage.backend.ray.forget(),
            Event::Act(act) => {
                let users = stage.users.clone();
                under_way.spawn(limited(async move {
                    until_ready(&users.client).await;
                    users.act(&act).await;
                }));
            }
            Event::Kill { operator, moment, down } => self.fronts[operator].kill(moment, Duration::from_millis(down)),
            Event::Pause { operator, seconds } => {
                let operator = Arc::clone(&self.operators[operator]);
                under_way.spawn(async move {
                    operator.pause();
                    sleep(Duration::from_secs(seconds)).await;
                    operator.resume();
                    Ok(())
                });
            }
            Event::Terminate { operator } => {
                let operator = Arc::clone(&self.operators[operator]);
                under_way.spawn(async move { tokio::task::spawn_blocking(move || operator.terminate()).await? });
            }
            Event::Stop { server, seconds } => {
                let (plane, seconds) = (Arc::clone(&stage.plane), Duration::from_secs(seconds));
                under_way.spawn(Stage::with_plane(plane, move |plane| {
                    match server {
                        Server::ApiServer => plane.stop_apiserver()?,
                        Server::Etcd => plane.stop_etcd()?,
                    }
                    std::thread::sleep(seconds);
                    match server {
                        Server::ApiServer => plane.start_apiserver(),
                        Server::Etcd => plane.start_etcd(),
                    }
                }));
            }
        }
    }

    /// Lets time pass, in which operators are started again and services are asked.
    async fn pass_time(&mut self, moment: Instant, undisturbed: bool, report: &mut Report) -> Result<()> {
        loop {
            self.stage.check()?;
            self.operators.iter().try_for_each(|operator| operator.keep_running())?;
            if self.asked.elapsed() >= REQUEST_INTERVAL {
                self.asked = Instant::now();
                self.ask_services(undisturbed, report);
            }
            if Instant::now() >= moment {
                return Ok(());
            }
            tokio::time::sleep_until(moment.min(Instant::now() + TICK)).await;
        }
    }

    fn ask_services(&self, undisturbed: bool, report: &mut Report) {
        let checker = &self.stage.backend.checker;
        for service in ["s0", "s1"] {
            match checker.request(service, undisturbed) {
                Answer::NotServing => {}
                Answer::Answered => report.requests.answered += 1,
                Answer::Failed if undisturbed => checker.request_failed(service),
                Answer::Failed => report.requests.interrupted += 1,
            }
        }
    }

    /// Returns what is not yet as it should be.
    fn unsettled(&self, rest: Duration) -> Option<String> {
        let wrong = self.stage.backend.checker.unsettled();
        wrong.or_else(|| {
            let front::Writes { last, .. } = *self.stage.backend.writes();
            (last.elapsed() < rest).then(|| "operators still write".to_owned())
        })
    }

    async fn delete_everything(&mut self, report: &mut Report) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.stage.users.delete_everything().await;
            let again = Instant::now() + DELETION_INTERVAL;
            while Instant::now() < again {
                self.pass_time(Instant::now() + REQUEST_INTERVAL, false, report).await?;
                if self.stage.left().is_empty() {
                    return Ok(());
                }
            }
        }
        bail!("left over {} s after everything was deleted: {:?}", PATIENCE.as_secs(), self.stage.left())
    }

    /// Waits until nothing is wrong any more.
    async fn until(
        &mut self,
        wrong: impl Fn(&Self) -> Option<String>,
        undisturbed: bool,
        report: &mut Report,
    ) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while let Some(wrong) = wrong(self) {
            if Instant::now() > end {
                bail!("{} s after the last fault: {wrong}", PATIENCE.as_secs());
            }
            self.pass_time(Instant::now() + REQUEST_INTERVAL, undisturbed, report).await?;
        }
        Ok(())
    }
}

/// Waits until the API server is ready: users try again.
async fn until_ready(client: &Client) {
    let ready =
        async || client.request_text(Request::get("/readyz").body(Vec::new())?).await.map_err(anyhow::Error::from);
    while ready().await.is_err() {
        sleep(REQUEST_INTERVAL).await;
    }
}

/// Gives up what takes too long.
async fn limited(work: impl Future<Output = ()>) -> Result<()> {
    // A request of a user that hangs is lost, as any other.
    let _ = timeout(ACT_TIMEOUT, work).await;
    Ok(())
}
