//! Records which tests used a real kube-apiserver, in a file that xtask counts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// The environment variable with the path of that file.
pub const LEDGER_VARIABLE: &str = "MANTA_TEST_LEDGER";

/// Records the running test, whose name is the name of the thread.
pub(crate) fn record_test() {
    let Some(file) = std::env::var_os(LEDGER_VARIABLE) else { return };
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let line = format!("{} {}\n", program.unwrap_or_default(), std::thread::current().name().unwrap_or("main"));
    // A short append is one write, so lines of several processes do not mix.
    if let Ok(mut ledger) = File::options().create(true).append(true).open(file) {
        let _ = ledger.write_all(line.as_bytes());
    }
}

/// Returns the number of distinct tests in the file.
pub fn count_tests(ledger: &Path) -> usize {
    fs::read_to_string(ledger).unwrap_or_default().lines().collect::<BTreeSet<_>>().len()
}
