//! The report of a test program without cargo's harness, in its words, so that it is counted like any other.

use std::io::Write;
use std::time::{Duration, Instant};

/// How tests ended so far.
#[derive(Debug)]
pub struct Tally {
    began: Instant,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Default for Tally {
    fn default() -> Self {
        Self { began: Instant::now(), passed: 0, failed: 0, skipped: 0 }
    }
}

impl Tally {
    /// One test is over.
    pub fn record(&mut self, name: &str, passed: bool, took: Duration) {
        let (count, word) = if passed { (&mut self.passed, "ok") } else { (&mut self.failed, "FAILED") };
        *count += 1;
        print(&format!("test {name} ... {word} ({:.1} s)", took.as_secs_f64()));
    }

    /// One test could not run, for this reason.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        print(&format!("test {name} ... ignored, {why}"));
    }

    /// Prints the sum; whether nothing failed.
    pub fn finish(self) -> bool {
        let word = if self.failed == 0 { "ok" } else { "FAILED" };
        print(&format!(
            "\ntest result: {word}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in {:.2}s\n",
            self.passed,
            self.failed,
            self.skipped,
            self.began.elapsed().as_secs_f64()
        ));
        self.failed == 0
    }
}

fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
