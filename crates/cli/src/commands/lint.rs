//! `manta lint`: checks manifests without a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use manta_cli::lint::{Finding, Linter, Severity};

use crate::manifests;
use crate::output::write_stdout;

/// Check manifests without a cluster
///
/// Checks RayClusters, RayJobs, RayServices and RayCronJobs: the syntax, the schema, its CEL rules, and the rules of
/// the webhook and the operator. Warns about what is accepted but probably unintended, such as negative
/// replicas or an image of another Ray version. Skips other kinds with a note.
///
/// Exits with 0 if there are no errors, 1 if there are, and 2 if a file cannot be read.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files, directories (searched for .yaml, .yml and .json files), URLs, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// Exit with 1 if there are warnings
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// One line per finding: file:line: field: message
    Text,
    /// A JSON list of objects with file, line, path, message and severity
    Json,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut linter = Linter::default();
    let mut findings = Vec::new();
    manifests::read_each(&args.paths, |file, contents| match contents {
        Ok(contents) => findings.extend(linter.lint(file, &contents)),
        Err(why) => findings.push(Finding::unreadable(file, &why)),
    });
    match args.output {
        Format::Text => write_stdout(|out| findings.iter().try_for_each(|finding| writeln!(out, "{finding}")))?,
        Format::Json => {
            let json = serde_json::to_string_pretty(&findings)?;
            write_stdout(|out| writeln!(out, "{json}"))?;
        }
    }
    Ok(match findings.iter().map(|finding| finding.severity).min() {
        Some(Severity::Unreadable) => ExitCode::from(2),
        Some(Severity::Error) => ExitCode::FAILURE,
        Some(Severity::Warning) if args.strict => ExitCode::FAILURE,
        Some(Severity::Warning | Severity::Note) | None => ExitCode::SUCCESS,
    })
}
