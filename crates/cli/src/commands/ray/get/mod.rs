//! `kubectl ray get`: lists resources, once or whenever they change.

mod cluster;
mod cronjob;
mod job;
mod node;
mod service;
mod token;
mod watch;
mod workergroup;

use crate::connect::{ConnectionArgs, Target};
use crate::output::{to_yaml, write_stdout};
use crate::resource::{Kind, names_hint};
use crate::table::{Cell, Style, Table};
use anyhow::{Context, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::process::ExitCode;

/// List Ray clusters, worker groups, nodes, jobs, services and cron jobs
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// List Ray clusters
    #[command(visible_alias = "clusters")]
    Cluster(NamedArgs),
    /// List worker groups of Ray clusters
    #[command(visible_alias = "workergroups")]
    Workergroup(MemberArgs),
    /// List Ray nodes, which are Pods
    #[command(visible_alias = "nodes")]
    Node(MemberArgs),
    /// List Ray jobs
    #[command(visible_alias = "jobs")]
    Job(NamedArgs),
    /// List Ray services
    #[command(visible_alias = "services")]
    Service(NamedArgs),
    /// List Ray cron jobs
    #[command(visible_alias = "cronjobs")]
    Cronjob(NamedArgs),
    /// Print the authentication token of a Ray cluster
    Token(token::Args),
}

#[derive(clap::Args)]
struct NamedArgs {
    /// Show only this one
    name: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Args)]
struct MemberArgs {
    /// Show only this one
    name: Option<String>,
    /// Ray cluster that it belongs to
    #[arg(short = 'c', long, value_name = "NAME")]
    ray_cluster: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Args)]
struct ListArgs {
    /// List across all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
    /// Watch for changes, until interrupted
    #[arg(short, long)]
    watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table with more columns
    Wide,
    Yaml,
    Json,
    /// The names alone, as TYPE/NAME
    Name,
}

/// What to list, and which of it.
struct Query {
    view: &'static View,
    /// The only one to show.
    name: Option<String>,
    /// The cluster that it belongs to.
    cluster: Option<String>,
    all_namespaces: bool,
    output: Option<Format>,
}

/// One thing that can be listed: where it comes from, and how it is shown.
struct View {
    /// The objects that are listed.
    source: Source,
    /// Whether rows depend on the Pods of worker groups, too.
    with_worker_pods: bool,
    rows: fn(&Query, &[DynamicObject], &[Pod]) -> anyhow::Result<Rows>,
    /// Says that the named one does not exist; "in namespace N" follows where it is not said.
    not_found: fn(&Query, &str) -> String,
}

enum Source {
    Ray(Kind),
    Nodes,
}

/// The rows of a table.
struct Rows {
    columns: Vec<&'static str>,
    rows: Vec<Row>,
}

