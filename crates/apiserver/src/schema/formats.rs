//! The string formats that Kubernetes checks in custom resources; any other format is ignored, numbers' too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;

/// A format that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid(Option<u8>),
    Byte,
    Password,
    Date,
    DateTime,
    Duration,
    HexColor,
    Ssn,
    ShortName,
    LongName,
}

impl Format {
    /// Returns the format of that name; dashes do not count, so `date-time` and `datetime` are the same.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name.replace('-', "").as_str() {
            "uri" => Self::Uri,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "uuid" => Self::Uuid(None),
            "uuid3" => Self::Uuid(Some(3)),
            "uuid4" => Self::Uuid(Some(4)),
            "uuid5" => Self::Uuid(Some(5)),
            "byte" => Self::Byte,
            "password" => Self::Password,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            "duration" => Self::Duration,
            "hexcolor" => Self::HexColor,
            "ssn" => Self::Ssn,
            "k8sshortname" => Self::ShortName,
            "k8slongname" => Self::LongName,
            _ => return None,
        })
    }

    /// Returns whether the text has this format.
    pub(crate) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Uri => is_request_uri(text),
            Self::Email => is_email(text),
            Self::Hostname => HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|l| l.len() <= 63),
            Self::Ipv4 => text.contains('.') && is_ip(text),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => is_cidr(text),
            Self::Mac => MAC.is_match(text),
            Self::Uuid(version) => is_uuid(text, version),
            Self::Byte => !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
            Self::Password => true,
            Self::Date => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
            Self::DateTime => is_date_time(text),
            Self::Duration => is_duration(text),
            Self::HexColor => HEX_COLOR.is_match(text),
            Self::Ssn => SSN.is_match(text),
            Self::ShortName => text.len() <= 63 && is_name_segment(text),
            Self::LongName => text.len() <= 253 && text.split('.').all(is_name_segment),
        }
    }
}

#[allow(clippy::unwrap_used, reason = "the patterns are constants, and a test compiles every one")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});
static MAC: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^([0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}([:-][0-9a-fA-F]{2}){0,2}|[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){2,3})$")
});
static UUID: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?([0-9a-f])[0-9a-f]{3}-?([0-9a-f])[0-9a-f]{3}-?[0-9a-f]{12}$")
});
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| regex(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static SSN: LazyLock<Regex> = LazyLock::new(|| regex(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static GO_DURATION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"));
static DURATION_PART: LazyLock<Regex> = LazyLock::new(|| regex(r"([0-9]+)\s*([A-Za-zµ]+)"));

fn is_request_uri(text: &str) -> bool {
    if text.starts_with('/') {
        return !text.contains(|c: char| c.is_control() || c == ' ');
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && !rest.is_empty()
        && !rest.contains(|c: char| c.is_control() || c == ' ')
}

/// Returns an address, bare or as `Name <address>`.
fn is_email(text: &str) -> bool {
    let address = match text.trim().strip_suffix('>') {
        Some(rest) => rest.rsplit_once('<').map_or("", |(_, address)| address),
        None => text.trim(),
    };
    let is_atom = |part: &str| {
        !part.is_empty()
            && !part.contains(|c: char| c.is_whitespace() || c.is_control() || "()<>[]:;@\\,\"".contains(c))
    };
    let dots_inside = |part: &str| part.split('.').all(is_atom);
    address.rsplit_once('@').is_some_and(|(user, host)| dots_inside(user) && dots_inside(host))
}

/// Returns an address; leading zeros in IPv4 are tolerated as they always were.
fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || without_leading_zeros(text).parse::<Ipv4Addr>().is_ok()
}

fn without_leading_zeros(text: &str) -> String {
    let parts: Vec<&str> = text
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            rest => rest,
        })
        .collect();
    parts.join(".")
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let bits: u32 = bits.parse().unwrap_or(u32::MAX);
    is_ip(address) && bits <= if address.contains(':') { 128 } else { 32 }
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let Some(found) = UUID.captures(text) else { return false };
    let variant_ok = || "89abAB".contains(&found[2]);
    match version {
        None => true,
        Some(3) => &found[1] == "3",
        Some(version) => found[1] == version.to_string() && variant_ok(),
    }
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME.captures(time) else { return false };
    Format::Date.accepts(date) && &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

/// Returns whether a text is a Go duration, or one such as `3 days`, which Kubernetes accepts too.
fn is_duration(text: &str) -> bool {
    if GO_DURATION.is_match(text) {
        return true;
    }
    const WORDS: &[(&[&str], &str)] = &[
        (&["ns"], "nano"),
        (&["us", "µs"], "micro"),
        (&["ms"], "milli"),
        (&["s"], "sec"),
        (&["m"], "min"),
        (&["h", "hr"], "hour"),
        (&["d"], "day"),
        (&["w", "wk"], "week"),
    ];
    DURATION_PART.captures_iter(text).any(|part| {
        let unit = part[2].to_lowercase();
        WORDS.iter().any(|(short, long)| short.contains(&unit.as_str()) || unit.starts_with(long))
    })
}

fn is_name_segment(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse() {
        let check = |format: &str, good: &[&str], bad: &[&str]| {
            let format = Format::from_name(format).unwrap();
            for text in good {
                assert!(format.accepts(text), "{format:?} should take {text:?}");
            }
            for text in bad {
                assert!(!format.accepts(text), "{format:?} should refuse {text:?}");
            }
        };
        check("date-time", &["2024-01-02T03:04:05Z", "2024-01-02t03:04:05.123+02:00"], &["", "2024-01-02", "x"]);
        check("date", &["2024-02-29"], &["2024-02-30", "20240101"]);
        check("duration", &["1h30m", "0", "3 days", "2 weeks"], &["", "later", "5"]);
        check("byte", &["aGk="], &["", "a", "a b="]);
        check("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "::1"]);
        check("ipv6", &["::1"], &["1.2.3.4", "g::"]);
        check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "/8"]);
        check("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123e4567"]);
        check("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]);
        check("hostname", &["example.com", "localhost"], &["-a", "a b"]);
        check("email", &["a@b.c", "A <a@b.c>"], &["a", "@b", "a@"]);
        check("uri", &["http://a/b", "/x"], &["", "a b", "nothing"]);
        check("mac", &["00:11:22:33:44:55"], &["00:11"]);
        check("hexcolor", &["#fff", "ABCDEF"], &["#ff"]);
        check("k8s-short-name", &["a-1"], &["", "A", "-a", "a.b"]);
        check("k8s-long-name", &["a.b-c"], &["a..b"]);
        check("ssn", &["123-45-6789"], &["12"]);
        assert_eq!(Format::from_name("int32"), None);
    }
}
