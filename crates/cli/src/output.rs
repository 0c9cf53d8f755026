//! Writing to stdout.

use std::io::{self, BufWriter, ErrorKind, Write};

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
    let _ = write_stdout(|out| writeln!(out, "{line}"));
}
