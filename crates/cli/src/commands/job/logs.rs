//! `manta job logs`.

use super::{JobName, exit_code};
use crate::connect::ConnectionArgs;
use crate::program_output;
use std::process::ExitCode;

/// Print the output of a job
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    job: JobName,
    /// Follow the log until the job ends, and exit with its code
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let target = connection.connect().await?;
    let (_dashboard, job) = args.job.reach(&target).await?;
    if !args.follow {
        // A job that Ray does not know has no output, which would look like success.
        job.info().await?;
        let text = job.logs().await?;
        program_output::print(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    job.follow(&mut program_output::stdout()).await?;
    let end = job.terminal_info().await?;
    Ok(exit_code(&end.status, end.driver_exit_code))
}
