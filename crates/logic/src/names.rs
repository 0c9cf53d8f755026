//! Names of created objects and the truncation of long ones.
//!
//! As in KubeRay, names are truncated by bytes, but never inside a character.

use crate::splitmix;
use manta_api::RayClusterSpec;
use std::collections::BTreeSet;

/// Names of containers, volumes and environment variables in Ray Pods that are reserved for the operator.
pub(crate) mod reserved {
    pub(crate) const COLLECTOR: &str = "ray-history-collector";
    pub(crate) const GCS_STORAGE_VOLUME: &str = "gcs-storage";
    pub(crate) const GCS_STORAGE_PATH: &str = "/data/gcs";
    pub(crate) const TLS_VOLUME: &str = "ray-tls";
    pub(crate) const TLS_PATH: &str = "/etc/ray/tls";
    /// The variables that make Ray use TLS, with their values.
    pub(crate) const TLS_ENV: [(&str, &str); 4] = [
        ("RAY_USE_TLS", "1"),
        ("RAY_TLS_SERVER_CERT", "/etc/ray/tls/tls.crt"),
        ("RAY_TLS_SERVER_KEY", "/etc/ray/tls/tls.key"),
        ("RAY_TLS_CA_CERT", "/etc/ray/tls/ca.crt"),
    ];
    pub(crate) const AUTOSCALER_START_COMMAND_ENV: &str = "KUBERAY_GEN_AUTOSCALER_START_CMD";
    /// The variable of the head's Ray container that selects autoscaler v2.
    pub(crate) const AUTOSCALER_V2_ENV: &str = "RAY_enable_autoscaler_v2";
}

/// Returns the last 50 bytes with a leading digit or punctuation mark replaced by `r`.
pub fn clip50(name: &str) -> String {
    replace_first(last_bytes(name, 50), |c| c.is_ascii_digit() || is_punctuation(c))
}

/// Returns the last 63 bytes with a leading punctuation mark replaced by `r`, for label values and names of Jobs.
pub fn clip63(name: &str) -> String {
    replace_first(last_bytes(name, 63), is_punctuation)
}

/// Returns the name of an OpenShift Route, whose host name also contains the namespace.
pub fn route_name(name: &str, namespace: &str) -> String {
    clip50(first_bytes(name, 51usize.saturating_sub(namespace.len()).max(1)))
}

/// Returns `<first 50 bytes>-<node type>` in lower case: the name of a Pod without its suffix.
pub fn pod_prefix(name: &str, node_type: &str) -> String {
    format!("{}-{node_type}", first_bytes(name, 50)).to_lowercase()
}

/// Returns the name of the head Service of a RayCluster.
pub fn head_service(cluster: &str, spec: &RayClusterSpec) -> String {
    let custom = spec.head_group_spec.head_service.as_ref().and_then(|service| service.metadata.name.clone());
    custom.filter(|name| !name.is_empty()).unwrap_or_else(|| owner_head_service(cluster))
}

/// Returns the name of the head Service of a RayService or RayJob, which ignores custom names.
pub fn owner_head_service(owner: &str) -> String {
    format!("{owner}-head-svc")
}

/// Returns the name of the serve Service.
pub fn serve_service(owner: &str) -> String {
    format!("{owner}-serve-svc")
}

/// Returns the name of the headless Service of multi-host groups.
pub fn headless_service(cluster: &str) -> String {
    format!("{cluster}-headless")
}

/// Returns `<service>.<namespace>.svc.<domain>`.
pub fn fqdn(service: &str, namespace: &str, domain: &str) -> String {
    format!("{service}.{namespace}.svc.{domain}")
}

/// A generator of name suffixes with the alphabet of Kubernetes, which avoids words.
///
/// The seed is part of the observed state, so a plan is a function of its inputs.
#[derive(Clone, Debug)]
pub struct Suffixes {
    state: u64,
    /// Suffixes that are in use.
    taken: BTreeSet<String>,
}

impl Suffixes {
    const ALPHABET: &'static [u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

