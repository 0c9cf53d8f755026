//! Encryption between Pods: certificates from cert-manager, and the gate that waits for them.
//!
//! [`plan`] makes issuers and certificates and keeps the Pods' addresses in them. [`gate`] holds
//! back Pods until the certificates and their Secrets are there.

use super::observed::{LookedUp, Observed};
use super::plan::{Draft, is_ours};
use crate::action::{Action, Body, Event, Kind, ObjectKey, Stage, Step, Wake, replace};
use crate::build::{cluster_facts as facts, mtls as objects};
use crate::config::Config;
use crate::labels::{HEAD, NODE_TYPE, WORKER};
use crate::view::WholeView;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// What to do about the certificates of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub stages: Vec<Stage>,
    pub events: Vec<Event>,
    /// Secrets that must be looked up first.
    pub look_up: Vec<ObjectKey>,
    pub wake: Wake,
}

/// Whether a cluster's traffic is encrypted.
pub fn is_enabled(seen: &Observed, cfg: &Config) -> bool {
    facts::is_tls_enabled(&seen.cluster.spec, &cfg.gates)
}

/// Decides which issuers and certificates to make or change.
pub fn plan(seen: &Observed, now: Timestamp, cfg: &Config) -> Plan {
    let mut plan = Plan { stages: Vec::new(), events: Vec::new(), look_up: Vec::new(), wake: Wake::OnChange };
    let deleting = seen.cluster.metadata.deletion_timestamp.is_some();
    if deleting || !is_ours(seen) || !is_enabled(seen, cfg) || !cfg.platform.cert_manager {
        return plan;
    }
    let cluster = &seen.cluster;
    let steps: [(Kind, Value, &str); 5] = [
        (Kind::Issuer, objects::self_signed_issuer(cluster), "self-signed issuer"),
        (Kind::Certificate, objects::ca_certificate(cluster), "CA certificate"),
        (Kind::Issuer, objects::ca_issuer(cluster), "CA issuer"),
        (Kind::Certificate, objects::head_certificate(cluster, cfg, &addresses(seen, HEAD)), "head certificate"),
        (Kind::Certificate, objects::worker_certificate(cluster, &addresses(seen, WORKER)), "worker certificate"),
    ];
    for (kind, wanted, step) in steps {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match seen.related(kind, &name) {
            None if seen.in_flight.is_creating(kind, &name) => {}
            None => plan.stages.push(vec![
                Step::new(
                    Action::Create { key: seen.key(kind, &name), body: Body::of(&wanted) },
                    "tlsOptions asks for it",
                )
                .failed(failed(step)),
            ]),
            Some(live) if kind == Kind::Certificate => keep_current(seen, live, &wanted, step, &mut plan),
            Some(_) => {}
        }
    }
    if !plan.look_up.is_empty() {
        plan.stages.clear();
        plan.events.clear();
        return plan;
    }
    tell_readiness(seen, now, &mut plan);
    plan
}

/// Whether Pods may be made as far as encryption is concerned; if not, the draft says why.
pub(super) fn gate(seen: &Observed, cfg: &Config, draft: &mut Draft) -> bool {
    if !is_enabled(seen, cfg) {
        return true;
    }
    let mut problem = None;
    for name in [objects::head_certificate_name(seen.name()), objects::worker_certificate_name(seen.name())] {
        match seen.related(Kind::Certificate, &name) {
            None => {
                problem.get_or_insert(format!(
                    "certificate {name} not found: certificates.cert-manager.io \"{name}\" not found"
                ));
            }
            Some(live) if !is_ready(live) => {
                let generation = live.metadata.generation.unwrap_or_default();
                problem.get_or_insert(format!("certificate {name} is not ready at current generation {generation}"));
            }
            Some(_) => {}
        }
    }
    if problem.is_none() {
        for name in [objects::head_tls_secret_name(seen.name()), objects::worker_tls_secret_name(seen.name())] {
            let key = seen.key(Kind::Secret, &name);
            match seen.looked_up.get(&key) {
                None => {
                    draft.look_up(key);
                    return false;
                }
                Some(LookedUp::Absent) => {
                    problem.get_or_insert(format!("secret {name} not found: secrets \"{name}\" not found"));
                }
                Some(LookedUp::Failed(error)) => {
                    problem.get_or_insert(format!("secret {name} not found: {error}"));
                }
                Some(LookedUp::Found(secret)) => {
                    let missing =
                        ["tls.crt", "tls.key", "ca.crt"].into_iter().find(|key| secret["data"].get(key).is_none());
                    if let Some(key) = missing {
                        problem.get_or_insert(format!("secret {name} missing required key {key}"));
                    }
                }
            }
        }
    }
    match problem {
        None => true,
        Some(problem) => {
            draft.halt(format!("mTLS secrets not ready: {problem}"));
            false
        }
    }
}

