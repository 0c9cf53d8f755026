//! A gateway: its controller accepts Gateways and HTTPRoutes, and its proxies follow them a little later.

use crate::api::Api;
use crate::object::{generation, name, text};
use crate::rng::Rng;
use crate::transcript::Transcript;
use manta_apiserver::store::Change;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How long a Gateway takes to be programmed, in milliseconds.
const PROGRAMMING: std::ops::Range<u64> = 100..6_000;
/// How long proxies take to follow a route, in milliseconds.
const FOLLOWING: std::ops::Range<u64> = 50..3_000;
/// How often a route looks for its Gateway.
const LOOKING: Duration = Duration::from_millis(500);

/// The Services behind a route, with their weights.
pub(crate) type Backends = Vec<(String, i64)>;

/// The gateways.
#[derive(Clone)]
pub(crate) struct Gateways {
    api: Api,
    rng: Rng,
    transcript: Transcript,
    /// The routes that the proxies know, by name.
    routes: Arc<Mutex<BTreeMap<String, Backends>>>,
}

impl Gateways {
    pub(crate) fn new(api: Api, rng: Rng, transcript: Transcript) -> Self {
        Self { api, rng, transcript, routes: Arc::default() }
    }

    /// Returns where the proxies send requests of a route; none while they do not know it.
    pub(crate) fn backends(&self, route: &str) -> Option<Backends> {
        self.lock().get(route).cloned()
    }

    /// Runs until dropped.
    pub(crate) async fn run(self) {
        futures::future::join(self.follow("Gateway"), self.follow("HTTPRoute")).await;
    }

    async fn follow(&self, kind: &'static str) {
        let Some(mut changes) = self.api.changes(kind) else { return };
        loop {
            for event in changes.next().await {
                let object = event.entry.shared_value();
                let name = name(&object);
                if event.change == Change::Deleted {
                    self.lock().remove(&name);
                    continue;
                }
                let observed = event.before.as_ref().map(|before| generation(&before.shared_value()));
                if observed == Some(generation(&object)) {
                    continue;
                }
                let gateways = self.clone();
                tokio::spawn(async move {
                    match kind {
                        "Gateway" => gateways.program(&name).await,
                        _ => gateways.route(&name).await,
                    }
                });
            }
        }
    }

    /// Accepts a Gateway.
    async fn program(&self, name: &str) {
        sleep(Duration::from_millis(self.rng.within(PROGRAMMING))).await;
        let conditions = json!([condition("Accepted"), condition("Programmed")]);
        self.api.patch_status("Gateway", name, &json!({"conditions": conditions}));
    }

    /// Makes the proxies follow a route, once its Gateway works.
    async fn route(&self, name: &str) {
        sleep(Duration::from_millis(self.rng.within(FOLLOWING))).await;
        let route = loop {
            let Some(route) = self.api.get("HTTPRoute", name) else { return };
            let gateway = self.api.get("Gateway", route["spec"]["parentRefs"][0]["name"].as_str().unwrap_or_default());
            if gateway.is_some_and(|gateway| !gateway["status"]["conditions"].is_null()) {
                break route;
            }
            sleep(LOOKING).await;
        };
        let backends = backends(&route);
        self.transcript.line("gateway", format!("{name} leads to {backends:?}"));
        self.lock().insert(name.to_owned(), backends);
        let conditions = json!([condition("Accepted"), condition("ResolvedRefs")]);
        let parent = json!({
            "parentRef": route["spec"]["parentRefs"][0], "controllerName": "sim.io/gateway", "conditions": conditions,
        });
        self.api.patch_status("HTTPRoute", name, &json!({"parents": [parent]}));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Backends>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the Services that a route names, with their weights.
pub(crate) fn backends(route: &Value) -> Backends {
    let named = route["spec"]["rules"][0]["backendRefs"].as_array().into_iter().flatten();
    named.map(|backend| (text(&backend["name"]), backend["weight"].as_i64().unwrap_or(1))).collect()
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}
