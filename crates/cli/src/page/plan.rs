//! What the operator is about to do, as `manta plan` says it.

use super::failure::{Failure, Json};
use super::question::parse;
use super::session::Session;
use crate::commands::plan::for_everything;
use axum::body::Bytes;
use axum::extract::Extension;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

#[derive(Deserialize)]
struct Question {
    namespace: Option<String>,
}

/// Returns every write that would follow now, with its reason.
pub(super) async fn plan(Extension(session): Extension<Arc<Session>>, body: Bytes) -> Result<Json<Value>, Failure> {
    let Question { namespace } = parse(&body)?;
    let mut plan = for_everything(&session.target, namespace.as_deref()).await?;
    // Whole objects are more than the page shows.
    for change in plan["changes"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        change.remove("before");
        change.remove("after");
    }
    Ok(Json(plan))
}
