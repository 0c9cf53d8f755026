//! Shows the progress of an installation: one line that changes in a terminal, else its start and its end.

use crate::output::{self, StatusLine};
use manta_agent::environments::{Progress, Stage};
use std::io::{IsTerminal, stderr};

/// Shows how far an installation has come, on standard error.
pub(crate) fn show(progress: &Progress) {
    match text(progress, stderr().is_terminal()) {
        Shown::Bar(text) => StatusLine::show(text),
        Shown::Line(text) => {
            if is_over(progress) {
                StatusLine::remove();
            }
            output::print_note(&text);
        }
        Shown::Nothing => {}
    }
}

/// What to do with a step of an installation.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    /// Replaces what was shown last.
    Bar(String),
    Line(String),
    Nothing,
}

fn text(progress: &Progress, is_terminal: bool) -> Shown {
    let is_waiting = progress.stage == Stage::Waiting;
    let is_first = progress.packages == 0 && progress.megabytes == 0 && progress.stage == Stage::Downloading;
    match is_terminal {
        _ if is_over(progress) => Shown::Line(progress.to_string()),
        // What changes comes first, because the end is cut off where the terminal is narrow.
        true => Shown::Bar([bar(progress), progress.state(), progress.what.clone()].into_iter().fold(
            String::new(),
            |text, part| if text.is_empty() || part.is_empty() { text + &part } else { text + "  " + &part },
        )),
        false if is_first || is_waiting => Shown::Line(progress.to_string()),
        false => Shown::Nothing,
    }
}

fn is_over(progress: &Progress) -> bool {
    matches!(progress.stage, Stage::Done | Stage::Failed)
}

/// Draws a bar. The number of packages is known only at the end, so it approaches the end of the first part without
/// reaching it; the second part is unpacking.
fn bar(progress: &Progress) -> String {
    const WIDTH: u32 = 20;
    let filled = match progress.stage {
        Stage::Waiting => 0,
        Stage::Downloading => (WIDTH - 5) * progress.packages / (progress.packages + 20),
        Stage::Installing => WIDTH - 3,
        Stage::Done | Stage::Failed => WIDTH,
    };
    (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_one_line_and_a_file_a_line_for_each_stage() {
        let check = |packages: u32, stage: Stage, terminal: Shown, file: Shown| {
            let given = Progress { what: "installing x".into(), into: "/e".into(), packages, megabytes: 0, stage };
            assert_eq!((text(&given, true), text(&given, false)), (terminal, file));
        };
        let bar = |text: &str| Shown::Bar(text.to_owned());
        let line = |text: &str| Shown::Line(text.to_owned());
        check(0, Stage::Downloading, bar("....................  installing x"), line("installing x into /e"));
        let twenty = bar("#######.............  20 packages, 0 MB  installing x");
        check(20, Stage::Downloading, twenty, Shown::Nothing);
        let unpacking = bar("#################...  20 packages, 0 MB, unpacking  installing x");
        check(20, Stage::Installing, unpacking, Shown::Nothing);
        let waits = "waiting for another process that is installing it";
        let file = line(&format!("installing x into /e: {waits}"));
        check(0, Stage::Waiting, bar(&format!("....................  {waits}  installing x")), file);
        check(20, Stage::Done, line("installing x into /e: done"), line("installing x into /e: done"));
    }
}
