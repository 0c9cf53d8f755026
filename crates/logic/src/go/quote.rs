//! Strings in double quotes in the format of Go's `%q`.

/// Returns the text in double quotes with unprintable characters escaped.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    text.chars().for_each(|c| push_escaped(&mut quoted, c));
    quoted.push('"');
    quoted
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        c if prints(c) => out.push(c),
        c if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
}

/// Returns whether a character is a letter, mark, number, punctuation mark, symbol or an ASCII blank.
fn prints(c: char) -> bool {
    // A preceding letter prevents `escape_debug` from escaping a combining mark.
    let mut pair = String::from("a");
    pair.push(c);
    c == '\'' || pair.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_in_go() {
        let check = |given: &str, expect: &str| assert_eq!(quote(given), expect);
        check("", "\"\"");
        check("small-group", "\"small-group\"");
        check("it's \"so\" \\", r#""it's \"so\" \\""#);
        check("a\tb\nc\x00\x7f\x07", r#""a\tb\nc\x00\x7f\a""#);
        check("grün ☺ 日本 e\u{301}", "\"grün ☺ 日本 e\u{301}\"");
        check("\u{a0}\u{200b}\u{2028}\u{10ffff}", r#""\u00a0\u200b\u2028\U0010ffff""#);
    }
}
