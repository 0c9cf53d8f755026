//! Services lead to clusters that are there, and requests are answered.

use super::{Checker, Seen};
use crate::object::{condition, is_deleting, name, text, uid};
use crate::ray::Ray;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// How long nodes take to learn of changed endpoints.
const PROPAGATION: Duration = Duration::from_secs(3);

/// What became of a request to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is nothing to ask yet.
    NotServing,
    Answered,
    Failed,
}

impl Checker {
    /// Sends a request to a RayService, as a client of its Service or its Gateway does: by way of endpoints and routes
    /// that may be a little old. A service that is undisturbed and was once ready is asked until a user suspends or deletes
    /// it, whatever it says of itself; any other one while it says that it is ready.
    pub(crate) fn request(&self, service: &str, undisturbed: bool) -> Answer {
        let mut seen = self.lock();
        let seen = &mut *seen;
        let object = seen.objects.get("RayService").and_then(|services| services.get(service));
        let object = object.filter(|object| !is_deleting(object) && object["spec"]["suspend"] != true);
        let ready = object.filter(|object| condition(object, "Ready")).map(|object| uid(object));
        seen.served.extend(ready.clone());
        let asked = object.filter(|object| ready.is_some() || undisturbed && seen.served.contains(&uid(object)));
        let Some(object) = asked.cloned() else {
            seen.endpoints.retain(|backend, _| !backend.starts_with(&format!("{service}-")));
            return Answer::NotServing;
        };
        let incremental = !object["spec"]["upgradeStrategy"]["clusterUpgradeOptions"].is_null();
        let backends = match self.others.as_ref().filter(|_| incremental) {
            Some(others) => others.gateways.backends(&format!("{service}-httproute")),
            None => Some(vec![(format!("{service}-serve-svc"), 100)]),
        };
        let Some(backends) = backends else {
            if !seen.routed.contains(&uid(&object)) {
                return Answer::NotServing;
            }
            seen.refusal = format!("{service}-httproute is gone");
            return Answer::Failed;
        };
        seen.routed.insert(uid(&object));
        let mut used = backends.iter().filter(|(_, weight)| *weight > 0);
        let Some(why) = used.find_map(|(backend, weight)| seen.refused(backend, *weight, &self.ray)) else {
            return Answer::Answered;
        };
        seen.refusal = why;
        Answer::Failed
    }

    /// Reports that a request failed that nothing but the operator can have made fail.
    pub(crate) fn request_failed(&self, service: &str) {
        let mut seen = self.lock();
        let violation = format!("a request to {service} failed: {}", seen.refusal);
        seen.report(Some(violation));
    }
}

impl Seen {
    /// Returns why not all of a Service's share of the requests is answered.
    fn refused(&mut self, service: &str, weight: i64, ray: &Ray) -> Option<String> {
        let known = self.endpoints.get(service).filter(|(since, _)| since.elapsed() < PROPAGATION);
        let clusters = match known {
            Some((_, clusters)) => clusters.clone(),
            None => {
                let clusters = self.ready_endpoints(service);
                self.endpoints.insert(service.to_owned(), (Instant::now(), clusters.clone()));
                clusters
            }
        };
        if clusters.is_empty() {
            return Some(format!("{service} has no endpoints"));
        }
        clusters.iter().find_map(|cluster| match ray.answering(cluster) {
            Some(answering) if answering.capacity >= weight => None,
            Some(answering) => {
                Some(format!("{cluster} has a capacity of {} % for {weight} % of them", answering.capacity))
            }
            None => Some(format!("{cluster} does not answer")),
        })
    }

    /// Returns the clusters of the ready endpoints of a Service.
    pub(super) fn ready_endpoints(&self, service: &str) -> Vec<String> {
        let slices = self
            .of_kind("EndpointSlice")
            .filter(|(_, slice)| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service);
        let endpoints = slices.flat_map(|(_, slice)| slice["endpoints"].as_array().into_iter().flatten());
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
        let pods = ready.filter_map(|endpoint| self.get("Pod", endpoint["targetRef"]["name"].as_str()?));
        pods.map(|pod| text(&pod["metadata"]["labels"]["ray.io/cluster"])).collect()
    }

    /// Traffic is never sent to a cluster that is going away.
    pub(super) fn see_service(&self, service: &Value) -> Option<String> {
        let cluster = text(&service["spec"]["selector"]["ray.io/cluster"]);
        self.led_astray(service, &cluster)
    }

    /// A cluster does not go while traffic is sent to it.
    pub(super) fn cluster_gone(&self, cluster: &str) -> Option<String> {
        self.of_kind("Service").find_map(|(_, service)| {
            let leads = service["spec"]["selector"]["ray.io/cluster"] == cluster;
            leads.then(|| self.led_astray(service, cluster)).flatten()
        })
    }

    fn led_astray(&self, service: &Value, cluster: &str) -> Option<String> {
        if self.is_foreign(service) {
            return None;
        }
        let name = name(service);
        let owner = self.get("RayService", name.strip_suffix("-serve-svc")?).filter(|owner| !is_deleting(owner))?;
        let gone = self.get("RayCluster", cluster).is_none_or(is_deleting);
        let serves = condition(owner, "Ready");
        (gone && serves).then(|| format!("Service {name} leads to {cluster}, which is gone"))
    }
}
