//! Differences between two texts, as `diff -u` prints them.

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// A line of one text or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// Returns the hunks of a unified diff; nothing for equal texts.
pub(super) fn unified(before: &str, after: &str) -> String {
    let lines = compare(&before.lines().collect::<Vec<_>>(), &after.lines().collect::<Vec<_>>());
    let changed: Vec<usize> = (0..lines.len()).filter(|&at| !matches!(lines[at], Line::Same(_))).collect();
    let mut out = String::new();
    let mut rest = changed.as_slice();
    while let Some((&first, _)) = rest.split_first() {
        // Changes whose context touches share a hunk.
        let joined = rest.windows(2).take_while(|pair| pair[1] - pair[0] <= 2 * CONTEXT + 1).count();
        let (start, end) = (first.saturating_sub(CONTEXT), (rest[joined] + CONTEXT + 1).min(lines.len()));
        push_hunk(&mut out, &lines, start, end);
        rest = &rest[joined + 1..];
    }
    out
}

fn push_hunk(out: &mut String, lines: &[Line<'_>], start: usize, end: usize) {
    let in_before = |line: &&Line<'_>| !matches!(line, Line::Added(_));
    let in_after = |line: &&Line<'_>| !matches!(line, Line::Removed(_));
    let range = |earlier: usize, length: usize| {
        // An empty range names the line before it.
        let first = if length == 0 { earlier } else { earlier + 1 };
        format!("{first},{length}")
    };
    let (earlier, hunk) = (&lines[..start], &lines[start..end]);
    let old = range(earlier.iter().filter(in_before).count(), hunk.iter().filter(in_before).count());
    let new = range(earlier.iter().filter(in_after).count(), hunk.iter().filter(in_after).count());
    out.push_str(&format!("@@ -{old} +{new} @@\n"));
    for line in hunk {
        let (sign, text) = match line {
            Line::Same(text) => (' ', text),
            Line::Removed(text) => ('-', text),
            Line::Added(text) => ('+', text),
        };
        out.push(sign);
        out.push_str(text);
        out.push('\n');
    }
}

/// Returns the lines of both texts in order, with as many in common as possible.
fn compare<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<Line<'a>> {
    let (n, m) = (before.len(), after.len());
    // The length of the longest common subsequence of the rests of the texts.
    let mut common = vec![vec![0u32; m + 1]; n + 1];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            common[i][j] = match before[i] == after[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::with_capacity(n.max(m));
    while i < n || j < m {
        if i < n && j < m && before[i] == after[j] {
            lines.push(Line::Same(before[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == m || (i < n && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(Line::Removed(before[i]));
            i += 1;
        } else {
            lines.push(Line::Added(after[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hunks_are_those_of_diff() {
        let check = |before: &str, after: &str, expect: &str| assert_eq!(unified(before, after), expect);
        check("a\n", "a\n", "");
        check("", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n");
        check("a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n");
        check("1\n2\n3\n4\n5\n", "1\n2\n3\nx\n5\n", "@@ -1,5 +1,5 @@\n 1\n 2\n 3\n-4\n+x\n 5\n");
        let numbers: String = (1..=20).map(|number| format!("{number}\n")).collect();
        let changed = numbers.replace("\n2\n", "\ntwo\n").replace("\n19\n", "\n");
        let expect = "@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n@@ -16,5 +16,4 @@\n 16\n 17\n 18\n-19\n 20\n";
        check(&numbers, &changed, expect);
    }

    proptest! {
        #[test]
        fn a_diff_leads_from_one_text_to_the_other(
            before in proptest::collection::vec("[ab]", 0..12),
            after in proptest::collection::vec("[ab]", 0..12),
        ) {
            let (before, after): (Vec<&str>, Vec<&str>) =
                (before.iter().map(String::as_str).collect(), after.iter().map(String::as_str).collect());
            let lines = compare(&before, &after);
            let old: Vec<&str> = lines.iter().filter_map(|line| match line {
                Line::Same(text) | Line::Removed(text) => Some(*text),
                Line::Added(_) => None,
            }).collect();
            let new: Vec<&str> = lines.iter().filter_map(|line| match line {
                Line::Same(text) | Line::Added(text) => Some(*text),
                Line::Removed(_) => None,
            }).collect();
            prop_assert_eq!(old, before);
            prop_assert_eq!(new, after);
        }
    }
}
