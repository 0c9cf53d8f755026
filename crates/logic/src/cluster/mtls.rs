//! Encryption between Pods: certificates from cert-manager, and the gate that waits for them.
//!
//! [`plan`] creates issuers and certificates and keeps the Pods' addresses in them, as a controller of its own.
//! [`gate`] holds back Pods until the certificates are ready and their Secrets complete.

use super::Planner;
use super::existing::{self, Existing};
use super::observed::Observed;
use crate::action::{Event, Kind, Step};
use crate::build::mtls as objects;
use crate::cluster_spec;
use crate::labels::{HEAD, NODE_TYPE, WORKER};
use crate::plan::LookedUp;
use crate::reasons;
use crate::view::WholeView;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Creates and changes the issuers and certificates of one cluster.
pub(super) fn plan(planner: &mut Planner<'_>) {
    let (seen, config) = (planner.seen, planner.config);
    if !is_enabled(planner) || !config.platform.cert_manager {
        return;
    }
    let cluster = &seen.cluster;
    let objects: [(Kind, Value, &str); 5] = [
        (Kind::Issuer, objects::self_signed_issuer(cluster), "self-signed issuer"),
        (Kind::Certificate, objects::ca_certificate(cluster), "CA certificate"),
        (Kind::Issuer, objects::ca_issuer(cluster), "CA issuer"),
        (Kind::Certificate, objects::head_certificate(cluster, config, &addresses(seen, HEAD)), "head certificate"),
        (Kind::Certificate, objects::worker_certificate(cluster, &addresses(seen, WORKER)), "worker certificate"),
    ];
    for (kind, wanted, word) in objects {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match existing::find(planner, kind, &name) {
            Existing::Absent => planner
                .then(Step::create(seen.key(kind, &name), &wanted, "tlsOptions asks for it").failed(failed(word))),
            Existing::Found(live) if kind == Kind::Certificate => keep_current(planner, &live, &wanted, word),
            Existing::Found(_) | Existing::Unknown => {}
        }
    }
    report_readiness(planner);
}

/// Returns whether a cluster's traffic is encrypted.
fn is_enabled(planner: &Planner<'_>) -> bool {
    cluster_spec::is_tls_enabled(&planner.seen.cluster.spec, &planner.config.gates)
}

/// Returns whether Pods may be created as far as encryption is concerned; if not, halts the pass.
pub(super) fn gate(planner: &mut Planner<'_>) -> bool {
    let seen = planner.seen;
    if !is_enabled(planner) {
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
            match planner.found(&key) {
                None => {
                    planner.look_up(key);
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
            planner.halt(format!("mTLS secrets not ready: {problem}"));
            false
        }
    }
}

/// Updates names and addresses of a certificate, and makes it own its Secret.
fn keep_current(planner: &mut Planner<'_>, live: &WholeView, wanted: &Value, word: &str) {
    let is_authority = wanted["spec"]["isCA"] == json!(true);
    if !is_authority && let Some(updated) = objects::certificate_update(wanted, &live.object) {
        let addresses = updated["spec"]["ipAddresses"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = addresses.filter_map(Value::as_str).collect();
        let note = format!("Updated {word} SANs (IPs: [{}])", addresses.join(" "));
        let key = planner.seen.key(Kind::Certificate, &live.metadata.name);
        planner.then(
            Step::replace(key, &updated, "the Pods' addresses have changed")
                .on_success(reasons::MTLS_CERTIFICATES_UPDATED, note)
                .failed(failed(word)),
        );
    }
    if let Some(secret) = live.object["spec"]["secretName"].as_str() {
        own_secret(planner, live, secret, word);
    }
}

/// Makes a certificate own its Secret, so that both are garbage-collected together.
fn own_secret(planner: &mut Planner<'_>, certificate: &WholeView, secret: &str, word: &str) {
    let key = planner.seen.key(Kind::Secret, secret);
    let found = match planner.found(&key) {
        None => return planner.look_up(key),
        Some(LookedUp::Found(found)) => found,
        // Its certificate becomes ready after it was written, which wakes the cluster.
        Some(LookedUp::Absent) => return,
        Some(LookedUp::Failed(_)) => return planner.back_off(),
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
    planner.then(Step::merge(key, patch, "the Secret goes with its certificate").failed(failed(word)));
}

/// Reports whether the certificates are issued, and warns before they expire.
fn report_readiness(planner: &mut Planner<'_>) {
    let (seen, now) = (planner.seen, planner.now);
    let certificate = |name: String| seen.related(Kind::Certificate, &name);
    let head = certificate(objects::head_certificate_name(seen.name()));
    let worker = certificate(objects::worker_certificate_name(seen.name()));
    if ![head, worker].iter().all(|live| live.is_some_and(|live| is_ready(live))) {
        planner.event(Event::normal(
            reasons::MTLS_CERTS_NOT_READY,
            "Reconcile",
            "Waiting for cert-manager to issue mTLS certificates",
        ));
        return;
    }
    planner.event(Event::normal(
        reasons::MTLS_PKI_READY,
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
        if !planner.reached_or_wake_at(warn_at) {
            continue;
        }
        let hours = expires.duration_since(now).as_secs_f64() / 3600.0;
        planner.event(Event::warning(
            reasons::MTLS_CERTIFICATE_EXPIRING_SOON,
            "Reconcile",
            format!(
                "TLS certificate {} expires in {hours:.1} hours; Ray does not hot-reload certs so a pod restart will be needed after renewal",
                live.metadata.name
            ),
        ));
    }
}

/// Returns the addresses of the live Pods of a type, for the certificate.
fn addresses<'a>(seen: &'a Observed, node_type: &str) -> Vec<&'a str> {
    let live = seen.pods.iter().filter(|pod| {
        pod.metadata.label(NODE_TYPE) == Some(node_type)
            && !pod.is_terminating()
            && !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
            && !pod.status.pod_ip.is_empty()
    });
    live.map(|pod| pod.status.pod_ip.as_str()).collect()
}

/// Returns whether a certificate is ready, and not for an earlier version of itself.
fn is_ready(certificate: &WholeView) -> bool {
    certificate.object["status"]["conditions"].as_array().into_iter().flatten().any(|condition| {
        condition["type"] == "Ready"
            && condition["status"] == "True"
            && condition["observedGeneration"].as_i64() == certificate.metadata.generation
    })
}

fn failed(word: &str) -> Event {
    Event::warning(reasons::MTLS_FAILED_TO_RECONCILE, "Reconcile", format!("Failed to reconcile mTLS {word}: "))
}
