//! Measures the pure plan: how fast, and in how many instructions, a pass looks at a RayCluster and decides.

use anyhow::{Context, Result, bail};

use super::Scenario;
use super::measured::{Measured, Unit};
use crate::instructions::{self, Counted};
use crate::process::{display, print_line};

/// Measures passes over a RayCluster of this many Pods that is at rest, growing and starting.
pub(super) fn measure(pods: usize) -> Result<Measured> {
    let program = instructions::build()?;
    let mut command = std::process::Command::new(&program);
    command.args(["speed", &pods.to_string()]);
    let output = command.output().with_context(|| format!("cannot run {}", display(&command)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{} failed: {}", display(&command), String::from_utf8_lossy(&output.stderr));
    }
    let mut measured = Measured::new(Scenario::Plan, pods, "no server", "ours", 0);
    for (what, passes) in parse(&text) {
        measured.add(&format!("{what}, passes a second"), passes, Unit::Ratio);
    }
    match instructions::count(&program, pods)? {
        Counted::Instructions(counts) => {
            for (what, count) in counts {
                measured.add(&format!("{what}, instructions a pass"), count as f64, Unit::Count);
            }
        }
        Counted::Skipped(why) => print_line(&format!("instructions are not counted: {why}")),
    }
    Ok(measured)
}

/// Parses lines of a name and a number.
fn parse(text: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines.filter_map(|(what, number)| Some((what.to_owned(), number.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_several_words() {
        let expect = vec![("at rest".to_owned(), 120.5), ("starting".to_owned(), 7.0)];
        assert_eq!(parse("at rest 120.5\nnot a number x\nstarting 7\n"), expect);
    }
}
