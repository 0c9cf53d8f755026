//! `manta history`: lists what the operator kept of objects that ended, failed or were deleted, and serves what KubeRay's
//! collector stored of clusters.

use crate::connect::ConnectionArgs;
use crate::history_server;
use crate::output::write_stdout;
use crate::records::{self, RecordsArgs};
use crate::table::{Cell, Style, Table};
use manta_logic::post_mortem::Summary;
use std::process::ExitCode;

/// List the Ray clusters, jobs and services that ended, failed or were deleted, as far as the operator kept a record
///
/// manta explain and manta logs read these records.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    records: RecordsArgs,
    /// List across all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    Serve(history_server::Args),
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// A table
    Text,
    /// A JSON list
    Json,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(Command::Serve(serve)) = args.command {
        return history_server::run(&args.connection, serve);
    }
    super::run_async(async {
        let (found, with_namespaces) = match args.records.directory() {
            // Files need no cluster, which may be gone, too.
            Some(directory) => {
                let namespace = args.connection.given_namespace().filter(|_| !args.all_namespaces);
                (records::in_directory(directory, namespace)?, namespace.is_none())
            }
            None => {
                let target = args.connection.connect().await?;
                let namespace = (!args.all_namespaces).then_some(target.namespace.as_str());
                (args.records.summaries(&target, namespace).await?, args.all_namespaces)
            }
        };
        let text = match args.output {
            Format::Text => table(&found, with_namespaces).format(Style::of_stdout()),
            Format::Json => serde_json::to_string_pretty(&found)? + "\n",
        };
        write_stdout(|out| out.write_all(text.as_bytes()))?;
        Ok(ExitCode::SUCCESS)
    })
}

fn table(found: &[Summary], with_namespaces: bool) -> Table {
    let columns = ["name", "age", "occasion", "cause"];
    let namespace = with_namespaces.then_some("namespace");
    let row = |summary: &Summary| {
        let name = format!("{}/{}", summary.kind.to_lowercase(), summary.name);
        let cells: [Cell; 4] =
            [name.into(), Cell::Age(summary.at), Cell::State(summary.occasion.clone()), summary.cause.clone().into()];
        let namespace = with_namespaces.then(|| Cell::from(summary.namespace.clone()));
        namespace.into_iter().chain(cells).collect()
    };
    Table { columns: namespace.into_iter().chain(columns).collect(), rows: found.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_rows() {
        let summary = Summary {
            kind: "RayJob".to_owned(),
            namespace: "ns".to_owned(),
            name: "train".to_owned(),
            occasion: "ended".to_owned(),
            at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            cause: "RayJob train has succeeded.".to_owned(),
            ..Summary::default()
        };
        let style = Style { now: "2026-01-01T00:01:00Z".parse().unwrap(), colour: false, header: true };
        let expect = "\
NAMESPACE   NAME           AGE   OCCASION   CAUSE
ns          rayjob/train   60s   ended      RayJob train has succeeded.
";
        assert_eq!(table(std::slice::from_ref(&summary), true).format(style), expect);
        assert!(!table(&[summary], false).format(style).contains("NAMESPACE"));
    }
}
