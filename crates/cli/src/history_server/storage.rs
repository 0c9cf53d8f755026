//! What KubeRay's collector has stored, in a directory.
//!
//! ```text
//! ROOT/cluster-metadata/raycluster/NS_CLUSTER/SESSION                        an empty file per session
//! ROOT/cluster-metadata/{rayjob,rayservice}/NS_OWNER_CLUSTER/SESSION
//! ROOT/cluster-history/raycluster/NS/CLUSTER/SESSION/NODE/{logs,node_events,job_events/JOB}/…
//! ROOT/cluster-history/{rayjob,rayservice}/NS/OWNER/CLUSTER/SESSION/…
//!                                          SESSION/fetched_endpoints/restful__…
//! ```

use anyhow::{Context, bail};
use jiff::Timestamp;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The largest file that is read, once it is unpacked.
const MAX_BYTES: usize = 512 * 1024 * 1024;
const METADATA: &str = "cluster-metadata";
const HISTORY: &str = "cluster-history";
const SNAPSHOTS: &str = "fetched_endpoints";

/// One session of a Ray cluster: the time between two starts of its head.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SessionKey {
    pub(super) namespace: String,
    pub(super) cluster: String,
    pub(super) session: String,
    /// The RayJob or RayService that the cluster was made for, as its kind in lower case and its name.
    pub(super) owner: Option<(String, String)>,
}

/// A directory with everything that was collected.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    root: PathBuf,
}

impl Storage {
    /// Returns the storage in a directory; fails if that holds nothing of the collector.
    pub(super) fn open(root: &Path) -> anyhow::Result<Self> {
        let metadata = root.join(METADATA);
        if !metadata.is_dir() {
            bail!(
                "{} has no folder {METADATA}: it is not the root of what KubeRay's collector has stored",
                root.display()
            );
        }
        Ok(Self { root: root.to_owned() })
    }

    /// Returns all sessions, the newest first.
    pub(super) fn sessions(&self) -> Vec<SessionKey> {
        let mut sessions = Vec::new();
        for kind in ["raycluster", "rayjob", "rayservice"] {
            let folder = self.root.join(METADATA).join(kind);
            for cluster in names(&folder) {
                for session in names(&folder.join(&cluster)) {
                    sessions.extend(session_key(kind, &cluster, &session));
                }
            }
        }
        sessions.sort_by_key(|key| std::cmp::Reverse((started(&key.session), key.clone())));
        sessions
    }

    /// Returns the folder of a session.
    fn folder(&self, key: &SessionKey) -> PathBuf {
        let history = self.root.join(HISTORY);
        let of_owner = match &key.owner {
            Some((kind, name)) => history.join(kind).join(&key.namespace).join(name),
            None => history.join("raycluster").join(&key.namespace),
        };
        of_owner.join(&key.cluster).join(&key.session)
    }

    /// Returns the ids of the nodes that stored something.
    pub(super) fn nodes(&self, key: &SessionKey) -> Vec<String> {
        names(&self.folder(key)).into_iter().filter(|name| name != SNAPSHOTS).collect()
    }

    /// Returns every line of events, by node.
    pub(super) fn event_lines(&self, key: &SessionKey) -> Vec<String> {
        let mut lines = Vec::new();
        for node in self.nodes(key) {
            let node = self.folder(key).join(node);
            let of_jobs = names(&node.join("job_events")).into_iter().map(|job| node.join("job_events").join(job));
            for folder in std::iter::once(node.join("node_events")).chain(of_jobs) {
                for file in names(&folder) {
                    // A file that was cut off or cannot be unpacked does not hide the others.
                    let text = read(&folder.join(file)).unwrap_or_default();
                    lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
                }
            }
        }
        lines
    }

    /// Returns every line of Ray's event logs, of all nodes.
    pub(super) fn event_log_lines(&self, key: &SessionKey) -> Vec<String> {
        let mut lines = Vec::new();
        for node in self.nodes(key) {
            let is_events = |file: &String| file.starts_with("events/event_") && file.ends_with(".log");
            for file in self.logs(key, &node).unwrap_or_default().iter().filter(|file| is_events(file)) {
                let text = self.log(key, &node, file).unwrap_or_default();
                lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
            }
        }
        lines
    }

    /// Returns a reply of the dashboard that was stored, for a path with its query.
    pub(super) fn snapshot(&self, key: &SessionKey, path: &str, query: &str) -> Option<Vec<u8>> {
        let folder = self.folder(key).join(SNAPSHOTS);
        let name = format!("restful{}", path.trim_end_matches('/').replace('/', "__"));
        let with_query = format!("{name}?{query}");
        let stored = names(&folder);
        let is_same = |stored: &&String| {
            let plain = stored.split('?').next().unwrap_or_default().trim_end_matches("__");
            **stored == with_query || plain == name
        };
        let exact = stored.iter().find(|stored| **stored == with_query);
        read(&folder.join(exact.or_else(|| stored.iter().find(is_same))?)).ok()
    }

    /// Returns the log files of a node, as paths below its log folder.
    pub(super) fn logs(&self, key: &SessionKey, node: &str) -> Option<Vec<String>> {
        let folder = self.folder(key).join(plain(node)?).join("logs");
        let mut found = Vec::new();
        collect(&folder, "", &mut found);
        found.sort();
        Some(found)
    }

