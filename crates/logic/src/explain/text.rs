//! Texts of many lines, such as tracebacks, shortened to what matters.

/// The longest text on one line.
const MAX_CHARS: usize = 200;

/// Returns what matters of a text of many lines: its first line, and the error that a Python traceback ends with.
pub fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next() else { return String::new() };
    let error = text.contains("Traceback").then(|| exception(text)).flatten();
    let first = first.trim_start().split(", last available logs").next().unwrap_or_default();
    let joined = match error {
        Some(error) if first.starts_with("Traceback") => error.to_owned(),
        Some(error) => format!("{}: {error}", first.trim_end_matches(':')),
        None => first.to_owned(),
    };
    shorten(&joined)
}

/// Cuts a text off that is too long for one line.
pub(super) fn shorten(text: &str) -> String {
    if text.chars().count() <= MAX_CHARS {
        return text.to_owned();
    }
    text.chars().take(MAX_CHARS - 1).chain(['…']).collect()
}

/// Returns the last line of the last traceback: `module.SomeError: message`.
pub(super) fn exception(text: &str) -> Option<&str> {
    let is_error = |line: &&str| !line.starts_with([' ', '\t']) && is_exception(line);
    text.lines().map(without_prefix).map(str::trim_end).rfind(is_error)
}

/// Returns a line without what Ray puts before the lines of workers: `(task pid=1, ip=10.0.0.1) `.
fn without_prefix(line: &str) -> &str {
    match line.strip_prefix('(').and_then(|rest| rest.split_once(") ")) {
        Some((inner, rest)) if inner.contains("pid=") => rest,
        _ => line,
    }
}

/// Returns whether a line is the last of a traceback.
fn is_exception(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    // `ray.exceptions.RayTaskError(ValueError): …`
    let name = name.split('(').next().unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "._".contains(c));
    is_name && ["Error", "Exception", "Exit", "Interrupt", "Iteration"].iter().any(|end| name.ends_with(end))
}

/// Returns a text without a full stop at its end, to go on with.
pub(super) fn unfinished(text: &str) -> &str {
    text.trim_end().trim_end_matches(['.', ':', ';'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracebacks_become_their_error() {
        let check = |text: &str, expect: &str| assert_eq!(one_line(text), expect, "{text}");
        check("", "");
        check("plain\nmore", "plain");
        let trace = "Traceback (most recent call last):\n  File \"x\", line 1\n    import nope\nModuleNotFoundError: No module named 'nope'\n";
        check(trace, "ModuleNotFoundError: No module named 'nope'");
        check(
            &format!(
                "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n{trace}"
            ),
            "Job entrypoint command failed with exit code 1: ModuleNotFoundError: No module named 'nope'",
        );
        assert_eq!(one_line(&"x".repeat(1000)).chars().count(), MAX_CHARS);
    }

    #[test]
    fn the_last_exception_counts() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(exception(text), expect, "{text}");
        check("Traceback\n  raise\nValueError\nmore", Some("ValueError"));
        check(
            "ray.exceptions.RayTaskError(KeyError): \u{1b}[36mray::f()",
            Some("ray.exceptions.RayTaskError(KeyError): \u{1b}[36mray::f()"),
        );
        check("(f pid=7, ip=10.0.0.1) KeyError: 'a'", Some("KeyError: 'a'"));
        check("INFO: no error here\n  IndentedError: x", None);
    }
}
