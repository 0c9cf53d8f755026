//! Disks that fail: the store refuses further writes, stays readable, and loses nothing acknowledged.

use std::io;
use std::sync::{Arc, Mutex};

use redb::{Database, ReadableDatabase, ReadableTableMetadata, StorageBackend, TableDefinition};
use serde_json::json;

use super::*;

#[derive(Debug, Clone, Copy)]
enum Fault {
    NoSpace,
    Io,
    Panic,
}

/// A disk in memory that fails from a given write on.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultyDisk {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// How many more writes and syncs succeed, and what happens then.
    armed: Arc<Mutex<Option<(usize, Fault)>>>,
}

impl FaultyDisk {
    fn arm(&self, after: usize, fault: Fault) {
        *self.armed.lock().unwrap() = Some((after, fault));
    }

    /// Makes every write fail from now on.
    pub(crate) fn fill_up(&self) {
        self.arm(0, Fault::NoSpace);
    }

    fn disarm(&self) {
        *self.armed.lock().unwrap() = None;
    }

    fn strike(&self) -> Result<(), io::Error> {
        let fault = match self.armed.lock().unwrap().as_mut() {
            None => return Ok(()),
            Some((left, _)) if *left > 0 => {
                *left -= 1;
                return Ok(());
            }
            Some((_, fault)) => *fault,
        };
        match fault {
            Fault::NoSpace => Err(io::Error::from_raw_os_error(28)),
            Fault::Io => Err(io::Error::from_raw_os_error(5)),
            Fault::Panic => panic!("the disk is on fire"),
        }
    }

    pub(crate) fn open(&self) -> Store {
        let database = Database::builder().create_with_backend(self.clone()).expect("opens");
        Store::load(Disk { database, path: "memory".to_owned() }).expect("loads")
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let bytes = self.bytes.lock().unwrap();
        let start = offset as usize;
        out.copy_from_slice(bytes.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.strike()?;
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.strike()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.strike()?;
        let mut bytes = self.bytes.lock().unwrap();
        let (start, end) = (offset as usize, offset as usize + data.len());
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(data);
        Ok(())
    }
}

fn pods() -> Arc<str> {
    "pods".into()
}

fn create(store: &Store, name: &str) -> Result<Arc<Entry>, CommitError> {
    let value = json!({"metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": "owner"}]}});
    store.commit(&pods(), ObjectKey::new("n", name), Write::Create(value))
}

fn names(store: &Store) -> Vec<String> {
    let page = store.list("pods", &ListRange::default(), |_| true).expect("current");
    page.entries.iter().map(|entry| entry.key.name.to_string()).collect()
}

#[tokio::test]
async fn a_failing_disk_refuses_writes_and_loses_nothing_acknowledged() {
    for fault in [Fault::NoSpace, Fault::Io, Fault::Panic] {
        for after in 0..6 {
            let disk = FaultyDisk::default();
            let store = disk.open();
            let mut acknowledged = Vec::new();
            let mut follower = store.follow(&pods(), 1);
            for index in 0..30 {
                if index == 5 {
                    disk.arm(after, fault);
                }
                let name = format!("pod-{index:02}");
                // Two at a time, so that batches hold more than one change.
                let (one, other) = (create(&store, &name), create(&store, &format!("{name}-b")));
                for (entry, name) in [(one, name.clone()), (other, format!("{name}-b"))] {
                    if let Ok(entry) = entry
                        && store.wait_visible(entry.revision).await.is_ok()
                    {
                        acknowledged.push(name);
                    }
                }
            }
            let context = format!("{fault:?} after {after} writes");
            assert!((10..60).contains(&acknowledged.len()), "{context}: {} acknowledged", acknowledged.len());
            assert!(store.failure().is_some(), "{context}");
            assert!(matches!(create(&store, "late"), Err(CommitError::Unavailable(_))), "{context}");
            // Memory shows what the disk has promised, no more and no less.
            assert_eq!(names(&store), acknowledged, "{context}");
            assert_eq!(store.dependents(Uid::parse("owner")).len(), acknowledged.len(), "{context}");
            assert_eq!(follower.poll(100).expect("remembered").len(), acknowledged.len(), "{context}");
            drop(store);
            disk.disarm();
            let reopened = names(&disk.open());
            assert!(acknowledged.iter().all(|name| reopened.contains(name)), "{context}: {reopened:?}");
        }
    }
}

#[tokio::test]
async fn an_object_that_nests_too_deeply_is_refused_before_it_is_written() {
    let disk = FaultyDisk::default();
    let store = disk.open();
    let nested = |depth: usize| {
        let deep = (0..depth - 1).fold(json!(1), |inner, _| json!([inner]));
        json!({"metadata": {"name": "a"}, "deep": deep})
    };
    let commit =
        |depth: usize| store.commit(&pods(), ObjectKey::new("n", &depth.to_string()), Write::Create(nested(depth)));
    assert_eq!(commit(MAX_DEPTH + 1).map(|_| ()), Err(CommitError::TooDeep));
    assert_eq!(commit(500).map(|_| ()), Err(CommitError::TooDeep));
    let entry = commit(MAX_DEPTH).expect("fits");
    store.wait_visible(entry.revision).await.expect("written");
    assert!(entry.value().is_object(), "it can be read back");
    drop(store);
    assert_eq!(names(&disk.open()), [MAX_DEPTH.to_string()]);
}

const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
const QUARANTINE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("quarantine");

#[tokio::test]
async fn unreadable_rows_are_quarantined_at_start() {
    let disk = FaultyDisk::default();
    let store = disk.open();
    let entry = create(&store, "good").expect("new");
    store.wait_visible(entry.revision).await.expect("written");
    drop(store);
    let database = Database::builder().create_with_backend(disk.clone()).expect("opens");
    let transaction = database.begin_write().expect("begins");
    {
        let mut objects = transaction.open_table(OBJECTS).expect("there");
        objects.insert(b"pods\0n\0bad".as_slice(), b"{\"metadata\":".as_slice()).expect("inserted");
        objects.insert(b"no parts".as_slice(), b"{}".as_slice()).expect("inserted");
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        objects.insert(b"pods\0n\0deep".as_slice(), deep.as_bytes()).expect("inserted");
    }
    transaction.commit().expect("committed");
    drop(database);
    for _ in 0..2 {
        assert_eq!(names(&disk.open()), ["good"], "the store opens without the bad rows");
    }
    let database = Database::builder().create_with_backend(disk).expect("opens");
    let read = database.begin_read().expect("begins");
    assert_eq!(read.open_table(QUARANTINE).expect("there").len().expect("counted"), 3, "the rows are kept");
}

#[test]
fn a_file_of_a_newer_format_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(Store::open(directory.path()).expect("opens"));
    let database = Database::open(directory.path().join("objects.redb")).expect("opens");
    let transaction = database.begin_write().expect("begins");
    let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    transaction.open_table(meta).expect("there").insert("format", 99).expect("inserted");
    transaction.commit().expect("committed");
    drop(database);
    let Err(error) = Store::open(directory.path()) else { panic!("the file must be refused") };
    assert!(error.to_string().contains("has format 99"), "{error}");
}
