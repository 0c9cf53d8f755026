//! Starts etcd, kube-apiserver and kube-controller-manager with the flags that tests need.

use std::fmt::Display;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::config::{Kubeconfig, NamedAuthInfo};
use serde_json::json;

use super::binaries::Binaries;
use super::{Options, User, block_on, certificates, client_from};
use crate::Supervised;

pub(super) const AUDIT_LOG: &str = "audit.log";
pub(super) const TOKENS: &str = "tokens.csv";

/// The group of all service accounts; only the operator under test has a service account token.
const ACCOUNTS: &str = "\"system:serviceaccounts\"";

/// How long a daemon may take to become ready; generous, because the machine may be busy.
const READY_TIMEOUT: Duration = Duration::from_secs(180);

/// How often a start is tried: another process may take a free port before a daemon binds it.
const ATTEMPTS: u32 = 3;

/// The controllers that the parity cases need; Job is the only workload controller.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,job-controller,serviceaccount-controller,\
    endpoints-controller,endpointslice-controller,ttl-after-finished-controller,resourcequota-controller,\
    clusterrole-aggregation-controller";

pub(super) fn kubeconfig_path(folder: &Path, user: User) -> PathBuf {
    folder.join(format!("{}.kubeconfig", user.name()))
}

/// The running daemons; they are stopped in this order, etcd last.
#[derive(Debug)]
pub(super) struct Daemons {
    manager: Supervised,
    /// None while it is stopped.
    apiserver: Option<Supervised>,
    /// None while it is stopped.
    etcd: Option<Supervised>,
    folder: PathBuf,
    apiserver_command: Command,
    etcd_command: Command,
    etcd_port: u16,
}

impl Daemons {
    /// Returns an error if a daemon has exited.
    pub(super) fn check(&mut self) -> Result<()> {
        [Some(&mut self.manager), self.apiserver.as_mut(), self.etcd.as_mut()]
            .into_iter()
            .flatten()
            .try_for_each(Supervised::check)
    }

    /// Kills the API server; etcd keeps its data.
    pub(super) fn stop_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Starts the API server again at the same address, and waits until it is ready.
    pub(super) fn start_apiserver(&mut self) -> Result<()> {
        if self.apiserver.is_none() {
            self.apiserver = Some(Supervised::start(&self.folder, "kube-apiserver", &self.apiserver_command)?);
        }
        self.wait_until_ready()
    }

    /// Kills etcd; its data stay on disk.
    pub(super) fn stop_etcd(&mut self) {
        self.etcd = None;
    }

    /// Starts etcd again at the same address with its data, and waits until the API server is ready.
    pub(super) fn start_etcd(&mut self) -> Result<()> {
        if self.etcd.is_none() {
            self.etcd = Some(Supervised::start(&self.folder, "etcd", &self.etcd_command)?);
        }
        self.wait_until_ready()
    }

    /// Returns host and port of etcd.
    pub(super) fn etcd_address(&self) -> String {
        format!("127.0.0.1:{}", self.etcd_port)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let folder = self.folder.clone();
        wait_until("kube-apiserver is ready again", || self.check(), || block_on(is_ready(&folder)))
    }
}

/// Starts all three daemons.
pub(super) fn start(binaries: &Binaries, folder: &Path, options: Options) -> Result<Daemons> {
    certificates::write(folder)?;
    let mut failure = None;
    for _ in 0..ATTEMPTS {
        match try_start(binaries, folder, options) {
            Ok(daemons) => return Ok(daemons),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure
        .context("no start was attempted")?
        .context(format!("all {ATTEMPTS} starts failed; the last error follows")))
}

fn try_start(binaries: &Binaries, folder: &Path, options: Options) -> Result<Daemons> {
    let [etcd_port, peer_port, api_port] = free_ports()?;
    let _ = fs::remove_dir_all(folder.join("etcd"));
    write_access(folder, api_port)?;
    // Only the last one removes the directory when it ends; the others may be stopped and started again.
    let etcd_command = etcd_command(&binaries.etcd, folder, etcd_port, peer_port);
    let mut etcd = Supervised::start(folder, "etcd", &etcd_command)?;
    let apiserver_command = apiserver_command(&binaries.apiserver, folder, etcd_port, api_port, options)?;
    let mut apiserver = Supervised::start(folder, "kube-apiserver", &apiserver_command)?;
    wait_until(
        "kube-apiserver is ready",
        || [&mut apiserver, &mut etcd].into_iter().try_for_each(Supervised::check),
        || block_on(is_ready(folder)),
    )?;
    let manager_command = controller_manager_command(&binaries.controller_manager, folder);
    let manager = Supervised::start_cleaning(folder, "kube-controller-manager", &manager_command, Some(folder))?;
    let mut daemons = Daemons {
        manager,
        apiserver: Some(apiserver),
        etcd: Some(etcd),
        folder: folder.to_owned(),
        apiserver_command,
        etcd_command,
        etcd_port,
    };
    wait_until("kube-controller-manager works", || daemons.check(), || block_on(has_default_account(folder)))?;
    Ok(daemons)
}

/// Returns ports that were free a moment ago; all are held until the last is known, so that they differ.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port on loopback")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

pub(super) fn token(user: User) -> String {
    format!("{}-token", user.name())
}

/// Writes the token file, one line per user.
pub(super) fn write_tokens(folder: &Path) -> Result<()> {
    let tokens: String = User::ALL
        .map(|user| format!("{},{},{},\"{}\"\n", token(user), user.name(), user.name(), user.group()))
        .concat();
    Ok(fs::write(folder.join(TOKENS), tokens)?)
}

/// Writes the token file and one kubeconfig per user.
fn write_access(folder: &Path, api_port: u16) -> Result<()> {
    write_tokens(folder)?;
    let server = format!("https://127.0.0.1:{api_port}");
    for user in User::ALL {
        let config = kubeconfig(folder, &server, user.name(), &token(user));
        fs::write(kubeconfig_path(folder, user), config)?;
    }
    Ok(())
}

/// Returns a kubeconfig with one server and one token.
fn kubeconfig(folder: &Path, server: &str, user: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters:\n- name: test\n  cluster:\n    server: {server}\n    certificate-authority: {ca}\n\
         contexts:\n- name: test\n  context:\n    cluster: test\n    user: {user}\n\
         users:\n- name: {user}\n  user:\n    token: {token}\n",
        ca = folder.join("ca.crt").display(),
    )
}

