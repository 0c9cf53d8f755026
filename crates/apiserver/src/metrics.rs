//! `/metrics`: what an operator of the server wants to see, in Prometheus' text format.

use std::fmt::Write;

use crate::ops::Cluster;

/// Renders all metrics.
pub(crate) fn render(cluster: &Cluster) -> String {
    let mut text = String::new();
    header(&mut text, "apiserver_panics_total", "counter", "Caught panics by component.");
    for (component, count) in cluster.panics.counts() {
        let _ = writeln!(text, "apiserver_panics_total{{component=\"{component}\"}} {count}");
    }
    header(&mut text, "apiserver_resource_objects", "gauge", "Stored objects by resource.");
    for resource in cluster.registry.now().tables() {
        let count = cluster.store.count(&resource.table);
        let (group, plural) = (&resource.group, &resource.plural);
        let _ = writeln!(text, "apiserver_resource_objects{{group=\"{group}\",resource=\"{plural}\"}} {count}");
    }
    header(&mut text, "apiserver_store_revision", "gauge", "The newest durable revision.");
    let _ = writeln!(text, "apiserver_store_revision {}", cluster.store.visible());
    header(&mut text, "apiserver_store_failed", "gauge", "Whether the store refuses writes.");
    let _ = writeln!(text, "apiserver_store_failed {}", u8::from(cluster.store.failure().is_some()));
    text
}

fn header(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
