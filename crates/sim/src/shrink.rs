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

/// Returns whether two violations are of the same sort: they differ only in names, numbers and times.
pub fn is_same_sort(one: &str, other: &str) -> bool {
    sort(one) == sort(other)
}

/// Returns a violation without its names and numbers. All names of a world have a digit in them.
fn sort(violation: &str) -> Vec<&str> {
    let is_name = |word: &&str| word.contains(|char: char| char.is_ascii_digit());
    violation.split_whitespace().filter(|word| !is_name(word)).collect()
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
        Script { post_mortems: false, ..script.clone() },
    ];
    let simpler = simpler.into_iter().filter(|simpler| simpler != script);
    without_fault.chain(without_ray_fault).chain(without_act).chain(simpler).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Act;

    #[test]
    fn violations_are_of_one_sort_whatever_they_name() {
        let two_heads = "1 Pods of headgroup were asked for: c0-head-x2bdf c0-head-9wq7z";
        assert!(is_same_sort(
            two_heads,
            "1 Pods of headgroup were asked for: c1-head-bb4cd c1-head-x7fgh c1-head-k8mnp"
        ));
        assert!(is_same_sort("47 writes at rest", "2 writes at rest"));
        assert!(!is_same_sort(two_heads, "RayCluster c0: its state is \"suspended\""));
    }

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
