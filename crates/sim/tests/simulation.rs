//! Worlds from fixed and fresh seeds, the regressions, and a checker that sees.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use manta_logic::config::Safeguards;
use manta_sim::script::{Act, Fault, Script, Timed};
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

#[test]
fn every_fault_at_every_write_of_a_small_cluster_is_survived() {
    let create = Act::CreateCluster { cluster: 0, workers: 1, token: true, autoscaled: true, tls: false, queue: false };
    let acts = vec![Timed { at: 0, act: create }];
    let script = Script { seed: 7, acts, ..Script::default() };
    let writes = run(&script).unwrap().writes;
    assert!(writes > 8, "{writes} writes");
    for number in 0..writes {
        for fault in Fault::ALL {
            let script = script.with_fault(number, fault);
            assert_holds("exhaustive", &script, &run(&script).unwrap());
        }
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

/// Without a safeguard some world fails, and it is found soon.
#[test]
fn the_checker_notices_every_safeguard_that_is_missing() {
    let all = Safeguards::default();
    // The search starts where it ended the last time, so that it does not take long.
    let table: [(&str, Safeguards, u64); 8] = [
        ("in_flight_writes", Safeguards { in_flight_writes: false, ..all }, 167),
        ("uid_preconditions", Safeguards { uid_preconditions: false, ..all }, 544),
        ("version_preconditions", Safeguards { version_preconditions: false, ..all }, 163),
        ("leadership_fence", Safeguards { leadership_fence: false, ..all }, 747),
        ("deterministic_run_names", Safeguards { deterministic_run_names: false, ..all }, 175),
        ("one_submission_per_attempt", Safeguards { one_submission_per_attempt: false, ..all }, 1),
        ("owner_checks", Safeguards { owner_checks: false, ..all }, 235),
        ("drain_before_deletion", Safeguards { drain_before_deletion: false, ..all }, 14),
    ];
    for (name, safeguards, hint) in table {
        let found = (hint..1_000).chain(0..hint).find_map(|seed| {
            let violation = run_with(&Script::from_seed(seed), safeguards).unwrap().violation?;
            Some((seed, violation))
        });
        println!("{name}: {found:?}");
        assert!(found.is_some(), "nothing fails without {name}");
    }
}
