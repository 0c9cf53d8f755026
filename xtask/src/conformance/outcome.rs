//! Reads from the output of e2e.test how a spec ended.

use std::fmt;

/// How a spec ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// The suite has no such spec, or the spec left itself out.
    Absent,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::Absent => "absent",
        })
    }
}

/// Reads the last line of a report such as `SUCCESS! -- 1 Passed | 0 Failed | 0 Pending | 7166 Skipped`.
pub(super) fn read(output: &str) -> Outcome {
    let summary = output.lines().rev().find(|line| line.contains(" Passed | "));
    let Some((before, after)) = summary.and_then(|line| line.split_once(" Passed | ")) else {
        return Outcome::Failed;
    };
    let passed = before.rsplit(' ').next() == Some("1");
    let failed = !after.starts_with("0 Failed") || !before.contains("SUCCESS!");
    match (passed, failed) {
        (_, true) => Outcome::Failed,
        (true, false) => Outcome::Passed,
        (false, false) => Outcome::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_the_summary() {
        let check = |summary: &str, expect: Outcome| {
            assert_eq!(read(&format!("• [1.2 seconds]\n{summary}\nPASS\n")), expect, "{summary}");
        };
        check("SUCCESS! -- 1 Passed | 0 Failed | 0 Pending | 7166 Skipped", Outcome::Passed);
        check("FAIL! -- 0 Passed | 1 Failed | 0 Pending | 7166 Skipped", Outcome::Failed);
        check("SUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 7167 Skipped", Outcome::Absent);
        check("FAIL! - Suite Timeout Elapsed -- 0 Passed | 1 Failed | 0 Pending | 7166 Skipped", Outcome::Failed);
        check("FAIL! - Suite Timeout Elapsed -- 1 Passed | 0 Failed | 0 Pending | 7166 Skipped", Outcome::Failed);
        check("killed in the middle", Outcome::Failed);
    }
}
