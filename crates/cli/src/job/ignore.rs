//! Which files of a folder are left out, in the language of `.gitignore`.

/// Patterns in order; the last one that matches decides.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns(Vec<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    /// The folder of the file that holds it, relative to the root; empty or with a slash at its end.
    base: String,
    glob: Vec<char>,
    is_negated: bool,
    only_folders: bool,
    /// Whether it is matched against the whole path beneath its base, not against the name alone.
    is_anchored: bool,
}

impl Patterns {
    /// Adds the patterns of a file in a folder.
    pub(super) fn add(&mut self, base: &str, text: &str) {
        self.0.extend(text.lines().filter_map(|line| Pattern::parse(base, line)));
    }

    /// Returns whether a path relative to the root is left out.
    pub(super) fn is_ignored(&self, path: &str, is_folder: bool) -> bool {
        let decides = |pattern: &&Pattern| pattern.matches(path, is_folder);
        self.0.iter().rev().find(decides).is_some_and(|pattern| !pattern.is_negated)
    }
}

impl Pattern {
    fn parse(base: &str, line: &str) -> Option<Self> {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (is_negated, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let line = line.strip_prefix('\\').filter(|rest| rest.starts_with(['#', '!'])).unwrap_or(line);
        let (only_folders, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
        let is_anchored = line.contains('/');
        let line = line.strip_prefix('/').unwrap_or(line);
        (!line.is_empty()).then(|| Self {
            base: base.to_owned(),
            glob: line.chars().collect(),
            is_negated,
            only_folders,
            is_anchored,
        })
    }

    fn matches(&self, path: &str, is_folder: bool) -> bool {
        if self.only_folders && !is_folder {
            return false;
        }
        let Some(path) = path.strip_prefix(&self.base) else { return false };
        let text = if self.is_anchored { path } else { path.rsplit('/').next().unwrap_or(path) };
        matches(&self.glob, &text.chars().collect::<Vec<_>>())
    }
}

/// Returns whether a glob matches a whole text. Tracks all positions that a prefix of the glob can reach, so its time is
/// the product of the two lengths.
fn matches(glob: &[char], text: &[char]) -> bool {
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut at = 0;
    while at < glob.len() {
        let rest = &glob[at..];
        let mut next = vec![false; text.len() + 1];
        if rest.starts_with(&['*', '*', '/']) && (at == 0 || glob[at - 1] == '/') {
            // Any number of folders.
            let mut open = false;
            for position in 0..=text.len() {
                let starts_folder = position == 0 || text[position - 1] == '/';
                next[position] = reached[position] || open && starts_folder;
                open |= reached[position];
            }
            at += 3;
        } else if rest.starts_with(&['*', '*']) {
            let mut open = false;
            for position in 0..=text.len() {
                open |= reached[position];
                next[position] = open;
            }
            at += 2;
        } else if rest[0] == '*' {
            let mut open = false;
            for position in 0..=text.len() {
                open = reached[position] || open && text[position - 1] != '/';
                next[position] = open;
            }
            at += 1;
        } else {
            let (length, accepts) = one(rest);
            for position in 0..text.len() {
                next[position + 1] = reached[position] && accepts(text[position]);
            }
            at += length;
        }
        reached = next;
    }
    reached[text.len()]
}

/// Returns the length of the first element of a glob, which matches one character, and which ones.
fn one(glob: &[char]) -> (usize, Box<dyn Fn(char) -> bool>) {
    match glob {
        ['?', ..] => (1, Box::new(|c| c != '/')),
        ['\\', escaped, ..] => {
            let escaped = *escaped;
            (2, Box::new(move |c| c == escaped))
        }
        ['[', rest @ ..] if rest.iter().skip(1).any(|c| *c == ']') => {
            let end = rest.iter().skip(1).position(|c| *c == ']').map_or(0, |at| at + 1);
            let (is_negated, set) = match &rest[..end] {
                ['!' | '^', set @ ..] => (true, set.to_vec()),
                set => (false, set.to_vec()),
            };
            (end + 2, Box::new(move |c| c != '/' && contains(&set, c) != is_negated))
        }
        [literal, ..] => {
            let literal = *literal;
            (1, Box::new(move |c| c == literal))
        }
        [] => (0, Box::new(|_| false)),
    }
}

fn contains(set: &[char], wanted: char) -> bool {
    let mut rest = set;
    while let [first, more @ ..] = rest {
        if let ['-', last, after @ ..] = more {
            if (*first..=*last).contains(&wanted) {
                return true;
            }
            rest = after;
        } else {
            if *first == wanted {
                return true;
            }
            rest = more;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(patterns: &str, path: &str, expect: bool) {
        let mut all = Patterns::default();
        all.add("", patterns);
        let (path, is_folder) = path.strip_suffix('/').map_or((path, false), |path| (path, true));
        assert_eq!(all.is_ignored(path, is_folder), expect, "{patterns:?} {path}");
    }

    #[test]
    fn patterns_match_as_in_git() {
        check("*.pyc", "a/b.pyc", true);
        check("*.pyc", "b.py", false);
        check("/data", "data/", true);
        check("/data", "a/data/", false);
        check("data/", "data", false);
        check("data/", "a/data/", true);
        check("a/*.log", "a/x.log", true);
        check("a/*.log", "a/b/x.log", false);
        check("a/**/x", "a/x", true);
        check("a/**/x", "a/b/c/x", true);
        check("**/x", "b/x", true);
        check("a/**", "a/b/c", true);
        check("a/**", "a/", false);
        check("?.py", "a.py", true);
        check("[a-c].py", "b.py", true);
        check("[!a-c].py", "b.py", false);
        check("[", "[", true);
        check("\\#x", "#x", true);
        check("# x", "# x", false);
        check("*\n!keep", "keep", false);
        check("*\n!keep", "other", true);
        check("", "x", false);
    }

    #[test]
    fn a_file_in_a_folder_decides_about_that_folder() {
        let mut all = Patterns::default();
        all.add("sub/", "/x");
        assert!(all.is_ignored("sub/x", false));
        assert!(!all.is_ignored("x", false));
        assert!(!all.is_ignored("sub/y/x", false));
    }

    #[test]
    fn a_hostile_pattern_takes_no_time() {
        check(&"*a".repeat(200), &"a".repeat(4_000), true);
        check(&format!("{}b", "*a".repeat(200)), &"a".repeat(4_000), false);
    }
}
