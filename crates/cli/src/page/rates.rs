//! Requests to the applications of a service, from the metrics that Ray serves on every node.
//!
//! Metrics cannot be watched, so they are read every few seconds, and only while somebody looks.

use super::failure::sentence;
use super::live::Outlet;
use super::metrics::Requests;
use super::stream::{self, every};
use crate::connect::Target;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use manta_logic::labels;
use serde_json::json;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(3);
/// Where Ray serves metrics, unless the cluster says otherwise; then there are no rates.
const PORT: u16 = 8080;
/// How many nodes are asked; a larger cluster would be asked all the time.
const MAX_NODES: usize = 50;
/// How many of them are asked at once.
const MAX_AT_ONCE: usize = 4;

/// Sends how many requests the nodes of a cluster have answered so far, until the browser leaves.
pub(super) async fn follow(target: &Target, cluster: &str, outlet: &Outlet) {
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let running =
        ListParams::default().labels(&format!("{}={cluster}", labels::CLUSTER)).fields("status.phase=Running");
    let mut tick = every(INTERVAL);
    loop {
        tick.tick().await;
        let names: Vec<String> = match pods.list_metadata(&running).await {
            Ok(found) => found.items.iter().map(ResourceExt::name_any).take(MAX_NODES).collect(),
            Err(error) => {
                // The next one may succeed.
                if !outlet.send(&json!({"problem": sentence(&error)})).await {
                    return;
                }
                continue;
            }
        };
        let readings =
            names.into_iter().map(|name| async move { stream::metrics(target, &name, PORT, Requests::read).await });
        let read = futures::stream::iter(readings).buffer_unordered(MAX_AT_ONCE);
        // A node that is just starting serves none yet.
        let served = read.filter_map(async |read| read.ok());
        let total = served.fold(Requests::default(), async |total, one| total.plus(one)).await;
        if !outlet.send(&json!({"requests": total})).await {
            return;
        }
    }
}
