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
/// Rows that could not be read, kept for inspection.
const QUARANTINE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("quarantine");

/// The version of the file's layout.
const FORMAT: u64 = 1;

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
    /// The file was written by a newer version.
    #[error(
        "the data file {path} has format {found}, but this version reads formats up to {FORMAT}: use the version that \
             wrote it, or another data directory"
    )]
    Format {
        /// Where.
        path: String,
        /// The format of the file.
        found: u64,
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

    /// Returns the last revision and all objects; rows that are no objects are moved to the quarantine table.
    pub(super) fn load(&self) -> Result<(u64, Vec<Found>), DiskError> {
        let format = self.format().map_err(|cause| self.failed(cause))?;
        if format > FORMAT {
            return Err(DiskError::Format { path: self.path.clone(), found: format });
        }
        let (revision, rows) = self.rows().map_err(|cause| self.failed(cause))?;
        let mut found = Vec::with_capacity(rows.len());
        let mut bad = Vec::new();
        for (key, json) in rows {
            match parse(&key, &json) {
                Ok(object) => found.push(object),
                Err(why) => {
                    let object = String::from_utf8_lossy(&key).replace('\0', "/");
                    tracing::error!(
                        path = self.path,
                        object,
                        why,
                        "moved an unreadable object to the quarantine table"
                    );
                    bad.push((key, json));
                }
            }
        }
        self.prepare(&bad).map_err(|cause| self.failed(cause))?;
        Ok((revision, found))
    }

    /// Returns the format of the file; files from before formats have none.
    fn format(&self) -> Result<u64, redb::Error> {
        match self.database.begin_read()?.open_table(META) {
            Ok(meta) => Ok(meta.get("format")?.map_or(0, |value| value.value())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(0),
            Err(other) => Err(other.into()),
        }
    }

    /// Writes the format, and moves bad rows out of the way.
    fn prepare(&self, bad: &[Row]) -> Result<(), redb::Error> {
        if bad.is_empty() && self.format()? == FORMAT {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        {
            transaction.open_table(META)?.insert("format", FORMAT)?;
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut quarantine = transaction.open_table(QUARANTINE)?;
            for (key, json) in bad {
                quarantine.insert(key.as_slice(), json.as_slice())?;
                objects.remove(key.as_slice())?;
            }
        }
        transaction.commit()?;
        Ok(())
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

/// Parses one row into its table and object.
fn parse(key: &[u8], json: &[u8]) -> Result<Found, String> {
    let mut parts = key.split(|byte| *byte == 0).map(std::str::from_utf8);
    let (Some(Ok(table)), Some(Ok(namespace)), Some(Ok(name))) = (parts.next(), parts.next(), parts.next()) else {
        return Err("malformed key".to_owned());
    };
    let key = Arc::new(ObjectKey::new(namespace, name));
    let entry = Entry::from_json(key, json.to_vec()).map_err(|error| format!("malformed JSON: {error}"))?;
    Ok((table.into(), entry))
}
