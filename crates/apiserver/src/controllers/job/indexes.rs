//! Sets of completion indexes, in the notation of a Job's status: `0-2,5`.

use std::collections::BTreeSet;

/// A set of completion indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<i64>);

impl Indexes {
    /// Parses a set; what is malformed or not below `end` is left out.
    pub(super) fn parse(text: &str, end: i64) -> Indexes {
        let ranges = text.split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.trim().parse::<i64>().ok()?, last.trim().parse::<i64>().ok()?))
        });
        Indexes(ranges.flat_map(|(first, last)| first.max(0)..=last.min(end - 1)).collect())
    }

    pub(super) fn insert(&mut self, index: i64) {
        self.0.insert(index);
    }

    pub(super) fn contains(&self, index: i64) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> i64 {
        self.0.len() as i64
    }

    /// Returns how many indexes are in both sets.
    pub(super) fn common(&self, other: &Indexes) -> i64 {
        self.0.intersection(&other.0).count() as i64
    }

    /// Returns the notation of the set.
    pub(super) fn to_text(&self) -> String {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for index in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => ranges.push((*index, *index)),
            }
        }
        let show = |(first, last): &(i64, i64)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        };
        ranges.iter().map(show).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_kubernetes_writes_them() {
        let check = |text: &str, end: i64, expect: &str| assert_eq!(Indexes::parse(text, end).to_text(), expect);
        check("", 5, "");
        check("0", 5, "0");
        check("0,1", 5, "0,1");
        check("0-2,4", 5, "0-2,4");
        check("3,1,2", 5, "1-3");
        check("0-9", 3, "0-2");
        check("x,1", 3, "1");
    }
}
