//! Ray versions in `spec.rayVersion`.

/// A Ray version without its pre-release: `2.53.0rc1` is `2.53.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RayVersion([u64; 3]);

impl RayVersion {
    /// Returns the version with these numbers.
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self([major, minor, patch])
    }

    /// Parses optional blanks, an optional `v` and at least two numbers; the rest is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts = text.split('.');
        let major = parts.next()?;
        if major.is_empty() || !major.bytes().all(|b| b.is_ascii_digit()) || (major.len() > 1 && major.starts_with('0'))
        {
            return None;
        }
        let (minor, whole) = leading_number(parts.next()?)?;
        let patch = if whole { parts.next().and_then(leading_number).map_or(0, |(number, _)| number) } else { 0 };
        Some(Self([major.parse().ok()?, minor, patch]))
    }
}

impl std::fmt::Display for RayVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Returns the number at the start of a text, and whether it is the whole text.
fn leading_number(text: &str) -> Option<(u64, bool)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    Some((text[..digits].parse().ok()?, digits == text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_leniently() {
        let check = |text: &str, expect: Option<RayVersion>| assert_eq!(RayVersion::parse(text), expect, "{text:?}");
        check("2.53.0", Some(RayVersion::new(2, 53, 0)));
        check(" v2.52", Some(RayVersion::new(2, 52, 0)));
        check("2.52.0.dev0", Some(RayVersion::new(2, 52, 0)));
        check("2.53.0rc1", Some(RayVersion::new(2, 53, 0)));
        check("2.53rc1", Some(RayVersion::new(2, 53, 0)));
        check("2", None);
        check("", None);
        check("invalid", None);
        check("02.53", None);
        assert!(RayVersion::new(2, 9, 0) < RayVersion::new(2, 53, 0));
        assert_eq!(RayVersion::new(2, 53, 1).to_string(), "2.53.1");
    }
}