/// One row, with everything that another output format needs.
struct Row {
    /// Identifies it among the others.
    key: String,
    /// As `TYPE/NAME`.
    name: String,
    cells: Vec<Cell>,
    object: Value,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let (view, name, cluster, list) = match args.what {
        What::Token(args) => return token::run(connection, args).await,
        What::Cluster(args) => (&cluster::VIEW, args.name, None, args.list),
        What::Job(args) => (&job::VIEW, args.name, None, args.list),
        What::Service(args) => (&service::VIEW, args.name, None, args.list),
        What::Cronjob(args) => (&cronjob::VIEW, args.name, None, args.list),
        What::Workergroup(args) => (&workergroup::VIEW, args.name, args.ray_cluster, args.list),
        What::Node(args) => (&node::VIEW, args.name, args.ray_cluster, args.list),
    };
    let target = connection.connect().await?;
    let query = Query { view, name, cluster, all_namespaces: list.all_namespaces, output: list.output };
    let found = query.list(&target).await?;
    if query.name.is_some() && found.rows.is_empty() && !list.watch {
        let place =
            if query.all_namespaces { "in any namespace".to_owned() } else { format!("in namespace {}", target.namespace) };
        bail!("{}{}", (view.not_found)(&query, &place), query.hint(&target).await);
    }
    print(&query, &found, true)?;
    if list.watch {
        watch::follow(&target, &query, found).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists RayJobs.
pub(in crate::commands) async fn jobs(
    connection: &ConnectionArgs,
    all_namespaces: bool,
    output: Option<Format>,
) -> anyhow::Result<ExitCode> {
    let list = ListArgs { all_namespaces, output, watch: false };
    run(connection, Args { what: What::Job(NamedArgs { name: None, list }) }).await
}

impl Query {
    /// Returns what to add to the error about a name that does not exist: the nearest ones of the namespace.
    async fn hint(&self, target: &Target) -> String {
        let Some(name) = self.name.as_deref().filter(|_| !self.all_namespaces) else { return String::new() };
        let cluster = self.cluster.clone();
        let all = Query { view: self.view, name: None, cluster, all_namespaces: false, output: None };
        // A user who may not list sees the plain sentence.
        let Ok(known) = all.list(target).await else { return String::new() };
        let names = known.rows.iter().filter_map(|row| Some(row.name.rsplit_once('/')?.1.to_owned()));
        names_hint(name, &names.collect::<Vec<_>>())
    }

    async fn list(&self, target: &Target) -> anyhow::Result<Rows> {
        let what = match self.view.source {
            Source::Ray(kind) => format!("cannot list {}s", kind.type_name()),
            Source::Nodes => "cannot list Pods".to_owned(),
        };
        let objects = self.objects(target).list(&self.selection()).await.map_err(|error| target.failed(&what, error))?;
        let pods = match self.view.with_worker_pods {
            true => self.worker_pods(target).list(&worker_selection()).await,
            false => return (self.view.rows)(self, &objects.items, &[]),
        };
        let pods = pods.map_err(|error| target.failed("cannot list Pods", error))?;
        (self.view.rows)(self, &objects.items, &pods.items)
    }

    fn objects(&self, target: &Target) -> Api<DynamicObject> {
        let resource = match self.view.source {
            Source::Ray(kind) => kind.api_resource(),
            Source::Nodes => ApiResource::erase::<Pod>(&()),
        };
        match self.all_namespaces {
            true => Api::all_with(target.client.clone(), &resource),
            false => Api::namespaced_with(target.client.clone(), &target.namespace, &resource),
        }
    }

    fn worker_pods(&self, target: &Target) -> Api<Pod> {
        match self.all_namespaces {
            true => Api::all(target.client.clone()),
            false => Api::namespaced(target.client.clone(), &target.namespace),
        }
    }

    /// Returns which of the objects the server has to send.
    fn selection(&self) -> ListParams {
        let params = ListParams::default();
        // A worker group has another name than its cluster.
        let (name, labels) = match self.view.source {
            Source::Ray(_) if self.view.with_worker_pods => (self.cluster.as_ref(), None),
            Source::Ray(_) => (self.name.as_ref(), None),
            Source::Nodes => {
                let cluster = self.cluster.as_ref().map(|name| format!(",ray.io/cluster={name}"));
                (self.name.as_ref(), Some(format!("ray.io/is-ray-node=yes{}", cluster.unwrap_or_default())))
            }
        };
        let params = name.map_or(params.clone(), |name| params.fields(&format!("metadata.name={name}")));
        labels.map_or(params.clone(), |labels| params.labels(&labels))
    }

    fn is_wide(&self) -> bool {
        self.output == Some(Format::Wide)
    }
}

fn worker_selection() -> ListParams {
    ListParams::default().labels("ray.io/node-type=worker,ray.io/group,ray.io/cluster")
}

/// Prints rows in the chosen format; `header` says whether they are the first ones.
fn print(query: &Query, found: &Rows, header: bool) -> anyhow::Result<()> {
    let text = match query.output {
        None | Some(Format::Wide) => {
            let rows = found.rows.iter().map(|row| row.cells.clone()).collect();
            Table { columns: found.columns.clone(), rows }.format(Style { header, ..Style::of_stdout() })
        }
        Some(Format::Name) => found.rows.iter().map(|row| format!("{}\n", row.name)).collect(),
        Some(format) => documents(query, found, header)
            .iter()
            .map(|document| match format {
                Format::Json => Ok(serde_json::to_string_pretty(document)? + "\n"),
                _ if header => to_yaml(document),
                _ => Ok(format!("---\n{}", to_yaml(document)?)),
            })
            .collect::<anyhow::Result<String>>()?,
    };
    write_stdout(|out| out.write_all(text.as_bytes()))?;
    Ok(())
}

/// Returns the named object, or a List of all; changes come one by one.
fn documents(query: &Query, found: &Rows, is_list: bool) -> Vec<Value> {
    let objects: Vec<Value> = found.rows.iter().map(|row| row.object.clone()).collect();
    if query.name.is_some() && objects.len() == 1 || !is_list {
        return objects;
    }
    vec![json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects})]
}

/// Returns the rows of objects of one kind.
fn rows_of<T: DeserializeOwned>(
    objects: &[DynamicObject],
    type_name: &str,
    cells: impl Fn(&T) -> Vec<Cell>,
) -> anyhow::Result<Vec<Row>> {
    let row = |object: &DynamicObject| {
        let value = serde_json::to_value(object)?;
        let name = object.name_any();
        let typed = T::deserialize(&value).with_context(|| format!("cannot read {type_name}/{name}"))?;
        let key = format!("{}/{name}", object.namespace().unwrap_or_default());
        Ok(Row { key, name: format!("{type_name}/{name}"), cells: cells(&typed), object: value })
    };
    objects.iter().map(row).collect()
}

/// Returns a text that may be absent.
fn text(value: Option<&str>) -> Cell {
    value.unwrap_or_default().into()
}

fn age<K: Resource>(object: &K) -> Cell {
    Cell::Age(object.meta().creation_timestamp.as_ref().map(|time| time.0))
}

fn time_cell(time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>) -> Cell {
    let shown = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    time.map(|time| shown(time.0)).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
