//! The embedded API server beside kube-apiserver with etcd: `crates/apiserver/benches/server.rs` measures, in release.

use anyhow::{Result, bail};

use crate::process::{Outcome, cargo, passes};

pub(super) fn run() -> Result<()> {
    match passes(cargo().args(["bench", "--quiet", "--package", "manta-apiserver", "--bench", "server"]))? {
        Outcome::Failed(why) => bail!("the benchmark failed: {why}"),
        _ => Ok(()),
    }
}
