//! The binaries of a release, `manta` and `manta-operator`: static, so that they run on any Linux of their architecture.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::archive::run;
use crate::process::{Outcome, cargo, print_line, run_command, succeeds};
use crate::workspace;

/// The binary `manta` to package; the one of the operator alone lies beside it.
#[derive(Debug)]
pub(super) struct Binary {
    pub(super) path: PathBuf,
    /// Rust's name of the architecture, such as `x86_64`.
    pub(super) architecture: String,
    pub(super) target: String,
    pub(super) linkage: Linkage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linkage {
    Static,
    /// Needs the libraries of this machine, as debug builds do; only tests package such a binary.
    Dynamic,
}

impl Binary {
    /// Builds static release binaries.
    pub(super) fn build(target: Option<&str>) -> Result<Self> {
        let target = match target {
            Some(target) => target.to_owned(),
            None => default_target(&host()?, &installed_targets(), has_musl_compiler()),
        };
        print_line(&format!("building manta {} for {target}", super::VERSION));
        let mut command = cargo();
        command.args(["build", "--release", "--locked", "--target", &target]);
        command.args(["--package", "manta", "--package", "manta-operator"]);
        // Only for this target: build scripts and procedural macros stay dynamic.
        let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.to_uppercase().replace('-', "_"));
        command.env(flags, "-C target-feature=+crt-static").env_remove("RUSTFLAGS");
        if let Outcome::Failed(why) = run_command(&mut command)? {
            bail!("cannot build manta for {target}: {why}; is the target installed (rustup target add {target})?");
        }
        let folder =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace::root().join("target"), PathBuf::from);
        let binary = Self::new(folder.join(&target).join("release/manta"), target)?;
        ensure!(binary.linkage == Linkage::Static, "{} is not a static binary", binary.path.display());
        Ok(binary)
    }

    /// Takes a binary of this machine's architecture that was built before.
    pub(super) fn existing(path: &Path) -> Result<Self> {
        Self::new(path.to_owned(), host()?)
    }

    fn new(path: PathBuf, target: String) -> Result<Self> {
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let linkage = linkage(&bytes).with_context(|| format!("{} is not a 64-bit ELF file", path.display()))?;
        let architecture = target.split('-').next().unwrap_or_default().to_owned();
        Ok(Self { path, architecture, target, linkage })
    }

    /// Returns the path of the operator's own binary.
    pub(super) fn operator(&self) -> PathBuf {
        self.path.with_file_name("manta-operator")
    }

    /// Returns the part of file names that tells platforms apart, such as `linux-x86_64`.
    pub(super) fn platform(&self) -> String {
        format!("linux-{}", self.architecture)
    }

    /// Whether this machine can execute it.
    pub(super) fn runs_here(&self) -> Result<bool> {
        Ok(host()?.split('-').next() == Some(&self.architecture))
    }
}

/// Returns the target triple of this machine.
fn host() -> Result<String> {
    let version = run(Command::new("rustc").arg("-vV").current_dir(workspace::root()))?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc -vV names no host")?.to_owned())
}

/// Returns the targets that rustup has installed; none without rustup.
fn installed_targets() -> Vec<String> {
    let list = run(Command::new("rustup").args(["target", "list", "--installed"]).current_dir(workspace::root()));
    list.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Whether C code of dependencies can be compiled for musl.
fn has_musl_compiler() -> bool {
    succeeds(Command::new("musl-gcc").arg("--version"))
}

/// Prefers musl, which is made for static linking.
fn default_target(host: &str, installed: &[String], has_musl_compiler: bool) -> String {
    let musl = format!("{}-unknown-linux-musl", host.split('-').next().unwrap_or_default());
    if has_musl_compiler && installed.contains(&musl) { musl } else { host.to_owned() }
}

/// Returns how an ELF file is linked: a program interpreter means dynamically.
fn linkage(bytes: &[u8]) -> Option<Linkage> {
    const CLASS_64: u8 = 2;
    const PT_INTERP: u64 = 3;
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    if bytes.get(..5)? != [0x7f, b'E', b'L', b'F', CLASS_64] {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let kinds = (0..count).map(|index| number(usize::try_from(table + index * size).ok()?, 4));
    let kinds: Vec<u64> = kinds.collect::<Option<_>>()?;
    Some(if kinds.contains(&PT_INTERP) { Linkage::Dynamic } else { Linkage::Static })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn musl_is_preferred_where_it_is_installed() {
        let gnu = "aarch64-unknown-linux-gnu".to_owned();
        let musl = "aarch64-unknown-linux-musl".to_owned();
        assert_eq!(default_target(&gnu, std::slice::from_ref(&gnu), true), gnu);
        assert_eq!(default_target(&gnu, &[gnu.clone(), musl.clone()], true), musl);
        assert_eq!(default_target(&gnu, &[gnu.clone(), musl], false), gnu);
        assert_eq!(default_target(&gnu, &["x86_64-unknown-linux-musl".to_owned()], true), gnu);
    }

    #[test]
    fn linkage_is_read_from_the_program_headers() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(linkage(&own), Some(Linkage::Dynamic));
        let mut elf = vec![0; 64 + 56];
        elf[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2]);
        (elf[32], elf[54], elf[56], elf[64]) = (64, 56, 1, 1);
        assert_eq!(linkage(&elf), Some(Linkage::Static));
        elf[64] = 3;
        assert_eq!(linkage(&elf), Some(Linkage::Dynamic));
        assert_eq!(linkage(&elf[..70]), Some(Linkage::Dynamic));
        assert_eq!(linkage(&elf[..60]), None);
        assert_eq!(linkage(b"#!/bin/sh\n"), None);
    }
}
