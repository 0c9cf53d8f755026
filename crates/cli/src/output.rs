//! Writing to stdout, and manifests to stdout or files.

use anyhow::Context;
use serde::Serialize;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

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
    let _ = write_stdout(|out| writeln!(out, "{}", without_controls(line)));
}

/// Prints one line about the progress to stderr, so that stdout holds the result alone.
pub(crate) fn print_note(line: &str) {
    // A closed stderr must not stop the command.
    let _ = writeln!(io::stderr(), "{}", without_controls(line));
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
    let _ = writeln!(io::stderr(), "error: {}", without_controls(&format!("{error:#}")));
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
    fn what_pods_say_does_not_reach_the_terminal_as_commands() {
        let check = |text: &str, expect: &str| assert_eq!(without_controls(text), expect);
        check("a\tb\né 漢", "a\tb\né 漢");
        check("\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}");
        check("gone\r\x1b[2Kok", "gone\u{fffd}\u{fffd}[2Kok");
        check("\u{9b}2J\u{7f}", "\u{fffd}2J\u{fffd}");
    }
}
