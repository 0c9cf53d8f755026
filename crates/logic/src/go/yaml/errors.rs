//! The messages of Go's YAML parser for the mistakes that people make.
//!
//! Our parser finds the same mistakes, but describes some of them in other words or at another line. Where both can be
//! told apart from its error and the text, the message is Go's.

use std::fmt::Display;

/// An error of our parser, and where it was found.
pub(super) struct Mistake<'a> {
    pub(super) text: &'a str,
    pub(super) error: &'a str,
    /// Line and column, counted from one; zero if unknown.
    pub(super) line: usize,
    pub(super) column: usize,
}

const UNEXPECTED_END: &str = "found unexpected end of stream";
const NO_CONTENT: &str = "did not find expected node content";
const NO_KEY: &str = "did not find expected key";
const NO_DASH: &str = "did not find expected '-' indicator";

/// Errors of our parser that Go's scanner reports in these words, at the same line.
const IN_SCANNER: [(&str, &str); 13] = [
    ("unclosed quote", UNEXPECTED_END),
    ("tabs disallowed", "found character that cannot start any token"),
    ("unexpected character", "found character that cannot start any token"),
    ("mapping values are not", "mapping values are not allowed in this context"),
    ("mapping keys are not", "mapping keys are not allowed in this context"),
    ("block sequence entries are not", "block sequence entries are not allowed in this context"),
    ("unknown escape", "found unknown escape character"),
    ("hexadecimal number", "did not find expected hexdecimal number"),
    ("alphabetic or numeric", "did not find expected alphabetic or numeric character"),
    ("comment or line break", "did not find expected comment or line break"),
    ("indicator equal to 0", "found an indentation indicator equal to 0"),
    ("expected '>'", "did not find the expected '>'"),
    ("unsupported YAML major version", "found incompatible YAML document"),
];

/// Errors of our parser that Go's parser reports in these words, at the same line.
const IN_PARSER: [(&str, &str); 3] =
    [("unexpected EOF while parsing", NO_CONTENT), ("expected '-'", NO_DASH), ("expected key", NO_KEY)];

