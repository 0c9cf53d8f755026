//! `kubectl ray session`: forwards the ports of a Ray cluster's head until interrupted.

use crate::commands::INTERRUPTED;
use crate::connect::ConnectionArgs;
use crate::head;
use crate::output::{print_line, print_note};
use crate::port_forward::{self, Report};
use crate::resource::{Kind, Reference};
use crate::signals::StopSignals;
use std::process::ExitCode;
use std::sync::Arc;

/// Forward the dashboard, client and Serve ports of a Ray cluster, job or service to this machine
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of a Ray cluster, or TYPE/NAME
    #[arg(value_name = "CLUSTER | TYPE/NAME")]
    resource: Reference,
    /// Print where connections go
    #[arg(short, long)]
    verbose: bool,
}

/// A port of the head, and how its local address is shown.
struct Port {
    label: &'static str,
    number: u16,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let mut stop = StopSignals::listen()?;
    let connecting = async {
        let target = connection.connect().await?;
        let head = head::find(&target, &args.resource).await?;
        anyhow::Ok((target, head))
    };
    let Some(connected) = stop.unless_stopped(connecting).await else { return Ok(ExitCode::from(INTERRUPTED)) };
    let (target, head) = connected?;
    print_line(&format!("Forwarding ports to service {}", head.service));
    if args.verbose {
        print_note(&format!("Ray cluster {} in namespace {} of {}", head.cluster, target.namespace, target.name()));
    }
    let report: Report = Arc::new(print_note);
    let mut forwards = Vec::new();
    for Port { label, number } in ports(args.resource.kind) {
        let forward = port_forward::start(&target, &head.service, number, number, Arc::clone(&report)).await?;
        let local = forward.address.port();
        if local != number {
            print_note(&format!("port {number} is in use on this machine"));
        }
        print_line(&format!("{label}: http://localhost:{local}"));
        forwards.push(forward);
    }
    stop.recv().await;
    Ok(ExitCode::SUCCESS)
}

fn ports(kind: Kind) -> Vec<Port> {
    let mut ports = vec![Port { label: "Ray Dashboard", number: 8265 }];
    match kind {
        Kind::Cluster => ports.push(Port { label: "Ray Interactive Client", number: 10001 }),
        Kind::Service => ports.push(Port { label: "Ray Serve", number: 8000 }),
        Kind::Job | Kind::CronJob => {}
    }
    ports
}
