//! Whether everything is as its spec asks.

use super::pods::sizes;
use super::services::condition;
use super::{Checker, Seen, is_alive, is_deleting, label, owner, text, uid};
use crate::ray::Ray;
use serde_json::Value;

impl Checker {
    /// Returns why the world is not as its specs ask, if it is not.
    pub(crate) fn unsettled(&self) -> Option<String> {
        let seen = self.lock();
        for ((kind, name), object) in &seen.objects {
            let wrong = match kind.as_str() {
                "RayCluster" | "RayJob" | "RayService" | "RayCronJob" if is_deleting(object) => {
                    Some("is being deleted".to_owned())
                }
                "RayCluster" => seen.cluster_unsettled(object),
                "RayJob" => job_unsettled(object),
                "RayService" => seen.service_unsettled(object, &self.1),
                _ => None,
            };
            if let Some(wrong) = wrong {
                return Some(format!("{kind} {name}: {wrong}"));
            }
        }
        None
    }
}

impl Seen {
    fn cluster_unsettled(&self, cluster: &Value) -> Option<String> {
        let id = uid(cluster);
        let suspended = cluster["spec"]["suspend"] == true;
        let autoscaled = cluster["spec"]["enableInTreeAutoscaling"] == true;
        let mut groups = sizes(cluster);
        groups.push(("headgroup".to_owned(), 1));
        for (group, wanted) in groups {
            let wanted = if suspended { 0 } else { wanted };
            let is_of = |pod: &&Value| owner(pod).as_ref() == Some(&id) && label(pod, "ray.io/group") == group;
            let present: Vec<&Value> = self.of_kind("Pod").map(|(_, pod)| pod).filter(is_of).collect();
            let good = present.iter().filter(|pod| pod["status"]["phase"] == "Running" && is_alive(pod)).count() as i64;
            // Only the autoscaler itself chooses what goes.
            let surplus_may_stay = autoscaled && group != "headgroup" && !suspended && good > wanted;
            let staying = present.iter().filter(|pod| !is_deleting(pod)).count() as i64;
            if (good != wanted && !surplus_may_stay) || staying != good {
                return Some(format!("{good} of {wanted} Pods of {group}, {staying} in all"));
            }
        }
        let name = text(&cluster["metadata"]["name"]);
        let secret = self.get("Secret", &name);
        if cluster["spec"]["authOptions"]["mode"] == "token" && secret.and_then(owner) != Some(id) {
            return Some("it has no token".to_owned());
        }
        if !suspended && self.get("Service", &format!("{name}-head-svc")).is_none() {
            return Some("it has no head Service".to_owned());
        }
        let (state, wanted) = (text(&cluster["status"]["state"]), if suspended { "suspended" } else { "ready" });
        (state != wanted).then(|| format!("its state is {state:?}"))
    }

    fn service_unsettled(&self, service: &Value, ray: &Ray) -> Option<String> {
        let (id, status) = (uid(service), &service["status"]);
        if !condition(service, "Ready") {
            return Some("it is not ready".to_owned());
        }
        let pending = text(&status["pendingServiceStatus"]["rayClusterName"]);
        if !pending.is_empty() {
            return Some(format!("{pending} is pending"));
        }
        let active = text(&status["activeServiceStatus"]["rayClusterName"]);
        let owned: Vec<&str> = self
            .of_kind("RayCluster")
            .filter(|(_, cluster)| owner(cluster).as_ref() == Some(&id))
            .map(|(name, _)| name)
            .collect();
        if owned != [active.as_str()] {
            return Some(format!("{active} is active of {owned:?}"));
        }
        let wanted = text(&service["spec"]["serveConfigV2"]);
        match ray.serves(&active) {
            Some(version) if wanted.contains(&version) => None,
            other => Some(format!("{active} serves {other:?}")),
        }
    }
}

fn job_unsettled(job: &Value) -> Option<String> {
    let phase = text(&job["status"]["jobDeploymentStatus"]);
    let spec = &job["spec"];
    let settled = match (spec["suspend"] == true, spec["shutdownAfterJobFinishes"] == true) {
        (true, true) => matches!(phase.as_str(), "Suspended" | "Complete" | "Failed"),
        // Such a spec is invalid.
        (true, false) => phase == "ValidationFailed",
        (false, _) => matches!(phase.as_str(), "Complete" | "Failed"),
    };
    (!settled).then(|| format!("its phase is {phase:?}"))
}
