//! RayJobs in InteractiveMode: the operator makes the cluster, and this program submits the job to it.

use super::{Dashboard, Job};
use crate::connect::Target;
use crate::output::print_note;
use crate::resource::{Kind, Reference};
use crate::wait::{self, Waited};
use anyhow::{Context, bail};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::Value;
use std::time::Duration;

/// The characters of submission ids: those that are not mistaken for one another.
const ID_CHARACTERS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz123456789";
const ID_LENGTH: usize = 16;
/// How long the operator may take to name the cluster of a RayJob.
const NAME_TIMEOUT: Duration = Duration::from_secs(60);

/// A RayJob whose cluster this program uses.
#[derive(Clone)]
pub(crate) struct Interactive {
    pub(crate) reference: Reference,
}

/// How far a submission has come: what to clean up after an interrupt.
#[derive(Default)]
pub(crate) struct Started {
    /// The RayJob that was created for it.
    pub(crate) rayjob: Option<Interactive>,
    pub(crate) dashboard: Option<Dashboard>,
    /// Whether the job has been handed to Ray.
    pub(crate) is_submitted: bool,
}

impl Started {
    /// Leaves nothing behind after an interrupt: stops a submitted job, deletes a RayJob that has none.
    pub(crate) async fn abandon(&self, target: &Target, id: &str) -> anyhow::Result<()> {
        match (&self.dashboard, &self.rayjob) {
            (Some(dashboard), _) if self.is_submitted => {
                print_note(&format!("stopping job {id}"));
                Ok(Job::new(&dashboard.address, id, dashboard.token.clone()).stop().await?)
            }
            (_, Some(rayjob)) => {
                print_note(&format!("deleting {}", rayjob.reference));
                rayjob.delete(target).await
            }
            _ => Ok(()),
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
    pub(crate) async fn create(target: &Target, object: Value) -> anyhow::Result<Self> {
        let object: DynamicObject = serde_json::from_value(object).context("the file holds no RayJob")?;
        let made = target.ray_api(Kind::Job).create(&PostParams::default(), &object).await;
        let made = made.map_err(|error| target.failed("cannot create the RayJob", error))?;
        let name = made.metadata.name.context("the RayJob has no name")?;
        Ok(Self { reference: Reference { kind: Kind::Job, name } })
    }

    /// Applies a RayJob that was made from flags.
    pub(crate) async fn apply(target: &Target, manager: &str, object: &Value) -> anyhow::Result<Self> {
        let name = object["metadata"]["name"].as_str().context("the RayJob has no name")?.to_owned();
        let api = target.ray_api(Kind::Job);
        let existing = api.get_opt(&name).await.map_err(|error| target.failed("cannot look for the RayJob", error))?;
        if existing.is_some() {
            bail!("the RayJob {name} in namespace {} already exists", target.namespace);
        }
        let applied = api.patch(&name, &PatchParams::apply(manager), &Patch::Apply(object)).await;
        applied.map_err(|error| target.failed(&format!("cannot create the RayJob {name}"), error))?;
        Ok(Self { reference: Reference { kind: Kind::Job, name } })
    }

    /// Waits until the cluster of the RayJob is ready. `None` if the time is over.
    pub(crate) async fn until_ready(&self, target: &Target, timeout: Duration) -> anyhow::Result<Option<Reference>> {
        let named = wait::until(target, &self.reference, Some(NAME_TIMEOUT), |job| {
            check_deployment(&self.reference, job)?;
            let name = job.data["status"]["rayClusterName"].as_str().filter(|name| !name.is_empty());
            Ok(name.map(str::to_owned))
        });
        let name = match named.await? {
            Waited::Done(name) => name,
            Waited::TimedOut => bail!(
                "{} got no Ray cluster within {} s; is the operator running?",
                self.reference,
                NAME_TIMEOUT.as_secs()
            ),
        };
        let cluster = Reference { kind: Kind::Cluster, name };
        let ready = wait::until(target, &cluster, Some(timeout), |object| {
            let status = &object.data["status"];
            let has_head = status["head"]["serviceName"].as_str().is_some_and(|name| !name.is_empty());
            Ok((status["state"] == "ready" && has_head).then_some(()))
        });
        match ready.await? {
            Waited::Done(()) => Ok(Some(cluster)),
            Waited::TimedOut => Ok(None),
        }
    }

    pub(crate) async fn delete(&self, target: &Target) -> anyhow::Result<()> {
        let deleted = target.ray_api(Kind::Job).delete(&self.reference.name, &DeleteParams::default()).await;
        deleted.map(drop).map_err(|error| target.failed(&format!("cannot delete {}", self.reference), error))
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
mod tests {
    use super::*;

    #[test]
    fn ids_have_no_characters_that_look_alike() {
        let ids: Vec<String> = (0..100).map(|_| generate_id().unwrap()).collect();
        for id in &ids {
            let random = id.strip_prefix("raysubmit_").unwrap();
            assert_eq!(random.len(), 16);
            assert!(!random.contains(['I', 'l', 'O', '0', 'o']), "{id}");
        }
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
