//! Actions on one Ray object: scale, suspend, resume, retry, delete.

use super::failure::{Failure, Json};
use super::question::parse;
use super::session::Session;
use crate::connect::Target;
use crate::resource::Kind;
use axum::body::Bytes;
use axum::extract::Extension;
use http::StatusCode;
use kube::api::{
    DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use manta_logic::labels::{self, annotation};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Names the page in the objects' managed fields.
pub(super) const FIELD_MANAGER: &str = "manta-page";
/// How often a cluster that keeps changing is scaled.
const MAX_CONFLICTS: usize = 8;

/// What to do, and with which object.
#[derive(Debug, Deserialize)]
struct Order {
    kind: Kind,
    namespace: String,
    name: String,
    /// The object that the viewer looked at; another one of the same name is left alone.
    uid: String,
    action: Action,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Scale { group: String, replicas: u16 },
    Suspend,
    Resume,
    Retry,
    Delete,
}

pub(super) async fn act(Extension(session): Extension<Arc<Session>>, body: Bytes) -> Result<Json<Value>, Failure> {
    let Order { kind, namespace, name, uid, action } = parse(&body)?;
    let target = Target { namespace, ..session.target.clone() };
    let api = target.ray_api(kind);
    let words = kind.words();
    let found =
        api.get_opt(&name).await.map_err(|error| Failure::from_kube(&format!("cannot get {words} {name}"), &error))?;
    let object = found.filter(|object| object.metadata.uid.as_deref() == Some(uid.as_str()));
    let object = object.ok_or_else(|| {
        Failure::new(
            StatusCode::CONFLICT,
            format!("{words} {name} is gone, or was replaced by another one of that name"),
        )
    })?;
    let failed = |what: &str, error: &kube::Error| Failure::from_kube(&format!("cannot {what} {words} {name}"), error);
    match action {
        Action::Delete => {
            let only_this = Preconditions { uid: Some(uid), resource_version: None };
            let params = DeleteParams {
                preconditions: Some(only_this),
                propagation_policy: Some(PropagationPolicy::Background),
                ..DeleteParams::default()
            };
            api.delete(&name, &params).await.map_err(|error| failed("delete", &error))?;
            Ok(Json(json!({})))
        }
        Action::Retry if kind == Kind::Job => {
            let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            let created = api.create(&params, &copy_of(&object)).await.map_err(|error| failed("retry", &error))?;
            Ok(Json(json!({"name": created.metadata.name})))
        }
        Action::Retry => Err(Failure::bad_request("only jobs can be retried")),
        Action::Suspend | Action::Resume => {
            let suspend = matches!(action, Action::Suspend);
            let patch = json!({"metadata": {"uid": uid}, "spec": {"suspend": suspend}});
            let what = if suspend { "suspend" } else { "resume" };
            let params = patch_params();
            api.patch(&name, &params, &Patch::Merge(&patch)).await.map_err(|error| failed(what, &error))?;
            Ok(Json(json!({})))
        }
        Action::Scale { group, replicas } => {
            scale_until_stored(&target, object, &group, replicas).await?;
            Ok(Json(json!({})))
        }
    }
}

/// Scales a worker group; the status of a cluster that scales changes often, so conflicts are tried again.
async fn scale_until_stored(
    target: &Target,
    mut cluster: DynamicObject,
    group: &str,
    replicas: u16,
) -> Result<(), Failure> {
    let api = target.ray_api(Kind::Cluster);
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let failed = |error: &kube::Error| Failure::from_kube(&format!("cannot scale Ray cluster {name}"), error);
    for _ in 0..MAX_CONFLICTS {
        scale(&mut cluster.data, group, replicas).map_err(Failure::bad_request)?;
        match api.replace(&name, &params, &cluster).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let uid = cluster.metadata.uid.clone();
                cluster = api.get(&name).await.map_err(|error| failed(&error))?;
                if cluster.metadata.uid != uid {
                    return Err(Failure::new(StatusCode::CONFLICT, format!("Ray cluster {name} was replaced")));
                }
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    Err(Failure::new(StatusCode::CONFLICT, format!("Ray cluster {name} keeps changing; try again")))
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Changes the replicas of a worker group, within its bounds.
fn scale(cluster: &mut Value, group: &str, replicas: u16) -> Result<(), String> {
    let mut groups = cluster["spec"]["workerGroupSpecs"].as_array_mut().into_iter().flatten();
    let found = groups.find(|candidate| candidate["groupName"] == group);
    let found = found.ok_or_else(|| format!("there is no worker group {group}"))?;
    let bound = |key: &str, default: i64| found[key].as_i64().unwrap_or(default);
    let (min, max) = (bound("minReplicas", 0), bound("maxReplicas", i64::from(i32::MAX)));
    if !(min..=max).contains(&i64::from(replicas)) {
        return Err(format!("worker group {group} must have between {min} and {max} replicas"));
    }
    found["replicas"] = replicas.into();
    Ok(())
}

/// Returns a new job with the same spec. The old one stays, with all that is known about it.
fn copy_of(job: &DynamicObject) -> DynamicObject {
    let mut data = json!({"spec": job.data["spec"]});
    for once in ["jobId", "suspend"] {
        if let Some(spec) = data["spec"].as_object_mut() {
            spec.remove(once);
        }
    }
    let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    // What says which run of a cron job it is: the new job is none of its runs.
    annotations.remove(annotation::CRONJOB_SCHEDULED);
    let mut labels = job.metadata.labels.clone().unwrap_or_default();
    labels.remove(labels::CRONJOB_NAME);
    // A name that is longer than what Kubernetes appends to would be cut, and could be taken.
    let base: String = job.metadata.name.as_deref().unwrap_or("job").chars().take(40).collect();
    DynamicObject {
        types: job.types.clone(),
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", base.trim_end_matches(['-', '.']))),
            namespace: job.metadata.namespace.clone(),
            labels: (!labels.is_empty()).then_some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..ObjectMeta::default()
        },
        data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_scaled_within_their_bounds() {
        let cluster = json!({"spec": {"workerGroupSpecs": [
            {"groupName": "a"}, {"groupName": "b", "replicas": 1, "minReplicas": 1, "maxReplicas": 3},
        ]}});
        let check = |group: &str, replicas: u16, expect: Result<(), &str>| {
            let mut changed = cluster.clone();
            assert_eq!(scale(&mut changed, group, replicas), expect.map_err(str::to_owned), "{group} {replicas}");
            let index = usize::from(group == "b");
            let expect = if expect.is_ok() {
                json!(replicas)
            } else {
                cluster["spec"]["workerGroupSpecs"][index]["replicas"].clone()
            };
            assert_eq!(changed["spec"]["workerGroupSpecs"][index]["replicas"], expect);
        };
        check("b", 3, Ok(()));
        check("b", 4, Err("worker group b must have between 1 and 3 replicas"));
        check("b", 0, Err("worker group b must have between 1 and 3 replicas"));
        check("a", 0, Ok(()));
        check("c", 1, Err("there is no worker group c"));
    }

    #[test]
    fn a_scale_without_a_number_is_refused() {
        let check = |replicas: Value, expect: bool| {
            let mut scale = json!({"group": "a", "replicas": replicas});
            if replicas.is_null() {
                scale.as_object_mut().unwrap().remove("replicas");
            }
            let order = json!({"kind": "RayCluster", "namespace": "default", "name": "c", "uid": "1", "action": {"scale": scale}});
            assert_eq!(parse::<Order>(order.to_string().as_bytes()).is_ok(), expect, "{order}");
        };
        check(json!(0), true);
        for wrong in [Value::Null, json!(""), json!("3"), json!(1.5), json!(-1), json!(70000), json!([])] {
            check(wrong, false);
        }
        let null = br#"{"kind":"RayCluster","namespace":"d","name":"c","uid":"1","action":{"scale":{"group":"a","replicas":null}}}"#;
        assert!(parse::<Order>(null).is_err());
    }

    #[test]
    fn a_retried_job_is_a_new_one() {
        let job: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "ray.io/v1", "kind": "RayJob",
            "metadata": {"name": "train", "namespace": "default", "uid": "1", "labels": {"team": "x", "ray.io/cronjob-name": "nightly"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "2"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "y",
                    "ray.io/cronjob-scheduled-timestamp": "2026-01-01T00:00:00Z"}},
            "spec": {"entrypoint": "python x.py", "jobId": "once", "suspend": true},
            "status": {"jobStatus": "FAILED"},
        }))
        .unwrap();
        let copy = serde_json::to_value(copy_of(&job)).unwrap();
        assert_eq!(
            copy["metadata"],
            json!({"generateName": "train-", "namespace": "default", "labels": {"team": "x"},
            "annotations": {"note": "y"}})
        );
        assert_eq!(copy["spec"], json!({"entrypoint": "python x.py"}));
        assert_eq!(copy["status"], Value::Null);
    }
}
