//! `manta history serve`: replays what KubeRay's collector has stored, in the words of Ray's dashboard.
//!
//! ```text
//!   storage ──lines of events──▶ events ─Replay▶ replies ──▶ routes ──▶ Ray's dashboard, curl
//! ```
//!
//! A browser chooses a session once (`/enter_cluster/…`) and keeps it in cookies. Clusters that still run are asked through
//! the API server.

mod events;
mod live;
mod replies;
mod routes;
mod storage;

use crate::commands::INTERRUPTED;
use crate::connect::ConnectionArgs;
use crate::output::{print_line, print_note};
use crate::signals::StopSignals;
use anyhow::Context;
use live::LiveClusters;
use manta_agent::network::loopback::Guard;
use routes::Server;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use storage::Storage;
use tokio::net::TcpListener;

/// Serve the history of Ray clusters that KubeRay's collector has stored, for Ray's dashboard
///
/// Reads the collector's storage from a directory; mount or copy a bucket there. Lists the clusters at /clusters, and
/// lets a browser choose one at /select_cluster. Clusters that still run are asked through the API server.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory that the collector has stored to, or a copy of its bucket
    #[arg(long, value_name = "DIR")]
    storage_root_dir: PathBuf,
    /// Address to listen on; others than this machine can read everything if it is not a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Host name under which it is reached, beside those of loopback; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Directory with Ray's dashboard, which is ray/dashboard/client/build in an installation of Ray
    #[arg(long, value_name = "DIR")]
    dashboard_dir: Option<PathBuf>,
    /// Do not ask a cluster for Ray clusters that still run
    #[arg(long)]
    no_live: bool,
}

pub(crate) fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    crate::commands::run_async(async {
        let mut stop = StopSignals::listen()?;
        let storage = Storage::open(&args.storage_root_dir)?;
        if let Some(dir) = &args.dashboard_dir {
            anyhow::ensure!(
                dir.join("index.html").is_file(),
                "{} holds no dashboard: index.html is missing",
                dir.display()
            );
        }
        let live = match args.no_live {
            true => LiveClusters::none(),
            false => match stop.unless_stopped(LiveClusters::of(connection)).await {
                Some(live) => live,
                None => return Ok(ExitCode::from(INTERRUPTED)),
            },
        };
        let listener = TcpListener::bind(&args.listen)
            .await
            .with_context(|| format!("cannot listen on {}; choose another address with --listen", args.listen))?;
        let address = listener.local_addr()?;
        print_line(&format!("history of Ray clusters: http://{address}/select_cluster"));
        print_note("serving until interrupted");
        let hosts = args.allow_host.iter().map(|name| name.to_ascii_lowercase()).collect();
        // Behind any other address, whoever reaches it can read everything.
        let names = address.ip().is_loopback().then(|| Guard { hosts, ..Guard::default() });
        let server = Arc::new(Server::new(storage, live, args.dashboard_dir, names));
        axum::serve(listener, routes::router(server)).with_graceful_shutdown(async move { stop.recv().await }).await?;
        Ok(ExitCode::SUCCESS)
    })
}
