//! Counts the instructions of a pass of the pure plan, and compares them with those in the repository.
//!
//! Callgrind's counts do not depend on how busy the machine is, so a test can use them. They depend on the compiler and
//! the architecture, which are kept with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::apt;
use crate::process::{Outcome, cargo, display, print_line};
use crate::workspace;

/// The counts in the repository: the compiler, then a line for every case.
const KEPT: &str = "crates/logic/benches/instructions.txt";
/// The Pods of the RayCluster that the kept counts are for.
const PODS: usize = 1_000;
/// The growth in percent that still passes.
const TOLERANCE: u64 = 10;
/// What a pass looks at; the benchmark knows them by these names.
const CASES: [&str; 2] = ["at-rest", "starting"];
/// Passes of the second run; the difference to the first, of one pass, leaves out the start of the process.
const PASSES: u64 = 6;

/// The instructions of a pass by case.
type Counts = BTreeMap<String, u64>;

/// The outcome of counting.
pub(crate) enum Counted {
    Instructions(Counts),
    Skipped(String),
}

/// Builds the benchmark and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--profile", "sim", "--package", "manta-logic", "--bench", "plan"]);
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(workspace::root());
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{}: {}", display(&command), output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = built.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    program.context("cargo names no program of the benchmark")
}

/// Counts the instructions of one pass over this many Pods, where valgrind can be had.
pub(crate) fn count(program: &Path, pods: usize) -> Result<Counted> {
    if !apt::is_installed("valgrind") && !apt::install("valgrind", "valgrind") {
        return Ok(Counted::Skipped("no valgrind, and apt-get cannot install it".to_owned()));
    }
    let mut counts = Counts::new();
    for case in CASES {
        let [few, many] = [1, PASSES].map(|passes| run(program, case, pods, passes));
        counts.insert(case.to_owned(), many?.saturating_sub(few?) / (PASSES - 1));
    }
    Ok(Counted::Instructions(counts))
}

/// Returns the instructions of a whole process with this many passes.
fn run(program: &Path, case: &str, pods: usize, passes: u64) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    command.args(["count", &pods.to_string(), case, &passes.to_string()]);
    let output = command.output().context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{}: {}\n{text}", display(&command), output.status);
    }
    collected(&text).with_context(|| format!("{} counted nothing:\n{text}", display(&command)))
}

/// Parses the total in callgrind's output, `==7== Collected : 123`.
fn collected(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok()
}

/// Fails when a pass takes more instructions than the repository says; with `UPDATE=1` the counts are written instead.
pub(crate) fn check() -> Result<Outcome> {
    let compiler = compiler()?;
    let path = workspace::root().join(KEPT);
    let is_update = std::env::var_os("UPDATE").is_some();
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let (kept_compiler, kept) = parse(&kept);
    if !is_update && kept_compiler != compiler {
        let why = format!("the counts in {KEPT} are those of {kept_compiler}; this is {compiler}");
        return Ok(Outcome::Skipped(why));
    }
    let counts = match count(&build()?, PODS)? {
        Counted::Instructions(counts) => counts,
        Counted::Skipped(why) => return Ok(Outcome::Skipped(why)),
    };
    for (case, count) in &counts {
        print_line(&format!("{case}: {count} instructions a pass over {PODS} Pods"));
    }
    if is_update {
        std::fs::write(&path, format(&compiler, &counts)).with_context(|| format!("cannot write {KEPT}"))?;
        return Ok(Outcome::Passed);
    }
    Ok(compare(&kept, &counts))
}

/// Returns the version of the compiler and what it compiles for, in one line.
fn compiler() -> Result<String> {
    let output =
        Command::new("rustc").arg("-vV").current_dir(workspace::root()).output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Ok(format!("rustc {} {}", field("release:").unwrap_or_default(), field("host:").unwrap_or_default()))
}

fn format(compiler: &str, counts: &Counts) -> String {
    let lines = counts.iter().map(|(case, count)| format!("{case} {count}\n"));
    format!("{compiler}\n{}", lines.collect::<String>())
}

fn parse(text: &str) -> (String, Counts) {
    let (compiler, lines) = text.split_once('\n').unwrap_or((text, ""));
    let counts = lines.lines().filter_map(|line| line.split_once(' '));
    (compiler.to_owned(), counts.filter_map(|(case, count)| Some((case.to_owned(), count.parse().ok()?))).collect())
}

fn compare(kept: &Counts, counts: &Counts) -> Outcome {
    let grown: Vec<String> = counts
        .iter()
        .filter_map(|(case, count)| {
            let Some(before) = kept.get(case) else { return Some(format!("{case} is not in {KEPT}")) };
            let is_more = count * 100 > before * (100 + TOLERANCE);
            is_more.then(|| format!("{case} took {before} instructions and takes {count}"))
        })
        .collect();
    if grown.is_empty() {
        return Outcome::Passed;
    }
    Outcome::Failed(format!("{}; UPDATE=1 make bench-instructions accepts it", grown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|(case, count)| ((*case).to_owned(), *count)).collect()
    }

    #[test]
    fn only_growth_beyond_the_tolerance_fails() {
        let kept = counts(&[("at-rest", 1_000), ("starting", 50)]);
        for (now, passes) in [
            (&[("at-rest", 1_000), ("starting", 50)][..], true),
            (&[("at-rest", 1_100), ("starting", 10)], true),
            (&[("at-rest", 1_101), ("starting", 50)], false),
            (&[("another", 1)], false),
        ] {
            assert_eq!(compare(&kept, &counts(now)) == Outcome::Passed, passes, "{now:?}");
        }
    }

    #[test]
    fn kept_counts_are_read_back() {
        let kept = counts(&[("at-rest", 12), ("starting", 7)]);
        let text = format("rustc 1.95.0 x86_64-unknown-linux-gnu", &kept);
        assert_eq!(parse(&text), ("rustc 1.95.0 x86_64-unknown-linux-gnu".to_owned(), kept));
        assert_eq!(parse(""), (String::new(), Counts::new()));
    }

    #[test]
    fn callgrinds_total_is_parsed() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 81234\n==7==\n"), Some(81_234));
        assert_eq!(collected("==7== \n"), None);
    }
}
