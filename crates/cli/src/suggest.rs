//! Suggests known names for misspelt ones.

/// Returns the known name closest to a misspelt one, if it differs only in case or by a few letters.
pub fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Such a long name is no typo, and comparing it is expensive.
    if name.len() > 64 {
        return None;
    }
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    let lower = name.to_lowercase();
    known
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance: letters added, dropped, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_suggested() {
        let check = |name: &str, expect: Option<&str>| {
            let known = ["replicas", "minReplicas", "maxReplicas", "groupName", "template", "rayStartParams"];
            assert_eq!(closest(name, known.into_iter()), expect, "{name}");
        };
        check("replica", Some("replicas"));
        check("Replicas", Some("replicas"));
        check("minreplicas", Some("minReplicas"));
        check("tempalte", Some("template"));
        check("ray_start_params", Some("rayStartParams"));
        check("volumes", None);
        check("x", None);
        check(&"replicas".repeat(100), None);
    }
}
