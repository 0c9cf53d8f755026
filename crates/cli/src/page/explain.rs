//! Why an object is as it is, as `manta explain` says it, and what the operator has recorded about those that are gone.

use super::failure::{Failure, Json};
use super::live::Name;
use super::question::parse;
use super::session::Session;
use crate::commands::explain::one;
use crate::connect::Target;
use crate::records::RecordsArgs;
use crate::resource::Reference;
use axum::body::Bytes;
use axum::extract::Extension;
use manta_logic::post_mortem::Summary;
use manta_operator::records::{self, Explained};
use serde::Deserialize;
use std::sync::Arc;

/// Explains an object; nothing if it neither exists nor left a record.
pub(super) async fn explain(
    Extension(session): Extension<Arc<Session>>,
    body: Bytes,
) -> Result<Json<Option<Explained>>, Failure> {
    let Name { kind, namespace, name } = parse(&body)?;
    let target = Target { namespace, ..session.target.clone() };
    Ok(Json(one(&target, &RecordsArgs::default(), &Reference { kind, name }).await?))
}

#[derive(Deserialize)]
struct Question {
    namespace: Option<String>,
}

/// Lists the records of a namespace, or of all, the newest first.
pub(super) async fn records(
    Extension(session): Extension<Arc<Session>>,
    body: Bytes,
) -> Result<Json<Vec<Summary>>, Failure> {
    let Question { namespace } = parse(&body)?;
    let found = records::summaries(&session.target.client, namespace.as_deref()).await;
    Ok(Json(found.map_err(|error| Failure::from_kube("cannot list the operator's records", &error))?))
}
