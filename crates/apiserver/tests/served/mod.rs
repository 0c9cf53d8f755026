//! A server that listens, for clients of all kinds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manta_apiserver::{Options, Server};
use manta_testkit::find_kubectl;

/// A server with a listener, a kubeconfig and a folder for what belongs to it. It ends with this value.
pub(crate) struct Served {
    pub(crate) runtime: tokio::runtime::Runtime,
    server: Option<Server>,
    folder: tempfile::TempDir,
}

impl Served {
    /// Starts one; its options may name places in its folder.
    pub(crate) fn start(options: impl FnOnce(&Path) -> Options) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let server = runtime.block_on(async {
            let server = Server::start(options(folder.path())).await.expect("the server starts");
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = server.listen(listener).expect("it listens");
            std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig(&format!("https://{address}")))
                .expect("written");
            server
        });
        Self { runtime, server: Some(server), folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a client inside of the server.
    pub(crate) fn client(&self) -> kube::Client {
        self.server.as_ref().expect("it runs").client()
    }

    /// kubectl, pointed at this server, all its streams piped.
    pub(crate) fn kubectl<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(find_kubectl().expect("kubectl"));
        command.arg("--kubeconfig").arg(self.path("kubeconfig")).arg("--cache-dir").arg(self.path("cache"));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}
