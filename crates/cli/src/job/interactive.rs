//! RayJobs in InteractiveMode: the operator makes the cluster, and this program submits the job to it.

use super::{Dashboard, Job};
use crate::connect::Target;
use crate::output::print_note;
use crate::resource::{Kind, Reference};
use crate::signals::StopSignals;
use crate::wait::{self, Waited};
use anyhow::{Context, anyhow, bail};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use manta_operator::dashboard::jobs::JobError;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// The characters of submission ids: those that are not mistaken for one another.
const ID_CHARACTERS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz123456789";
const ID_LENGTH: usize = 16;
/// How long the operator may take to name the cluster of a RayJob.
const NAME_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for the answer to a request that creates or deletes something. Clients have no limit of their own.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A RayJob whose cluster this program uses.
#[derive(Clone)]
pub(crate) struct Interactive {
    pub(crate) reference: Reference,
}

/// How far a submission has come: what to clean up if it goes no further.
pub(crate) struct Started {
    id: String,
    interrupts: BoxStream<'static, ()>,
    patience: Patience,
    /// The RayJob that was created for it, or may have been.
    rayjob: Option<Interactive>,
    /// Its job, and what keeps the way there open.
    job: Option<(Job, Dashboard)>,
    submission: Submission,
}

/// Whether Ray has the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Submission {
    No,
    /// The answer to the request got lost.
    Unknown,
    Yes,
}

/// Whether the user has interrupted the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Waits,
    /// Once: clean up, then exit.
    Interrupted,
    /// A second time: exit at once.
    Gone,
}

/// The user has interrupted the command.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Started {
    /// Begins a submission with this id; interrupts are caught from now on.
    pub(crate) fn begin(id: &str) -> anyhow::Result<Self> {
        let signals = stream::unfold(StopSignals::listen()?, async |mut signals| {
            signals.recv().await;
            Some(((), signals))
        });
        Ok(Self::interrupted_by(id, signals.boxed()))
    }

    fn interrupted_by(id: &str, interrupts: BoxStream<'static, ()>) -> Self {
        let (rayjob, job, submission) = (None, None, Submission::No);
        Self { id: id.to_owned(), interrupts, patience: Patience::Waits, rayjob, job, submission }
    }

    /// Waits for something that creates nothing, until it is done or the user interrupts.
    pub(crate) async fn unless_interrupted<T>(
        &mut self,
        step: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        if self.patience != Patience::Waits {
            return Err(Interrupted.into());
        }
        tokio::select! {
            done = step => done,
            Some(()) = self.interrupts.next() => {
                self.patience = Patience::Interrupted;
                Err(Interrupted.into())
            }
        }
    }

    /// Waits for the answer to a request that creates or deletes something, also after an interrupt, because only the
    /// answer says what there is to clean up. Gives up after a while, and when the user interrupts once more.
    async fn until_answered<T>(&mut self, request: impl Future<Output = T>) -> anyhow::Result<T> {
        let timeout = tokio::time::sleep(ANSWER_TIMEOUT);
        tokio::pin!(request, timeout);
        loop {
            tokio::select! {
                done = &mut request => return Ok(done),
                () = &mut timeout => return Err(anyhow!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
                Some(()) = self.interrupts.next() => {
                    if self.patience != Patience::Waits {
                        self.patience = Patience::Gone;
                        return Err(Interrupted.into());
                    }
                    self.patience = Patience::Interrupted;
                    print_note("interrupted; waiting for an answer, to clean up; interrupt again to exit at once");
                }
            }
        }
    }

    /// Submits a job through a dashboard, which stays open.
    pub(crate) async fn submit(&mut self, job: &Job, dashboard: Dashboard, body: &Value) -> anyhow::Result<()> {
        self.job = Some((job.clone(), dashboard));
        self.submission = Submission::Unknown;
        let answer = self.until_answered(job.submit(body)).await?;
        self.submission = match &answer {
            Ok(_) => Submission::Yes,
            Err(JobError::Request(_)) => Submission::Unknown,
            Err(_) => Submission::No,
        };
        Ok(answer.map(drop)?)
    }

    /// Leaves nothing behind: deletes a RayJob whose job was not submitted, and stops a submitted job after an interrupt.
    /// Prints what it does, and what fails.
    pub(crate) async fn clean_up(&mut self, target: &Target, why: &anyhow::Error) {
        let stops = match self.submission {
            Submission::Yes if why.is::<Interrupted>() => true,
            Submission::Yes => return,
            // It ends with the cluster of its RayJob.
            Submission::Unknown => self.rayjob.is_none(),
            Submission::No => false,
        };
        let (job, rayjob, id) = (self.job.as_ref().map(|(job, _)| job.clone()), self.rayjob.clone(), self.id.clone());
        let (what, step) = match (job, rayjob) {
            (Some(job), _) if stops => {
                let stop = async move { job.stop().await.map_err(anyhow::Error::from) };
                (format!("stopping job {id}"), stop.boxed())
            }
            (_, Some(rayjob)) => {
                let what = format!("deleting {}", rayjob.reference);
                (what, async move { rayjob.delete(target, &id).await }.boxed())
            }
            _ => return,
        };
        let cleaned = match self.patience {
            Patience::Gone => Err(anyhow!("exiting without {what}")),
            Patience::Waits | Patience::Interrupted => {
                print_note(&what);
                // The next interrupt is one too many.
                self.patience = Patience::Interrupted;
                self.until_answered(step).await.flatten()
            }
        };
        if let Err(error) = cleaned {
            print_note(&format!("warning: something may be left behind: {error:#}"));
        }
    }
}

