//! `manta policy`: the rules as ValidatingAdmissionPolicies, to stdout or into a folder.

use crate::output::write_stdout;
use anyhow::Context;
use manta_logic::admission::policy;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the operator's rules as ValidatingAdmissionPolicies, which the API server checks by itself, without a webhook.
///
/// What CEL cannot say is still told by the operator: schedules, time zones, YAML, labels, TLS, and what depends on gates.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write one file per kind into this folder instead of printing them.
    #[arg(long, value_name = "FOLDER")]
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
    fs::create_dir_all(&dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    for (name, yaml) in documents {
        let path = dir.join(format!("{name}.yaml"));
        fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn yaml(object: &impl Serialize) -> anyhow::Result<String> {
    // Expressions stay on one line each, where grep finds them.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    Ok(serde_saphyr::to_string_with_options(object, options)?)
}
