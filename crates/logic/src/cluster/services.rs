//! The Services of a cluster: head, hosts of multi-host groups, Serve.

use super::observed::Observed;
use super::plan::Draft;
use crate::action::{Event, Kind, Step, create};
use crate::build;
use crate::config::Config;
use crate::labels::{self, annotation};
use crate::names;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::Service;

pub(super) fn plan(seen: &Observed, valid: &ValidCluster<'_>, cfg: &Config, draft: &mut Draft) {
    plan_head(seen, valid, cfg, draft);
    if draft.halt.is_none() {
        plan_headless(seen, valid, draft);
        plan_serve(seen, valid, draft);
    }
}

/// The labels by which a cluster's head Service is found.
pub(super) fn head_selector(name: &str) -> [(&'static str, String); 3] {
    [
        (labels::CLUSTER, name.to_owned()),
        (labels::NODE_TYPE, labels::HEAD.to_owned()),
        (labels::IDENTIFIER, names::clip63(&format!("{name}-head"))),
    ]
}

fn plan_head(seen: &Observed, valid: &ValidCluster<'_>, cfg: &Config, draft: &mut Draft) {
    let selector = head_selector(seen.name());
    let found: Vec<&str> = seen.services_with(&selector).map(|service| service.metadata.name.as_str()).collect();
    match found.len() {
        0 => make(seen, draft, &build::head_service(valid, cfg), Told::Yes, "every cluster has a head Service"),
        1 => {}
        count => draft.halt(format!("{count} head service found [{}]", found.join(" "))),
    }
}

fn plan_headless(seen: &Observed, valid: &ValidCluster<'_>, draft: &mut Draft) {
    if !build::needs_headless_service(&valid.spec) {
        return;
    }
    let selector = [(labels::HEADLESS_WORKER_SERVICE, seen.name().to_owned())];
    if seen.services_with(&selector).next().is_none() {
        make(seen, draft, &build::headless_service(valid), Told::Yes, "a group has several hosts per replica");
    }
}

fn plan_serve(seen: &Observed, valid: &ValidCluster<'_>, draft: &mut Draft) {
    if seen.annotation(annotation::ENABLE_SERVE_SERVICE) != Some("true") {
        return;
    }
    let name = names::serve_service(seen.name());
    if seen.services.iter().any(|service| service.metadata.name == name) {
        return;
    }
    match build::cluster_serve_service(valid) {
        Ok(service) => make(seen, draft, &service, Told::No, "the annotation asks for a Serve Service"),
        Err(error) => draft.halt(error.to_string()),
    }
}

/// Whether events tell about a Service.
#[derive(PartialEq)]
enum Told {
    Yes,
    No,
}

fn make(seen: &Observed, draft: &mut Draft, service: &Service, told: Told, why: &str) {
    let name = service.metadata.name.clone().unwrap_or_default();
    if seen.in_flight.is_creating(Kind::Service, &name) {
        return;
    }
    let path = seen.path(&name);
    let mut step = Step::new(create(seen.key(Kind::Service, &name), service), why);
    if told == Told::Yes {
        step = step
            .done(Event::normal("CreatedService", "Create", format!("Created service {path}")))
            .failed(Event::warning("FailedToCreateService", "Create", format!("Failed creating service {path}, ")));
    }
    draft.push(step);
}