impl Mistake<'_> {
    /// Returns Go's message, or ours if Go's is not known.
    pub(super) fn explain(&self) -> String {
        self.with_other_words_and_place().unwrap_or_else(|| {
            let find = |known: &[(&str, &'static str)]| {
                known.iter().find(|(ours, _)| self.error.contains(ours)).map(|(_, words)| *words)
            };
            match (find(&IN_SCANNER), find(&IN_PARSER)) {
                (Some(words), _) => in_scanner(self.line, words),
                (None, Some(words)) => in_parser(self.line, words),
                (None, None) => format!("yaml: line {}: {}", self.line, self.error),
            }
        })
    }

    /// Returns the message of a mistake that Go finds at another place, or describes with parts of the text.
    fn with_other_words_and_place(&self) -> Option<String> {
        let is = |words: &str| self.error.contains(words);
        if let Some(start) = self.error.find("invalid map key: ") {
            return Some(format!("yaml: {}", without_place(&self.error[start..])));
        }
        if let Some(start) = self.error.find("unsupported map key of type") {
            return Some(without_place(&self.error[start..]).to_owned());
        }
        if is("non-finite float") {
            let number = self.error.split('`').nth(1).unwrap_or_default().to_lowercase();
            let value = match number.as_str() {
                ".nan" => "NaN",
                "-.inf" => "-Inf",
                ".inf" | "+.inf" => "+Inf",
                _ => return None, // too large, which Go reads as a text
            };
            return Some(format!("json: unsupported value: {value}"));
        }
        if is("unexpected character: `\\u{") {
            return Some("yaml: control characters are not allowed".to_owned());
        }
        if is("unknown anchor") {
            let rest: String =
                self.rest().chars().skip(1).take_while(|c| c.is_alphanumeric() || "_-".contains(*c)).collect();
            return Some(format!("yaml: unknown anchor '{rest}' referenced"));
        }
        if is("merge value must be") {
            return Some("yaml: map merge requires map or sequence of maps as the value".to_owned());
        }
        if is("simple key expected ':'") {
            return Some(in_scanner(self.next_content_line(), "could not find expected ':'"));
        }
        if is("scanning a plain scalar, found a tab") {
            return Some(in_scanner(self.next_content_line(), "found a tab character that violates indentation"));
        }
        if is("comment intercepting") {
            return Some(in_parser(self.line + 1, NO_KEY));
        }
        if is("illegal placement of ':'") || is("expected ',' or") {
            return Some(in_parser(self.line, no_comma(Structure::before(self).brackets.last()?.1)));
        }
        if is("mismatched bracket") {
            let (line, open) = Structure::of(self.text).mismatch?;
            return Some(in_parser(line, no_comma(open)));
        }
        if is("unclosed bracket") {
            return Some(self.unclosed_bracket());
        }
        if is("misplaced bracket") {
            let before = self.text[..self.offset()].lines().last().unwrap_or_default().trim_end();
            let is_value = before.is_empty() || before.ends_with([':', '-']);
            return Some(in_parser(self.line, if is_value { NO_CONTENT } else { NO_KEY }));
        }
        if is("invalid trailing content") {
            return Some(in_parser(self.line, self.trailing_content()));
        }
        if is("indentation in multiline quoted scalar") {
            return self.quote_that_goes_on();
        }
        None
    }

    /// A list or mapping whose bracket is not closed.
    fn unclosed_bracket(&self) -> String {
        let words = if self.text.trim_end().ends_with(['[', '{', ',']) {
            NO_CONTENT
        } else {
            no_comma(if self.error.contains("'['") { '[' } else { '{' })
        };
        in_parser(self.text.lines().count() + 1, words)
    }

    /// Something that follows a quoted text.
    fn trailing_content(&self) -> &'static str {
        if let Some((_, open)) = Structure::before(self).brackets.last() {
            return no_comma(*open);
        }
        let line = self.text.lines().nth(self.line.saturating_sub(1)).unwrap_or_default().trim_start();
        match line.strip_prefix("- ") {
            Some(item) if item.starts_with(['"', '\'']) => NO_DASH,
            _ => NO_KEY,
        }
    }

    /// A quote that is not closed on its line: Go reads on to the next one, or to the end.
    fn quote_that_goes_on(&self) -> Option<String> {
        let quote = Structure::before(self).quote?;
        let rest = self.rest();
        let Some(end) = rest.find(quote) else {
            return Some(in_scanner(self.text.matches('\n').count() + 1, UNEXPECTED_END));
        };
        let after = rest[end + 1..].lines().next().unwrap_or_default();
        let line = self.line + rest[..end].matches('\n').count();
        (!after.trim().is_empty()).then(|| in_parser(line, NO_KEY))
    }

    /// Returns the number of the next line that has more than blanks and comments.
    fn next_content_line(&self) -> usize {
        let has_content = |line: &str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let next = self.text.lines().enumerate().skip(self.line).find(|(_, line)| has_content(line));
        let end = self.text.matches('\n').count().max(self.line) + 1;
        next.map_or(end, |(index, _)| index + 1)
    }

    /// Returns the byte offset of the mistake.
    fn offset(&self) -> usize {
        let lines = self.text.split_inclusive('\n').take(self.line.saturating_sub(1));
        let start: usize = lines.map(str::len).sum();
        let columns = self.text[start..].chars().take(self.column.saturating_sub(1));
        start + columns.map(char::len_utf8).sum::<usize>()
    }

    /// Returns the text from the mistake on.
    fn rest(&self) -> &str {
        &self.text[self.offset()..]
    }
}

/// Go counts lines from one in its scanner, and does not name the first one.
fn in_scanner(line: usize, words: impl Display) -> String {
    if line > 1 { format!("yaml: line {line}: {words}") } else { format!("yaml: {words}") }
}

/// Go counts lines from zero in its parser, and does not name the first one.
fn in_parser(line: usize, words: impl Display) -> String {
    if line > 1 { format!("yaml: line {}: {words}", line - 1) } else { format!("yaml: {words}") }
}

fn no_comma(open: char) -> &'static str {
    if open == '[' { "did not find expected ',' or ']'" } else { "did not find expected ',' or '}'" }
}

/// Returns a message without the place that our parser appends.
fn without_place(error: &str) -> &str {
    error.rfind(" at line ").map_or(error, |end| &error[..end])
}

