//! The list of specs that once passed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::specs::Spec;
use crate::workspace;

fn path() -> PathBuf {
    workspace::root().join("tests/conformance/passing.txt")
}

/// Reads the list.
pub(super) fn read() -> Result<BTreeSet<String>> {
    let path = path();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Writes the list.
pub(super) fn write(names: &BTreeSet<String>) -> Result<()> {
    let path = path();
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the list after a run, which says nothing about specs that did not run.
pub(super) fn merge(known: &BTreeSet<String>, ran: &[Spec], passed: &BTreeSet<String>) -> BTreeSet<String> {
    let others = known.iter().filter(|name| !ran.iter().any(|spec| spec.name == **name));
    others.chain(passed).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_some_specs_keeps_the_others() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let ran = ["a", "b"].map(|name| Spec { name: name.to_owned(), group: String::new() });
        assert_eq!(merge(&set(&["a", "z"]), &ran, &set(&["b"])), set(&["b", "z"]));
    }
}
