//! The autoscaler's ServiceAccount, Role and RoleBinding.
//!
//! Made once and never changed; nothing is removed when autoscaling is switched off.

use super::observed::{LookedUp, Observed};
use super::plan::Draft;
use crate::action::{Accept, Action, Event, Kind, ObjectKey, Step, create};
use crate::build::{self, cluster_facts as facts};
use crate::config::Config;
use crate::names::clip50;
use crate::validate::ValidCluster;

pub(super) fn plan(seen: &Observed, valid: &ValidCluster<'_>, _cfg: &Config, draft: &mut Draft) {
    if !facts::is_autoscaling(&valid.spec) {
        return;
    }
    match facts::head_service_account(&valid.spec) {
        Some(named) => check_named_account(seen, named, draft),
        None => make(seen, draft, Kind::ServiceAccount, "service account", |key| {
            create(key, &build::rbac::service_account(valid))
        }),
    }
    if draft.halt.is_some() {
        return;
    }
    make(seen, draft, Kind::Role, "role", |key| create(key, &build::rbac::role(valid)));
    make(seen, draft, Kind::RoleBinding, "role binding", |key| create(key, &build::rbac::role_binding(valid)));
}

/// An account that the user named must exist: it is the user's.
fn check_named_account(seen: &Observed, name: &str, draft: &mut Draft) {
    if seen.related(Kind::ServiceAccount, name).is_some() {
        return;
    }
    let key = seen.key(Kind::ServiceAccount, name);
    match seen.looked_up.get(&key) {
        None => draft.look_up(key),
        Some(LookedUp::Found(_)) => {}
        Some(LookedUp::Failed(error)) => draft.halt(error.clone()),
        Some(LookedUp::Absent) => {
            draft.events.push(Event::warning(
                "AutoscalerServiceAccountNotFound",
                "Validate",
                format!(
                    "Failed to reconcile RayCluster {}. If users specify ServiceAccountName for the head Pod, they need to create a ServiceAccount themselves. However, ServiceAccount {name} is not found. Please create one. See the PR description of https://github.com/ray-project/kuberay/pull/1128 for more details.",
                    seen.path(seen.name())
                ),
            ));
            draft.halt(format!("serviceaccounts \"{name}\" not found"));
        }
    }
}

fn make(seen: &Observed, draft: &mut Draft, kind: Kind, word: &str, action: impl FnOnce(ObjectKey) -> Action) {
    let name = clip50(seen.name());
    if seen.has_related(kind, &name) {
        return;
    }
    let (created, failed) = match kind {
        Kind::ServiceAccount => ("CreatedServiceAccount", "FailedToCreateServiceAccount"),
        Kind::Role => ("CreatedRole", "FailedToCreateRole"),
        _ => ("CreatedRoleBinding", "FailedToCreateRoleBinding"),
    };
    let path = seen.path(&name);
    draft.push(
        Step::new(action(seen.key(kind, &name)), "the autoscaler needs it")
            .done(Event::normal(created, "Create", format!("Created {word} {path}")))
            .failed(Event::warning(failed, "Create", format!("Failed creating {word} {path}, ")))
            .accept(Accept::AlreadyExists),
    );
}