    /// Returns the contents of a log file.
    pub(super) fn log(&self, key: &SessionKey, node: &str, file: &str) -> Option<Vec<u8>> {
        let folder = self.folder(key).join(plain(node)?).join("logs");
        let path = Path::new(file);
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        // A link must not lead out of the log folder.
        let (folder, path) = (folder.canonicalize().ok()?, folder.join(path).canonicalize().ok()?);
        if path.starts_with(folder) { read(&path).ok() } else { None }
    }
}

/// Returns a name that is one part of a path.
fn plain(name: &str) -> Option<&str> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Some(name),
        _ => None,
    }
}

/// Reads the name of a folder of markers, `NS_CLUSTER` or `NS_OWNER_CLUSTER`: names in Kubernetes have no underscore.
fn session_key(kind: &str, folder: &str, session: &str) -> Option<SessionKey> {
    let parts: Vec<&str> = folder.split('_').collect();
    let (namespace, cluster, owner) = match (kind, parts.as_slice()) {
        ("raycluster", [namespace, cluster]) => (namespace, cluster, None),
        ("raycluster", _) => return None,
        (kind, [namespace, owner, cluster]) => (namespace, cluster, Some((kind.to_owned(), (*owner).to_owned()))),
        _ => return None,
    };
    let (namespace, cluster) = ((*namespace).to_owned(), (*cluster).to_owned());
    Some(SessionKey { namespace, cluster, session: session.to_owned(), owner })
}

/// Returns when a session started, which is in its name: `session_2026-03-01_08-30-00_123456_1`.
pub(super) fn started(session: &str) -> Option<Timestamp> {
    let mut parts = session.strip_prefix("session_")?.split('_');
    let (date, time) = (parts.next()?, parts.next()?);
    format!("{date}T{}Z", time.replace('-', ":")).parse().ok()
}

/// Returns the names in a folder, sorted; none if it is not there.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

fn collect(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for name in names(folder) {
        let path = folder.join(&name);
        // Links are not followed: they could lead anywhere, or around in a circle.
        let Ok(kind) = fs::symlink_metadata(&path).map(|metadata| metadata.file_type()) else { continue };
        if kind.is_dir() {
            collect(&path, &format!("{prefix}{name}/"), found);
        } else if kind.is_file() {
            found.push(format!("{prefix}{name}"));
        }
    }
}

/// Reads a file, and unpacks one that ends in `.gz`.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if path.extension().is_none_or(|extension| extension != "gz") {
        return Ok(bytes);
    }
    let packed = gzip_body(&bytes).with_context(|| format!("{} is no gzip file", path.display()))?;
    decompress_to_vec_with_limit(packed, MAX_BYTES).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// Returns what follows the header of a gzip file.
fn gzip_body(bytes: &[u8]) -> Option<&[u8]> {
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    const CHECKSUM: u8 = 2;
    let [0x1f, 0x8b, 8, flags, ..] = *bytes else { return None };
    let mut rest = bytes.get(10..)?;
    if flags & EXTRA != 0 {
        let length = usize::from(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]));
        rest = rest.get(2 + length..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & CHECKSUM != 0 { rest.get(2..) } else { Some(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_found_by_their_markers_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let old = "session_2026-03-01_08-30-00_1_1";
        let new = "session_2026-03-02_08-30-00_1_1";
        for path in [
            format!("{METADATA}/raycluster/ns_demo/{old}"),
            format!("{METADATA}/rayjob/ns_train_train-x/{new}"),
            format!("{METADATA}/raycluster/not-a-name/{old}"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = Storage::open(folder.path()).unwrap().sessions();
        let names: Vec<&str> = found.iter().map(|key| key.cluster.as_str()).collect();
        assert_eq!(names, ["train-x", "demo"]);
        assert_eq!(found[0].owner, Some(("rayjob".into(), "train".into())));
        assert_eq!(started(old).unwrap().to_string(), "2026-03-01T08:30:00Z");
        assert_eq!(started("session_x"), None);
        let error = Storage::open(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("has no folder cluster-metadata"), "{error}");
    }

    #[test]
    fn only_files_below_the_log_folder_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let key = SessionKey { namespace: "ns".into(), cluster: "c".into(), session: "s".into(), owner: None };
        let logs = folder.path().join(HISTORY).join("raycluster/ns/c/s/node/logs");
        fs::create_dir_all(logs.join("old")).unwrap();
        fs::create_dir_all(folder.path().join(METADATA)).unwrap();
        fs::write(logs.join("gcs.out"), "hello").unwrap();
        fs::write(logs.join("old/worker.log"), "w").unwrap();
        fs::write(folder.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), logs.join("link")).unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        assert_eq!(storage.logs(&key, "node").unwrap(), ["gcs.out", "old/worker.log"]);
        assert_eq!(storage.log(&key, "node", "gcs.out").unwrap(), b"hello");
        for (node, file) in
            [("node", "../../../secret"), ("node", "link"), ("..", "x"), ("node", "/etc/passwd"), ("node", "none")]
        {
            assert_eq!(storage.log(&key, node, file), None, "{node} {file}");
        }
    }

    #[test]
    fn packed_files_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let body = miniz_oxide::deflate::compress_to_vec(b"line", 6);
        let header = [0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 255, b'n', 0];
        let path = folder.path().join("x.jsonl.gz");
        fs::write(&path, [&header[..], &body, &[0; 8]].concat()).unwrap();
        assert_eq!(read(&path).unwrap(), b"line");
        fs::write(&path, "nonsense").unwrap();
        assert!(read(&path).is_err());
    }
}
