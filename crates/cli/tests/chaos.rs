//! `manta operator` on a real control plane, killed while users, nodes and Ray go on. `make chaos` kills it 200 times.

#![allow(clippy::print_stdout, reason = "the counts are what a person runs this for")]

use anyhow::Result;
use manta_sim::chaos::{self, Options};
use std::hash::{BuildHasher, RandomState};

/// The quick test of `make test`: one round with a few kills, in which things happen for this share of the usual time.
const QUICK_SEED: u64 = 20;
const QUICK_KILLS: u64 = 1;
const QUICK_SHARE: f64 = 0.1;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_killed_operator_breaks_no_invariant_and_leaves_nothing_over() -> Result<()> {
    let kills = number("MANTA_CHAOS_KILLS");
    let fresh = || RandomState::new().hash_one("seed") >> 32;
    let seed = number("SEED").unwrap_or_else(|| if kills.is_some() { fresh() } else { QUICK_SEED });
    println!("make chaos SEED={seed}");
    let options = Options {
        manta: env!("CARGO_BIN_EXE_manta").into(),
        seed,
        kills: kills.unwrap_or(QUICK_KILLS),
        share: if kills.is_some() { 1.0 } else { QUICK_SHARE },
    };
    let report = chaos::run(&options, |line| println!("{line}"))?;
    println!("{report}");
    Ok(())
}