/// What is open at the end of a text.
#[derive(Default)]
struct Structure {
    /// The brackets that are open, each with its line.
    brackets: Vec<(usize, char)>,
    /// The quote that is open.
    quote: Option<char>,
    /// The line of the first bracket that closes another kind of bracket, and that bracket.
    mismatch: Option<(usize, char)>,
}

impl Structure {
    /// Returns what is open before a mistake.
    fn before(mistake: &Mistake<'_>) -> Self {
        Self::of(&mistake.text[..mistake.offset()])
    }

    fn of(text: &str) -> Self {
        let mut open = Self::default();
        let (mut line, mut before, mut escaped) = (1, '\n', false);
        for c in text.chars() {
            let starts = before.is_whitespace() || "[{,:".contains(before);
            match (open.quote, c) {
                (Some('"'), '\\') if !escaped => escaped = true,
                (Some(quote), c) => {
                    if c == quote && !escaped {
                        open.quote = None;
                    }
                    escaped = false;
                }
                (None, '"' | '\'') if starts => open.quote = Some(c),
                // Two single quotes stand for one inside of a text.
                (None, '\'') if before == '\'' => open.quote = Some(c),
                (None, '[' | '{') if starts => open.brackets.push((line, c)),
                (None, ']' | '}') => open.close(line, c),
                (None, _) => {}
            }
            line += usize::from(c == '\n');
            before = c;
        }
        open
    }

