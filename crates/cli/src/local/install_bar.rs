//! Shows the progress of an installation: one line that changes in a terminal, else its start and its end.

use manta_agent::environments::{Progress, Stage};
use std::io::{IsTerminal, Write};

/// Shows how far an installation has come, on standard error.
pub(crate) fn show(progress: &Progress) {
    let mut out = std::io::stderr().lock();
    // Nowhere is left to report to when stderr is closed.
    let _ = out.write_all(text(progress, out.is_terminal()).as_bytes()).and_then(|()| out.flush());
}

fn text(progress: &Progress, is_terminal: bool) -> String {
    let is_over = matches!(progress.stage, Stage::Done | Stage::Failed);
    let is_first = progress.packages == 0 && progress.stage == Stage::Downloading;
    match (is_terminal, is_over) {
        (true, true) => format!("\r\x1b[K{progress}\n"),
        (true, false) => format!("\r\x1b[K{} {progress}", bar(progress)),
        (false, _) if is_first && progress.megabytes == 0 || is_over => format!("{progress}\n"),
        (false, _) => String::new(),
    }
}

/// Draws a bar. The number of packages is known only at the end, so it approaches the end of the first part without
/// reaching it; the second part is unpacking.
fn bar(progress: &Progress) -> String {
    const WIDTH: u32 = 20;
    let filled = match progress.stage {
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
    fn a_terminal_has_one_line_and_a_file_two() {
        let progress =
            |packages: u32, stage: Stage| Progress { what: "installing x".into(), packages, megabytes: 0, stage };
        let check = |packages: u32, stage: Stage, terminal: &str, file: &str| {
            let given = progress(packages, stage);
            assert_eq!((text(&given, true).as_str(), text(&given, false).as_str()), (terminal, file));
        };
        let start = "installing x";
        check(0, Stage::Downloading, &format!("\r\x1b[K.................... {start}"), &format!("{start}\n"));
        check(20, Stage::Downloading, "\r\x1b[K#######............. installing x: 20 packages, 0 MB", "");
        check(20, Stage::Installing, "\r\x1b[K#################... installing x: 20 packages, 0 MB, unpacking", "");
        check(20, Stage::Done, "\r\x1b[Kinstalling x: done\n", "installing x: done\n");
    }
}
