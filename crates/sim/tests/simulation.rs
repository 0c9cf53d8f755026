//! Worlds from fixed and fresh seeds.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use manta_sim::script::Script;
use manta_sim::world::{Report, run};
use std::hash::{BuildHasher, RandomState};

/// How many seeds of each sort run here; `make simulate` runs as many as one likes.
const SEEDS: u64 = 25;

fn simulate(seed: u64) -> Report {
    run(&Script::from_seed(seed)).unwrap()
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
    for seed in (0..SEEDS).chain(fresh..fresh + SEEDS) {
        let report = simulate(seed);
        let script = Script::from_seed(seed);
        assert_eq!(report.violation, None, "make simulate SEED={seed}\n{script}\n{}", report.transcript);
    }
}
