//! Power loss at any moment: acknowledged writes survive, and the file opens.
//!
//! The disk remembers every write and every sync. A cut keeps all that was synced, and of the later writes some,
//! some halves and not others: nothing more can be expected of a disk.

use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use redb::{Database, StorageBackend};
use serde_json::json;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
    /// Everything up to this revision was acknowledged.
    Acknowledged(u64),
}

/// A disk in memory, with its past.
#[derive(Debug, Clone, Default)]
struct Recorder {
    now: Arc<Mutex<Vec<u8>>>,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl Recorder {
    fn note(&self, step: Step) {
        self.steps.lock().unwrap().push(step);
    }
}

fn play(bytes: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write(offset, data) => {
            let (start, end) = (*offset as usize, *offset as usize + data.len());
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[start..end].copy_from_slice(data);
        }
        Step::Length(length) => bytes.resize(*length as usize, 0),
        Step::Sync | Step::Acknowledged(_) => {}
    }
}

impl StorageBackend for Recorder {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.now.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let bytes = self.now.lock().unwrap();
        let start = offset as usize;
        let found = bytes.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let step = Step::Length(len);
        play(&mut self.now.lock().unwrap(), &step);
        self.note(step);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.note(Step::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let step = Step::Write(offset, data.to_vec());
        play(&mut self.now.lock().unwrap(), &step);
        self.note(step);
        Ok(())
    }
}

fn open(recorder: Recorder) -> Result<Disk, String> {
    let database = Database::builder().create_with_backend(recorder).map_err(|error| error.to_string())?;
    Ok(Disk { database, path: "memory".to_owned() })
}

/// Returns what the disk holds after a cut `at` some step; `luck` decides about each write since the last sync.
fn cut(steps: &[Step], at: usize, mut luck: impl FnMut() -> u8) -> (Vec<u8>, u64) {
    let synced = steps[..at].iter().rposition(|step| matches!(step, Step::Sync)).map_or(0, |last| last + 1);
    let mut bytes = Vec::new();
    steps[..synced].iter().for_each(|step| play(&mut bytes, step));
    for step in &steps[synced..at] {
        match (step, luck() % 3) {
            (Step::Write(offset, data), 1) => {
                // Disks write whole sectors, but not all of them.
                let half = (data.len() / 2) & !511;
                play(&mut bytes, &Step::Write(*offset, data[..half].to_vec()));
            }
            (Step::Write(..), 0) => {}
            _ => play(&mut bytes, step),
        }
    }
    let acknowledged = steps[..at].iter().rev().find_map(|step| match step {
        Step::Acknowledged(revision) => Some(*revision),
        _ => None,
    });
    (bytes, acknowledged.unwrap_or(0))
}

/// Writes objects on a recorded disk, three at a time; returns the past.
fn record(count: usize) -> Vec<Step> {
    let recorder = Recorder::default();
    let disk = open(recorder.clone()).expect("a new disk");
    let table: Arc<str> = "pods".into();
    let mut revision = 1;
    for batch in 0..count {
        let mut pending = Vec::new();
        for index in 0..3 {
            revision += 1;
            let name = format!("pod-{}", (batch * 2 + index) % 7);
            let value = json!({"metadata": {"name": name}, "padding": "x".repeat(100 * (index + 1))});
            let entry = Entry::new(revision, Arc::new(ObjectKey::new("n", &name)), value);
            let json = (batch % 5 != 4).then(|| entry.json.clone());
            pending.push(Pending { table: table.clone(), key: entry.key.clone(), json, revision });
        }
        disk.write(&pending).expect("written");
        recorder.note(Step::Acknowledged(revision));
    }
    recorder.steps.lock().unwrap().clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_acknowledged_is_lost(at in 0.0..1.0_f64, luck in prop::collection::vec(any::<u8>(), 64)) {
        static PAST: std::sync::OnceLock<Vec<Step>> = std::sync::OnceLock::new();
        let steps = PAST.get_or_init(|| record(12));
        let at = (steps.len() as f64 * at) as usize;
        let mut next = luck.iter().cycle();
        let (bytes, acknowledged) = cut(steps, at, || *next.next().expect("endless"));
        let recorder = Recorder { now: Arc::new(Mutex::new(bytes)), ..Recorder::default() };
        // Before the first acknowledged write there is nothing to lose, not even a file.
        if acknowledged > 0 {
            let disk = open(recorder).expect("the store opens after a power cut");
            let (revision, found) = disk.load().expect("and can be read");
            prop_assert!(revision >= acknowledged, "{revision} is older than {acknowledged}");
            // Whatever revision it is at, it is all there: each batch is written whole or not at all.
            let whole = contents_at(revision);
            let names: Vec<(String, u64)> =
                found.iter().map(|(_, entry)| (entry.key.name.to_string(), entry.revision)).collect();
            prop_assert_eq!(names, whole);
        }
    }
}

/// Returns what `record` has written up to a revision.
fn contents_at(last: u64) -> Vec<(String, u64)> {
    let mut objects = std::collections::BTreeMap::new();
    let mut revision = 1;
    for batch in 0.. {
        for index in 0..3 {
            revision += 1;
            if revision > last {
                return objects.into_iter().collect();
            }
            let name = format!("pod-{}", (batch * 2 + index) % 7);
            match batch % 5 {
                4 => objects.remove(&name),
                _ => objects.insert(name, revision),
            };
        }
    }
    Vec::new()
}
