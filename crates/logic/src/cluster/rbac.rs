//! The autoscaler's ServiceAccount, Role and RoleBinding.
//!
//! Made once and never changed; nothing is removed when autoscaling is switched off.

use super::Planner;
use crate::action::{Accept, Event, Kind, Step};
use crate::build;
use crate::cluster_spec;
use crate::names::clip50;
use crate::plan::LookedUp;
use crate::reasons;
use crate::validate::ValidCluster;
use serde::Serialize;

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    if !cluster_spec::is_autoscaling(&valid.spec) {
        return;
    }
    match cluster_spec::head_service_account(&valid.spec) {
        Some(named) => check_named_account(planner, named),
        None => ensure(planner, Kind::ServiceAccount, "service account", || build::rbac::service_account(valid)),
    }
    if planner.is_halted() {
        return;
    }
    ensure(planner, Kind::Role, "role", || build::rbac::role(valid));
    planner.end_stage(); // a binding to a Role that is not there yet is refused
    ensure(planner, Kind::RoleBinding, "role binding", || build::rbac::role_binding(valid));
}

/// An account that the user named must exist: it is the user's.
fn check_named_account(planner: &mut Planner<'_>, name: &str) {
    let seen = planner.seen;
    if seen.related(Kind::ServiceAccount, name).is_some() {
        return;
    }
    let key = seen.key(Kind::ServiceAccount, name);
    match planner.found(&key) {
        None => planner.look_up(key),
        Some(LookedUp::Found(_)) => {}
        Some(LookedUp::Failed(error)) => planner.halt(error),
        Some(LookedUp::Absent) => {
            planner.event(Event::warning(
                reasons::AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND,
                "Validate",
                format!(
                    "Failed to reconcile RayCluster {}. If users specify ServiceAccountName for the head Pod, they need to create a ServiceAccount themselves. However, ServiceAccount {name} is not found. Please create one. See the PR description of https://github.com/ray-project/kuberay/pull/1128 for more details.",
                    seen.path(seen.name())
                ),
            ));
            planner.halt(format!("serviceaccounts \"{name}\" not found"));
        }
    }
}

/// Creates an object unless it is there.
fn ensure<T: Serialize>(planner: &mut Planner<'_>, kind: Kind, word: &str, build: impl FnOnce() -> T) {
    let seen = planner.seen;
    let name = clip50(seen.name());
    if seen.has_related(kind, &name) {
        return;
    }
    let (created, failed) = match kind {
        Kind::ServiceAccount => (reasons::CREATED_SERVICE_ACCOUNT, reasons::FAILED_TO_CREATE_SERVICE_ACCOUNT),
        Kind::Role => (reasons::CREATED_ROLE, reasons::FAILED_TO_CREATE_ROLE),
        _ => (reasons::CREATED_ROLE_BINDING, reasons::FAILED_TO_CREATE_ROLE_BINDING),
    };
    let path = seen.path(&name);
    planner.push(
        Step::create(seen.key(kind, &name), &build(), "the autoscaler needs it")
            .on_success(created, format!("Created {word} {path}"))
            .on_failure(failed, format!("Failed creating {word} {path}, "))
            .accept(Accept::AlreadyExists),
    );
}
