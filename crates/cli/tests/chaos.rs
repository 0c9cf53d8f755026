//! `manta operator` on a real control plane, killed while users, nodes and Ray go on. `make chaos` kills it 200 times.

#![allow(clippy::print_stdout, reason = "the counts are what a person runs this for")]

use anyhow::Result;
use manta_sim::chaos::{self, Options};
use std::hash::{BuildHasher, RandomState};

/// How often the operator is killed in a quick test, and the share of the usual time that a round takes.
const KILLS: u64 = 4;
const SHARE: f64 = 0.1;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
#[ignore = "kills processes for minutes, with a new seed each time: make chaos"]
fn a_killed_operator_breaks_no_invariant_and_leaves_nothing_over() -> Result<()> {
    let kills = number("MANTA_CHAOS_KILLS");
    let seed = number("SEED").unwrap_or_else(|| RandomState::new().hash_one("seed") >> 32);
    println!("make chaos SEED={seed}");
    let options = Options {
        manta: env!("CARGO_BIN_EXE_manta").into(),
        seed,
        kills: kills.unwrap_or(KILLS),
        share: if kills.is_some() { 1.0 } else { SHARE },
    };
    let report = chaos::run(&options, |line| println!("{line}"))?;
    println!("{report}");
    Ok(())
}
