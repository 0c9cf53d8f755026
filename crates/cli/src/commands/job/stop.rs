//! `manta job stop`.

use super::JobName;
use crate::connect::ConnectionArgs;
use crate::output::print_line;
use std::process::ExitCode;

/// Stop a running job
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    job: JobName,
}

pub(super) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let target = connection.connect().await?;
    let (_dashboard, job) = args.job.reach(&target).await?;
    job.info().await?;
    job.stop().await?;
    print_line(&format!("stopped job {}", args.job.name));
    Ok(ExitCode::SUCCESS)
}