/// Returns a new submission id, as Ray makes them.
pub(crate) fn generate_id() -> anyhow::Result<String> {
    let mut id = "raysubmit_".to_owned();
    while id.len() < "raysubmit_".len() + ID_LENGTH {
        let mut byte = [0];
        getrandom::fill(&mut byte).context("there is no source of random numbers")?;
        // Numbers beyond the last multiple would make some characters more likely than others.
        let limit = 256 / ID_CHARACTERS.len() * ID_CHARACTERS.len();
        if usize::from(byte[0]) < limit {
            id.push(char::from(ID_CHARACTERS[usize::from(byte[0]) % ID_CHARACTERS.len()]));
        }
    }
    Ok(id)
}

impl Interactive {
    /// Creates a RayJob from a file.
    pub(crate) async fn create(target: &Target, object: Value, started: &mut Started) -> anyhow::Result<Self> {
        let object: DynamicObject = serde_json::from_value(object).context("the file holds no RayJob")?;
        started.rayjob = object.metadata.name.clone().map(Self::named);
        let api = target.ray_api(Kind::Job);
        let made = started.until_answered(api.create(&PostParams::default(), &object)).await;
        let made = made.context("cannot create the RayJob")?;
        if let Err(kube::Error::Api(_)) = &made {
            started.rayjob = None;
        }
        let made = made.map_err(|error| target.failed("cannot create the RayJob", error))?;
        let rayjob = Self::named(made.metadata.name.context("the RayJob has no name")?);
        started.rayjob = Some(rayjob.clone());
        Ok(rayjob)
    }

    /// Applies a RayJob that was made from flags.
    pub(crate) async fn apply(
        target: &Target,
        manager: &str,
        object: &Value,
        started: &mut Started,
    ) -> anyhow::Result<Self> {
        let name = object["metadata"]["name"].as_str().context("the RayJob has no name")?.to_owned();
        let api = target.ray_api(Kind::Job);
        let existing = started.unless_interrupted(async {
            api.get_opt(&name).await.map_err(|error| target.failed("cannot look for the RayJob", error))
        });
        let existing = existing.await?;
        if existing.is_some() {
            bail!("the RayJob {name} in namespace {} already exists", target.namespace);
        }
        let rayjob = Self::named(name.clone());
        started.rayjob = Some(rayjob.clone());
        let (params, patch) = (PatchParams::apply(manager), Patch::Apply(object));
        let applied = started.until_answered(api.patch(&name, &params, &patch)).await;
        let applied = applied.with_context(|| format!("cannot create the RayJob {name}"))?;
        if let Err(kube::Error::Api(_)) = &applied {
            started.rayjob = None;
        }
        applied.map_err(|error| target.failed(&format!("cannot create the RayJob {name}"), error))?;
        Ok(rayjob)
    }

    fn named(name: String) -> Self {
        Self { reference: Reference { kind: Kind::Job, name } }
    }

    /// Waits until the cluster of the RayJob is ready. `None` if the time is over.
    pub(crate) async fn until_ready(&self, target: &Target, timeout: Duration) -> anyhow::Result<Option<Reference>> {
        let naming = timeout.min(NAME_TIMEOUT);
        let named = wait::until(target, &self.reference, Some(naming), |job| {
            check_deployment(&self.reference, job)?;
            let name = job.data["status"]["rayClusterName"].as_str().filter(|name| !name.is_empty());
            Ok(name.map(str::to_owned))
        });
        let name = match named.await? {
            Waited::Done(name) => name,
            Waited::TimedOut => {
                bail!("{} got no Ray cluster within {naming:?}; is the operator running?", self.reference)
            }
        };
        let cluster = Reference { kind: Kind::Cluster, name };
        // The operator writes down the name before it creates the cluster.
        let ready = wait::until_created(target, &cluster, Some(timeout), |object| {
            let status = &object.data["status"];
            let has_head = status["head"]["serviceName"].as_str().is_some_and(|name| !name.is_empty());
            Ok((status["state"] == "ready" && has_head).then_some(()))
        });
        match ready.await? {
            Waited::Done(()) => Ok(Some(cluster)),
            Waited::TimedOut => Ok(None),
        }
    }

    /// Deletes the RayJob if it is the one of this submission; that it does not exist is success.
    async fn delete(&self, target: &Target, id: &str) -> anyhow::Result<()> {
        let (api, name) = (target.ray_api(Kind::Job), &self.reference.name);
        let found =
            api.get_opt(name).await.map_err(|error| target.failed(&format!("cannot get {}", self.reference), error))?;
        let Some(found) = found.filter(|found| found.data["spec"]["jobId"] == id) else { return Ok(()) };
        let only = Preconditions { uid: found.metadata.uid, resource_version: None };
        match api.delete(name, &DeleteParams::default().preconditions(only)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(target.failed(&format!("cannot delete {}", self.reference), error)),
        }
    }
}

/// Fails if the operator has given the RayJob up.
fn check_deployment(reference: &Reference, job: &DynamicObject) -> anyhow::Result<()> {
    let status = &job.data["status"];
    let state = status["jobDeploymentStatus"].as_str().unwrap_or_default();
    if matches!(state, "Failed" | "ValidationFailed") {
        bail!("{reference} is {state}: {}", status["message"].as_str().unwrap_or("no message"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
