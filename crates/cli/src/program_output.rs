//! What the programs of users print, on its way to stdout.
//!
//! Files and pipes get it as it is. A terminal gets its colours and line breaks, and nothing that moves the cursor, sets the
//! title or hides text.

use crate::output::write_stdout;
use std::io::{self, IsTerminal, Write};

/// The longest escape sequence that is waited for when a piece of output ends within it.
const MAX_SEQUENCE: usize = 32;
const RESET: &str = "\x1b[0m";

/// Returns a writer to stdout for the output of programs.
pub(crate) fn stdout() -> ProgramOutput<io::Stdout> {
    ProgramOutput { out: io::stdout(), is_terminal: io::stdout().is_terminal(), pending: Vec::new() }
}

/// Prints a whole text of a program.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    write_stdout(|out| match io::stdout().is_terminal() {
        true => out.write_all(for_terminal(&String::from_utf8_lossy(text)).as_bytes()),
        false => out.write_all(text),
    })
}

/// Returns a text of ours with lines of programs in it: in colour on a terminal, without any controls elsewhere.
pub(crate) fn quoted(text: &str) -> String {
    harmless(text, io::stdout().is_terminal())
}

/// Returns a text as a terminal may get it. A colour ends with the text.
fn for_terminal(text: &str) -> String {
    harmless(text, true)
}

/// Hands output on that comes in pieces, which may end within a character or an escape sequence.
pub(crate) struct ProgramOutput<W: Write> {
    out: W,
    is_terminal: bool,
    pending: Vec<u8>,
}

impl<W: Write> Write for ProgramOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.out.write(bytes);
        }
        self.pending.extend(bytes);
        let rest = self.pending.split_off(complete(&self.pending));
        let piece = std::mem::replace(&mut self.pending, rest);
        self.out.write_all(without_commands(&String::from_utf8_lossy(&piece), true).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Drop for ProgramOutput<W> {
    fn drop(&mut self) {
        if self.is_terminal {
            let rest = without_commands(&String::from_utf8_lossy(&self.pending), true);
            // Whoever reads it may be gone.
            let _ = write!(self.out, "{rest}{RESET}").and_then(|()| self.out.flush());
        }
    }
}

/// Returns how many bytes end with a whole character and outside of escape sequences and line breaks.
fn complete(bytes: &[u8]) -> usize {
    let recent = bytes.len().saturating_sub(MAX_SEQUENCE);
    if bytes.last() == Some(&b'\r') {
        return bytes.len() - 1;
    }
    if let Some(start) = bytes[recent..].iter().rposition(|byte| *byte == b'\x1b').map(|at| recent + at) {
        let is_open = match &bytes[start + 1..] {
            [] | [b'['] => true,
            [b'[', rest @ ..] => rest.iter().all(|byte| is_parameter(*byte as char)),
            _ => false,
        };
        if is_open {
            return start;
        }
    }
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

fn is_parameter(c: char) -> bool {
    c.is_ascii_digit() || c == ';' || c == ':'
}

/// Returns a text that ends in the colour in which it began.
fn harmless(text: &str, keeps_colour: bool) -> String {
    let mut text = without_commands(text, keeps_colour);
    if text.contains('\x1b') && !text.trim_end().ends_with(RESET) {
        let end = text.trim_end_matches('\n').len();
        text.insert_str(end, RESET);
    }
    text
}

/// Keeps line breaks, tabs and, if wanted, colours; other control characters become U+FFFD. A carriage return begins a new
/// line, so that it hides nothing.
fn without_commands(text: &str, keeps_colour: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match (c, colour(rest)) {
            ('\x1b', Some(sequence)) => {
                if keeps_colour {
                    out.push_str(sequence);
                }
                sequence.len()
            }
            ('\r', _) => {
                if !rest.starts_with("\r\n") {
                    out.push('\n');
                }
                1
            }
            _ => {
                let is_harmless = !c.is_control() || c == '\n' || c == '\t';
                out.push(if is_harmless { c } else { char::REPLACEMENT_CHARACTER });
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
}

/// Returns the escape sequence for a colour or weight that a text begins with.
fn colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.find(|c| !is_parameter(c)).filter(|end| parameters[*end..].starts_with('m'))?;
    Some(&text[.."\x1b[".len() + end + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_colours_and_no_commands() {
        let check = |text: &str, expect: &str| assert_eq!(for_terminal(text), expect, "{text:?}");
        check("a\tb\né 漢\n", "a\tb\né 漢\n");
        check("\x1b[36m(task pid=1)\x1b[0m done\n", "\x1b[36m(task pid=1)\x1b[0m done\x1b[0m\n");
        check("\x1b[1;38;5;9mred\n", "\x1b[1;38;5;9mred\x1b[0m\n");
        check("10%\r20%\r\nend", "10%\n20%\nend");
        check("\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}");
        check("gone\x1b[2Kok\u{9b}2J\u{7f}\x08", "gone\u{fffd}[2Kok\u{fffd}2J\u{fffd}\u{fffd}");
        check("\x1b[", "\u{fffd}[");
    }

    #[test]
    fn elsewhere_colours_are_left_out_of_our_texts() {
        assert_eq!(harmless("  \x1b[36m(pid=1)\x1b[0m x\n", false), "  (pid=1) x\n");
    }

    fn printed(pieces: &[&[u8]], is_terminal: bool) -> String {
        let mut out = Vec::new();
        let mut output = ProgramOutput { out: &mut out, is_terminal, pending: Vec::new() };
        pieces.iter().for_each(|piece| output.write_all(piece).unwrap());
        drop(output);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn pieces_are_joined_where_they_were_cut() {
        let whole = "é\x1b[36mx\x1b[0m\r\ny\x1b]0;t\x07\rz".as_bytes();
        let expect = "é\x1b[36mx\x1b[0m\ny\u{fffd}]0;t\u{fffd}\nz\x1b[0m";
        for cut in 0..=whole.len() {
            assert_eq!(printed(&[&whole[..cut], &whole[cut..]], true), expect, "cut at {cut}");
        }
        assert_eq!(printed(&[b"\x1b[2J"], true), "\u{fffd}[2J\x1b[0m");
        assert_eq!(printed(&[b"\x1b[3"], true), "\u{fffd}[3\x1b[0m", "it never ended");
        assert_eq!(printed(&[b"a\x1b[2J\r"], false), "a\x1b[2J\r", "a file gets it as it is");
    }
}
