//! The operator's safeguards by name, to be switched off one at a time.

use manta_logic::config::Safeguards;

/// Switches one safeguard off.
type SwitchOff = fn(&mut Safeguards);

const ALL: [(&str, SwitchOff); 8] = [
    ("in_flight_writes", |all| all.in_flight_writes = false),
    ("uid_preconditions", |all| all.uid_preconditions = false),
    ("version_preconditions", |all| all.version_preconditions = false),
    ("leadership_fence", |all| all.leadership_fence = false),
    ("deterministic_run_names", |all| all.deterministic_run_names = false),
    ("one_submission_per_attempt", |all| all.one_submission_per_attempt = false),
    ("owner_checks", |all| all.owner_checks = false),
    ("drain_before_deletion", |all| all.drain_before_deletion = false),
];

/// Returns the names of all safeguards.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Returns all safeguards but the one of this name.
///
/// # Errors
///
/// If there is no such safeguard.
pub fn without(name: &str) -> Result<Safeguards, String> {
    let found = ALL.iter().find(|(known, _)| *known == name);
    let (_, switch_off) = found.ok_or_else(|| format!("choose one of {}", names().collect::<Vec<_>>().join(", ")))?;
    let mut safeguards = Safeguards::default();
    switch_off(&mut safeguards);
    Ok(safeguards)
}
