//! Applications in the status, as Ray reports them.

use super::dashboard::{Application, Details};
use manta_api::{ApplicationStatus, DeploymentStatus};
use std::collections::BTreeMap;

/// Returns the statuses of all applications; the one without a name is `default`.
pub(super) fn statuses(details: &Details) -> Option<BTreeMap<String, ApplicationStatus>> {
    let named = |name: &String| if name.is_empty() { "default".to_owned() } else { name.clone() };
    let all = details.applications.iter().map(|(name, app)| (named(name), status(app)));
    some(all.collect(), BTreeMap::is_empty)
}

fn status(app: &Application) -> ApplicationStatus {
    let deployments = app.deployments.iter().map(|(name, deployment)| {
        let status = DeploymentStatus { status: text(&deployment.status), message: text(&deployment.message) };
        (name.clone(), status)
    });
    ApplicationStatus {
        status: text(&app.status),
        message: text(&app.message),
        serve_deployment_statuses: some(deployments.collect(), BTreeMap::is_empty),
    }
}

fn text(value: &str) -> Option<String> {
    some(value.to_owned(), String::is_empty)
}

fn some<T>(value: T, is_empty: impl Fn(&T) -> bool) -> Option<T> {
    Some(value).filter(|value| !is_empty(value))
}
