//! `manta operator`: runs the operator against a cluster.
//!
//! Its flags follow Go's syntax, so that command lines written for KubeRay work unchanged; clap does not parse them.

use std::process::ExitCode;

/// Run the operator, which reconciles RayClusters, RayJobs, RayServices and RayCronJobs
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The flags of KubeRay's operator; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    Ok(manta_operator::command::run(args.flags)?)
}
