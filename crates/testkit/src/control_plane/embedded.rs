//! Starts `manta apiserver` instead of etcd, kube-apiserver and kube-controller-manager.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use kube::config::Kubeconfig;

use super::{Options, User, daemons};
use crate::Supervised;

/// Starts it with the users of the real control plane, and waits until it is ready.
pub(super) fn start(manta: &Path, folder: &Path, options: Options) -> Result<Supervised> {
    daemons::write_tokens(folder)?;
    let written = folder.join("server.kubeconfig");
    let mut command = Command::new(manta);
    command.arg("apiserver").arg("--data").arg(folder.join("data")).arg("--kubeconfig").arg(&written);
    command.arg("--token-auth-file").arg(folder.join(daemons::TOKENS));
    if options.rbac {
        command.arg("--rbac");
    }
    if options.audit {
        command.arg("--audit-log").arg(folder.join(daemons::AUDIT_LOG));
    }
    let mut daemon = Supervised::start_cleaning(folder, "manta-apiserver", &command, Some(folder))?;
    // The server writes the file once it is ready.
    daemons::wait_until("manta apiserver is ready", || daemon.check(), || Ok(written.is_file()))?;
    let config = Kubeconfig::read_from(&written).context("the kubeconfig of manta apiserver")?;
    for user in User::ALL {
        let config = daemons::with_token(&config, &daemons::token(user))?;
        fs::write(daemons::kubeconfig_path(folder, user), serde_saphyr::to_string(&config)?)?;
    }
    Ok(daemon)
}
