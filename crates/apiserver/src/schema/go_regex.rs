//! Patterns written for Go's regular expressions.
//!
//! The two dialects differ in a few places that schemas do use: in Go the classes `\d`, `\w` and `\s` are ASCII, and
//! inside brackets `[`, `&&`, `--` and `~~` have no meaning of their own.

use regex::Regex;

/// Compiles a Go pattern.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(&translate(pattern)).map_err(|e| e.to_string())
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    // The first character of a class, where `]` stands for itself.
    let mut class_start = false;
    while let Some(c) = chars.next() {
        let first = std::mem::take(&mut class_start);
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some('b') if !in_class => out.push_str("(?-u:\\b)"),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push('^');
                }
            }
            // A named class such as [:alpha:] keeps its bracket.
            '[' if chars.peek() == Some(&':') => {
                out.push('[');
                for named in chars.by_ref() {
                    out.push(named);
                    if named == ']' {
                        break;
                    }
                }
            }
            '[' => out.push_str("\\["),
            ']' if first => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_patterns_keep_their_meaning() {
        let check = |pattern: &str, text: &str, expect: bool| {
            assert_eq!(compile(pattern).unwrap().is_match(text), expect, "{pattern} on {text}");
        };
        check(r"^\d+$", "12", true);
        check(r"^\d+$", "٣", false);
        check(r"^[\w.-]+$", "a_b-c.d", true);
        check(r"^[a[&&b]+$", "[&", true);
        check(r"^[]a]+$", "]a", true);
        check(r"^[^]]$", "x", true);
        check(r"^[[:alpha:]]+$", "abc", true);
        check(r"^[\[\]]$", "]", true);
        check(r"^\S+$", "a b", false);
    }
}
