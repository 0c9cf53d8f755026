//! Parses the output of `parity compare`.

/// The result of one case: one line per difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) case: String,
    pub(crate) lines: Vec<String>,
}

/// The verdicts of one run, in order.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Vec<Verdict>);

impl Verdicts {
    /// Parses the next line of output.
    pub(crate) fn push_line(&mut self, line: &str) {
        let head = line.strip_prefix("equal ").or_else(|| line.strip_prefix("DIFFERS ")).map(str::trim_start);
        if let Some((file, rest)) = head.and_then(|head| head.split_once(": ")) {
            let case = file.strip_suffix(".json").unwrap_or(file).to_owned();
            // An error that stopped the replay is in parentheses after the counts.
            let error = rest
                .split_once(" (")
                .map(|(_, error)| format!("not replayed to the end: {}", error.trim_end_matches(')')));
            self.0.push(Verdict { case, lines: error.into_iter().collect() });
        } else if let (Some(line), Some(last)) = (line.strip_prefix("    "), self.0.last_mut()) {
            last.lines.push(line.to_owned());
        }
    }

    /// Adds newer verdicts and replaces older ones on the same cases.
    pub(crate) fn merge(&mut self, newer: Self) {
        for verdict in newer.0 {
            match self.0.iter_mut().find(|older| older.case == verdict.case) {
                Some(older) => *older = verdict,
                None => self.0.push(verdict),
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Verdict> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(text: &str) -> Verdicts {
        let mut verdicts = Verdicts::default();
        text.lines().for_each(|line| verdicts.push_line(line));
        verdicts
    }

    fn verdict(case: &str, lines: &[&str]) -> Verdict {
        Verdict { case: case.to_owned(), lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }

    #[test]
    fn each_case_has_its_lines() {
        let found = verdicts(
            "equal  case-a.json: 3/3 objects, 2/2 events\n\
             DIFFERS case-b.json: 2/3 objects, 2/2 events\n    ready: Pod x: missing\n    ready: event missing: ['a']\n\
             DIFFERS case-c.json: 0/3 objects, 0/2 events (RuntimeError: GET /x: 500 (y))\n\
             cases equal: 1/3; objects equal: 5/9; events equal: 4/6\n",
        );
        let expect = [
            verdict("case-a", &[]),
            verdict("case-b", &["ready: Pod x: missing", "ready: event missing: ['a']"]),
            verdict("case-c", &["not replayed to the end: RuntimeError: GET /x: 500 (y"]),
        ];
        assert_eq!(found.0, expect);
    }

    #[test]
    fn a_second_try_replaces_the_first() {
        let mut first =
            verdicts("DIFFERS a.json: 0/1 objects, 0/0 events\n    x\nequal  b.json: 1/1 objects, 0/0 events");
        first.merge(verdicts("equal  a.json: 1/1 objects, 0/0 events"));
        assert_eq!(first.0, [verdict("a", &[]), verdict("b", &[])]);
    }
}
