//! Writing to stdout.

use std::io::{self, BufWriter, ErrorKind, Write};

/// Lets `write` fill stdout. A reader that has gone away (`manta crds | head`) ends it quietly.
pub(crate) fn write_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&mut out).and_then(|()| out.flush());
    // What could not be written must not be tried again when the buffer goes.
    let _ = out.into_parts();
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// One line for the person at the terminal.
pub(crate) fn print_line(line: &str) {
    // Nobody reads any more: there is nothing better to do than to go on.
    let _ = write_stdout(|out| writeln!(out, "{line}"));
}
