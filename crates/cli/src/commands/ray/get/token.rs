//! `kubectl ray get token`: prints the token that a Ray cluster asks for.

use crate::auth_token;
use crate::connect::ConnectionArgs;
use crate::output::write_stdout;
use crate::resource::{Kind, Reference};
use anyhow::Context;
use manta_api::RayCluster;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Ray cluster
    #[arg(value_name = "CLUSTER")]
    cluster: String,
}

pub(super) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let target = connection.connect().await?;
    let reference = Reference { kind: Kind::Cluster, name: args.cluster };
    let object = target.get_ray(&reference).await?;
    let cluster: RayCluster = serde_json::from_value(serde_json::to_value(object)?)
        .with_context(|| format!("cannot read {reference}"))?;
    let token = auth_token::of(&target, &cluster).await?;
    write_stdout(|out| out.write_all(token.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}
