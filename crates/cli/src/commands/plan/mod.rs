//! `manta plan`: shows what the operator would do, without doing it.

mod diff;
mod render;
mod settings;

use crate::connect::{ConnectionArgs, Target};
use crate::manifests;
use crate::output::{print_note, write_stdout};
use crate::resource::Reference;
use crate::table::Style;
use anyhow::{Context, bail};
use jiff::Timestamp;
use manta_cli::lint::{Finding, Linter, Severity};
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::config::Platform;
use manta_operator::preview::{Cluster, Preview, PreviewError, Scope, preview, ray_object};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code that says that the operator would change something.
const CHANGES: u8 = 2;

/// Show what the operator would do: every create, replace, patch and delete, with its reason
///
/// Reads the cluster and writes nothing. Shows what follows until a Pod, Ray or a user does something: Ray is not asked,
/// and statuses are left out. Names with a random suffix come out differently when the operator draws them. The settings
/// are those of the operator's Deployment in the cluster, or of the operator's flags after --.
///
/// Exits with 0 if there is nothing to do, 2 if there is, and 1 if it cannot be determined.
#[derive(clap::Args)]
#[command(override_usage = "manta plan [OPTIONS] <CLUSTER | TYPE/NAME>... [-- <OPERATOR FLAGS>...]
       manta plan [OPTIONS] -f <FILE>... [-- <OPERATOR FLAGS>...]
       manta plan [OPTIONS] --all [-- <OPERATOR FLAGS>...]")]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Names of Ray clusters, or TYPE/NAME
    #[arg(value_name = "CLUSTER | TYPE/NAME", required_unless_present_any = ["filename", "all"])]
    resources: Vec<Reference>,
    /// Manifests to plan for as if they were applied: files, directories, or - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["resources", "all"])]
    filename: Vec<PathBuf>,
    /// Plan the manifests for a cluster that is empty, without asking one
    #[arg(long, requires = "filename")]
    empty: bool,
    /// Plan for all Ray objects that the operator watches, or of the namespace given with -n: a take-over or an upgrade of the
    /// operator
    #[arg(long, conflicts_with = "resources")]
    all: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "diff")]
    output: Format,
    /// Flags of the operator, such as --feature-gates=RayCronJob=false
    #[arg(last = true, value_name = "OPERATOR FLAGS")]
    flags: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// A unified diff of every object, as kubectl diff prints
    Diff,
    /// One line per change
    Summary,
    /// A JSON object with changes, pods, warnings and waiting
    Json,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    super::run_async(async {
        let preview = match args.empty {
            true => args.plan_for_empty().await?,
            false => args.plan_for_live().await?,
        };
        print(&preview, args.output)?;
        if !preview.unreadable.is_empty() {
            let sources = preview.unreadable.iter().map(|source| format!("\n  {}: {}", source.what, source.why));
            bail!("the plan is not complete, because these could not be read:{}", sources.collect::<String>());
        }
        Ok(if preview.changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(CHANGES) })
    })
}

impl Args {
    async fn plan_for_empty(&self) -> anyhow::Result<Preview> {
        let mut found = settings::from_flags(&self.flags)?;
        // What the manifests need is taken to be installed; OpenShift is not.
        found.config.platform =
            Platform { cert_manager: true, gateway_api: true, workload_api: true, ..Platform::default() };
        let namespace = self.connection.given_namespace().unwrap_or("default");
        let manifests = read_manifests(&self.filename, namespace)?;
        let scope = Scope::Objects(ray_objects(&manifests, namespace)?);
        let cluster = Cluster::Objects(Vec::new());
        Ok(preview(&cluster, &found.config, scope, manifests, Timestamp::now()).await?)
    }

    async fn plan_for_live(&self) -> anyhow::Result<Preview> {
        let target = self.connection.connect().await?;
        let manifests = read_manifests(&self.filename, &target.namespace)?;
        let mut found = match (self.flags.as_slice(), self.connection.is_local()) {
            ([], false) => settings::of_cluster(&target).await?,
            (flags, _) => settings::from_flags(flags)?,
        };
        if self.flags.is_empty() && !self.connection.is_local() {
            print_note(&format!("with the settings of {}", found.origin));
        }
        found.config.platform = detect_platform(&target).await?;
        let (scope, namespaces) = self.scope(&target, &manifests, found.namespaces).await?;
        let cluster = Cluster::Live { client: target.client.clone(), namespaces };
        let previewed = preview(&cluster, &found.config, scope, manifests, Timestamp::now()).await;
        previewed.map_err(|error| cannot_list(&target, error))
    }

