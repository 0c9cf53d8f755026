//! Reports the results of a test program without a harness in the format of cargo's, so that they are counted alike.

use std::io::Write;
use std::time::{Duration, Instant};

/// The results so far.
#[derive(Debug)]
pub struct Tally {
    start: Instant,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Default for Tally {
    fn default() -> Self {
        Self { start: Instant::now(), passed: 0, failed: 0, skipped: 0 }
    }
}

impl Tally {
    /// Records a finished test.
    pub fn record(&mut self, name: &str, passed: bool, took: Duration) {
        let (count, word) = if passed { (&mut self.passed, "ok") } else { (&mut self.failed, "FAILED") };
        *count += 1;
        print(&format!("test {name} ... {word} ({:.1} s)", took.as_secs_f64()));
    }

    /// Records a test that could not run, and why.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        print(&format!("test {name} ... ignored, {why}"));
    }

    /// Prints the summary and returns whether nothing failed.
    pub fn finish(self) -> bool {
        let word = if self.failed == 0 { "ok" } else { "FAILED" };
        print(&format!(
            "\ntest result: {word}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in {:.2}s\n",
            self.passed,
            self.failed,
            self.skipped,
            self.start.elapsed().as_secs_f64()
        ));
        self.failed == 0
    }
}

fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
