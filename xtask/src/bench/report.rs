//! The report of a run: all figures as JSON, and tables for people.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Settings;
use super::machine::Machine;
use super::measured::Measured;
use super::services;
use super::table::tables;
use crate::process::print_line;
use crate::workspace;

/// Everything that a run measured. The file is complete after every trial, so a run that is interrupted leaves what it has.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    /// How our own programs were built.
    profile: String,
    pub(super) measured: Vec<Measured>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub(super) failed: Vec<String>,
    /// What this machine cannot measure, and was not asked for by name.
    #[serde(default)]
    skipped: Vec<String>,
    #[serde(skip)]
    path: PathBuf,
    #[serde(skip)]
    kept: Option<PathBuf>,
}

impl Report {
    pub(super) fn begin(settings: &Settings) -> Result<Self> {
        let folder = workspace::target_folder()?.with_file_name("bench");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
        let inside = std::env::var_os(services::INSIDE).map(PathBuf::from);
        let machine = Machine::here();
        print_line(&machine.line());
        let documented = |name: &String| workspace::root().join("docs/performance").join(format!("{name}.json"));
        Ok(Self {
            machine,
            profile: format!("{:?}", settings.profile).to_lowercase(),
            measured: Vec::new(),
            failed: Vec::new(),
            skipped: Vec::new(),
            path: inside.clone().unwrap_or_else(|| folder.join(format!("{time}.json"))),
            kept: settings.keep.as_ref().filter(|_| inside.is_none()).map(documented),
        })
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not a report", path.display()))
    }

    /// Adds what a trial measured, and prints it.
    pub(super) fn add(&mut self, measured: Measured) -> Result<()> {
        print_line(&tables(std::slice::from_ref(&measured)));
        self.measured.push(measured);
        self.write()
    }

    /// Adds what could not be measured, and prints it.
    pub(super) fn add_failure(&mut self, failure: String) -> Result<()> {
        print_line(&format!("failed: {failure}"));
        self.failed.push(failure);
        self.write()
    }

    /// Adds what this machine cannot measure, and prints it.
    pub(super) fn add_skipped(&mut self, skipped: String) -> Result<()> {
        print_line(&format!("skipped: {skipped}"));
        self.skipped.push(skipped);
        self.write()
    }

    fn write(&self) -> Result<()> {
        std::fs::write(&self.path, serde_json::to_string(self)?)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.measured.is_empty() && self.failed.is_empty()
    }

    /// Prints everything side by side, and writes the tables beside the JSON. Fails if something could not be measured.
    pub(super) fn finish(mut self) -> Result<()> {
        if std::env::var_os(services::INSIDE).is_some() {
            return Ok(());
        }
        let failed = self.failed.iter().map(|failure| format!("\nfailed: {failure}\n"));
        let missing: String =
            failed.chain(self.skipped.iter().map(|skipped| format!("\nskipped: {skipped}\n"))).collect();
        let text = format!("{} ({} build)\n{}{missing}", self.machine.line(), self.profile, tables(&self.measured));
        print_line(&format!("\n{text}"));
        std::fs::write(self.path.with_extension("md"), &text)?;
        print_line(&format!("all figures are in {}", self.path.display()));
        if let Some(path) = self.kept.take() {
            self.measured.iter_mut().for_each(|measured| measured.samples.clear());
            std::fs::create_dir_all(path.parent().context("no directory to write to")?)?;
            std::fs::write(&path, serde_json::to_string_pretty(&self)? + "\n")?;
            print_line(&format!("the figures without samples are in {}", path.display()));
        }
        if !self.failed.is_empty() {
            bail!("{} measurements failed", self.failed.len());
        }
        Ok(())
    }
}