/// Returns the kubeconfig with this token as its only credential.
pub(super) fn with_token(config: &Kubeconfig, token: &str) -> Result<Kubeconfig> {
    let mut config = config.clone();
    for NamedAuthInfo { auth_info, .. } in &mut config.auth_infos {
        *auth_info = Some(serde_json::from_value(json!({"token": token}))?);
    }
    Ok(config)
}

fn etcd_command(program: &Path, folder: &Path, port: u16, peer_port: u16) -> Command {
    let (url, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(folder.join("etcd"));
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    // Nothing outlives the test, so durability would only cost time.
    command.args(["--unsafe-no-fsync", "--quota-backend-bytes", "4294967296", "--log-level", "warn"]);
    command
}

fn apiserver_command(program: &Path, folder: &Path, etcd_port: u16, port: u16, options: Options) -> Result<Command> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = Command::new(program);
    // Boolean flags need the form --name=value, so all flags use it.
    let mut flag = |name: &str, value: &dyn Display| {
        command.arg(format!("--{name}={value}"));
    };
    flag("etcd-servers", &format!("http://127.0.0.1:{etcd_port}"));
    flag("bind-address", &"127.0.0.1");
    flag("advertise-address", &"127.0.0.1");
    flag("secure-port", &port.to_string());
    flag("tls-cert-file", &file("apiserver.crt"));
    flag("tls-private-key-file", &file("apiserver.key"));
    flag("service-account-issuer", &"https://kubernetes.default.svc");
    flag("service-account-key-file", &file("sa.pub"));
    flag("service-account-signing-key-file", &file("sa.key"));
    flag("service-cluster-ip-range", &"10.96.0.0/16");
    flag("token-auth-file", &file(TOKENS));
    flag("authorization-mode", &if options.rbac { "RBAC" } else { "AlwaysAllow" });
    // Pods have no token to mount, and the plugin would reject pods whose service account does not exist yet.
    flag("disable-admission-plugins", &"ServiceAccount");
    flag("endpoint-reconciler-type", &"none");
    flag("allow-privileged", &"true");
    if options.json_storage {
        flag("storage-media-type", &"application/json");
    }
    if options.audit {
        let policy = format!(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
             rules: [{{level: Metadata, userGroups: [{}, {ACCOUNTS}]}}, {{level: None}}]\n",
            User::Operator.group()
        );
        fs::write(file("audit-policy.yaml"), policy)?;
        flag("audit-policy-file", &file("audit-policy.yaml"));
        flag("audit-log-path", &file(AUDIT_LOG));
        flag("audit-log-maxsize", &"10000");
    }
    Ok(command)
}

fn controller_manager_command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig_path(folder, User::Controllers));
    command.args(["--controllers", CONTROLLERS, "--leader-elect=false", "--secure-port=0"]);
    command.args(["--concurrent-gc-syncs=20", "--kube-api-qps=200", "--kube-api-burst=400"]);
    command
}

async fn is_ready(folder: &Path) -> Result<bool> {
    let client = client_from(&kubeconfig_path(folder, User::Admin)).await?;
    let request = http::Request::get("/readyz").body(Vec::new())?;
    Ok(client.request_text(request).await.is_ok())
}

/// Whether the service account controller has created the default account of the default namespace.
async fn has_default_account(folder: &Path) -> Result<bool> {
    let client = client_from(&kubeconfig_path(folder, User::Admin)).await?;
    Ok(Api::<ServiceAccount>::namespaced(client, "default").get_opt("default").await.ok().flatten().is_some())
}

pub(super) fn wait_until(
    what: &str,
    mut check: impl FnMut() -> Result<()>,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + READY_TIMEOUT;
    while !done()? {
        check()?;
        if Instant::now() > end {
            bail!("timed out after {} s: {what}", READY_TIMEOUT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
