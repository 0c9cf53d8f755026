//! Service account tokens: JSON Web Tokens signed with Ed25519.
//!
//! Ed25519 signatures are deterministic, so a signature is verified by signing again.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rcgen::{KeyPair, SigningKey};
use serde_json::{Value, json};

/// The issuer of service account tokens.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

pub(super) struct Signer {
    key: KeyPair,
}

impl Signer {
    pub(super) fn new(key: KeyPair) -> Signer {
        Signer { key }
    }

    pub(super) fn sign(&self, claims: &Value) -> String {
        let header = BASE64.encode(json!({"alg": "EdDSA", "typ": "JWT"}).to_string());
        let body = format!("{header}.{}", BASE64.encode(claims.to_string()));
        let signature = self.signature(&body);
        format!("{body}.{signature}")
    }

    /// Returns the claims of a token that this signer issued and that is valid now.
    pub(super) fn verify(&self, token: &str, now: jiff::Timestamp) -> Option<Value> {
        let (body, signature) = token.rsplit_once('.')?;
        if !super::constant_time_eq(self.signature(body).as_bytes(), signature.as_bytes()) {
            return None;
        }
        let (_, claims) = body.split_once('.')?;
        let claims: Value = serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()?;
        let within = claims["nbf"].as_i64()? <= now.as_second() && now.as_second() < claims["exp"].as_i64()?;
        within.then_some(claims)
    }

    fn signature(&self, body: &str) -> String {
        // Signing with a key in memory does not fail; were it to, the empty signature verifies nothing of use.
        BASE64.encode(self.key.sign(body.as_bytes()).unwrap_or_else(|_| crate::clock::random_bytes::<64>().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_unexpired_tokens_verify() {
        let signer = Signer::new(KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key"));
        let at = |second: i64| jiff::Timestamp::from_second(second).expect("in range");
        let token = signer.sign(&json!({"nbf": 10, "exp": 20, "sub": "a"}));
        assert_eq!(signer.verify(&token, at(15)).map(|claims| claims["sub"].clone()), Some(json!("a")));
        assert_eq!(signer.verify(&token, at(20)), None);
        assert_eq!(signer.verify(&token, at(9)), None);
        assert_eq!(signer.verify(&token.replace('.', "x."), at(15)), None);
        let other = Signer::new(KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key"));
        assert_eq!(other.verify(&token, at(15)), None);
        assert_eq!(signer.verify("nonsense", at(15)), None);
    }
}
