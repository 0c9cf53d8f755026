//! `manta lint`: checks manifests without a cluster.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use manta_cli::lint::{Finding, Linter, Severity};

use crate::output::write_stdout;

/// The largest file that is read; no manifest comes close.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The file name that findings show for standard input.
const STDIN: &str = "<stdin>";

/// Checks manifests of RayCluster, RayJob, RayService and RayCronJob: syntax, schema, CEL rules and the operator's rules
///
/// Exits with 0 if there is nothing to fix, 1 if there is, and 2 if a file cannot be read. Other kinds are skipped
/// with a note.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files, directories (searched for .yaml, .yml and .json files), or - for standard input
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
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
    for path in &args.paths {
        lint_path(path, &mut linter, &mut findings);
    }
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
        Some(Severity::Note) | None => ExitCode::SUCCESS,
    })
}

fn lint_path(path: &Path, linter: &mut Linter, findings: &mut Vec<Finding>) {
    if path == Path::new("-") {
        let mut contents = Vec::new();
        match io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut contents) {
            Ok(_) => findings.extend(linter.lint(STDIN, &contents)),
            Err(error) => findings.push(unreadable(STDIN, &error.to_string())),
        }
        return;
    }
    let name = path.display().to_string();
    match files_of(path) {
        Ok(files) => {
            for file in files {
                let name = file.display().to_string();
                match read(&file) {
                    Ok(contents) => findings.extend(linter.lint(&name, &contents)),
                    Err(message) => findings.push(unreadable(&name, &message)),
                }
            }
        }
        Err(error) => findings.push(unreadable(&name, &error.to_string())),
    }
}

fn unreadable(file: &str, message: &str) -> Finding {
    Finding {
        file: file.to_owned(),
        line: 0,
        path: String::new(),
        message: format!("cannot be read: {message}"),
        severity: Severity::Unreadable,
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > MAX_BYTES {
        return Err(format!("it is {size} bytes long, more than {MAX_BYTES}"));
    }
    fs::read(file).map_err(|error| error.to_string())
}

/// Returns the file itself, or the manifests in a directory and below it, sorted by name.
fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            // Symbolic links to directories are not followed, because they may form a cycle.
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if is_manifest(&entry.path()) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}
