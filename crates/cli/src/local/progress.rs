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
        .filter_map(|event| async { Some(("Warning", warning(event.ok()?)?)) })
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
    let mut printed: HashMap<(&str, String), String> = HashMap::new();
    while let Some((kind, (name, summary))) = all.next().await {
        let key = (kind, name);
        match summary {
            Some(summary) if printed.get(&key) != Some(&summary) => {
                if !summary.is_empty() {
                    print(format!("{:<11} {:<44} {summary}", kind, key.1));
                }
                printed.insert(key, summary);
            }
            Some(_) => {}
            None => {
                print(format!("{:<11} {:<44} deleted", kind, key.1));
                printed.remove(&key);
            }
        }
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

/// Returns the object of a new Warning event and what it says.
fn warning(event: watcher::Event<Event>) -> Option<Change> {
    // Those from before the start are history.
    let watcher::Event::Apply(event) = event else { return None };
    is_warning(&event).then(|| (involved(&event), Some(describe_event(&event))))
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
