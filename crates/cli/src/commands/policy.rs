//! `manta policy`: prints the operator's rules as ValidatingAdmissionPolicies, or writes them to a directory.

use crate::output::{to_yaml, write_manifests};
use manta_logic::admission::policy;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the operator's rules as ValidatingAdmissionPolicies, which the API server enforces without a webhook
///
/// The operator still reports the rules that CEL cannot express: schedules, time zones, YAML, labels, TLS, and
/// everything that depends on feature gates.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write one file per kind to this directory instead of printing them
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let documents = policy::all()
        .iter()
        .map(|both| {
            let name = both.policy.metadata.name.clone().unwrap_or_default();
            Ok((name, format!("{}---\n{}", to_yaml(&both.policy)?, to_yaml(&both.binding)?)))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    write_manifests(args.dir.as_deref(), &documents)?;
    Ok(ExitCode::SUCCESS)
}
