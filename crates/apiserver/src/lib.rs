//! An in-process Kubernetes API server for one machine; it knows nothing of Ray.
//!
//! ```text
//!   listeners ─TLS─▶ http ─▶ webhook ─▶ ops ─▶ store (memory ─▶ redb)
//!   Server::client ───▶┘                         ▲ follow
//!                                  controllers ──┘   (garbage, namespaces, jobs, endpoints, …)
//! ```

mod audit;
pub mod auth;
mod bootstrap;
pub mod clock;
mod controllers;
mod discovery;
pub mod error;
mod http;
mod metrics;
mod names;
pub mod node;
mod openapi;
pub mod ops;
pub mod patch;
mod protobuf;
pub mod registry;
pub mod schema;
pub mod selector;
mod serve;
pub mod store;
mod table;
pub mod tls;
mod webhook;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::auth::{Authority, StaticTokens, User};
use crate::clock::Clock;
pub use crate::controllers::supervisor::Panics;
use crate::http::ApiContext;
use crate::node::NodeBackend;
use crate::ops::{Cluster, ServiceIps};
use crate::store::Store;
use crate::tls::{Identity, IdentityError};
pub use crate::webhook::{Review, Reviewer, Verdict};

/// The configuration of a server.
#[derive(Default)]
pub struct Options {
    /// The directory of the data file and the keys; without one, everything stays in memory.
    pub data: Option<PathBuf>,
    /// Keeps every object parsed in memory, for simulations: more memory for less time. A data directory excludes it.
    pub keep_values: bool,
    /// Requests without credentials act as the administrator; only for listeners that nobody else can reach.
    pub trust_everyone: bool,
    /// RBAC authorizes requests.
    pub rbac: bool,
    /// A static token file: `token,user,uid,"group,group"`.
    pub token_file: Option<PathBuf>,
    /// The audit log, one JSON line per request.
    pub audit_log: Option<PathBuf>,
    /// Additional names and addresses in the server's certificate.
    pub names: Vec<String>,
    /// Runs the ServiceAccount admission: pods get a service account and its token.
    pub admit_service_accounts: bool,
    /// The directory for the data of claims; without one, claims stay pending.
    pub volumes: Option<PathBuf>,
    /// The source of time and randomness; the system's by default.
    pub clock: Option<Clock>,
    /// The node backend that serves logs, exec and port-forward.
    pub node: Option<NodeBackend>,
    /// Reviews writes in this process, beside the webhooks that users configure.
    pub reviewer: Option<Reviewer>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Store(#[from] store::DiskError),
    /// There are no keys or certificates.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The file of tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] auth::TokenFileError),
    /// The audit log cannot be written.
    #[error("cannot open the audit log {path}")]
    Audit {
        /// Which.
        path: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A listener cannot be used.
    #[error("cannot listen")]
    Listen(#[source] std::io::Error),
    /// The initial objects could not be created.
    #[error("cannot create the initial objects: {0}")]
    Bootstrap(error::ApiError),
}

/// A running server. Dropping it without `stop` aborts connections and controllers.
pub struct Server {
    cluster: Arc<Cluster>,
    identity: Arc<Identity>,
    names: Vec<String>,
    context: ApiContext,
    tasks: Mutex<JoinSet<()>>,
}

impl Server {
    /// Starts a server without listeners; `client` works at once.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        let store = match &options.data {
            Some(directory) => Store::open(directory)?,
            None if options.keep_values => Store::in_memory_with_values(),
            None => Store::in_memory(),
        };
        Server::start_with(options, store).await
    }

    /// Starts a server on a store.
    async fn start_with(options: Options, store: Store) -> Result<Server, StartError> {
        let identity = Arc::new(Identity::load(options.data.as_deref())?);
        let audit = match &options.audit_log {
            Some(path) => Some(Arc::new(
                audit::Audit::open(path)
                    .map_err(|cause| StartError::Audit { path: path.display().to_string(), cause })?,
            )),
            None => None,
        };
        let authority =
            Authority::new(!options.trust_everyone, options.rbac, identity.admin_token.clone(), identity.token_key()?);
        let tokens = options.token_file.as_deref().map(StaticTokens::read).transpose()?;
        let authority = authority.with_tokens(tokens.unwrap_or_default());
        let cluster = Arc::new(Cluster {
            store,
            registry: registry::Registry::default(),
            clock: options.clock.unwrap_or_else(Clock::system),
            service_ips: ServiceIps::default(),
            authority,
            panics: Panics::default(),
            admit_service_accounts: options.admit_service_accounts,
            node: RwLock::new(options.node),
            reviewer: options.reviewer,
            quota_lock: Mutex::default(),
        });
        bootstrap::run(&cluster).map_err(StartError::Bootstrap)?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        controllers::spawn(&cluster, &identity.ca_pem, options.volumes, &stop, &mut tasks);
        let context = ApiContext { cluster: cluster.clone(), stop, audit };
        Ok(Server { cluster, identity, names: options.names, context, tasks: Mutex::new(tasks) })
    }

    /// Serves HTTPS on a listener that is already bound. May be called again for more listeners.
    pub fn listen(&self, listener: TcpListener) -> Result<SocketAddr, StartError> {
        let config = self.identity.server_config(&self.names)?;
        self.spawn_listener(listener, Some(config))
    }

    /// Serves plain HTTP on a listener that is already bound. For loopback only: tokens travel in the clear.
    pub fn listen_plain(&self, listener: TcpListener) -> Result<SocketAddr, StartError> {
        self.spawn_listener(listener, None)
    }

    fn spawn_listener(
        &self,
        listener: TcpListener,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Result<SocketAddr, StartError> {
        listener.set_nonblocking(true).map_err(StartError::Listen)?;
        let address = listener.local_addr().map_err(StartError::Listen)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(StartError::Listen)?;
        let task = serve::run(listener, tls, self.context.clone());
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
        Ok(address)
    }

    /// Returns the API as a router. Requests need credentials unless they carry a `User` extension.
    pub fn router(&self) -> axum::Router {
        http::router(self.context.clone())
    }

    /// Returns a client that calls the server in process, as the administrator.
    pub fn client(&self) -> kube::Client {
        self.client_as(User::admin())
    }

    /// Returns a client that calls the server in process as a given user.
    pub fn client_as(&self, user: User) -> kube::Client {
        use tower::ServiceExt;
        let service = self.router().map_request(move |request: ::http::Request<kube::client::Body>| {
            let mut request = request.map(axum::body::Body::new);
            request.extensions_mut().insert(user.clone());
            request
        });
        kube::Client::new(service, "default")
    }

    /// Returns a kubeconfig for the administrator, for a server reachable at this address.
    pub fn kubeconfig(&self, url: &str) -> String {
        self.identity.kubeconfig(url)
    }

    /// Returns the server's keys and certificates.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the state of the server, for controllers in the same process.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Sets the node backend that serves logs, exec and port-forward.
    pub fn set_node(&self, node: NodeBackend) {
        *self.cluster.node.write().unwrap_or_else(PoisonError::into_inner) = Some(node);
    }

    /// Stops watches, listeners and controllers, and flushes queued writes.
    pub async fn stop(self) {
        self.context.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
        let cluster = self.cluster.clone();
        // Joining the committer blocks for one sync at most, but it does block.
        let _ = tokio::task::spawn_blocking(move || cluster.store.close()).await;
    }
}

#[cfg(test)]
mod tests {
    use ::http::{Request, StatusCode};
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::store::faults::FaultyDisk;

    async fn send(server: &Server, method: &str, path: &str, body: &'static str) -> (StatusCode, String) {
        let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        request.extensions_mut().expect("valid").insert(User::admin());
        let request = request.body(Body::from(body)).expect("valid");
        let response = server.router().oneshot(request).await.expect("infallible");
        let status = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    #[tokio::test]
    async fn a_full_disk_makes_the_server_read_only_and_not_ready() {
        let disk = FaultyDisk::default();
        let server = Server::start_with(Options::default(), disk.open()).await.expect("starts");
        let maps = "/api/v1/namespaces/default/configmaps";
        let (status, answer) = send(&server, "POST", maps, r#"{"metadata": {"name": "a"}}"#).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        assert_eq!(send(&server, "GET", "/readyz", "").await.0, StatusCode::OK);
        disk.fill_up();
        for name in [r#"{"metadata": {"name": "b"}}"#, r#"{"metadata": {"name": "c"}}"#] {
            let (status, answer) = send(&server, "POST", maps, name).await;
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
            assert!(answer.contains("refuses changes until it is restarted"), "{answer}");
        }
        let (status, answer) = send(&server, "DELETE", &format!("{maps}/a"), "").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
        let (status, answer) = send(&server, "GET", "/readyz", "").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(answer.contains("[-]store failed"), "{answer}");
        assert_eq!(send(&server, "GET", "/livez", "").await.0, StatusCode::OK);
        assert_eq!(send(&server, "GET", &format!("{maps}/a"), "").await.0, StatusCode::OK, "still readable");
        assert_eq!(send(&server, "GET", &format!("{maps}/b"), "").await.0, StatusCode::NOT_FOUND, "rolled back");
    }
}
