//! Makes a script that fails as short as it can be.

use crate::script::Script;

/// Returns the shortest script found that still fails, by leaving parts out one after the other.
pub fn shrink(script: &Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut best = script.clone();
    loop {
        let Some(shorter) = candidates(&best).into_iter().find(|shorter| fails(shorter)) else { return best };
        best = shorter;
    }
}

/// Returns the scripts with one part less.
fn candidates(script: &Script) -> Vec<Script> {
    let without_act = (0..script.acts.len()).map(|index| {
        let mut shorter = script.clone();
        shorter.acts.remove(index);
        shorter
    });
    let without_fault = (0..script.faults.len()).map(|index| {
        let mut shorter = script.clone();
        shorter.faults.remove(index);
        shorter
    });
    let without_ray_fault = (0..script.ray_faults.len()).map(|index| {
        let mut shorter = script.clone();
        shorter.ray_faults.remove(index);
        shorter
    });
    let simpler = [
        Script { elected: false, ..script.clone() },
        Script { skew: 0, ..script.clone() },
        Script { scheduler: None, ..script.clone() },
        Script { webhook: false, ..script.clone() },
    ];
    let simpler = simpler.into_iter().filter(|simpler| simpler != script);
    without_fault.chain(without_ray_fault).chain(without_act).chain(simpler).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Act;

    #[test]
    fn only_what_is_needed_stays() {
        let script = (0..1_000)
            .map(Script::from_seed)
            .find(|script| script.acts.iter().any(|timed| timed.act == Act::CutWatches) && script.acts.len() > 5);
        let script = Script { elected: true, ..script.expect("a script with a cut") };
        let shortest = shrink(&script, |script| script.acts.iter().any(|timed| timed.act == Act::CutWatches));
        assert_eq!((shortest.acts.len(), shortest.faults.len(), shortest.elected), (1, 0, false));
    }
}