/// Updates names and addresses of a certificate, and makes its Secret go with it.
fn keep_current(seen: &Observed, live: &WholeView, wanted: &Value, step: &str, plan: &mut Plan) {
    let is_authority = wanted["spec"]["isCA"] == json!(true);
    if !is_authority && let Some(updated) = objects::certificate_update(wanted, &live.object) {
        let addresses = updated["spec"]["ipAddresses"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = addresses.filter_map(Value::as_str).collect();
        let note = format!("Updated {step} SANs (IPs: [{}])", addresses.join(" "));
        plan.stages.push(vec![
            Step::new(
                replace(seen.key(Kind::Certificate, &live.metadata.name), &updated),
                "the Pods' addresses have changed",
            )
            .done(Event::normal("MTLSCertificatesUpdated", "Update", note))
            .failed(failed(step)),
        ]);
    }
    if let Some(secret) = live.object["spec"]["secretName"].as_str() {
        own_secret(seen, live, secret, step, plan);
    }
}

/// Lets the garbage collector take the Secret with its certificate.
fn own_secret(seen: &Observed, certificate: &WholeView, secret: &str, step: &str, plan: &mut Plan) {
    let key = seen.key(Kind::Secret, secret);
    let found = match seen.looked_up.get(&key) {
        None => return plan.look_up.push(key),
        Some(LookedUp::Found(found)) => found,
        Some(_) => return,
    };
    let owners = found["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    if owners.iter().any(|owner| owner["uid"] == json!(certificate.metadata.uid)) {
        return;
    }
    let mut owners = owners;
    owners.push(json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "name": certificate.metadata.name,
        "uid": certificate.metadata.uid,
    }));
    let patch = json!({"metadata": {
        "ownerReferences": owners,
        "resourceVersion": found["metadata"]["resourceVersion"],
    }});
    plan.stages.push(vec![
        Step::new(Action::Merge { key, patch: Box::new(patch) }, "the Secret goes with its certificate")
            .failed(failed(step)),
    ]);
}

fn tell_readiness(seen: &Observed, now: Timestamp, plan: &mut Plan) {
    let certificate = |name: String| seen.related(Kind::Certificate, &name);
    let head = certificate(objects::head_certificate_name(seen.name()));
    let worker = certificate(objects::worker_certificate_name(seen.name()));
    if ![head, worker].iter().all(|live| live.is_some_and(|live| is_ready(live))) {
        plan.events.push(Event::normal(
            "MTLSCertsNotReady",
            "Reconcile",
            "Waiting for cert-manager to issue mTLS certificates",
        ));
        return;
    }
    plan.events.push(Event::normal(
        "MTLSPKIReady",
        "Reconcile",
        "mTLS PKI is ready: CA, head, and worker certificates issued",
    ));
    let authority = certificate(objects::ca_certificate_name(seen.name()));
    for live in [head, worker, authority].into_iter().flatten() {
        let Some(expires) = live.object["status"]["notAfter"].as_str().and_then(|text| text.parse::<Timestamp>().ok())
        else {
            continue;
        };
        let warn_at = expires - SignedDuration::from_hours(24);
        if now < warn_at {
            plan.wake = earlier(plan.wake, warn_at);
            continue;
        }
        let hours = expires.duration_since(now).as_secs_f64() / 3600.0;
        plan.events.push(Event::warning(
            "MTLSCertificateExpiringSoon",
            "Reconcile",
            format!(
                "TLS certificate {} expires in {hours:.1} hours; Ray does not hot-reload certs so a pod restart will be needed after renewal",
                live.metadata.name
            ),
        ));
    }
}

/// Addresses of the live Pods of a type, for the certificate.
fn addresses<'a>(seen: &'a Observed, node_type: &str) -> Vec<&'a str> {
    let live = seen.pods.iter().filter(|pod| {
        pod.metadata.label(NODE_TYPE) == Some(node_type)
            && !pod.is_terminating()
            && !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
            && !pod.status.pod_ip.is_empty()
    });
    live.map(|pod| pod.status.pod_ip.as_str()).collect()
}

/// Ready, and not for an earlier version of the certificate.
fn is_ready(certificate: &WholeView) -> bool {
    certificate.object["status"]["conditions"].as_array().into_iter().flatten().any(|condition| {
        condition["type"] == "Ready"
            && condition["status"] == "True"
            && condition["observedGeneration"].as_i64() == certificate.metadata.generation
    })
}

fn failed(step: &str) -> Event {
    Event::warning("MTLSFailedToReconcile", "Reconcile", format!("Failed to reconcile mTLS {step}: "))
}

fn earlier(wake: Wake, at: Timestamp) -> Wake {
    match wake {
        Wake::At(before) => Wake::At(before.min(at)),
        _ => Wake::At(at),
    }
}
