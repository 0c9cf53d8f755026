//! Rules for token authentication, which depends on the Ray version.

use super::ensure;
use crate::cluster_spec;
use crate::go::quote::quote;
use crate::version::RayVersion;
use manta_api::RayClusterSpec;

pub(super) fn check(spec: &RayClusterSpec) -> Result<(), String> {
    let by_kubernetes = cluster_spec::is_k8s_token_auth(spec);
    if !cluster_spec::is_token_auth(spec) {
        return ensure(!by_kubernetes, || {
            "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'".to_owned()
        });
    }
    let version = check_ray_version(spec, "authOptions.mode is 'token' but", RayVersion::new(2, 52, 0), "2.52.0")?;
    if !by_kubernetes {
        return Ok(());
    }
    ensure(version >= RayVersion::new(2, 55, 0), || {
        let given = spec.ray_version.as_deref().unwrap_or_default();
        format!("authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got {given}")
    })?;
    ensure(cluster_spec::auth_user_secret(spec).is_none(), || {
        "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set".to_owned()
    })
}

/// Returns the Ray version of the cluster if it is at least the minimum of a feature.
pub(super) fn check_ray_version(
    spec: &RayClusterSpec,
    what: &str,
    min: RayVersion,
    min_text: &str,
) -> Result<RayVersion, String> {
    let given = spec.ray_version.as_deref().unwrap_or_default();
    if given.is_empty() {
        return Err(format!("{what} RayVersion was not specified. Ray version {min_text} or later is required"));
    }
    let version = RayVersion::parse(given)
        .ok_or_else(|| format!("{what} RayVersion format is invalid: {given}, {}", version_error(given)))?;
    ensure(version >= min, || format!("{what} minimum Ray version is {min_text}, got {given}"))?;
    Ok(version)
}

/// Returns the error message of Kubernetes' version parser for an invalid text.
fn version_error(text: &str) -> String {
    let numbers = text.trim_start();
    let numbers = numbers.strip_prefix('v').unwrap_or(numbers);
    let end = numbers.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(numbers.len());
    let first = numbers[..end].split('.').next().unwrap_or_default();
    let second = numbers[..end].split('.').nth(1).unwrap_or_default();
    if first.is_empty() {
        format!("could not parse {} as version", quote(text))
    } else if second.is_empty() {
        format!("illegal version string {}", quote(text))
    } else if first.len() > 1 && first.starts_with('0') {
        format!("illegal zero-prefixed version component {} in {}", quote(first), quote(text))
    } else {
        let long = if first.parse::<u64>().is_err() { first } else { second };
        let cause = format!("strconv.ParseUint: parsing {}: value out of range", quote(long));
        format!("illegal non-numeric version component {} in {}: {cause}", quote(long), quote(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_versions_are_those_of_kubernetes() {
        let check = |text: &str, expect: &str| assert_eq!(version_error(text), expect);
        check("invalid", r#"could not parse "invalid" as version"#);
        check(".1", r#"could not parse ".1" as version"#);
        check("2", r#"illegal version string "2""#);
        check("2.x", r#"illegal version string "2.x""#);
        check("02.53", r#"illegal zero-prefixed version component "02" in "02.53""#);
        check(
            "2.99999999999999999999",
            "illegal non-numeric version component \"99999999999999999999\" in \"2.99999999999999999999\": \
             strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
        );
    }
}
