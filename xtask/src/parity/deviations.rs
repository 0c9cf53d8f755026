//! The list of known differences from KubeRay, by case.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::verdicts::{Verdict, Verdicts};

/// One entry of the list: differences with one reason, in one or several cases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    cases: Vec<String>,
    /// Why we differ; `docs/deviations.md` has the details.
    why: String,
    /// Lines as `parity` prints them; `*` stands for any text.
    lines: Vec<String>,
}

/// The known differences by case.
#[derive(Debug, Default)]
pub(super) struct Deviations(BTreeMap<String, Vec<String>>);

impl Deviations {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a valid list of deviations", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let entries: Vec<Entry> = serde_saphyr::from_str(text)?;
        let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in entries {
            if entry.why.trim().is_empty() || entry.lines.is_empty() {
                bail!("the entry for {} needs a reason and lines", entry.cases.join(", "));
            }
            for case in entry.cases {
                known.entry(case).or_default().extend(entry.lines.iter().cloned());
            }
        }
        Ok(Self(known))
    }

    /// Returns the cases whose differences are not exactly those listed.
    pub(super) fn unexpected<'a>(&'a self, verdicts: &'a Verdicts) -> impl Iterator<Item = &'a Verdict> {
        verdicts.iter().filter(|verdict| !self.explain(verdict).is_empty())
    }

    /// Returns new differences, and listed ones that no longer occur.
    pub(super) fn explain(&self, verdict: &Verdict) -> Vec<String> {
        let listed = self.0.get(&verdict.case).map(Vec::as_slice).unwrap_or_default();
        let new = verdict.lines.iter().filter(|line| !listed.iter().any(|pattern| matches(pattern, line)));
        let gone = listed.iter().filter(|pattern| !verdict.lines.iter().any(|line| matches(pattern, line)));
        new.cloned()
            .chain(gone.map(|pattern| format!("listed as a deviation, but no longer different: {pattern}")))
            .collect()
    }
}

/// Whether the text matches the pattern, in which `*` stands for any text.
///
/// `parity` itself writes `-*` for a random suffix, which a `*` matches as well.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(end)
}

/// Formats differences as entries without reasons.
pub(super) fn as_entries<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> String {
    let mut text = String::new();
    for Verdict { case, lines } in verdicts.filter(|verdict| !verdict.lines.is_empty()) {
        text += &format!("- cases: [{case}]\n  why: \n  lines:\n");
        for line in lines {
            text += &format!("    - '{}'\n", line.replace('\'', "''"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listed: &[&str], seen: &[&str], expect: &[&str]) {
        let known =
            Deviations(BTreeMap::from([("a".to_owned(), listed.iter().map(|line| (*line).to_owned()).collect())]));
        let verdict = Verdict { case: "a".to_owned(), lines: seen.iter().map(|line| (*line).to_owned()).collect() };
        assert_eq!(known.explain(&verdict), expect);
    }

    #[test]
    fn unlisted_and_vanished_differences_are_unexpected() {
        check(&[], &[], &[]);
        check(&["x: want 1, have 2"], &["x: want 1, have 2"], &[]);
        check(&["Pod *: missing"], &["Pod a-*: missing", "Pod b: missing"], &[]);
        check(&[], &["new"], &["new"]);
        check(&["gone"], &[], &["listed as a deviation, but no longer different: gone"]);
        check(&["a*c"], &["abd"], &["abd", "listed as a deviation, but no longer different: a*c"]);
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expect) in [
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("abc", "abc", true),
            ("ab", "abc", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn an_entry_needs_a_reason() {
        assert!(Deviations::parse("[]").is_ok());
        assert!(Deviations::parse("- {cases: [a], why: because, lines: [x]}").is_ok());
        assert!(Deviations::parse("- {cases: [a], why: ' ', lines: [x]}").is_err());
        assert!(Deviations::parse("- {cases: [a], why: because, lines: []}").is_err());
    }

    #[test]
    fn the_list_in_the_repository_parses() {
        Deviations::read(&crate::workspace::root().join("tests/parity/deviations.yaml")).unwrap();
    }
}
