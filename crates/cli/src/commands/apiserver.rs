//! `manta apiserver`: runs the embedded API server on its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use manta_apiserver::{Options, Server, tls};

use crate::signals::StopSignals;

/// Serve a Kubernetes API on this machine, without nodes
///
/// Writes a kubeconfig once the server is ready, and runs until SIGINT or SIGTERM.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Persist objects and keys in this directory [default: keep them in memory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 0, value_name = "N")]
    port: u16,
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "IP")]
    address: IpAddr,
    /// Where to write the kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Authorize requests by RBAC; without it every authenticated user may do everything
    #[arg(long)]
    rbac: bool,
    /// Enable the ServiceAccount admission plugin: pods get a service account and its token
    #[arg(long)]
    service_account_admission: bool,
    /// Bind PersistentVolumeClaims to directories below this one
    #[arg(long, value_name = "DIR")]
    volumes: Option<PathBuf>,
    /// File with additional users: lines of token,user,uid,"group,group"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Append one JSON line per request to this file
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let address = SocketAddr::new(args.address, args.port);
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    let options = Options {
        data: args.data,
        rbac: args.rbac,
        token_file: args.token_auth_file,
        audit_log: args.audit_log,
        names: vec![args.address.to_string()],
        admit_service_accounts: args.service_account_admission,
        volumes: args.volumes,
        ..Options::default()
    };
    let server = Server::start(options).await?;
    let address = server.listen(listener)?;
    let url = format!("https://{address}");
    tls::write_secret(&args.kubeconfig, &server.kubeconfig(&url))
        .with_context(|| format!("cannot write the kubeconfig {}", args.kubeconfig.display()))?;
    tracing::info!(%url, kubeconfig = %args.kubeconfig.display(), "serving");
    tokio::select! {
        () = signals.recv() => {}
        () = manta_heap::keep_releasing() => {}
    }
    server.stop().await;
    Ok(())
}
