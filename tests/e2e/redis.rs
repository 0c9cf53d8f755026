//! Redis with a password and TLS, which keeps the state of a cluster.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::fault_tolerance::{keys_go_with, survives_head_loss};
use crate::up::folder;
use crate::user::Machine;

pub(crate) async fn an_encrypted_redis_keeps_a_cluster_through_head_loss() {
    let machine = Machine::run(Arc::new(folder()), &["--in-memory"]).await;
    let user = machine.user("encrypted-redis").await;
    user.apply(&[certificates()]).await;
    user.apply_example("raycluster-redis-tls.yaml").await;
    survives_head_loss(&user, "encrypted").await;
    // Redis accepts nothing else: without TLS there is no reply, and without the password an error.
    let redis = user.pods_with("app=redis").await.pop().and_then(|pod| pod.metadata.name).expect("the Redis pod");
    for refused in ["redis-cli ping", "redis-cli --tls --cacert /redis-tls/ca.crt ping"] {
        let ran = user.run_in(&redis, "redis", &["timeout", "20", "sh", "-c", refused]).await;
        assert!(!ran.stdout.contains("PONG"), "{refused}: {ran:?}");
    }
    keys_go_with(&user, "encrypted", "--tls --cacert /redis-tls/ca.crt").await;
    user.clean_up().await;
}

/// Returns a Secret with a CA and a certificate for the name `redis`.
fn certificates() -> Value {
    let key = || KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "CA of Redis");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, key()).expect("a CA");
    let (names, key) = (["redis".to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()], key());
    let serving = CertificateParams::new(names).expect("names").signed_by(&key, &authority).expect("a certificate");
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "redis-tls"}, "type": "kubernetes.io/tls",
        "stringData": {"ca.crt": authority.pem(), "tls.crt": serving.pem(), "tls.key": key.serialize_pem()},
    })
}
