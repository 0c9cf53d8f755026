//! One pass over one RayService.

use crate::events::Regarding;
use crate::look_up::look_up;
use crate::observe::{self, ServiceObservation};
use crate::queue::Next;
use crate::run::Operator;
use crate::status_writer::StatusWrite;
use jiff::Timestamp;
use manta_logic::action::ObjectKey;
use manta_logic::service::{self, Observed, Plan};
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::{debug, error};

const CONTROLLER: &str = "rayservice-controller";
/// How often a plan may ask for more before it is told to wait.
const LOOK_UPS: usize = 2;
/// When to look again for what was written.
const SOON: Duration = Duration::from_secs(1);

/// Looks at a RayService and does what is to be done. Dashboards are never waited for.
pub(crate) async fn reconcile(op: &Operator, key: &ObjectKey) -> Next {
    let mut looked_up = BTreeMap::new();
    for _ in 0..=LOOK_UPS {
        let seen = match observe::service(op, key, looked_up) {
            ServiceObservation::Ready(seen) => seen,
            ServiceObservation::Waiting => return Next::Rest,
            // What was just written is on its way back: deciding without it would write it twice. Not all of it wakes
            // the RayService, as the Services of its clusters are theirs.
            ServiceObservation::InFlight => return Next::After(SOON),
            ServiceObservation::Gone => {
                op.in_flight.forget(key);
                op.serve.follow(key, None);
                return Next::Rest;
            }
        };
        let now = op.clock.now();
        let plan = service::plan(&seen, now, &op.config);
        if plan.look_up.is_empty() {
            return carry_out(op, key, &seen, &plan, now).await;
        }
        looked_up = seen.looked_up;
        for wanted in &plan.look_up {
            looked_up.insert(wanted.clone(), look_up(&op.client, wanted).await);
        }
    }
    error!(name = key.name, namespace = key.namespace, "a plan asked for more look-ups than there can be");
    Next::BackOff
}

async fn carry_out(op: &Operator, key: &ObjectKey, seen: &Observed, plan: &Plan, now: Timestamp) -> Next {
    op.serve.follow(key, plan.dashboard.clone());
    if let Some(waiting) = &plan.waiting {
        debug!(name = key.name, namespace = key.namespace, waiting, "waiting");
    }
    let regarding = Regarding::new(seen.service.as_ref(), CONTROLLER);
    op.publisher.publish(&regarding, plan.events.clone());
    let outcome = op.actor.act(key, &regarding, &plan.stages).await;
    let mut failed = outcome.failure.is_some();
    if let Some(status) = service::settle(plan, &outcome) {
        let version = seen.service.metadata.resource_version.as_deref();
        failed |= op.status.write(key, version, &status).await == StatusWrite::Failed;
    }
    Next::by(plan.wake, failed, now)
}
