//! `manta open`: forwards the dashboard of a Ray cluster and opens it in a browser.

use super::INTERRUPTED;
use crate::connect::ConnectionArgs;
use crate::head;
use crate::output::{print_line, print_note};
use crate::port_forward;
use crate::resource::Reference;
use crate::signals::StopSignals;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

const DASHBOARD: u16 = 8265;

/// Open the dashboard of a Ray cluster, job or service in a browser, until interrupted
///
/// Starts the program that the variable BROWSER names, or the browser of the desktop.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Name of a Ray cluster, or TYPE/NAME
    #[arg(value_name = "CLUSTER | TYPE/NAME")]
    resource: Reference,
    /// Print the address only
    #[arg(long)]
    no_browser: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    super::run_async(async {
        let mut stop = StopSignals::listen()?;
        let connecting = async {
            let target = args.connection.connect().await?;
            let head = head::find(&target, &args.resource).await?;
            port_forward::start(&target, &head.service, DASHBOARD, DASHBOARD, Arc::new(print_note)).await
        };
        let Some(forward) = stop.unless_stopped(connecting).await else { return Ok(ExitCode::from(INTERRUPTED)) };
        let forward = forward?;
        let url = format!("http://localhost:{}", forward.address.port());
        print_line(&format!("dashboard of {}: {url}", args.resource));
        if !args.no_browser && !open_browser(&url) {
            print_note("no browser was found; open the address yourself");
        }
        print_note("forwarding until interrupted");
        stop.recv().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns whether a browser was started: the one of the variable BROWSER, or that of the desktop.
pub(super) fn open_browser(url: &str) -> bool {
    let start = |program: &str| {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
    };
    // By convention a list; the first that can be started is used.
    let chosen = std::env::var("BROWSER").unwrap_or_default();
    if chosen.split(':').filter(|program| !program.is_empty()).any(start) {
        return true;
    }
    // Without a display, xdg-open may start a browser in this terminal.
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    (has_display || cfg!(target_os = "macos")) && start(program)
}
