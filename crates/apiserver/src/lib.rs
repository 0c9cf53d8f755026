//! A Kubernetes API server in process, for one machine; it knows nothing of Ray.
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
use crate::http::Front;
use crate::node::NodeBackend;
use crate::ops::{Cluster, ServiceIps};
use crate::store::Store;
use crate::tls::{Identity, IdentityError};

/// How a server is to behave.
#[derive(Default)]
pub struct Options {
    /// Where objects and keys are kept; in memory only without one.
    pub data: Option<PathBuf>,
    /// Callers need no credentials. For listeners that nobody else can reach.
    pub trust_everyone: bool,
    /// Roles decide who may do what.
    pub rbac: bool,
    /// A file of further tokens: `token,user,uid,"group,group"`.
    pub token_file: Option<PathBuf>,
    /// Where to write one line per request.
    pub audit_log: Option<PathBuf>,
    /// Further names and addresses for the server's certificate.
    pub names: Vec<String>,
    /// Pods get a service account and its token, as a full cluster's admission does.
    pub admit_service_accounts: bool,
    /// Where claims get their folders; claims stay pending without one.
    pub volumes: Option<PathBuf>,
    /// Time and chance; the system's if nothing is said.
    pub clock: Option<Clock>,
    /// What serves logs, exec and connections into pods.
    pub node: Option<NodeBackend>,
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
    /// The first objects could not be made.
    #[error("cannot make the first objects: {0}")]
    Bootstrap(error::ApiError),
}

/// A running server. Dropping it without `stop` ends it less politely.
pub struct Server {
    cluster: Arc<Cluster>,
    identity: Arc<Identity>,
    names: Vec<String>,
    front: Front,
    tasks: Mutex<JoinSet<()>>,
}

impl Server {
    /// Starts a server without listeners; it can already be used through `client`.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        let identity = Arc::new(Identity::load(options.data.as_deref())?);
        let store = match &options.data {
            Some(directory) => Store::open(directory)?,
            None => Store::in_memory(),
        };
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
            admit_service_accounts: options.admit_service_accounts,
            node: RwLock::new(options.node),
        });
        bootstrap::run(&cluster).map_err(StartError::Bootstrap)?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        controllers::spawn(&cluster, &identity.ca_pem, options.volumes, &stop, &mut tasks);
        let front = Front { cluster: cluster.clone(), stop, audit };
        Ok(Server { cluster, identity, names: options.names, front, tasks: Mutex::new(tasks) })
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
        let task = serve::run(listener, tls, self.front.clone());
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
        Ok(address)
    }

    /// The API as a router. Requests need credentials unless they carry a `User` extension.
    pub fn router(&self) -> axum::Router {
        http::router(self.front.clone())
    }

    /// A client that calls the server in process, as the administrator.
    pub fn client(&self) -> kube::Client {
        self.client_as(User::admin())
    }

    /// A client that calls the server in process as a given user.
    pub fn client_as(&self, user: User) -> kube::Client {
        use tower::ServiceExt;
        let service = self.router().map_request(move |request: ::http::Request<kube::client::Body>| {
            let mut request = request.map(axum::body::Body::new);
            request.extensions_mut().insert(user.clone());
            request
        });
        kube::Client::new(service, "default")
    }

    /// A kubeconfig for the administrator, for a server reachable at this address.
    pub fn kubeconfig(&self, url: &str) -> String {
        self.identity.kubeconfig(url)
    }

    /// Keys and certificates, for those who make more of them.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The state of the server, for controllers that live beside it.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Sets what serves logs, exec and connections into pods.
    pub fn set_node(&self, node: NodeBackend) {
        *self.cluster.node.write().unwrap_or_else(PoisonError::into_inner) = Some(node);
    }

    /// Ends watches, listeners and controllers, and writes what is still queued.
    pub async fn stop(self) {
        self.front.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
        let cluster = self.cluster.clone();
        // Joining the committer blocks for one sync at most, but it does block.
        let _ = tokio::task::spawn_blocking(move || cluster.store.close()).await;
    }
}
