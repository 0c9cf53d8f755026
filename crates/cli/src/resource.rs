//! Ray's resources as users name them: `NAME` for a RayCluster, or `TYPE/NAME`.

use crate::connect::Target;
use anyhow::bail;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use manta_cli::suggest;
use std::fmt;

/// How many existing names an error lists.
const MAX_CANDIDATES: usize = 8;

/// A kind of Ray's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
pub(crate) enum Kind {
    #[serde(rename = "RayCluster")]
    Cluster,
    #[serde(rename = "RayJob")]
    Job,
    #[serde(rename = "RayService")]
    Service,
    #[serde(rename = "RayCronJob")]
    CronJob,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Cluster, Self::Job, Self::Service, Self::CronJob];

    /// Returns its name in manifests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "RayCluster",
            Self::Job => "RayJob",
            Self::Service => "RayService",
            Self::CronJob => "RayCronJob",
        }
    }

    /// Returns its name in `TYPE/NAME`.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Cluster => "raycluster",
            Self::Job => "rayjob",
            Self::Service => "rayservice",
            Self::CronJob => "raycronjob",
        }
    }

    /// Returns its name in a sentence.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Cluster => "Ray cluster",
            Self::Job => "Ray job",
            Self::Service => "Ray service",
            Self::CronJob => "Ray cron job",
        }
    }

    pub(crate) fn api_resource(self) -> ApiResource {
        crate::local::ray_resource(self.name())
    }

    /// Parses a type in any case, in singular or plural, with or without `ray` and the API group.
    fn parse(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        let lower = lower.split('.').next().unwrap_or_default();
        let singular = lower.strip_suffix('s').unwrap_or(lower);
        Self::ALL.into_iter().find(|kind| {
            let full = kind.type_name();
            full == singular || full.strip_prefix("ray") == Some(singular)
        })
    }
}

/// The kind and the name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.type_name(), self.name)
    }
}

impl std::str::FromStr for Reference {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (kind, name) = match text.split_once('/') {
            None => (Kind::Cluster, text),
            Some((kind, name)) => match Kind::parse(kind) {
                Some(kind) => (kind, name),
                None => {
                    let types = Kind::ALL.map(Kind::type_name);
                    let short = types.into_iter().filter_map(|name| name.strip_prefix("ray"));
                    let hint = suggest::closest(kind, types.into_iter().chain(short))
                        .map(|known| format!(" Did you mean {known}/{name}?"))
                        .unwrap_or_default();
                    bail!("unsupported resource type {kind}; use one of {}.{hint}", types.join(", "));
                }
            },
        };
        if name.is_empty() || name.contains('/') {
            bail!("{text} is not a valid resource; use NAME for a RayCluster, or TYPE/NAME");
        }
        Ok(Self { kind, name: name.to_owned() })
    }
}

impl Target {
    /// Returns the API of a Ray kind in the target's namespace.
    pub(crate) fn ray_api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.api_resource())
    }

    /// Returns an object, or an error that suggests existing names.
    pub(crate) async fn get_ray(&self, reference: &Reference) -> anyhow::Result<DynamicObject> {
        let api = self.ray_api(reference.kind);
        match api.get_opt(&reference.name).await {
            Ok(Some(object)) => Ok(object),
            Ok(None) => Err(self.not_found(reference).await),
            Err(error) => Err(self.failed(&format!("cannot get {reference}"), error)),
        }
    }

    /// Returns the error about an object that does not exist.
    pub(crate) async fn not_found(&self, reference: &Reference) -> anyhow::Error {
        let (words, namespace) = (reference.kind.words(), &self.namespace);
        // A user who may get but not list sees the plain sentence.
        let known = self.ray_api(reference.kind).list_metadata(&ListParams::default()).await;
        let known: Vec<String> = known.into_iter().flatten().filter_map(|object| object.metadata.name).collect();
        let hint = names_hint(&reference.name, &known);
        anyhow::anyhow!("{words} {} not found in namespace {namespace}{hint}", reference.name)
    }
}

/// Returns what to add to an error about an unknown name: the nearest one, or all while they are few.
pub(crate) fn names_hint(name: &str, known: &[String]) -> String {
    if let Some(near) = suggest::closest(name, known.iter().map(String::as_str)) {
        return format!(". Did you mean {near}?");
    }
    let starting: Vec<&str> = known.iter().map(String::as_str).filter(|known| known.starts_with(name)).collect();
    match starting.as_slice() {
        [one] => return format!(". Did you mean {one}?"),
        [] => {}
        several => return format!(". Names starting with it: {}", shortened(several)),
    }
    match known.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        all => format!(". Existing names: {}", shortened(all)),
    }
}

fn shortened(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_CANDIDATES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_CANDIDATES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_in_any_case_and_form() {
        let check = |text: &str, expect: Option<(Kind, &str)>| {
            let got = text.parse::<Reference>().ok();
            assert_eq!(got.as_ref().map(|it| (it.kind, it.name.as_str())), expect, "{text}");
        };
        check("a", Some((Kind::Cluster, "a")));
        check("raycluster/a", Some((Kind::Cluster, "a")));
        check("RayJob/a", Some((Kind::Job, "a")));
        check("rayservices/a", Some((Kind::Service, "a")));
        check("rayjobs.ray.io/a", Some((Kind::Job, "a")));
        check("cronjob/a", Some((Kind::CronJob, "a")));
        for wrong in ["", "/a", "rayjob/", "pod/a", "rayjob/a/b"] {
            check(wrong, None);
        }
        let error = "rayjbo/a".parse::<Reference>().unwrap_err().to_string();
        assert!(error.ends_with("Did you mean rayjob/a?"), "{error}");
    }

    #[test]
    fn unknown_names_come_with_candidates() {
        let check = |name: &str, known: &[&str], expect: &str| {
            let known: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(names_hint(name, &known), expect, "{name}");
        };
        check("trian", &["train", "serve"], ". Did you mean train?");
        check("train", &["train-abcdefgh"], ". Did you mean train-abcdefgh?");
        check(
            "train",
            &["train-abcdefgh", "train-ijklmnop"],
            ". Names starting with it: train-abcdefgh, train-ijklmnop",
        );
        check("x", &["train"], ". Existing names: train");
        check("x", &[], "");
        check("x", &["aaaa"; 10], ". Existing names: aaaa, aaaa, aaaa, aaaa, aaaa, aaaa, aaaa, aaaa and 2 more");
    }
}
