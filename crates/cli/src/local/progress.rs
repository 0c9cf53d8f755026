//! Prints what happens to pods and Ray resources, one line per change, and Warning events as they come.

use super::summary::{one_line, summarise, summarise_pod};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::HashMap;

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
    while let Some((kind, (name, summary))) = all.next().await {
        if let Some(line) = printed.next_line(kind, name, summary) {
            print(line);
        }
    }
}

/// What was last printed about every object that exists.
#[derive(Default)]
struct Printed(HashMap<(&'static str, String), String>);

impl Printed {
    /// Returns the line to print about a change, if it says anything new.
    fn next_line(&mut self, kind: &'static str, name: String, summary: Option<String>) -> Option<String> {
        let line = |text: &str| format!("{kind:<11} {name:<44} {text}");
        let Some(summary) = summary else {
            let line = line("deleted");
            self.0.remove(&(kind, name));
            // A warning does not become untrue when its event expires.
            return (kind != WARNING).then_some(line);
        };
        let line = (!summary.is_empty()).then(|| line(&summary));
        let last = self.0.insert((kind, name), summary.clone());
        line.filter(|_| last != Some(summary))
    }
}

type Change = (String, Option<String>);

fn change<K: ResourceExt>(event: watcher::Event<K>, summarise: impl Fn(&K) -> String) -> Option<Change> {
    let name = |object: &K| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
            Some((name(&object), Some(summarise(&object))))
        }
        watcher::Event::Delete(object) => Some((name(&object), None)),
        watcher::Event::Init | watcher::Event::InitDone => None,
    }
}

/// Returns the object of a new or expired Warning event, and what a new one says.
fn warning(event: watcher::Event<Event>) -> Option<Change> {
    let (event, is_new) = match event {
        watcher::Event::Apply(event) => (event, true),
        watcher::Event::Delete(event) => (event, false),
        // Those from before the start are history.
        watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone => return None,
    };
    is_warning(&event).then(|| (involved(&event), is_new.then(|| describe_event(&event))))
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
        let mut check = |kind: &'static str, summary: Option<&str>, expect: Option<&str>| {
            let line = printed.next_line(kind, "default/x".to_owned(), summary.map(str::to_owned));
            let expect = expect.map(|text| format!("{kind:<11} {:<44} {text}", "default/x"));
            assert_eq!(line, expect, "{kind} {summary:?}");
        };
        check("Pod", Some(""), None);
        check("Pod", Some("Pending 0/1"), Some("Pending 0/1"));
        check("Pod", Some("Pending 0/1"), None);
        check("Pod", Some("Running 1/1"), Some("Running 1/1"));
        check(WARNING, Some("Failed: why"), Some("Failed: why"));
        check(WARNING, Some("Failed: why"), None);
        check(WARNING, None, None);
        check("Pod", None, Some("deleted"));
        assert!(printed.0.is_empty());
    }
}
