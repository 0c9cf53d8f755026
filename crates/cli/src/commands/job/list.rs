//! `manta job list`.

use crate::commands::ray::get;
use crate::connect::ConnectionArgs;
use crate::job::Dashboard;
use manta_logic::explain::one_line;
use crate::output::{without_controls, write_stdout};
use crate::resource::{Kind, Reference};
use crate::table::{Cell, Style, Table};
use jiff::Timestamp;
use serde_json::Value;
use std::process::ExitCode;

/// List RayJobs, or the jobs of a Ray cluster
#[derive(clap::Args)]
pub(super) struct Args {
    /// Ray cluster whose jobs to list, whoever submitted them
    #[arg(short = 'c', long, value_name = "NAME", conflicts_with = "all_namespaces")]
    ray_cluster: Option<String>,
    /// List across all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<get::Format>,
}

pub(super) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let Some(name) = args.ray_cluster else {
        return get::jobs(connection, args.all_namespaces, args.output).await;
    };
    let target = connection.connect().await?;
    let dashboard = Dashboard::reach(&target, &Reference { kind: Kind::Cluster, name }).await?;
    let mut jobs = dashboard.get("/api/jobs/").await?;
    if let Some(jobs) = jobs.as_array_mut() {
        jobs.sort_by_key(|job| job["start_time"].as_i64());
    }
    let text = match args.output {
        Some(get::Format::Json) => serde_json::to_string_pretty(&jobs)? + "\n",
        Some(get::Format::Yaml) => crate::output::to_yaml(&jobs)?,
        Some(get::Format::Name) => rows(&jobs).map(|job| format!("{}\n", id(job))).collect(),
        None | Some(get::Format::Wide) => table(&jobs).format(Style::of_stdout()),
    };
    write_stdout(|out| out.write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

fn rows(jobs: &Value) -> impl Iterator<Item = &Value> {
    jobs.as_array().into_iter().flatten()
}

/// Returns the id to use with the other commands; a job that no API submitted has only that of its driver.
fn id(job: &Value) -> &str {
    job["submission_id"].as_str().or_else(|| job["job_id"].as_str()).unwrap_or_default()
}

fn table(jobs: &Value) -> Table {
    let row = |job: &Value| {
        let text = |key: &str| job[key].as_str().unwrap_or_default();
        let started = job["start_time"].as_i64().and_then(|millis| Timestamp::from_millisecond(millis).ok());
        vec![
            id(job).into(),
            Cell::State(text("status").to_owned()),
            Cell::Age(started),
            without_controls(text("entrypoint")).into(),
            without_controls(&one_line(text("message"))).into(),
        ]
    };
    Table { columns: vec!["Id", "Status", "Started", "Entrypoint", "Message"], rows: rows(jobs).map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jobs_of_all_kinds_have_a_row() {
        let jobs = json!([
            {"type": "SUBMISSION", "submission_id": "raysubmit_a", "status": "FAILED", "entrypoint": "python x.py",
                "message": "no\nmore", "start_time": 1_000},
            {"type": "DRIVER", "submission_id": null, "job_id": "01000000", "status": "RUNNING", "entrypoint": ""},
        ]);
        let style = Style { now: Timestamp::from_second(31).unwrap(), colour: false, header: true };
        let expect = "\
ID            STATUS    STARTED     ENTRYPOINT    MESSAGE
raysubmit_a   FAILED    30s         python x.py   no
01000000      RUNNING   <unknown>                 \n";
        assert_eq!(table(&jobs).format(style), expect);
    }
}
