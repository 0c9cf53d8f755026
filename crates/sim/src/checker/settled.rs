//! Whether everything is as its spec asks.

use super::features::is_managed_elsewhere;
use super::pods::sizes;
use super::{Checker, Seen};
use crate::gateway::backends;
use crate::object::{condition, is_alive, is_deleting, label, name, owner, text, uid};
use crate::ray::Ray;
use crate::scheduler::BatchScheduler;
use serde_json::Value;

impl Checker {
    /// Returns why the world is not as its specs ask, if it is not.
    pub(crate) fn unsettled(&self) -> Option<String> {
        let seen = self.lock();
        let scheduler = self.others.as_ref().and_then(|others| others.scheduler);
        let all = seen.objects.iter().flat_map(|(kind, objects)| objects.iter().map(move |found| (*kind, found)));
        for (kind, (name, object)) in all {
            let wrong = match kind {
                "RayCluster" | "RayJob" | "RayService" | "RayCronJob" if is_deleting(object) => {
                    Some("is being deleted".to_owned())
                }
                "RayCluster" => seen.cluster_unsettled(object, scheduler),
                "RayJob" => job_unsettled(object).or_else(|| seen.rules_unsettled(object)),
                "RayService" => seen.service_unsettled(object, &self.ray),
                "RayCronJob" => seen.schedule_unsettled(object),
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
    fn cluster_unsettled(&self, cluster: &Value, scheduler: Option<BatchScheduler>) -> Option<String> {
        let id = uid(cluster);
        if is_managed_elsewhere(cluster) {
            let owned = self.of_kind("Pod").find(|(_, pod)| owner(pod).as_ref() == Some(&id));
            return owned.map(|(pod, _)| format!("it has Pod {pod}, and another controller takes care of it"));
        }
        let suspended = cluster["spec"]["suspend"] == true;
        let autoscaled = cluster["spec"]["enableInTreeAutoscaling"] == true;
        let mut groups = sizes(cluster);
        groups.push(("headgroup".to_owned(), 1));
        for (group, wanted) in groups {
            let wanted = if suspended { 0 } else { wanted };
            let is_of =
                |pod: &&Value| label(pod, "ray.io/group") == group && self.cluster_of(pod).as_ref() == Some(&id);
            let present: Vec<&Value> = self.of_kind("Pod").map(|(_, pod)| pod).filter(is_of).collect();
            let good = present.iter().filter(|pod| pod["status"]["phase"] == "Running" && is_alive(pod)).count() as i64;
            // Only the autoscaler itself chooses what goes.
            let surplus_may_stay = autoscaled && group != "headgroup" && !suspended && good > wanted;
            let staying = present.iter().filter(|pod| !is_deleting(pod)).count() as i64;
            if (good != wanted && !surplus_may_stay) || staying != good {
                return Some(format!("{good} of {wanted} Pods of {group}, {staying} in all"));
            }
        }
        let name = name(cluster);
        let secret = self.get("Secret", &name);
        if cluster["spec"]["authOptions"]["mode"] == "token" && secret.and_then(owner) != Some(id) {
            return Some("it has no token".to_owned());
        }
        if !suspended && self.get("Service", &format!("{name}-head-svc")).is_none() {
            return Some("it has no head Service".to_owned());
        }
        let (state, wanted) = (text(&cluster["status"]["state"]), if suspended { "suspended" } else { "ready" });
        (state != wanted)
            .then(|| format!("its state is {state:?}"))
            .or_else(|| self.gang_unsettled(cluster, suspended, scheduler?))
            .or_else(|| self.scheduled_by_another(cluster, scheduler?))
            .or_else(|| self.certificates_unsettled(cluster).filter(|_| !suspended))
            .or_else(|| self.feature_unsettled(cluster).filter(|_| !suspended))
    }

    /// Returns what should have been deleted after the end of a job, and was not.
    fn rules_unsettled(&self, job: &Value) -> Option<String> {
        let strategy = &job["spec"]["deletionStrategy"];
        let (phase, outcome) = (&job["status"]["jobDeploymentStatus"], &job["status"]["jobStatus"]);
        if *phase != "Complete" && *phase != "Failed" {
            return None;
        }
        let rules = strategy["deletionRules"].as_array().into_iter().flatten();
        let due = rules.filter(|rule| rule["condition"]["jobDeploymentStatus"] == *phase).map(|rule| &rule["policy"]);
        let by_outcome = match outcome.as_str() {
            Some("SUCCEEDED") => Some(&strategy["onSuccess"]["policy"]),
            Some("FAILED") => Some(&strategy["onFailure"]["policy"]),
            _ => None,
        };
        let cluster = self.get("RayCluster", job["status"]["rayClusterName"].as_str()?);
        due.chain(by_outcome).find_map(|policy| match policy.as_str()? {
            "DeleteSelf" => Some("its rules ask for its deletion".to_owned()),
            "DeleteCluster" => cluster.map(|_| "its rules ask for the deletion of its cluster".to_owned()),
            _ => {
                let has_workers = sizes(cluster?).iter().any(|(_, size)| *size > 0);
                has_workers.then(|| "its rules ask for the deletion of its workers".to_owned())
            }
        })
    }

    fn service_unsettled(&self, service: &Value, ray: &Ray) -> Option<String> {
        let (id, status) = (uid(service), &service["status"]);
        if service["spec"]["suspend"] == true {
            return (!condition(service, "Suspended")).then(|| "it is not suspended".to_owned());
        }
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
        match ray.answering(&active) {
            Some(answering) if wanted.contains(&answering.version) && answering.capacity == 100 => {}
            other => return Some(format!("{active} serves {other:?}")),
        }
        let incremental = !service["spec"]["upgradeStrategy"]["clusterUpgradeOptions"].is_null();
        if let Some(wrong) = self.led_elsewhere(service, &active, incremental) {
            return Some(wrong);
        }
        if !incremental {
            return None;
        }
        let routed = self.get("HTTPRoute", &format!("{}-httproute", name(service))).map(backends);
        let wanted = vec![(format!("{active}-serve-svc"), 100)];
        (routed.as_ref() != Some(&wanted)).then(|| format!("its route leads to {routed:?}"))
    }
}

impl Seen {
    /// Returns which Service of a RayService does not lead to the Pods of its active cluster.
    pub(super) fn led_elsewhere(&self, service: &Value, active: &str, incremental: bool) -> Option<String> {
        let base = if incremental { active.to_owned() } else { name(service) };
        let services = [
            (format!("{}-head-svc", name(service)), ("ray.io/node-type", "head")),
            (format!("{base}-serve-svc"), ("ray.io/serve", "true")),
        ];
        services.into_iter().find_map(|(name, (label, value))| {
            let Some(found) = self.get("Service", &name) else { return Some(format!("it has no Service {name}")) };
            let selector = &found["spec"]["selector"];
            if selector["ray.io/cluster"] != active || selector[label] != value {
                return Some(format!("Service {name} selects {selector}, and {active} is active"));
            }
            let clusters = self.ready_endpoints(&name);
            let leads = !clusters.is_empty() && clusters.iter().all(|cluster| cluster == active);
            (!leads).then(|| format!("Service {name} leads to {clusters:?}, and {active} is active"))
        })
    }
}

fn job_unsettled(job: &Value) -> Option<String> {
    let phase = text(&job["status"]["jobDeploymentStatus"]);
    let spec = &job["spec"];
    if phase == "Waiting" && spec["submissionMode"] == "InteractiveMode" {
        // For a user, who does nothing any more.
        return None;
    }
    let cleans_up = spec["shutdownAfterJobFinishes"] == true || spec["deletionStrategy"]["deletionRules"].is_array();
    let settled = match (spec["suspend"] == true, cleans_up) {
        (true, true) => matches!(phase.as_str(), "Suspended" | "Complete" | "Failed"),
        // Such a spec is invalid.
        (true, false) => phase == "ValidationFailed",
        (false, _) => matches!(phase.as_str(), "Complete" | "Failed"),
    };
    (!settled).then(|| format!("its phase is {phase:?}"))
}
