//! `kubectl ray create`: makes Ray clusters and adds worker groups to them.

mod build;
mod cluster;
mod config;
mod flags;
mod workergroup;

pub(in crate::commands) use build::cluster_spec;
pub(in crate::commands) use config::{ClusterConfig, Group, Head};
use flags::check_quantities;
pub(in crate::commands) use flags::key_values;

use crate::connect::ConnectionArgs;
use std::process::ExitCode;

/// The version of Ray that new clusters use.
pub(super) const RAY_VERSION: &str = "2.52.0";
/// The field manager of what is created.
pub(in crate::commands) const FIELD_MANAGER: &str = "ray-kubectl-plugin";

/// Create a Ray cluster, or add a worker group to one
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Cluster(Box<cluster::Args>),
    Workergroup(Box<workergroup::Args>),
}

pub(crate) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Cluster(args) => cluster::run(connection, *args).await,
        What::Workergroup(args) => workergroup::run(connection, *args).await,
    }
}
