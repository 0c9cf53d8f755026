//! Post-mortems as files in a directory, such as a mounted volume or bucket: `NAMESPACE/NAME.json`, each with the
//! ConfigMap that it would be otherwise.

use jiff::Timestamp;
use manta_logic::explain::Subject;
use manta_logic::post_mortem::{Kept, Limits, Record, Summary, expired, kept_about};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tracing::warn;

/// The ending of a record's file.
const EXTENSION: &str = "json";
/// A larger file is no record.
const LARGEST: u64 = 4 << 20;

/// Writes a record in place of an earlier one of the same name, and deletes those of its namespace that are too old or too
/// many.
pub(crate) fn put(directory: &Path, record: &Value, now: Timestamp, limits: &Limits) -> io::Result<()> {
    let text = |field: &str| record["metadata"][field].as_str().unwrap_or_default();
    let folder = directory.join(text("namespace"));
    fs::create_dir_all(&folder)?;
    let path = folder.join(text("name")).with_extension(EXTENSION);
    // Readers see the old record or the new one, and never a part.
    let partial = path.with_extension("partial");
    fs::write(&partial, record.to_string())?;
    fs::rename(&partial, &path)?;
    expire_in(&folder, now, limits)
}

/// Deletes the records of all namespaces that are too old or too many.
pub(crate) fn expire(directory: &Path, now: Timestamp, limits: &Limits) -> io::Result<()> {
    namespaces(directory)?.iter().try_for_each(|folder| expire_in(folder, now, limits))
}

/// Returns what a list shows of all records of a namespace, or of all namespaces, the newest first.
///
/// # Errors
/// Fails if the directory cannot be read. Files that are no records are left out.
pub fn summaries(directory: &Path, namespace: Option<&str>) -> io::Result<Vec<Summary>> {
    let mut folders = namespaces(directory)?;
    folders.retain(|folder| namespace.is_none_or(|namespace| folder.ends_with(namespace)));
    let mut summaries = Vec::new();
    for folder in folders {
        summaries.extend(records(&folder)?.iter().filter_map(|(_, record)| Summary::of(record)));
    }
    summaries.sort_by_key(|summary| std::cmp::Reverse(summary.at));
    Ok(summaries)
}

/// Returns the records that tell about an object, which uses these clusters.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn kept(directory: &Path, subject: &Subject, clusters: &[String]) -> io::Result<Kept> {
    let all = summaries(directory, Some(&subject.namespace))?;
    let chosen = kept_about(&all, subject, clusters);
    let folder = directory.join(&subject.namespace);
    let read = |summary: &Summary| read_record(&folder, summary);
    let failures = chosen.failures.iter().filter_map(|summary| read(summary).transpose()).collect::<io::Result<_>>()?;
    Ok(Kept { end: chosen.end.as_ref().map(read).transpose()?.flatten(), failures })
}

fn read_record(folder: &Path, summary: &Summary) -> io::Result<Option<Record>> {
    let path = folder.join(&summary.record).with_extension(EXTENSION);
    let Some(value) = read(&path)? else { return Ok(None) };
    Ok(Record::of(&value).inspect_err(|error| warn!(path = %path.display(), error, "cannot read a post-mortem")).ok())
}

fn expire_in(folder: &Path, now: Timestamp, limits: &Limits) -> io::Result<()> {
    let entry = |(path, record): (PathBuf, Value)| {
        (path.to_string_lossy().into_owned(), String::new(), Summary::of(&record).and_then(|summary| summary.at))
    };
    let kept: Vec<_> = records(folder)?.into_iter().map(entry).collect();
    expired(&kept, now, limits).into_iter().try_for_each(|(path, _)| match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    })
}

/// Returns the folders of the namespaces.
fn namespaces(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.iter().map(fs::DirEntry::path).filter(|path| path.is_dir()).collect())
}

/// Returns the files of a folder that hold JSON.
fn records(folder: &Path) -> io::Result<Vec<(PathBuf, Value)>> {
    let mut records = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION)
            && let Some(record) = read(&path)?
        {
            records.push((path, record));
        }
    }
    Ok(records)
}

/// Reads a file; nothing if it is gone, too large, or no JSON.
fn read(path: &Path) -> io::Result<Option<Value>> {
    let text = match path.metadata() {
        Ok(metadata) if metadata.is_file() && metadata.len() <= LARGEST => fs::read(path),
        Ok(_) => return Ok(None),
        Err(error) => Err(error),
    };
    match text {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manta_logic::explain::Evidence;
    use manta_logic::post_mortem::{Occasion, config_map};
    use serde_json::json;

    fn evidence(namespace: &str, name: &str, at: &str) -> Evidence {
        let subject = json!({"kind": "RayJob", "namespace": namespace, "name": name, "uid": name});
        Evidence { subject: serde_json::from_value(subject).unwrap(), at: at.parse().unwrap(), ..Evidence::default() }
    }

    fn subject(namespace: &str, name: &str) -> Subject {
        evidence(namespace, name, "2026-01-01T00:00:00Z").subject
    }

    #[test]
    fn records_are_found_again_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("records");
        let limits = Limits { count: 2, ..Limits::default() };
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        for (namespace, name, minute) in [("a", "one", 1), ("a", "two", 2), ("b", "one", 3), ("a", "three", 4)] {
            let evidence = evidence(namespace, name, &format!("2026-01-01T00:0{minute}:00Z"));
            put(&directory, &config_map(&evidence, Occasion::Ended, &limits), now, &limits).unwrap();
        }
        let names = |namespace| -> Vec<String> {
            let found = summaries(&directory, namespace).unwrap();
            found.into_iter().map(|summary| format!("{}/{}", summary.namespace, summary.name)).collect()
        };
        assert_eq!(names(Some("a")), ["a/three", "a/two"], "the oldest is gone");
        assert_eq!(names(None), ["a/three", "b/one", "a/two"]);
        assert_eq!(names(Some("c")), [] as [&str; 0]);
        let found = kept(&directory, &subject("b", "one"), &[]).unwrap().end.unwrap();
        assert_eq!(found.summary.at, Some("2026-01-01T00:03:00Z".parse().unwrap()));
        assert_eq!(kept(&directory, &subject("a", "one"), &[]).unwrap(), Kept::default());
        expire(&directory, "2026-03-01T00:00:00Z".parse().unwrap(), &limits).unwrap();
        assert_eq!(names(None), [] as [&str; 0], "all are too old");
    }

    #[test]
    fn other_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = folder.path().join("a");
        fs::create_dir(&namespace).unwrap();
        for (name, text) in [("notes.txt", "hello"), ("broken.json", "{"), ("other.json", "{\"kind\": \"Pod\"}")] {
            fs::write(namespace.join(name), text).unwrap();
        }
        fs::write(folder.path().join("readme"), "hello").unwrap();
        assert_eq!(summaries(folder.path(), None).unwrap(), []);
        assert_eq!(kept(folder.path(), &subject("a", "other"), &[]).unwrap(), Kept::default());
        assert!(summaries(&folder.path().join("missing"), None).is_err());
    }
}
