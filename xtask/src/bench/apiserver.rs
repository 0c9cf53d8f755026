//! Compares the embedded API server with kube-apiserver and etcd, by `crates/apiserver/benches/server.rs` in release.

use anyhow::{Result, bail};

use crate::process::{Outcome, cargo, run_command};

pub(super) fn run() -> Result<()> {
    match run_command(cargo().args(["bench", "--quiet", "--package", "manta-apiserver", "--bench", "server"]))? {
        Outcome::Failed(why) => bail!("the benchmark failed: {why}"),
        _ => Ok(()),
    }
}
