//! Worlds from fixed and fresh seeds, the regressions, and a checker that sees.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use manta_sim::safeguards;
use manta_sim::script::Script;
use manta_sim::script::exhaustive::{everything_once, short_scripts};
use manta_sim::world::{Report, run, run_with};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

/// How many seeds of each sort run here; `make simulate` runs as many as one likes.
const SEEDS: u64 = 50;

fn simulate(seed: u64) -> Report {
    run(&Script::from_seed(seed)).unwrap()
}

fn assert_holds(name: &str, script: &Script, report: &Report) {
    assert_eq!(report.violation, None, "{name}\n{script}\n{}", report.transcript);
}

#[test]
fn the_same_seed_gives_the_same_transcript() {
    for seed in 0..SEEDS {
        let (one, two) = (simulate(seed), simulate(seed));
        let differs = one.transcript.lines().zip(two.transcript.lines()).find(|(one, two)| one != two);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.transcript.len(), two.transcript.len(), "seed {seed}");
    }
}

#[test]
fn no_fault_breaks_an_invariant() {
    let fresh = RandomState::new().hash_one("seed") >> 16;
    println!("fresh seeds from {fresh}");
    for seed in (SEEDS..2 * SEEDS).chain(fresh..fresh + SEEDS / 2) {
        assert_holds(&format!("make simulate SEED={seed}"), &Script::from_seed(seed), &simulate(seed));
    }
}

/// One short script here, with every fault of a write and some of the disturbances in between; `make simulate EXHAUSTIVE=1`
/// takes all of them.
#[test]
fn every_fault_at_every_write_of_a_small_cluster_is_survived() {
    let (name, script) = short_scripts().swap_remove(0);
    let sent = run(&script).unwrap().sent;
    assert!(sent.writes.len() > 8, "{sent:?}");
    let (faults, disturbances): (Vec<_>, Vec<_>) =
        everything_once(&script, &sent).into_iter().partition(|(what, _)| what.starts_with("write"));
    for (what, script) in faults.into_iter().chain(disturbances.into_iter().step_by(7)) {
        assert_holds(&format!("{name}, {what}"), &script, &run(&script).unwrap());
    }
}

#[test]
fn regressions_stay_fixed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let script: Script = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_holds(&file.display().to_string(), &script, &run(&script).unwrap());
    }
}

/// Without a safeguard some world fails that holds with it, and it is found soon.
#[test]
fn the_checker_notices_every_safeguard_that_is_missing() {
    // The search starts where it ended the last time, so that it does not take long.
    let hints = [
        ("in_flight_writes", 167),
        ("uid_preconditions", 422),
        ("version_preconditions", 1),
        ("leadership_fence", 116),
        ("deterministic_run_names", 168),
        ("one_submission_per_attempt", 1),
        ("owner_checks", 398),
        ("drain_before_deletion", 177),
    ];
    assert!(safeguards::names().eq(hints.map(|(name, _)| name)));
    for (name, hint) in hints {
        let safeguards = safeguards::without(name).unwrap();
        let found = (hint..1_000).chain(0..hint).find_map(|seed| {
            let violation = run_with(&Script::from_seed(seed), safeguards).unwrap().violation?;
            Some((seed, violation))
        });
        println!("{name}: {found:?}");
        let (seed, _) = found.unwrap_or_else(|| panic!("nothing fails without {name}"));
        assert_holds(&format!("seed {seed} with {name}"), &Script::from_seed(seed), &simulate(seed));
    }
}
