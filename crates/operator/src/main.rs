//! `manta-operator`: the operator as a program of its own, `/manager` in the image.
//!
//! It does what `manta operator` does. Without the commands, the page and local mode beside it, the program is half the
//! size, and far fewer of its pages are in memory.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    manta_operator::command::run(std::env::args().skip(1).collect()).unwrap_or_else(|error| {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        // Nowhere is left to report to when stderr is closed too.
        let _ = writeln!(io::stderr(), "error: {text}");
        ExitCode::FAILURE
    })
}
