//! The head of the Ray cluster behind a resource, as its status names it.

use crate::connect::Target;
use crate::resource::{Kind, Reference};
use anyhow::{Context, bail};
use serde_json::Value;

/// A Ray cluster, and the Service of its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) cluster: String,
    pub(crate) service: String,
}

/// Returns the head of a resource.
pub(crate) async fn find(target: &Target, reference: &Reference) -> anyhow::Result<Head> {
    let object = target.get_ray(reference).await?;
    let cluster = cluster_of(reference, &object.data)?;
    let service = match service_of(reference.kind, &object.data) {
        Some(service) => Some(service),
        // What a RayJob says of its cluster comes later than what the cluster says itself.
        None => {
            let owned = Reference { kind: Kind::Cluster, name: cluster.clone() };
            let own = target.ray_api(Kind::Cluster).get_opt(&cluster).await;
            let own = own.map_err(|error| target.failed(&format!("cannot get {owned}"), error))?;
            own.and_then(|own| service_of(Kind::Cluster, &own.data))
        }
    };
    let service = service
        .with_context(|| format!("{reference} has no head Service yet: it has just been created, or is suspended"))?;
    Ok(Head { cluster, service })
}

/// Returns the name of the Ray cluster of a resource.
pub(crate) fn cluster_of(reference: &Reference, object: &Value) -> anyhow::Result<String> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    let found = match reference.kind {
        Kind::Cluster => Some(reference.name.as_str()),
        Kind::Job => text("/status/rayClusterName"),
        Kind::Service => text("/status/activeServiceStatus/rayClusterName")
            .or_else(|| text("/status/pendingServiceStatus/rayClusterName")),
        Kind::CronJob => bail!("{reference} has no Ray cluster; name one of its RayJobs"),
    };
    found.map(str::to_owned).with_context(|| format!("{reference} has no Ray cluster yet"))
}

fn service_of(kind: Kind, object: &Value) -> Option<String> {
    let status = match kind {
        Kind::Cluster | Kind::CronJob => "/status",
        Kind::Job => "/status/rayClusterStatus",
        Kind::Service => "/status/activeServiceStatus/rayClusterStatus",
    };
    let name = object.pointer(&format!("{status}/head/serviceName"))?.as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_names_its_head() {
        let check = |reference: &str, status: Value, expect: Option<(&str, &str)>| {
            let reference: Reference = reference.parse().unwrap();
            let object = json!({"status": status});
            let cluster = cluster_of(&reference, &object).ok();
            let got = cluster.zip(service_of(reference.kind, &object));
            let got = got.as_ref().map(|(cluster, service)| (cluster.as_str(), service.as_str()));
            assert_eq!(got, expect, "{reference} {status}");
        };
        let head = json!({"head": {"serviceName": "s"}});
        check("a", head.clone(), Some(("a", "s")));
        check("a", json!({}), None);
        check("a", json!({"head": {"serviceName": ""}}), None);
        check("rayjob/a", json!({"rayClusterName": "a-x", "rayClusterStatus": head}), Some(("a-x", "s")));
        check("rayjob/a", json!({"rayClusterStatus": head}), None);
        let active = json!({"rayClusterName": "a-x", "rayClusterStatus": head});
        check("rayservice/a", json!({"activeServiceStatus": active}), Some(("a-x", "s")));
        check("rayservice/a", json!({"pendingServiceStatus": active}), None);
        check("raycronjob/a", head, None);
    }
}
