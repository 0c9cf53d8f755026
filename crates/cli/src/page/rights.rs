//! What the viewer may do, as the API server says: actions that would be refused are disabled, with the reason.

use super::failure::{Failure, Json};
use super::question::parse;
use super::session::Session;
use crate::resource::Kind;
use axum::body::Bytes;
use axum::extract::Extension;
use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct Question {
    namespace: String,
}

/// Whether something is allowed, and why not.
#[derive(Serialize)]
struct Right {
    allowed: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

/// Returns the viewer's rights in a namespace, by names such as `delete RayJob` and `exec`.
pub(super) async fn list(
    Extension(session): Extension<Arc<Session>>,
    body: Bytes,
) -> Result<Json<impl Serialize>, Failure> {
    let Question { namespace } = parse(&body)?;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(session.target.client.clone());
    let asked = questions().into_iter().map(|(name, verb, group, resource)| {
        let (reviews, namespace) = (&reviews, &namespace);
        async move {
            let right = ask(reviews, namespace, verb, group, resource).await;
            (name, right)
        }
    });
    Ok(Json(join_all(asked).await.into_iter().collect::<BTreeMap<_, _>>()))
}

/// Returns name, verb, group and resource of everything that the page can do.
fn questions() -> Vec<(String, &'static str, &'static str, String)> {
    let verbs = ["create", "patch", "delete"];
    let kinds = Kind::ALL.into_iter().flat_map(|kind| {
        verbs.map(|verb| (format!("{verb} {}", kind.name()), verb, "ray.io", kind.api_resource().plural))
    });
    let others = [
        // Replicas are in a list, which a merge patch would replace as a whole, so a cluster is scaled by an update.
        ("update RayCluster", "update", "ray.io", "rayclusters"),
        ("create ConfigMap", "create", "", "configmaps"),
        ("logs", "get", "", "pods/log"),
        ("exec", "create", "", "pods/exec"),
        ("dashboard", "create", "", "pods/portforward"),
    ];
    let others = others.map(|(name, verb, group, resource)| (name.to_owned(), verb, group, resource.to_owned()));
    kinds.chain(others).collect()
}

async fn ask(
    reviews: &Api<SelfSubjectAccessReview>,
    namespace: &str,
    verb: &str,
    group: &str,
    resource: String,
) -> Right {
    let (plain, subresource) = match resource.split_once('/') {
        Some((plain, sub)) => (plain, Some(sub)),
        None => (resource.as_str(), None),
    };
    let attributes = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(plain.to_owned()),
        subresource: subresource.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    match reviews.create(&PostParams::default(), &review).await {
        Ok(review) => {
            let status = review.status.unwrap_or_default();
            let reason = status.reason.filter(|reason| !reason.is_empty()).map(|reason| format!(": {reason}"));
            let why = format!("You may not {verb} {resource} in namespace {namespace}{}", reason.unwrap_or_default());
            Right { allowed: status.allowed, why: if status.allowed { String::new() } else { why } }
        }
        // Whoever cannot be asked about is not kept from trying; the API server decides anyway.
        Err(_) => Right { allowed: true, why: String::new() },
    }
}
