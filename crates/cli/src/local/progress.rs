//! Prints what happens to pods and Ray resources, one line per change, and Warning events as they come.

use super::summary::{summarise, summarise_pod};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use manta_logic::explain::one_line;
use std::collections::{HashMap, HashSet};

/// The kinds whose status is printed.
pub(crate) const KINDS: [&str; 4] = ["RayCluster", "RayJob", "RayService", "RayCronJob"];

/// What stands in place of a kind before Warning events.
const WARNING: &str = "Warning";

/// Returns the API resource of a kind in ray.io/v1.
pub(crate) fn ray_resource(kind: &str) -> ApiResource {
    ApiResource {
        group: "ray.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "ray.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

/// Prints one line whenever an object's summary changes; never returns.
pub(crate) async fn print_changes(client: &Client, print: &(dyn Fn(String) + Sync)) {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .filter_map(|event| async { Some(("Pod", change(event.ok()?, summarise_pod)?)) })
        .boxed();
    let warnings = watcher(Api::<Event>::all(client.clone()), watcher::Config::default())
        .filter_map(|event| async { Some((WARNING, warning(event.ok()?)?)) })
        .boxed();
    let mut all = vec![pods, warnings];
    for kind in KINDS {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ray_resource(kind));
        let stream = watcher(api, watcher::Config::default())
            .filter_map(move |event| async move {
                Some((kind, change(event.ok()?, |object: &DynamicObject| summarise(kind, &object.data))?))
            })
            .boxed();
        all.push(stream);
    }
    let mut all = futures::stream::select_all(all);
    let mut printed = Printed::default();
    while let Some((kind, change)) = all.next().await {
        if let Some(line) = printed.next_line(kind, change) {
            print(line);
        }
    }
}

/// What happened to an object, or to a Warning event about one.
struct Change {
    name: String,
    summary: String,
    is_gone: bool,
}

/// What was printed about the objects and Warning events that exist.
#[derive(Default)]
struct Printed {
    /// The last summary of each object, by kind and name.
    summaries: HashMap<(&'static str, String), String>,
    /// Objects and what was said about them: two warnings that take turns are printed once each.
    warnings: HashSet<(String, String)>,
}

impl Printed {
    /// Returns the line to print about a change, if it says anything new.
    fn next_line(&mut self, kind: &'static str, change: Change) -> Option<String> {
        let Change { name, summary, is_gone } = change;
        let line = |text: &str| format!("{kind:<11} {name:<44} {text}");
        if kind == WARNING {
            let (line, key) = (line(&summary), (name, summary));
            if is_gone {
                // A warning does not become untrue when its event expires.
                self.warnings.remove(&key);
                return None;
            }
            return self.warnings.insert(key).then_some(line);
        }
        if is_gone {
            let line = line("deleted");
            self.summaries.remove(&(kind, name));
            return Some(line);
        }
        let line = (!summary.is_empty()).then(|| line(&summary));
        let last = self.summaries.insert((kind, name), summary.clone());
        line.filter(|_| last != Some(summary))
    }
}

fn change<K: ResourceExt>(event: watcher::Event<K>, summarise: impl Fn(&K) -> String) -> Option<Change> {
    let (object, is_gone) = match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => (object, false),
        watcher::Event::Delete(object) => (object, true),
        watcher::Event::Init | watcher::Event::InitDone => return None,
    };
    let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    Some(Change { name, summary: summarise(&object), is_gone })
}

/// Returns the object of a new or expired Warning event, and what the event says.
fn warning(event: watcher::Event<Event>) -> Option<Change> {
    let (event, is_gone) = match event {
        watcher::Event::Apply(event) => (event, false),
        watcher::Event::Delete(event) => (event, true),
        // Those from before the start are history.
        watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone => return None,
    };
    is_warning(&event).then(|| Change { name: involved(&event), summary: describe_event(&event), is_gone })
}

/// Returns whether an event is a Warning.
pub(crate) fn is_warning(event: &Event) -> bool {
    event.type_.as_deref() == Some("Warning")
}

/// Returns the object that an event is about.
pub(crate) fn involved(event: &Event) -> String {
    let object = &event.involved_object;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{} {}/{}", part(&object.kind), part(&object.namespace), part(&object.name))
}

/// Returns reason and message of an event on one line.
pub(crate) fn describe_event(event: &Event) -> String {
    let message = event.message.as_deref().map(one_line).unwrap_or_default();
    format!("{}: {message}", event.reason.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_printed_per_change_and_nothing_is_kept_of_what_is_gone() {
        let mut printed = Printed::default();
        let mut check = |kind: &'static str, summary: &str, is_gone: bool, expect: Option<&str>| {
            let change = Change { name: "default/x".to_owned(), summary: summary.to_owned(), is_gone };
            let expect = expect.map(|text| format!("{kind:<11} {:<44} {text}", "default/x"));
            assert_eq!(printed.next_line(kind, change), expect, "{kind} {summary:?}");
        };
        check("Pod", "", false, None);
        check("Pod", "Pending 0/1", false, Some("Pending 0/1"));
        check("Pod", "Pending 0/1", false, None);
        check("Pod", "Running 1/1", false, Some("Running 1/1"));
        let warnings = ["Failed: image a", "Failed: image b"];
        warnings.into_iter().for_each(|text| check(WARNING, text, false, Some(text)));
        warnings.into_iter().for_each(|text| check(WARNING, text, false, None));
        warnings.into_iter().for_each(|text| check(WARNING, text, true, None));
        check("Pod", "Running 1/1", true, Some("deleted"));
        assert!(printed.summaries.is_empty() && printed.warnings.is_empty());
    }
}