    /// Returns the objects to plan for, and the namespaces to read.
    async fn scope(
        &self,
        target: &Target,
        manifests: &[Value],
        watched: Vec<String>,
    ) -> anyhow::Result<(Scope, Vec<String>)> {
        if self.all {
            let namespaces = namespaces_to_plan(self.connection.given_namespace(), watched);
            return Ok((Scope::All, namespaces));
        }
        let keys = match self.filename.is_empty() {
            true => {
                let mut keys = Vec::new();
                for resource in &self.resources {
                    target.get_ray(resource).await?;
                    let kind = Kind::of_ray(resource.kind.name()).context("no Ray kind")?;
                    keys.push(ObjectKey::new(kind, &target.namespace, &resource.name));
                }
                keys
            }
            false => ray_objects(manifests, &target.namespace)?,
        };
        let mut namespaces: Vec<String> = keys.iter().map(|key| key.namespace.clone()).collect();
        namespaces.sort();
        namespaces.dedup();
        Ok((Scope::Objects(keys), namespaces))
    }
}

/// Returns what the operator of a cluster would do for all objects of a namespace, or of all, in the form of `-o json`.
pub(crate) async fn for_everything(target: &Target, namespace: Option<&str>) -> anyhow::Result<Value> {
    let mut found = settings::of_cluster(target).await?;
    found.config.platform = detect_platform(target).await?;
    let namespaces = namespaces_to_plan(namespace, found.namespaces);
    let cluster = Cluster::Live { client: target.client.clone(), namespaces };
    let preview = preview(&cluster, &found.config, Scope::All, Vec::new(), Timestamp::now()).await;
    Ok(render::as_json(&preview.map_err(|error| cannot_list(target, error))?))
}

/// Returns the namespaces whose objects are planned: the one that is asked for, or those that the operator watches.
fn namespaces_to_plan(given: Option<&str>, watched: Vec<String>) -> Vec<String> {
    given.map_or(watched, |given| vec![given.to_owned()])
}

async fn detect_platform(target: &Target) -> anyhow::Result<Platform> {
    let found = manta_operator::platform::detect(&target.client).await;
    found.map_err(|error| target.failed("cannot discover the APIs", error))
}

fn cannot_list(target: &Target, error: PreviewError) -> anyhow::Error {
    match error {
        PreviewError::List { plural, source } => target.failed(&format!("cannot list {plural}"), source),
    }
}

/// Reads manifests that the API server would accept, with its defaults filled in.
fn read_manifests(paths: &[PathBuf], namespace: &str) -> anyhow::Result<Vec<Value>> {
    let mut linter = Linter::default();
    let (mut objects, mut findings) = (Vec::new(), Vec::new());
    manifests::read_each(paths, |file, contents| match contents {
        Ok(contents) => {
            let (found, read) = linter.read(file, &contents);
            findings.extend(found);
            objects.extend(read);
        }
        Err(why) => findings.push(Finding::unreadable(file, &why)),
    });
    findings.retain(|finding| finding.severity <= Severity::Error);
    if !findings.is_empty() {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        bail!("the manifests would be refused:\n{}", lines.join("\n"));
    }
    for object in &mut objects {
        linter.set_defaults(object);
        if object["metadata"]["namespace"].is_null() && object["metadata"].is_object() {
            object["metadata"]["namespace"] = namespace.into();
        }
    }
    Ok(objects)
}

fn ray_objects(manifests: &[Value], namespace: &str) -> anyhow::Result<Vec<ObjectKey>> {
    let keys: Vec<ObjectKey> = manifests.iter().filter_map(|object| ray_object(object, namespace)).collect();
    if keys.is_empty() {
        bail!("the manifests hold no RayCluster, RayJob, RayService or RayCronJob");
    }
    Ok(keys)
}

fn print(preview: &Preview, format: Format) -> anyhow::Result<()> {
    let text = match format {
        Format::Diff => render::as_diff(preview, Style::of_stdout().colour)?,
        Format::Summary => render::as_summary(preview),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&render::as_json(preview))?),
    };
    write_stdout(|out| out.write_all(text.as_bytes()))?;
    Ok(())
}
