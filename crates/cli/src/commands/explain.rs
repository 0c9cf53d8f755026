//! `manta explain`: says why an object does not run, or why it died.

use crate::connect::{ConnectionArgs, Target};
use crate::explain;
use crate::output::write_stdout;
use crate::program_output;
use crate::records::{RecordsArgs, kept_in, recorded, subject};
use crate::resource::{Kind, Reference, names_hint};
use anyhow::{Context, bail};
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::ListParams;
use manta_operator::dashboard::{Client, Route};
use manta_operator::evidence::{self, Sources};
use manta_operator::records::{Explained, explained, explained_by};
use std::process::ExitCode;

/// Say why a Ray cluster, job, service or cron job does not run, or why it died
///
/// The first line names the cause, the second what to do. Below are the timeline and the logs that belong to it. It only
/// reads, and lists what it may not read. Objects that are gone are explained from the operator's record of them.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    records: RecordsArgs,
    /// What to explain; a name alone may be of any type
    #[arg(value_name = "NAME | TYPE/NAME")]
    resource: String,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    super::run_async(async {
        let explained = match args.records.connect(&args.connection).await? {
            Some(target) => find(&target, &args.records, &args.resource).await?,
            None => find_recorded(&args)?,
        };
        let text = match args.output {
            Format::Text => program_output::quoted(&explain::text(&explained.explanation, explained.recorded)),
            Format::Json => serde_json::to_string_pretty(&explained)? + "\n",
        };
        write_stdout(|out| out.write_all(text.as_bytes()))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Explains what a user names.
async fn find(target: &Target, records: &RecordsArgs, resource: &str) -> anyhow::Result<Explained> {
    if resource.contains('/') {
        let reference: Reference = resource.parse()?;
        return match one(target, records, &reference).await? {
            Some(explained) => Ok(explained),
            None => Err(target.not_found(&reference).await),
        };
    }
    let candidates = candidates(target, records, resource).await?;
    match candidates.as_slice() {
        [] => bail!("nothing called {resource} in namespace {}{}", target.namespace, any_hint(target, resource).await),
        [only] => match one(target, records, only).await? {
            Some(explained) => Ok(explained),
            None => Err(target.not_found(only).await),
        },
        several => {
            let names: Vec<String> = several.iter().map(ToString::to_string).collect();
            bail!("{resource} is ambiguous in namespace {}; use one of: {}", target.namespace, names.join(", "))
        }
    }
}

/// Explains an object that exists, or that left a record.
pub(crate) async fn one(
    target: &Target,
    records: &RecordsArgs,
    reference: &Reference,
) -> anyhow::Result<Option<Explained>> {
    let sources = Sources {
        client: target.client.clone(),
        dashboards: Client::new(target.client.clone(), Route::ApiServerProxy),
        cluster_domain: String::new(),
        workloads: true,
    };
    let (subject, now) = (subject(&target.namespace, reference), Timestamp::now());
    let failed = |error| target.failed(&format!("cannot explain {reference}"), error);
    if records.directory().is_none() {
        return explained(&sources, &subject, now).await.map_err(failed);
    }
    let live = evidence::gather(&sources, &subject, now).await.map_err(failed)?;
    let kept = match &live {
        Some(live) => records.kept(target, &live.subject, &live.cluster_names()).await?,
        None => records.kept(target, &subject, &[]).await?,
    };
    Ok(explained_by(live, &kept))
}

/// Explains an object from the records in a directory alone.
fn find_recorded(args: &Args) -> anyhow::Result<Explained> {
    let directory = args.records.directory().context("records are read from a directory")?;
    let references = match args.resource.contains('/') {
        true => vec![args.resource.parse()?],
        false => Kind::ALL.map(|kind| Reference { kind, name: args.resource.clone() }).to_vec(),
    };
    let subject = recorded(directory, args.connection.given_namespace(), &references)?;
    let explained = explained_by(None, &kept_in(directory, &subject, &[])?);
    explained.with_context(|| format!("the record of {} cannot be read", args.resource))
}

/// Returns the objects of this name that exist; else those that left a record.
async fn candidates(target: &Target, records: &RecordsArgs, name: &str) -> anyhow::Result<Vec<Reference>> {
    let references = Kind::ALL.map(|kind| Reference { kind, name: name.to_owned() });
    let found = existing(target, &references).await?;
    if !found.is_empty() {
        return Ok(found);
    }
    // A user who may not list ConfigMaps has no records.
    let kept = records.summaries(target, Some(&target.namespace)).await.unwrap_or_default();
    let is_kept = |reference: &Reference| {
        kept.iter().any(|summary| summary.kind == reference.kind.name() && summary.name == reference.name)
    };
    Ok(references.into_iter().filter(is_kept).collect())
}

/// Returns those that exist. A type that may not be read is left out, unless all are.
async fn existing(target: &Target, references: &[Reference]) -> anyhow::Result<Vec<Reference>> {
    let get = |reference: &Reference| {
        let (api, name) = (target.ray_api(reference.kind), reference.name.clone());
        async move { api.get_metadata_opt(&name).await }
    };
    let mut found = join_all(references.iter().map(get)).await;
    if found.iter().all(Result::is_err)
        && let Err(error) = found.swap_remove(0)
    {
        return Err(target.failed(&format!("cannot get {}", references[0]), error));
    }
    let pairs = references.iter().zip(found);
    Ok(pairs.filter(|(_, found)| matches!(found, Ok(Some(_)))).map(|(reference, _)| reference.clone()).collect())
}

/// Returns a hint at similar names of any type.
async fn any_hint(target: &Target, name: &str) -> String {
    let list = |kind: Kind| {
        let api = target.ray_api(kind);
        async move {
            let found = api.list_metadata(&ListParams::default()).await.into_iter().flatten();
            found.filter_map(move |object| Some(format!("{}/{}", kind.type_name(), object.metadata.name?))).collect::<Vec<_>>()
        }
    };
    let all: Vec<String> = join_all(Kind::ALL.map(list)).await.concat();
    let names: Vec<String> = all.iter().filter_map(|it| it.split('/').nth(1)).map(str::to_owned).collect();
    names_hint(name, &names)
}
