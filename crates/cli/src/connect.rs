//! Finds the cluster to talk to.

use crate::local;
use anyhow::Context;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use manta_operator::connect::config_with;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a connection to the API server may take to open, unless `--request-timeout` says so.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The flags of kubectl that choose a cluster, a user and a namespace.
///
/// Global flags share one namespace of ids with the arguments of all commands; those with common names have another id.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// Namespace [default: the one of the context]
    #[arg(short, long, global = true, value_name = "NAME")]
    namespace: Option<String>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Use the local mode that runs on this machine (in the directory MANTA_STATE)
    #[arg(long, global = true, conflicts_with_all = ["context", "kubeconfig", "kubeconfig-cluster", "kubeconfig-user", "kubeconfig-server"])]
    local: bool,
    /// Cluster of the kubeconfig
    #[arg(id = "kubeconfig-cluster", long = "cluster", global = true, value_name = "NAME", hide_short_help = true)]
    cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(id = "kubeconfig-user", long = "user", global = true, value_name = "NAME", hide_short_help = true)]
    user: Option<String>,
    /// Address of the API server
    #[arg(id = "kubeconfig-server", short, long = "server", global = true, value_name = "URL", hide_short_help = true)]
    server: Option<String>,
    /// Bearer token for the API server
    #[arg(id = "kubeconfig-token", long = "token", global = true, hide_short_help = true)]
    token: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "NAME", hide_short_help = true)]
    as_user: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    as_group: Vec<String>,
    /// UID to impersonate
    #[arg(long, global = true, value_name = "UID", hide_short_help = true)]
    as_uid: Option<String>,
    /// Certificate of the API server's authority
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    certificate_authority: Option<PathBuf>,
    /// Client certificate
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    client_certificate: Option<String>,
    /// Key of the client certificate
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    client_key: Option<String>,
    /// Do not check the API server's certificate
    #[arg(long, global = true, hide_short_help = true)]
    insecure_skip_tls_verify: bool,
    /// Name to expect in the API server's certificate
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    tls_server_name: Option<String>,
    /// Do not ask for compressed responses
    #[arg(long, global = true, hide_short_help = true)]
    disable_compression: bool,
    /// kubectl's cache, which is not used
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    cache_dir: Option<PathBuf>,
    /// How long one request may take, such as 30s; 0 for no limit
    #[arg(long, global = true, value_name = "DURATION", hide_short_help = true, default_value = "0")]
    request_timeout: String,
}

/// A cluster, and the namespace to use there.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// The name of the context, if it comes from a kubeconfig.
    pub(crate) context: Option<String>,
    /// The address of the API server.
    pub(crate) url: String,
}

impl ConnectionArgs {
    /// Returns the cluster that the flags choose; nothing is sent to it yet.
    pub(crate) async fn connect(&self) -> anyhow::Result<Target> {
        let config = self.config().await?;
        Ok(Target {
            namespace: config.default_namespace.clone(),
            context: self.context.clone().or_else(|| current_context(self.kubeconfig_path().ok().flatten().as_deref())),
            url: config.cluster_url.to_string(),
            client: Client::try_from(config).context("cannot use the kubeconfig's credentials")?,
        })
    }

    /// Returns how to reach that cluster.
    pub(crate) async fn config(&self) -> anyhow::Result<kube::Config> {
        let options =
            KubeConfigOptions { context: self.context.clone(), cluster: self.cluster.clone(), user: self.user.clone() };
        let mut config = match (&self.server, config_with(self.kubeconfig_path()?.as_deref(), &options).await) {
            (_, Ok(config)) => config,
            (Some(server), Err(_)) => kube::Config::new(parse_url(server)?),
            (None, Err(error)) => return Err(with_local_hint(error.into())),
        };
        self.override_fields(&mut config)?;
        Ok(config)
    }

    fn kubeconfig_path(&self) -> anyhow::Result<Option<PathBuf>> {
        match self.local {
            true => local::StateArgs::from_environment().kubeconfig_of_running().map(Some),
            false => Ok(self.kubeconfig.clone()),
        }
    }

