//! `manta operator`: runs the operator against a cluster.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use manta_operator::args::Flags;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Runs the operator: reconciles RayClusters, RayJobs and RayCronJobs until it is told to stop.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig file; otherwise KUBECONFIG, the Pod's own account, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespaces to watch, comma-separated; all when empty
    #[arg(long, default_value = "", value_name = "NAMES")]
    watch_namespace: String,
    /// Feature gates, as Name=true,Name=false
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,
    /// Reach Ray's dashboards through the API server's proxy instead of directly
    #[arg(long)]
    use_kubernetes_proxy: bool,
    /// Log format: json or console
    #[arg(long, default_value = "json", value_parser = ["json", "console"])]
    log_stdout_encoder: String,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    start_logging(&args.log_stdout_encoder);
    let flags = Flags {
        feature_gates: args.feature_gates,
        watch_namespace: args.watch_namespace,
        use_kubernetes_proxy: args.use_kubernetes_proxy,
    };
    let mut settings = flags.settings(|name| std::env::var(name).ok())?;
    // Two threads: one busy decoding a long list must not keep the other from answering.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = connect(args.kubeconfig).await?;
        settings.config.platform =
            manta_operator::platform::detect(&client).await.context("cannot ask the API server what it offers")?;
        let stop = CancellationToken::new();
        tokio::spawn(stop_on_signal(stop.clone()));
        manta_operator::run(client, settings, stop).await;
        Ok(ExitCode::SUCCESS)
    })
}

async fn connect(kubeconfig: Option<PathBuf>) -> anyhow::Result<kube::Client> {
    let config = match &kubeconfig {
        Some(path) => {
            let file =
                Kubeconfig::read_from(path).with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("kubeconfig {} names no usable cluster", path.display()))?
        }
        None => kube::Config::infer().await.context("no kubeconfig given and none found; use --kubeconfig FILE")?,
    };
    kube::Client::try_from(config).context("cannot make a client for the API server")
}

async fn stop_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    info!("stopping: passes in hand are finished first");
    stop.cancel();
}

fn start_logging(encoder: &str) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stdout);
    match encoder {
        "console" => logs.init(),
        _ => logs.json().flatten_event(true).init(),
    }
}
