//! Logging in KubeRay's format: to stderr and optionally to a file, as JSON with `level`, `ts`, `logger` and `msg`, or
//! as tab-separated lines for people.

use crate::args::{Encoder, Level, Log};
use serde_json::{Map, Value};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// The size at which a log file is rotated.
const MAX_FILE_BYTES: u64 = 500 << 20;
/// How many rotated files are kept.
const MAX_ROTATED_FILES: usize = 10;

/// Installs the global logger; `RUST_LOG` overrides the configured level. Fails if the file cannot be written.
pub(crate) fn start(log: &Log) -> io::Result<()> {
    let level = match log.level {
        Level::Error => "error",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let file = match &log.file {
        Some((path, encoder)) => {
            let file = LogFile::open(path)?;
            let layer =
                tracing_subscriber::fmt::layer().event_format(LineFormat(*encoder)).with_writer(Mutex::new(file));
            Some(layer.with_filter(LevelFilter::INFO))
        }
        None => None,
    };
    let console = tracing_subscriber::fmt::layer().event_format(LineFormat(log.encoder)).with_writer(io::stderr);
    tracing_subscriber::registry().with(filter).with(console).with(file).init();
    Ok(())
}

/// Formats one event as one line.
struct LineFormat(Encoder);

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for LineFormat {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let meta = event.metadata();
        let time = jiff::Timestamp::now();
        let line = line(self.0, *meta.level(), time, meta.target(), fields);
        writeln!(writer, "{line}")
    }
}

fn line(encoder: Encoder, level: tracing::Level, time: jiff::Timestamp, logger: &str, fields: Fields) -> String {
    let time = time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
    match encoder {
        Encoder::Json => {
            let mut all = Map::new();
            all.insert("level".to_owned(), level.as_str().to_lowercase().into());
            all.insert("ts".to_owned(), time.into());
            all.insert("logger".to_owned(), logger.into());
            all.insert("msg".to_owned(), fields.message.into());
            all.extend(fields.others);
            Value::Object(all).to_string()
        }
        Encoder::Console => {
            let mut line = format!("{time}\t{level}\t{logger}\t{}", fields.message);
            if !fields.others.is_empty() {
                line.push('\t');
                line.push_str(&Value::Object(fields.others).to_string());
            }
            line
        }
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => drop(self.others.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }
}

/// A log file with rotation: `x.log.1` is the most recently rotated file.
struct LogFile {
    path: PathBuf,
    file: File,
    length: u64,
    max_bytes: u64,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, length, max_bytes: MAX_FILE_BYTES })
    }

    fn rotate(&mut self) -> io::Result<()> {
        let rotated = |number: usize| PathBuf::from(format!("{}.{number}", self.path.display()));
        for number in (1..MAX_ROTATED_FILES).rev().filter(|number| rotated(*number).exists()) {
            fs::rename(rotated(number), rotated(number + 1))?;
        }
        fs::rename(&self.path, rotated(1))?;
        *self = Self { max_bytes: self.max_bytes, ..Self::open(&self.path)? };
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.length >= self.max_bytes {
            self.rotate()?;
        }
        let written = self.file.write(line)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_use_kuberays_keys() {
        let fields = || Fields {
            message: "quoted \"text\"".to_owned(),
            others: Map::from_iter([("name".to_owned(), Value::from("demo")), ("count".to_owned(), Value::from(3))]),
        };
        let time = jiff::Timestamp::from_millisecond(1_767_323_045_678).unwrap();
        let shown = |encoder| line(encoder, tracing::Level::INFO, time, "manta", fields());
        let json: Value = serde_json::from_str(&shown(Encoder::Json)).unwrap();
        let expect = serde_json::json!({
            "level": "info", "ts": "2026-01-02T03:04:05.678Z", "logger": "manta", "msg": "quoted \"text\"",
            "name": "demo", "count": 3,
        });
        assert_eq!(json, expect);
        assert_eq!(
            shown(Encoder::Console),
            "2026-01-02T03:04:05.678Z\tINFO\tmanta\tquoted \"text\"\t{\"count\":3,\"name\":\"demo\"}"
        );
    }

    #[test]
    fn full_files_are_rotated_and_the_oldest_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/manta.log");
        let mut file = LogFile { max_bytes: 3, ..LogFile::open(&path).unwrap() };
        for number in 0..15 {
            file.write_all(format!("{number:03}").as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join("logs").join(name)).ok();
        assert_eq!(read("manta.log"), Some("014".to_owned()));
        assert_eq!(read("manta.log.1"), Some("013".to_owned()));
        assert_eq!(read("manta.log.10"), Some("004".to_owned()));
        assert_eq!(read("manta.log.11"), None);
    }
}
