//! `manta job`: submits, lists, follows and stops Ray jobs.

mod list;
mod logs;
mod stop;
mod submit;

use crate::connect::{ConnectionArgs, Target};
use crate::head;
use crate::job::{Dashboard, Job};
use crate::resource::{Kind, Reference};
use crate::records::RecordsArgs;
use anyhow::{Context, anyhow, ensure};
use kube::api::DynamicObject;
use serde_json::Value;
use std::process::ExitCode;

/// Submit, list, follow and stop Ray jobs
#[derive(clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Submit(Box<submit::Args>),
    List(list::Args),
    Logs(logs::Args),
    Stop(stop::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { connection, command } = args;
    super::run_async(async {
        match command {
            Command::Submit(args) => submit::run(&connection, *args).await,
            Command::List(args) => list::run(&connection, args).await,
            Command::Logs(args) => logs::run(&connection, args).await,
            Command::Stop(args) => stop::run(&connection, args).await,
        }
    })
}

/// Names a job: a RayJob, or a job of a Ray cluster.
#[derive(clap::Args, Clone, Debug)]
struct JobName {
    /// Name of a RayJob, or with --ray-cluster the id of a job
    #[arg(value_name = "NAME")]
    name: String,
    /// Ray cluster that runs the job
    #[arg(short = 'c', long, value_name = "NAME")]
    ray_cluster: Option<String>,
}

impl JobName {
    /// Returns the job, reached through its cluster, which the dashboard keeps open.
    async fn reach(&self, target: &Target) -> anyhow::Result<(Dashboard, Job)> {
        let (reference, id) = match &self.ray_cluster {
            Some(cluster) => (Reference { kind: Kind::Cluster, name: cluster.clone() }, self.name.clone()),
            None => {
                let reference = rayjob(&self.name)?;
                let object = existing(target, &reference).await?;
                let cluster = head::cluster_of(&reference, &object.data)?;
                check_cluster(target, &reference, &cluster).await?;
                (reference, job_id(&object.data).with_context(|| format!("{} has not been submitted yet", self.name))?)
            }
        };
        let dashboard = Dashboard::reach(target, &reference).await?;
        let job = Job::new(&dashboard.address, &id, dashboard.token.clone());
        Ok((dashboard, job))
    }
}

/// Reads the name of a RayJob, with or without its type.
fn rayjob(name: &str) -> anyhow::Result<Reference> {
    let reference = if name.contains('/') { name.parse()? } else { Reference { kind: Kind::Job, name: name.to_owned() } };
    ensure!(reference.kind == Kind::Job, "{name} is not a RayJob; for a job on a cluster, give its id and -c CLUSTER");
    Ok(reference)
}

/// Returns a RayJob, or an error that leads to what is left of it.
async fn existing(target: &Target, rayjob: &Reference) -> anyhow::Result<DynamicObject> {
    let found = target.ray_api(Kind::Job).get_opt(&rayjob.name).await;
    if let Some(object) = found.map_err(|error| target.failed(&format!("cannot get {rayjob}"), error))? {
        return Ok(object);
    }
    // Who may not list ConfigMaps has no records.
    let kept = RecordsArgs::default().summaries(target, Some(&target.namespace)).await.unwrap_or_default();
    let is_kept = kept.iter().any(|record| record.kind == rayjob.kind.name() && record.name == rayjob.name);
    if is_kept { Err(gone(&rayjob.to_string(), rayjob)) } else { Err(target.not_found(rayjob).await) }
}

/// Fails if the cluster of a RayJob is gone, and what Ray knew of the job with it.
async fn check_cluster(target: &Target, rayjob: &Reference, cluster: &str) -> anyhow::Result<()> {
    match target.ray_api(Kind::Cluster).get_metadata_opt(cluster).await {
        Ok(None) => Err(gone(&format!("the Ray cluster {cluster} of {rayjob}"), rayjob)),
        // Without the right to look, the dashboard tells.
        Ok(Some(_)) | Err(_) => Ok(()),
    }
}

