//! `manta page`: shows everything that runs in a browser.

use crate::commands::open::open_browser;
use crate::connect::ConnectionArgs;
use crate::local;
use crate::output::{print_line, print_note};
use crate::page::{Entry, Page, Settings};
use crate::signals::StopSignals;
use anyhow::{Context, ensure};
use manta_agent::network::loopback::{Access, ConnectionTable, Guard, Users};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;

/// Show all Ray clusters, jobs, services and cron jobs in a browser, live
///
/// Serves a page on loopback that acts with the rights of the kubeconfig's user, until interrupted. The address that it
/// prints contains a secret; whoever has it, from your account of this machine, has these rights while the page is served.
///
/// With --local, opens the page that manta up serves already.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Port to listen on; 0 picks a free one
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    port: u16,
    /// Ask every viewer for a token of their own, instead of acting for the kubeconfig's user
    #[arg(long)]
    ask_token: bool,
    /// Address to listen on; any but loopback needs --ask-token, and TLS in front of it
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// Host name under which the page is reached, beside those of loopback; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Another account of this machine that may use the page with the printed address, by name or number; `all` for
    /// everybody; may be repeated
    #[arg(long, value_name = "USER", conflicts_with = "ask_token")]
    allow_user: Vec<String>,
    /// Print the address only
    #[arg(long)]
    no_browser: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.ask_token || args.address.is_loopback(),
        "--address {} is not loopback: the page would lend your rights to others; add --ask-token",
        args.address
    );
    if args.connection.is_local() && !args.ask_token {
        show(&local::page_of_running()?, args.no_browser);
        return Ok(ExitCode::SUCCESS);
    }
    super::run_async(async {
        let mut stop = StopSignals::listen()?;
        let address = SocketAddr::from((args.address, args.port));
        let listener = TcpListener::bind(address).with_context(|| {
            format!("cannot listen on {address}; choose another port with --port, or a free one with --port 0")
        })?;
        let address = listener.local_addr()?;
        let access = access(&args)?;
        let (page, url) = match args.ask_token {
            true => {
                let config = without_credentials(args.connection.config().await?);
                let entry = Entry::Token(Box::new(config));
                (Page::new(Settings { entry, access, job_output: None, operator: None }), format!("http://{address}/"))
            }
            false => {
                let target = args.connection.connect().await?;
                let page = Page::new(Settings { entry: Entry::Link, access, job_output: None, operator: None });
                let url = page.open_link(target, address).await;
                (page, url)
            }
        };
        show(&url, args.no_browser);
        print_note("serving until interrupted");
        tokio::select! {
            served = page.serve(listener) => served.context("the page can no longer be served")?,
            () = stop.recv() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns who may use the page, and under which names. Whoever enters a token may come from anywhere.
fn access(args: &Args) -> anyhow::Result<Arc<Access>> {
    let users = match args.ask_token {
        true => Users::All,
        false => Users::allowed(&args.allow_user, std::env::var("SUDO_UID").ok().as_deref())
            .map_err(|why| anyhow::anyhow!("--allow-user: {why}"))?,
    };
    let connections = match users {
        Users::All => None,
        Users::Only(_) => Some(ConnectionTable::open().context(
            "cannot open the machine's table of TCP connections, which shows who connects; --allow-user all does \
             without it",
        )?),
    };
    let hosts = args.allow_host.iter().map(|name| name.to_ascii_lowercase()).collect();
    Ok(Arc::new(Access { guard: Guard { users, hosts }, connections }))
}

/// Prints the address of the page, and opens it.
fn show(url: &str, no_browser: bool) {
    print_line(&format!("the page is at {url}"));
    if !no_browser && !open_browser(url) {
        print_note("no browser was found; open the address yourself");
    }
}

/// Returns how to reach an API server, without the rights to do anything there.
fn without_credentials(mut config: kube::Config) -> kube::Config {
    config.auth_info = kube::config::AuthInfo::default();
    config
}
