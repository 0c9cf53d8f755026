//! Services lead to clusters that are there, and requests are answered.

use super::{Checker, Seen, is_deleting, text};
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
    /// Sends a request to a RayService, as a client of its Service does: by way of endpoints that may be a little old.
    pub(crate) fn request(&self, service: &str) -> Answer {
        let mut seen = self.lock();
        let object = seen.get("RayService", service).filter(|object| !is_deleting(object));
        if !object.is_some_and(|object| condition(object, "Ready")) {
            seen.routes.remove(service);
            return Answer::NotServing;
        }
        let known = seen.routes.get(service).filter(|(since, _)| since.elapsed() < PROPAGATION);
        let clusters = match known {
            Some((_, clusters)) => clusters.clone(),
            None => {
                let clusters = seen.endpoints(&format!("{service}-serve-svc"));
                seen.routes.insert(service.to_owned(), (Instant::now(), clusters.clone()));
                clusters
            }
        };
        let answered = !clusters.is_empty() && clusters.iter().all(|cluster| self.1.serves(cluster).is_some());
        if answered { Answer::Answered } else { Answer::Failed }
    }

    /// Reports that a request failed that nothing but the operator can have made fail.
    pub(crate) fn request_failed(&self, service: &str) {
        let mut seen = self.lock();
        let clusters = seen.routes.get(service).map(|(_, clusters)| clusters.clone()).unwrap_or_default();
        seen.report(Some(format!("a request to {service} failed; it was sent to one of {clusters:?}")));
    }
}

impl Seen {
    /// Returns the clusters of the ready endpoints of a Service.
    fn endpoints(&self, service: &str) -> Vec<String> {
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
        let name = text(&service["metadata"]["name"]);
        let owner = self.get("RayService", name.strip_suffix("-serve-svc")?).filter(|owner| !is_deleting(owner))?;
        let gone = self.get("RayCluster", cluster).is_none_or(is_deleting);
        let serves = condition(owner, "Ready");
        (gone && serves).then(|| format!("Service {name} leads to {cluster}, which is gone"))
    }
}

/// Returns whether a condition of an object is true.
pub(super) fn condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}
