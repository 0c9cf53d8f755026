//! Writing to stdout, and manifests to stdout or files.

use anyhow::Context;
use serde::Serialize;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The line at the bottom of the terminal that changes, while there is one.
static STATUS_LINE: Mutex<StatusLine> = Mutex::new(StatusLine { text: None });

/// Writes to stdout through a buffer; a closed pipe (`manta crds | head`) is not an error.
pub(crate) fn write_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&mut out).and_then(|()| out.flush());
    // Discards what is still buffered, so that dropping the writer does not try again.
    let _ = out.into_parts();
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints one line for the user.
pub(crate) fn print_line(line: &str) {
    // A closed stdout must not stop the command.
    let _ = above_status_line(|| write_stdout(|out| writeln!(out, "{}", without_controls(line))));
}

/// Prints one line about the progress to stderr, so that stdout holds the result alone.
pub(crate) fn print_note(line: &str) {
    // A closed stderr must not stop the command.
    let _ = above_status_line(|| writeln!(io::stderr(), "{}", without_controls(line)));
}

/// A line on stderr that the next one replaces, such as a progress bar; all other output goes above it.
pub(crate) struct StatusLine {
    text: Option<String>,
}

impl StatusLine {
    /// Shows a text in place of the last one.
    pub(crate) fn show(text: String) {
        let mut line = Self::lock();
        line.text = Some(text);
        line.draw();
    }

    /// Removes the line.
    pub(crate) fn remove() {
        let mut line = Self::lock();
        line.clear();
        line.text = None;
    }

    /// Returns a guard that removes the line when it is dropped, so that none is left on the terminal at the end.
    pub(crate) fn until_dropped() -> impl Drop {
        struct Guard;
        impl Drop for Guard {
            fn drop(&mut self) {
                StatusLine::remove();
            }
        }
        Guard
    }

    fn lock() -> MutexGuard<'static, Self> {
        STATUS_LINE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self) {
        let Some(text) = &self.text else { return };
        let width = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        // Nowhere is left to report to when stderr is closed.
        let _ = write!(io::stderr(), "\r\x1b[K{}", fitted(&without_controls(text), width));
    }

    fn clear(&self) {
        if self.text.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Writes something while the status line is away.
pub(crate) fn above_status_line<T>(write: impl FnOnce() -> T) -> T {
    let line = StatusLine::lock();
    line.clear();
    let done = write();
    line.draw();
    done
}

/// Cuts a text off before the last column, where some terminals begin a new line; a width of 0 is unknown.
fn fitted(text: &str, width: usize) -> String {
    let most = if width == 0 { 79 } else { width - 1 };
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let cut: String = text.chars().take(most.saturating_sub(1)).collect();
    if most == 0 { cut } else { cut + "…" }
}

/// Writes log lines to stderr, above the status line.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        above_status_line(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Replaces control characters other than line breaks and tabs: messages and output of pods must not move the cursor,
/// set the title of a terminal or hide text.
pub(crate) fn without_controls(text: &str) -> String {
    let is_harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.chars().map(|c| if is_harmless(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Prints why a command failed, in the format of wrong usage.
pub(crate) fn print_error(error: &anyhow::Error) {
    // Nowhere is left to report to when stderr is closed too.
    let _ = above_status_line(|| writeln!(io::stderr(), "error: {}", without_controls(&error_text(error))));
}

/// Returns an error with its causes. Many errors of libraries repeat theirs, which is said once here.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        known if known.contains(&cause) => text,
        known => format!("{known}: {cause}"),
    })
}

/// Formats an object as YAML with every string on one line, so that grep finds messages and expressions.
pub(crate) fn to_yaml(object: &impl Serialize) -> anyhow::Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    Ok(serde_saphyr::to_string_with_options(object, options)?)
}

/// Writes named YAML documents to one file each in the directory, or all of them to stdout.
pub(crate) fn write_manifests(dir: Option<&Path>, documents: &[(String, String)]) -> anyhow::Result<()> {
    let Some(dir) = dir else {
        write_stdout(|out| documents.iter().try_for_each(|(_, yaml)| write!(out, "---\n{yaml}")))?;
        return Ok(());
    };
    fs::create_dir_all(dir).with_context(|| format!("cannot create the directory {}", dir.display()))?;
    for (name, yaml) in documents {
        let path = dir.join(format!("{name}.yaml"));
        fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_reported_once() {
        let repeats = anyhow::anyhow!("no such file").context("cannot read a: no such file").context("no kubeconfig");
        assert_eq!(error_text(&repeats), "no kubeconfig: cannot read a: no such file");
        assert_eq!(error_text(&anyhow::anyhow!("why").context("what")), "what: why");
    }

    #[test]
    fn a_status_line_is_never_wider_than_the_terminal() {
        let check = |text: &str, width: usize, expect: &str| {
            let got = fitted(text, width);
            assert_eq!(got, expect);
            assert!(width == 0 || got.chars().count() < width, "{got:?} in {width} columns");
        };
        check("#####  installing é", 20, "#####  installing é");
        check("#####  installing é", 19, "#####  installing…");
        check("abc", 3, "a…");
        check("abc", 2, "…");
        check("abc", 1, "");
        check(&"x".repeat(100), 0, &("x".repeat(78) + "…"));
    }

    #[test]
    fn a_status_line_goes_with_its_guard() {
        let guard = StatusLine::until_dropped();
        StatusLine::show("#####".to_owned());
        assert_eq!(StatusLine::lock().text.as_deref(), Some("#####"));
        drop(guard);
        assert_eq!(StatusLine::lock().text, None);
    }

    #[test]
    fn what_pods_say_does_not_reach_the_terminal_as_commands() {
        let check = |text: &str, expect: &str| assert_eq!(without_controls(text), expect);
        check("a\tb\né 漢", "a\tb\né 漢");
        check("\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}");
        check("gone\r\x1b[2Kok", "gone\u{fffd}\u{fffd}[2Kok");
        check("\u{9b}2J\u{7f}", "\u{fffd}2J\u{fffd}");
    }
}
