//! The durable copy of the store: one redb file, written in batches.
//!
//! Changes queue up while a batch is synced, and the next batch takes all of them, so the cost of a sync
//! is shared by all waiting writers. Nothing becomes visible to readers before it is durable, so
//! nothing that a client has seen can be lost, and no revision is ever used twice.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::entry::{Entry, ObjectKey};

const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The size of redb's page cache; reads are served from memory, so a small one suffices.
const CACHE_BYTES: usize = 4 << 20;

/// A queued change; without JSON the object is removed.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) table: Arc<str>,
    pub(super) key: Arc<ObjectKey>,
    pub(super) json: Option<Bytes>,
    pub(super) revision: u64,
}

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The directory cannot be created.
    #[error("cannot create the data directory {path}")]
    Directory {
        /// Where.
        path: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The file cannot be opened, read or written.
    #[error("cannot use the data file {path}: {cause}")]
    File {
        /// Where.
        path: String,
        /// Why.
        cause: Box<redb::Error>,
    },
    /// The file holds something that is not an object.
    #[error("the data file {path} is damaged: {what}")]
    Damaged {
        /// Where.
        path: String,
        /// Which object.
        what: String,
    },
}

/// An object as it was found on disk: its table and itself.
pub(super) type Found = (Arc<str>, Entry);

/// Key and JSON of one object.
type Row = (Vec<u8>, Vec<u8>);

/// The open data file.
pub(super) struct Disk {
    pub(super) database: Database,
    pub(super) path: String,
}

impl Disk {
    /// Opens or creates the file in a directory.
    pub(super) fn open(directory: &Path) -> Result<Disk, DiskError> {
        std::fs::create_dir_all(directory)
            .map_err(|cause| DiskError::Directory { path: directory.display().to_string(), cause })?;
        let path = directory.join("objects.redb");
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(&path);
        let path = path.display().to_string();
        match database {
            Ok(database) => Ok(Disk { database, path }),
            Err(cause) => Err(DiskError::File { path, cause: Box::new(cause.into()) }),
        }
    }

    /// Returns the last revision and all objects.
    pub(super) fn load(&self) -> Result<(u64, Vec<Found>), DiskError> {
        let (revision, rows) = self.rows().map_err(|cause| self.failed(cause))?;
        let mut found = Vec::with_capacity(rows.len());
        for (key, json) in rows {
            let damaged = |what: &str| DiskError::Damaged {
                path: self.path.clone(),
                what: format!("{what} at {}", String::from_utf8_lossy(&key)),
            };
            let mut parts = key.split(|byte| *byte == 0).map(std::str::from_utf8);
            let (Some(Ok(table)), Some(Ok(namespace)), Some(Ok(name))) = (parts.next(), parts.next(), parts.next())
            else {
                return Err(damaged("bad key"));
            };
            let entry =
                Entry::from_json(Arc::new(ObjectKey::new(namespace, name)), json).map_err(|_| damaged("bad JSON"))?;
            found.push((table.into(), entry));
        }
        Ok((revision, found))
    }

    fn rows(&self) -> Result<(u64, Vec<Row>), redb::Error> {
        let transaction = self.database.begin_read()?;
        let objects = match transaction.open_table(OBJECTS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok((0, Vec::new())),
            Err(other) => return Err(other.into()),
        };
        let mut rows = Vec::new();
        for row in objects.iter()? {
            let (key, value) = row?;
            rows.push((key.value().to_vec(), value.value().to_vec()));
        }
        let revision = transaction.open_table(META)?.get("revision")?.map_or(0, |value| value.value());
        Ok((revision, rows))
    }

    /// Writes one batch and syncs it.
    pub(super) fn write(&self, batch: &[Pending]) -> Result<(), DiskError> {
        self.write_batch(batch).map_err(|cause| self.failed(cause))
    }

    fn write_batch(&self, batch: &[Pending]) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut key = Vec::new();
            for pending in batch {
                key.clear();
                key.extend_from_slice(pending.table.as_bytes());
                key.push(0);
                key.extend_from_slice(pending.key.namespace.as_bytes());
                key.push(0);
                key.extend_from_slice(pending.key.name.as_bytes());
                match &pending.json {
                    Some(json) => objects.insert(key.as_slice(), json.as_ref())?,
                    None => objects.remove(key.as_slice())?,
                };
            }
            let last = batch.last().map_or(0, |pending| pending.revision);
            transaction.open_table(META)?.insert("revision", last)?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn failed(&self, cause: redb::Error) -> DiskError {
        DiskError::File { path: self.path.clone(), cause: Box::new(cause) }
    }
}