    /// Returns a generator; the same seed gives the same suffixes.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, taken: BTreeSet::new() }
    }

    /// Returns a generator that draws no suffix of these names.
    ///
    /// A pass that repeats an earlier one with the same seed draws for what is still missing the names that it drew before,
    /// so that a write whose reply was lost is not made twice.
    pub fn avoiding<'a>(seed: u64, names: impl Iterator<Item = &'a str>) -> Self {
        let taken = names.filter_map(|name| name.rsplit_once('-')).map(|(_, suffix)| suffix.to_owned()).collect();
        Self { state: seed, taken }
    }

    /// Returns the next suffix of five characters.
    pub fn draw(&mut self) -> String {
        loop {
            let suffix = self.next();
            if !self.taken.contains(&suffix) {
                return suffix;
            }
        }
    }

    /// Returns the next suffix that is none of these.
    ///
    /// With the seed of a pass that broke off, a Pod would otherwise draw the name of one that may still be created.
    pub fn draw_except(&mut self, reserved: &[&str]) -> String {
        loop {
            let suffix = self.draw();
            if !reserved.contains(&suffix.as_str()) {
                return suffix;
            }
        }
    }

    fn next(&mut self) -> String {
        let number = splitmix::next(&mut self.state);
        let size = Self::ALPHABET.len() as u64;
        (0..5u32).map(|place| Self::ALPHABET[((number / size.pow(place)) % size) as usize] as char).collect()
    }
}

fn last_bytes(text: &str, count: usize) -> &str {
    let mut start = text.len().saturating_sub(count);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

fn first_bytes(text: &str, count: usize) -> &str {
    let mut end = text.len().min(count);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn replace_first(text: &str, bad: impl Fn(char) -> bool) -> String {
    match text.chars().next() {
        Some(first) if bad(first) => format!("r{}", &text[first.len_utf8()..]),
        _ => text.to_owned(),
    }
}

/// Returns whether an ASCII character is Unicode punctuation.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() && !matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(
            clip50("72fbcc7e-a661-4b18e-ca41-e903-fc3ae634b18e-lazer090scholar-director-s"),
            "rca41-e903-fc3ae634b18e-lazer090scholar-director-s"
        );
        assert_eq!(
            clip50("--------566666--------444433-----------222222----------4444"),
            "r6666--------444433-----------222222----------4444"
        );
        assert_eq!(clip50("acceptable-name-head-12345"), "acceptable-name-head-12345");
    }

    #[test]
    fn route_names_leave_space_for_the_namespace() {
        let namespace = "development-namespace";
        assert_eq!(route_name("cv-traffic-training-202402090958", namespace), "cv-traffic-training-2024020909");
        assert_eq!(route_name("2-step-cv-training-network-revisited", namespace), "r-step-cv-training-network-rev");
        assert_eq!(route_name("acceptable-name-head-12345", namespace), "acceptable-name-head-12345");
        assert!(!route_name("a", &"n".repeat(63)).is_empty());
    }

    #[test]
    fn pod_prefixes_keep_their_beginning() {
        assert_eq!(pod_prefix("ray-cluster-01", "head"), "ray-cluster-01-head");
        assert_eq!(pod_prefix(&"X".repeat(60), "worker"), format!("{}-worker", "x".repeat(50)));
    }

    #[test]
    fn a_repeated_pass_draws_the_names_that_are_still_missing() {
        let mut first = Suffixes::new(7);
        let drawn: Vec<String> = (0..3).map(|_| format!("demo-worker-{}", first.draw())).collect();
        let mut again = Suffixes::avoiding(7, [drawn[0].as_str(), drawn[2].as_str()].into_iter());
        assert_eq!(format!("demo-worker-{}", again.draw()), drawn[1]);
    }

    #[test]
    fn suffixes_repeat_with_their_seed_only() {
        let draw = |seed| {
            let mut suffixes = Suffixes::new(seed);
            [suffixes.draw(), suffixes.draw()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let [first, second] = draw(7);
        assert_ne!(first, second);
        assert_eq!(first.len(), 5);
    }
}