    fn close(&mut self, line: usize, bracket: char) {
        if let Some((_, open)) = self.brackets.pop()
            && (open == '[') != (bracket == ']')
        {
            self.mismatch.get_or_insert((line, open));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::value;

    /// Texts and the messages of sigs.k8s.io/yaml v1.6.0, as recorded.
    const RECORDED: &[(&str, &str)] = &[
        ("applications: [\n", "yaml: line 1: did not find expected node content"),
        ("a: {b: 1", "yaml: line 1: did not find expected ',' or '}'"),
        ("a: [1, 2", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("a: 1\n b: 2", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: 'x", "yaml: found unexpected end of stream"),
        ("a:\n\t- b", "yaml: line 2: found character that cannot start any token"),
        ("a: @b", "yaml: found character that cannot start any token"),
        ("- a\nb: 1", "yaml: line 1: did not find expected '-' indicator"),
        ("pip:\n  - torch\n env: 1", "yaml: line 2: did not find expected key"),
        ("a: &", "yaml: did not find expected alphabetic or numeric character"),
        ("a: |x", "yaml: did not find expected comment or line break"),
        ("a: \"\\q\"", "yaml: found unknown escape character"),
        ("]", "yaml: did not find expected node content"),
        ("pip: [\"torch\"\nenv_vars:\n  A: 1\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("pip:\n  - torch\n- numpy\n", "yaml: line 2: did not find expected key"),
        ("env_vars:\n  A: \"1\n  B: \"2\"\n", "yaml: line 2: did not find expected key"),
        ("env_vars:\n  A: '1\n  B: 2\n", "yaml: line 4: found unexpected end of stream"),
        ("env_vars:\n\tA: 1\n", "yaml: line 2: found character that cannot start any token"),
        ("pip: x\n\tb: y\n", "yaml: line 2: found a tab character that violates indentation"),
        ("pip torch\nenv_vars:\n  A: 1\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("pip:\n  - torch\nworking_dir\n", "yaml: line 4: could not find expected ':'"),
        ("env_vars:\n  A: 1\n B: 2\n", "yaml: line 2: did not find expected key"),
        ("env_vars:\n    A: 1\n  B: 2\n", "yaml: line 2: did not find expected key"),
        ("a: 1\nb: 2\n   c: 3\n", "yaml: line 3: mapping values are not allowed in this context"),
        ("{\"pip\": [\"torch\"}", "yaml: did not find expected ',' or ']'"),
        ("{\"pip\": [\"torch\"]", "yaml: line 1: did not find expected ',' or '}'"),
        ("{\"pip\": \"torch\" \"env\": 1}", "yaml: did not find expected ',' or '}'"),
        ("{\"pip\": \"torch\",, \"env\": 1}", "yaml: did not find expected node content"),
        ("{pip: torch]", "yaml: did not find expected ',' or '}'"),
        ("[1, 2}", "yaml: did not find expected ',' or ']'"),
        ("a: }", "yaml: did not find expected node content"),
        ("a: ]", "yaml: did not find expected node content"),
        ("a: %b", "yaml: found character that cannot start any token"),
        ("a: `b`", "yaml: found character that cannot start any token"),
        ("a: *unknown", "yaml: unknown anchor 'unknown' referenced"),
        ("a: &x 1\nb: *y\n", "yaml: unknown anchor 'y' referenced"),
        ("a: !<x", "yaml: did not find the expected '>'"),
        ("a: \"abc", "yaml: found unexpected end of stream"),
        ("a: \"abc\nb: 1\n", "yaml: line 3: found unexpected end of stream"),
        ("applications:\n- name: a\n  import_path: x\n route_prefix: /\n", "yaml: line 3: did not find expected key"),
        (
            "applications:\n- name: a\n   import_path: x\n",
            "yaml: line 3: mapping values are not allowed in this context",
        ),
        ("applications:\n- name: a\n  deployments\n  - name: d\n", "yaml: line 4: could not find expected ':'"),
        (
            "applications:\n  - name: a\n    args: {x: 1\n  - name: b\n",
            "yaml: line 3: did not find expected ',' or '}'",
        ),
        (
            "applications:\n  - name: a\n    args: [1, 2\n  - name: b\n",
            "yaml: line 3: did not find expected ',' or ']'",
        ),
        ("applications:\n- name: app: x\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: 1\n- b\n", "yaml: line 1: did not find expected key"),
        ("- a\n- b\nc\n", "yaml: line 4: could not find expected ':'"),
        ("a: - b\n", "yaml: block sequence entries are not allowed in this context"),
        ("a: |\n x\ny\n", "yaml: line 4: could not find expected ':'"),
        ("a: >\n  x\n z: 1\n", "yaml: line 2: did not find expected key"),
        ("%YAML 3.0\n---\na: 1\n", "yaml: found incompatible YAML document"),
        ("a: 'it''s\nb: 1", "yaml: line 2: found unexpected end of stream"),
        ("a: \"\\x\"", "yaml: did not find expected hexdecimal number"),
        ("a: \"\\u12\"", "yaml: did not find expected hexdecimal number"),
        ("a: \"\\xZZ\"", "yaml: did not find expected hexdecimal number"),
        ("a: [b, , c]", "yaml: did not find expected node content"),
        ("a: [,]", "yaml: did not find expected node content"),
        ("a:\n  b\n c: d", "yaml: line 3: mapping values are not allowed in this context"),
        ("key: value\n  other: value\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("key: [a, b\nother: c\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("key: {a: b\nother: c\n", "yaml: line 1: did not find expected ',' or '}'"),
        ("a: \"b\" c", "yaml: did not find expected key"),
        ("a: 'b' c", "yaml: did not find expected key"),
        ("a: \"b\": c", "yaml: mapping values are not allowed in this context"),
        ("a: [b] c", "yaml: did not find expected key"),
        ("a: {b: 1} c", "yaml: did not find expected key"),
        ("a: b\n\tc: d", "yaml: line 2: found a tab character that violates indentation"),
        ("a:\n  - b\n\t- c", "yaml: line 3: found a tab character that violates indentation"),
        ("a:\n  b: 1\n\tc: 2", "yaml: line 3: found a tab character that violates indentation"),
        ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: {<<: 1}", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: {<<: [1]}", "yaml: map merge requires map or sequence of maps as the value"),
        ("? [a]\n: 1", "yaml: invalid map key: []interface {}{\"a\"}"),
        ("? {a: b}\n: 1", "yaml: invalid map key: map[interface {}]interface {}{\"a\":\"b\"}"),
        ("null: a", "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"a\""),
        ("~: a", "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"a\""),
        ("a: .inf", "json: unsupported value: +Inf"),
        ("a: .nan", "json: unsupported value: NaN"),
        ("env_vars:\n  A=1\n  B=2\n  C: 3\n", "yaml: line 4: mapping values are not allowed in this context"),
        ("env_vars:\n  - A: 1\n  B: 2\n", "yaml: line 2: did not find expected '-' indicator"),
        ("env_vars:\n  A: {{ x }}\n", "yaml: invalid map key: map[interface {}]interface {}{\"x\":interface {}(nil)}"),
        ("env_vars:\n  A: {x}: y\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: b #c\n d: e", "yaml: line 1: did not find expected key"),
        ("a:\n- b:\n  - c\n d: 1\n", "yaml: line 3: did not find expected key"),
        ("a: 'b\n\n\nc: d", "yaml: line 4: found unexpected end of stream"),
        ("a: >x\n b", "yaml: did not find expected comment or line break"),
        ("a: |12\n b", "yaml: did not find expected comment or line break"),
        ("a: |0\n b", "yaml: found an indentation indicator equal to 0"),
        ("a: &a &b c", "yaml: did not find expected key"),
        ("a: *", "yaml: did not find expected alphabetic or numeric character"),
        ("a: *x y", "yaml: unknown anchor 'x' referenced"),
        ("-a: 1\n- b", "yaml: line 1: did not find expected key"),
        ("a: 'b'\n'c\n", "yaml: line 3: found unexpected end of stream"),
        ("a: [\n  b,\n  c\n", "yaml: line 3: did not find expected ',' or ']'"),
        ("a: [\n  b\n  c: d\n]\n", "yaml: line 2: did not find expected ',' or ']'"),
        ("a: {\n  b: c\n  d: e\n}\n", "yaml: line 2: did not find expected ',' or '}'"),
        ("a: {\n  b: c,\n  d: e\n", "yaml: line 3: did not find expected ',' or '}'"),
        ("\"a: 1", "yaml: found unexpected end of stream"),
        ("a: 1\nfoo", "yaml: line 3: could not find expected ':'"),
        ("a: 1\nfoo\n\n\nb: 2\n", "yaml: line 5: could not find expected ':'"),
        ("a: 1\nfoo # c\nb: 2\n", "yaml: line 3: could not find expected ':'"),
        ("a: 1\nfoo bar\nb: 2\n", "yaml: line 3: could not find expected ':'"),
        ("x:\n  a: 1\n  foo\nb: 2\n", "yaml: line 4: could not find expected ':'"),
        ("x:\n  a: 1\n  foo\n  bar\nb: 2\n", "yaml: line 4: could not find expected ':'"),
        ("{\n  \"pip\": [\"torch\"\n}\n", "yaml: line 2: did not find expected ',' or ']'"),
        ("{\n  \"pip\": [\"torch\"},\n  \"a\": 1\n}\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("{\n  \"pip\": \"torch\"\n  \"env\": 1\n}\n", "yaml: line 2: did not find expected ',' or '}'"),
        ("[\n1,\n,2]\n", "yaml: line 2: did not find expected node content"),
        ("a: b\n\n\tc: d", "yaml: line 3: found a tab character that violates indentation"),
        ("a: b\n \tc: d", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: *x\n", "yaml: unknown anchor 'x' referenced"),
        ("a:\n  - *x\n", "yaml: unknown anchor 'x' referenced"),
        ("a:\n  <<: 1\n", "yaml: map merge requires map or sequence of maps as the value"),
        ("a:\n  b: \"\\q\"\n", "yaml: line 2: found unknown escape character"),
        ("a:\n  b: - c\n", "yaml: line 2: block sequence entries are not allowed in this context"),
        ("a: .inf\n", "json: unsupported value: +Inf"),
        ("a:\n - -.inf\n", "json: unsupported value: -Inf"),
        ("a: .NaN", "json: unsupported value: NaN"),
        (
            "env:\n  A: {{ .Values.x }}\n",
            "yaml: invalid map key: map[interface {}]interface {}{\".Values.x\":interface {}(nil)}",
        ),
        ("{{ x }}", "yaml: invalid map key: map[interface {}]interface {}{\"x\":interface {}(nil)}"),
        ("{% if x %}\na: 1\n", "yaml: found character that cannot start any token"),
        ("a: {1: 2, [b]: c}", "yaml: invalid map key: []interface {}{\"b\"}"),
        (
            "? {a: 1, b: [c, 1.5, true, null]}\n: x",
            "yaml: invalid map key: map[interface {}]interface {}{\"a\":1, \"b\":[]interface {}{\"c\", 1.5, true, interface {}(nil)}}",
        ),
        ("x:\n  a: \"b\" c\n", "yaml: line 1: did not find expected key"),
        ("x: [\"a\" \"b\"]", "yaml: did not find expected ',' or ']'"),
        ("x: [\"a\" b]", "yaml: did not find expected ',' or ']'"),
        ("x: ['a', 'b' c]", "yaml: did not find expected ',' or ']'"),
        ("x:\n  - \"a\" b\n", "yaml: line 1: did not find expected '-' indicator"),
        ("- \"a\" b\n", "yaml: did not find expected '-' indicator"),
        ("\"a\" b: c\n", "yaml: did not find expected key"),
        ("a: 1\n# x\n  b: 2\n", "yaml: line 2: did not find expected key"),
        ("a: b # c\n  d: e\nf: g\n", "yaml: line 1: did not find expected key"),
        ("env_vars:\n  A: it's\n  B: 'it's'\n", "yaml: line 2: did not find expected key"),
        ("env_vars:\n  A: 'it's'\n", "yaml: line 1: did not find expected key"),
        ("a: 'b\nc: 'd'\ne: f\n", "yaml: line 1: did not find expected key"),
        ("a: \"b\nc: \"d\"\ne: f\n", "yaml: line 1: did not find expected key"),
        ("a: \"b\n  c: \"d\"\n", "yaml: line 1: did not find expected key"),
        ("a: |0\n  b\n", "yaml: found an indentation indicator equal to 0"),
        ("x:\n  a: |0\n   b\n", "yaml: line 2: found an indentation indicator equal to 0"),
        ("a: !<x\nb: 1\n", "yaml: did not find the expected '>'"),
        ("%YAML 3.0\n---\na: 1", "yaml: found incompatible YAML document"),
        ("null: 1", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 1"),
        ("? \n: 1", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 1"),
        ("a: {null: b}", "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"b\""),
        ("a: {~: [1]}", "unsupported map key of type: %!s(<nil>), key: <nil>, value: []interface {}{1}"),
        ("a:\n - b\n  - c: d\n", "yaml: line 3: mapping values are not allowed in this context"),
        ("a:\n - b: 1\n  - c: d\n", "yaml: line 2: did not find expected '-' indicator"),
        ("a:\n   b: 1\n  c: 2\n", "yaml: line 2: did not find expected key"),
        ("a:\n  - b: 1\n    c: 2\n   d: 3\n", "yaml: line 3: did not find expected '-' indicator"),
        ("apps:\n- name: x\n  d:\n  - name: y\n   num: 2\n", "yaml: line 4: did not find expected key"),
        ("a:\n  b: c\n  - d\n", "yaml: line 2: did not find expected key"),
        ("- a\n b: c\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: [1, 2]]\n", "yaml: did not find expected key"),
        ("a: {b: 1}}\n", "yaml: did not find expected key"),
        ("a: ,\n", "yaml: did not find expected node content"),
        ("a: ?\n", "yaml: mapping keys are not allowed in this context"),
        ("a: b:\n", "yaml: mapping values are not allowed in this context"),
        ("a: http://x: y\n", "yaml: mapping values are not allowed in this context"),
        ("a: >-\n b\nc\n", "yaml: line 4: could not find expected ':'"),
    ];

    #[test]
    fn messages_are_those_of_go() {
        for (text, expect) in RECORDED {
            assert_eq!(value(text), Err(format!("error converting YAML to JSON: {expect}")), "{text:?}");
        }
        let control = "error converting YAML to JSON: yaml: control characters are not allowed";
        assert_eq!(value("a: \u{1}"), Err(control.to_owned()));
    }

    #[test]
    fn other_mistakes_are_described_in_our_words() {
        for (text, words) in [("a: !!int x", "invalid u64"), ("a: 1.0e400", "non-finite"), ("a: !!binary x", "base64")]
        {
            let error = value(text).unwrap_err();
            assert!(
                error.starts_with("error converting YAML to JSON: yaml: line 1: ") && error.contains(words),
                "{error}"
            );
        }
    }
}
