//! The page: everything that runs, in a browser, live.
//!
//! ```text
//!   browser ─ HTTP: files, actions ──▶ guard ─▶ session ─▶ the viewer's own client ─▶ API server
//!           ◀ WebSocket: rows, objects, logs, a terminal ◀── watches ◀──────────────┘
//! ```
//!
//! Every request carries the secret of a session, and every session acts with the rights of its viewer: those of a
//! kubeconfig, or of a token that the viewer entered. Nothing is asked for twice: what the browser shows comes from watches.

mod accept;
mod act;
mod assets;
mod compose;
mod dashboard;
mod driver_log;
mod exec;
mod explain;
mod failure;
mod feed;
mod guard;
mod live;
mod metrics;
mod object;
mod operator;
mod plan;
mod pod_log;
mod question;
mod rates;
mod rights;
mod row;
mod schedule;
mod session;
mod stream;
mod watched;

use crate::connect::Target;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use manta_agent::network::loopback::Access;
use manta_operator::metrics::Telemetry;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use session::Entry;

/// What the server needs beside the API server.
pub(crate) struct Settings {
    /// How viewers identify themselves.
    pub(crate) entry: Entry,
    /// Under which names the page is served, and to which accounts of this machine.
    pub(crate) access: Arc<Access>,
    /// Where local mode keeps the output of jobs.
    pub(crate) job_output: Option<PathBuf>,
    /// The operator, if it runs in this process.
    pub(crate) operator: Option<Telemetry>,
}

/// A page that is served.
pub(crate) struct Page {
    sessions: session::Sessions,
    access: Arc<Access>,
    job_output: Option<PathBuf>,
    operator: Option<Telemetry>,
    dashboards: dashboard::Dashboards,
    linter: compose::Lint,
}

impl Page {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            sessions: session::Sessions::new(settings.entry),
            access: settings.access,
            job_output: settings.job_output,
            operator: settings.operator,
            dashboards: dashboard::Dashboards::default(),
            linter: compose::Lint::default(),
        })
    }

    /// Opens a session for whoever holds its address, which contains the session's secret.
    pub(crate) async fn open_link(&self, target: Target, address: std::net::SocketAddr) -> String {
        let secret = self.sessions.open(target).await;
        // Browsers send no fragment to a server, so the secret is in no log and no Referer.
        format!("http://{address}/#key={secret}")
    }

    /// Serves the page; ends with an error of the listener only.
    pub(crate) async fn serve(self: Arc<Self>, listener: std::net::TcpListener) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let access = Arc::clone(&self.access);
        match accept::run(listener, access, self.router()).await? {}
    }

    fn router(self: Arc<Self>) -> Router {
        let with_session = Router::new()
            .route("/api/session", get(session::describe))
            .route("/api/rights", post(rights::list))
            .route("/api/act", post(act::act))
            .route("/api/explain", post(explain::explain))
            .route("/api/records", post(explain::records))
            .route("/api/plan", post(plan::plan))
            .route("/api/lint", post(compose::lint))
            .route("/api/templates", get(compose::templates))
            .route("/api/create", post(compose::create))
            .route("/api/schedule", post(schedule::runs))
            .route("/api/dashboard", post(dashboard::open))
            .route("/api/live", get(live::connect))
            .route("/api/exec", get(exec::connect))
            .layer(from_fn_with_state(Arc::clone(&self), session::authenticate));
        Router::new()
            .merge(with_session)
            .route("/api/entry", get(session::entry).post(session::enter))
            .fallback(assets::serve)
            .layer(from_fn_with_state(Arc::clone(&self), guard::check))
            .with_state(self)
    }
}