fn gone(what: &str, rayjob: &Reference) -> anyhow::Error {
    anyhow!(
        "{what} no longer exists; manta logs {rayjob} prints the last lines that the operator kept, and manta explain \
         {rayjob} says how it ended"
    )
}

fn job_id(rayjob: &Value) -> Option<String> {
    rayjob["status"]["jobId"].as_str().filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Returns the exit code of a command for a job that ended like this.
fn exit_code(status: &str, driver: Option<i32>) -> ExitCode {
    match (status, driver) {
        ("SUCCEEDED", _) => ExitCode::SUCCESS,
        // A driver that was killed by a signal has a negative code, as shells' are 128 and more.
        (_, Some(code @ ..=-1)) => ExitCode::from(u8::try_from(128_i32.saturating_sub(code)).unwrap_or(1)),
        (_, Some(code @ 1..)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use axum::response::IntoResponse;
    use serde_json::json;

    #[tokio::test]
    async fn a_job_whose_cluster_is_gone_leads_to_its_record() {
        let answer = |uri: Uri| async move {
            match uri.path() {
                "/apis/ray.io/v1/namespaces/ns/rayjobs/train" => axum::Json(json!({
                    "metadata": {"name": "train"}, "status": {"jobId": "id", "rayClusterName": "train-x"},
                }))
                .into_response(),
                "/api/v1/namespaces/ns/configmaps" => {
                    let annotations = json!({"post-mortem.ray.io/kind": "RayJob", "post-mortem.ray.io/name": "old"});
                    let record = json!({"metadata": {"name": "record", "namespace": "ns", "annotations": annotations}});
                    axum::Json(json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": [record]}))
                        .into_response()
                }
                _ => {
                    let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"});
                    (StatusCode::NOT_FOUND, axum::Json(status)).into_response()
                }
            }
        };
        let client = kube::Client::new(Router::new().fallback(answer), "ns");
        let target = Target { client, namespace: "ns".to_owned(), context: None, url: String::new() };
        let check = async |name: &str, expect: &str| {
            let job = JobName { name: name.to_owned(), ray_cluster: None };
            let error = job.reach(&target).await.map(drop).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{name}: {error}");
        };
        check("train", "the Ray cluster train-x of rayjob/train no longer exists; manta logs rayjob/train prints").await;
        check("rayjob/old", "rayjob/old no longer exists; manta logs rayjob/old prints").await;
        check("other", "Ray job other not found in namespace ns").await;
    }

    #[test]
    fn only_rayjobs_are_taken_by_name() {
        let check = |name: &str, expect: Result<&str, &str>| {
            let got = rayjob(name).map(|reference| reference.name).map_err(|error| error.to_string());
            match (got, expect) {
                (Ok(got), Ok(expect)) => assert_eq!(got, expect, "{name}"),
                (Err(got), Err(expect)) => assert!(got.starts_with(expect), "{name}: {got}"),
                (got, _) => panic!("{name}: {got:?}"),
            }
        };
        check("x", Ok("x"));
        check("rayjob/x", Ok("x"));
        check("job/x", Ok("x"));
        check("rayservice/x", Err("rayservice/x is not a RayJob"));
        check("raycluster/x", Err("raycluster/x is not a RayJob"));
        check("pod/x", Err("unsupported resource type pod"));
    }

    #[test]
    fn the_exit_code_is_the_jobs() {
        let check = |status: &str, driver: Option<i32>, expect: u8| {
            assert_eq!(exit_code(status, driver), ExitCode::from(expect), "{status} {driver:?}");
        };
        check("SUCCEEDED", Some(0), 0);
        check("FAILED", Some(3), 3);
        check("FAILED", Some(-9), 137);
        check("FAILED", Some(0), 1);
        check("FAILED", Some(1000), 1);
        check("FAILED", None, 1);
        check("STOPPED", None, 1);
    }
}
