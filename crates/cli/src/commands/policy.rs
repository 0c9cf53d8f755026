//! `manta policy`: prints the operator's rules as ValidatingAdmissionPolicies, or writes them to a directory.

use crate::output::write_stdout;
use anyhow::Context;
use manta_logic::admission::policy;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the operator's rules as ValidatingAdmissionPolicies, which the API server enforces without a webhook
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
            let name = both.policy.metadata.name.as_deref().unwrap_or_default();
            Ok((name.to_owned(), format!("{}---\n{}", yaml(&both.policy)?, yaml(&both.binding)?)))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let Some(dir) = args.dir else {
        write_stdout(|out| documents.iter().try_for_each(|(_, yaml)| write!(out, "---\n{yaml}")))?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(&dir).with_context(|| format!("cannot create the directory {}", dir.display()))?;
    for (name, yaml) in documents {
        let path = dir.join(format!("{name}.yaml"));
        fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn yaml(object: &impl Serialize) -> anyhow::Result<String> {
    // Expressions stay on one line each, so that grep finds them.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    Ok(serde_saphyr::to_string_with_options(object, options)?)
}
