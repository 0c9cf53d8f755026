//! The Services of a cluster: head, hosts of multi-host groups, Serve.

use super::Planner;
use crate::action::{Kind, Step};
use crate::build;
use crate::labels::{self, annotation};
use crate::names;
use crate::reasons;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::Service;

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    plan_head(planner, valid);
    if !planner.is_halted() {
        plan_headless(planner, valid);
        plan_serve(planner, valid);
    }
}

/// Returns the labels by which a cluster's head Service is found.
pub(super) fn head_selector(name: &str) -> [(&'static str, String); 3] {
    [
        (labels::CLUSTER, name.to_owned()),
        (labels::NODE_TYPE, labels::HEAD.to_owned()),
        (labels::IDENTIFIER, names::clip63(&format!("{name}-head"))),
    ]
}

fn plan_head(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    let seen = planner.seen;
    let selector = head_selector(seen.name());
    let found: Vec<&str> = seen.services_with(&selector).map(|service| service.metadata.name.as_str()).collect();
    match found.len() {
        0 => {
            let service = build::head_service(valid, planner.config);
            create(planner, &service, Events::Published, "every cluster has a head Service");
        }
        1 => {}
        count => planner.halt(format!("{count} head service found [{}]", found.join(" "))),
    }
}

fn plan_headless(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    if !build::needs_headless_service(&valid.spec) {
        return;
    }
    let selector = [(labels::HEADLESS_WORKER_SERVICE, planner.seen.name().to_owned())];
    if planner.seen.services_with(&selector).next().is_none() {
        let why = "a group has several hosts per replica";
        create(planner, &build::headless_service(valid), Events::Published, why);
    }
}

fn plan_serve(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    let seen = planner.seen;
    if seen.annotation(annotation::ENABLE_SERVE_SERVICE) != Some("true") {
        return;
    }
    let name = names::serve_service(seen.name());
    if seen.services.iter().any(|service| service.metadata.name == name) {
        return;
    }
    match build::cluster_serve_service(valid) {
        Ok(service) => create(planner, &service, Events::None, "the annotation asks for a Serve Service"),
        Err(error) => planner.halt(error.to_string()),
    }
}

/// Whether the creation of a Service is published.
#[derive(PartialEq)]
enum Events {
    Published,
    None,
}

fn create(planner: &mut Planner<'_>, service: &Service, events: Events, why: &str) {
    let seen = planner.seen;
    let name = service.metadata.name.clone().unwrap_or_default();
    if seen.in_flight.is_creating(Kind::Service, &name) {
        return;
    }
    let path = seen.path(&name);
    let mut step = Step::create(seen.key(Kind::Service, &name), service, why);
    if events == Events::Published {
        step = step
            .on_success(reasons::CREATED_SERVICE, format!("Created service {path}"))
            .on_failure(reasons::FAILED_TO_CREATE_SERVICE, format!("Failed creating service {path}, "));
    }
    planner.push(step);
}