    /// Returns the kubeconfig that the flags choose.
    pub(crate) fn kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display())),
            None => Kubeconfig::read().context("no kubeconfig found"),
        }
    }

    /// Returns whether the local mode of this machine is meant.
    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    /// Returns the namespace of the command line, if there is one.
    pub(crate) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    fn override_fields(&self, config: &mut kube::Config) -> anyhow::Result<()> {
        if let Some(server) = &self.server {
            config.cluster_url = parse_url(server)?;
        }
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        if let Some(token) = &self.token {
            config.auth_info = kube::config::AuthInfo { token: Some(token.clone().into()), ..Default::default() };
        }
        if let Some(file) = &self.certificate_authority {
            config.root_cert = None;
            config.root_cert_file = Some(file.clone());
        }
        let auth = &mut config.auth_info;
        for (flag, field) in [
            (&self.as_user, &mut auth.impersonate),
            (&self.as_uid, &mut auth.impersonate_uid),
            (&self.client_certificate, &mut auth.client_certificate),
            (&self.client_key, &mut auth.client_key),
            (&self.tls_server_name, &mut config.tls_server_name),
        ] {
            if flag.is_some() {
                field.clone_from(flag);
            }
        }
        if !self.as_group.is_empty() {
            auth.impersonate_groups = Some(self.as_group.clone());
        }
        config.accept_invalid_certs |= self.insecure_skip_tls_verify;
        config.disable_compression |= self.disable_compression;
        let timeout = parse_duration(&self.request_timeout).with_context(|| {
            format!("--request-timeout {} is not a valid duration, for example 30s", self.request_timeout)
        })?;
        config.connect_timeout = Some(if timeout.is_zero() { CONNECT_TIMEOUT } else { timeout });
        if !timeout.is_zero() {
            config.read_timeout = Some(timeout);
        }
        Ok(())
    }
}

impl Target {
    /// Returns the cluster's name for messages.
    pub(crate) fn name(&self) -> String {
        match &self.context {
            Some(context) => format!("{context} ({})", self.url),
            None => self.url.clone(),
        }
    }

    /// Returns why a request failed: the server's sentence, or that there was none from this cluster.
    pub(crate) fn failed(&self, what: &str, error: kube::Error) -> anyhow::Error {
        match error {
            // Says which verb on which resource is missing, where access is refused.
            kube::Error::Api(status) if status.message.is_empty() => anyhow::anyhow!("{what}: {}", status.reason),
            kube::Error::Api(status) => anyhow::anyhow!("{what}: {}", status.message),
            other => anyhow::Error::new(other).context(format!("{what}: no answer from the cluster {}", self.name())),
        }
    }
}

/// Adds to an error that there is no cluster that local mode is one, if it runs.
fn with_local_hint(error: anyhow::Error) -> anyhow::Error {
    match local::StateArgs::from_environment().kubeconfig_of_running() {
        Ok(path) => error.context(format!(
            "no cluster is chosen, but local mode runs on this machine: add --local, or export KUBECONFIG={}",
            path.display()
        )),
        Err(_) => error,
    }
}

fn parse_url(text: &str) -> anyhow::Result<http::Uri> {
    let text = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    text.parse().with_context(|| format!("--server {text} is not a valid address"))
}

fn current_context(kubeconfig: Option<&Path>) -> Option<String> {
    let file = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    file.ok()?.current_context.filter(|name| !name.is_empty())
}

/// Parses a duration as kubectl does: `30s`, `5m`, `1h30m`, or a number of seconds.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |end| digits + end);
        let unit = match &rest[digits..letters] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * unit).ok()?)?;
        rest = &rest[letters..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_kubectl_does() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(parse_duration(text).map(|duration| duration.as_millis() as u64), expect, "{text}");
        };
        check("0", Some(0));
        check("30", Some(30_000));
        check("30s", Some(30_000));
        check("1h30m", Some(5_400_000));
        check("1.5s", Some(1_500));
        check("100ms", Some(100));
        for wrong in ["", "s", "5x", "-1s", "1s5", "é"] {
            check(wrong, None);
        }
    }

    #[test]
    fn a_server_without_a_scheme_is_encrypted() {
        assert_eq!(parse_url("h:6443").unwrap().to_string(), "https://h:6443/");
        assert_eq!(parse_url("http://h").unwrap().to_string(), "http://h/");
    }
}
