//! The operator's records of objects that are gone: ConfigMaps, or files in a directory.

use crate::connect::{ConnectionArgs, Target};
use crate::output::print_note;
use crate::resource::{Kind, Reference};
use anyhow::{Context, bail};
use manta_logic::explain::Subject;
use manta_logic::post_mortem::{Kept, Summary};
use manta_operator::{record_files, records};
use std::path::{Path, PathBuf};

/// Where records are read from.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct RecordsArgs {
    /// Read the operator's records from this directory, where it keeps them with --post-mortem-directory
    #[arg(long = "records", env = "MANTA_RECORDS", value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl RecordsArgs {
    /// Returns the directory, if records are not in ConfigMaps.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Returns what a list shows of the records of a namespace, the newest first.
    pub(crate) async fn summaries(&self, target: &Target, namespace: Option<&str>) -> anyhow::Result<Vec<Summary>> {
        match self.directory() {
            Some(directory) => in_directory(directory, namespace),
            None => {
                let found = records::summaries(&target.client, namespace).await;
                found.map_err(|error| target.failed("cannot list ConfigMaps", error))
            }
        }
    }

    /// Returns the records that tell about an object, which uses these clusters.
    pub(crate) async fn kept(&self, target: &Target, subject: &Subject, clusters: &[String]) -> anyhow::Result<Kept> {
        match self.directory() {
            Some(directory) => kept_in(directory, subject, clusters),
            None => {
                let found = records::kept(&target.client, subject, clusters).await;
                found.map_err(|error| target.failed("cannot read ConfigMaps", error))
            }
        }
    }

    /// Returns the cluster to ask; nothing where records are files and no cluster answers, which may be gone, too.
    pub(crate) async fn connect(&self, connection: &ConnectionArgs) -> anyhow::Result<Option<Target>> {
        let connected = connection.connect().await;
        if self.directory().is_none() {
            return connected.map(Some);
        }
        let answered = match connected {
            Ok(target) => match target.client.apiserver_version().await {
                Ok(_) | Err(kube::Error::Api(_)) => Ok(target),
                Err(error) => Err(target.failed("cannot get the version", error)),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = &answered {
            print_note(&format!("Without a cluster, only what was recorded is known ({error:#})."));
        }
        Ok(answered.ok())
    }
}

/// Returns the records in a directory that tell about an object, which uses these clusters.
pub(crate) fn kept_in(directory: &Path, subject: &Subject, clusters: &[String]) -> anyhow::Result<Kept> {
    record_files::kept(directory, subject, clusters).with_context(|| unreadable(directory))
}

/// Returns the only one of these objects that has a record in a directory.
pub(crate) fn recorded(directory: &Path, namespace: Option<&str>, references: &[Reference]) -> anyhow::Result<Subject> {
    let is_meant = |summary: &Summary, reference: &Reference| {
        let is_own = summary.kind == reference.kind.name() && summary.name == reference.name;
        is_own || reference.kind == Kind::Cluster && summary.cluster == reference.name
    };
    let mut found: Vec<Subject> = Vec::new();
    for summary in in_directory(directory, namespace)? {
        for reference in references.iter().filter(|reference| is_meant(&summary, reference)) {
            let subject = subject(&summary.namespace, reference);
            if !found.contains(&subject) {
                found.push(subject);
            }
        }
    }
    let name = references.first().map(|reference| reference.name.as_str()).unwrap_or_default();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => bail!("{} has no record of {name}", directory.display()),
        several => {
            let all = several.iter().map(|it| format!("{}/{} -n {}", it.kind.to_lowercase(), it.name, it.namespace));
            bail!("{name} is ambiguous in {}; use one of: {}", directory.display(), all.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns the object that a reference means in a namespace.
pub(crate) fn subject(namespace: &str, reference: &Reference) -> Subject {
    Subject {
        kind: reference.kind.name().to_owned(),
        namespace: namespace.to_owned(),
        name: reference.name.clone(),
        uid: String::new(),
    }
}

/// Returns what a list shows of the records in a directory, the newest first.
pub(crate) fn in_directory(directory: &Path, namespace: Option<&str>) -> anyhow::Result<Vec<Summary>> {
    record_files::summaries(directory, namespace).with_context(|| unreadable(directory))
}

fn unreadable(directory: &Path) -> String {
    format!("cannot read the records in {}", directory.display())
}
