//! Service account tokens: JSON Web Tokens signed with ES256, as other verifiers understand them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use rcgen::{KeyPair, SigningKey};
use rustls::SignatureScheme;
use rustls::pki_types::SignatureVerificationAlgorithm;
use serde_json::{Value, json};

/// The issuer of service account tokens.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// The algorithm of the signatures, as tokens and discovery name it.
pub(super) const ALGORITHM: &str = "ES256";

/// The name of the only key.
const KEY_ID: &str = "service-accounts-es256";
/// How many bytes a number of a signature has, and a coordinate of the key.
const SIZE: usize = 32;

pub(super) struct Signer {
    key: KeyPair,
}

impl Signer {
    /// Creates a signer from a key on the curve P-256.
    pub(super) fn new(key: KeyPair) -> Signer {
        Signer { key }
    }

    pub(super) fn sign(&self, claims: &Value) -> String {
        let header = BASE64.encode(json!({"alg": ALGORITHM, "kid": KEY_ID, "typ": "JWT"}).to_string());
        let body = format!("{header}.{}", BASE64.encode(claims.to_string()));
        // Signing with a key in memory does not fail; were it to, the empty signature verifies nothing.
        let signature = self.key.sign(body.as_bytes()).ok().and_then(|signature| from_der(&signature));
        format!("{body}.{}", signature.map_or_else(String::new, |signature| BASE64.encode(signature)))
    }

    /// Returns the claims of a token that this signer issued and that is valid now.
    pub(super) fn verify(&self, token: &str, now: jiff::Timestamp) -> Option<Value> {
        let (body, signature) = token.rsplit_once('.')?;
        let (header, claims) = body.split_once('.')?;
        let parse = |part: &str| serde_json::from_slice::<Value>(&BASE64.decode(part).ok()?).ok();
        if parse(header)?["alg"] != ALGORITHM {
            return None;
        }
        let signature = to_der(&<[u8; 2 * SIZE]>::try_from(BASE64.decode(signature).ok()?).ok()?);
        algorithm()?.verify_signature(self.key.public_key_raw(), body.as_bytes(), &signature).ok()?;
        let claims = parse(claims)?;
        // The token in a Secret lives as long as the Secret.
        let is_over = !claims["exp"].is_null() && claims["exp"].as_i64()? <= now.as_second();
        (claims["nbf"].as_i64()? <= now.as_second() && !is_over).then_some(claims)
    }

    /// Returns the public key as a JSON Web Key.
    pub(super) fn public_key(&self) -> Value {
        // One byte says that the point is not compressed.
        let point = self.key.public_key_raw().get(1..).unwrap_or_default();
        let (x, y) = point.split_at_checked(SIZE).unwrap_or_default();
        json!({"use": "sig", "kty": "EC", "crv": "P-256", "kid": KEY_ID, "alg": ALGORITHM,
            "x": BASE64.encode(x), "y": BASE64.encode(y)})
    }
}

fn algorithm() -> Option<&'static dyn SignatureVerificationAlgorithm> {
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms.mapping;
    let found = known.iter().find(|(scheme, _)| *scheme == SignatureScheme::ECDSA_NISTP256_SHA256)?;
    found.1.iter().copied().find(|one| one.public_key_alg_id() == rustls::pki_types::alg_id::ECDSA_P256)
}

/// Returns the two numbers of a signature, which DER writes without leading zeros.
fn from_der(der: &[u8]) -> Option<[u8; 2 * SIZE]> {
    let mut rest = der.strip_prefix(&[0x30])?.get(1..)?;
    let mut raw = [0; 2 * SIZE];
    for half in raw.chunks_exact_mut(SIZE) {
        let (length, after) = rest.strip_prefix(&[0x02])?.split_first()?;
        let (number, after) = after.split_at_checked(usize::from(*length))?;
        rest = after;
        let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
        let number = number.get(start..)?;
        half.get_mut(SIZE.checked_sub(number.len())?..)?.copy_from_slice(number);
    }
    rest.is_empty().then_some(raw)
}

/// Returns the two numbers of a signature as DER.
fn to_der(raw: &[u8; 2 * SIZE]) -> Vec<u8> {
    let mut numbers = Vec::new();
    for half in raw.chunks_exact(SIZE) {
        let start = half.iter().position(|byte| *byte != 0).unwrap_or(SIZE - 1);
        let number = half.get(start..).unwrap_or_default();
        // A number whose first bit is set would be negative.
        let pad = number.first().is_some_and(|byte| *byte >= 0x80);
        numbers.extend([0x02, (number.len() + usize::from(pad)) as u8]);
        numbers.extend(pad.then_some(0));
        numbers.extend(number);
    }
    [&[0x30, numbers.len() as u8], numbers.as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        Signer::new(KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key"))
    }

    #[test]
    fn only_own_unexpired_tokens_verify() {
        let signer = signer();
        let at = |second: i64| jiff::Timestamp::from_second(second).expect("in range");
        let token = signer.sign(&json!({"nbf": 10, "exp": 20, "sub": "a"}));
        assert_eq!(signer.verify(&token, at(15)).map(|claims| claims["sub"].clone()), Some(json!("a")));
        assert_eq!(signer.verify(&token, at(20)), None);
        assert_eq!(signer.verify(&token, at(9)), None);
        assert_eq!(signer.verify(&token.replace('.', "x."), at(15)), None);
        assert_eq!(super::tests::signer().verify(&token, at(15)), None);
        assert_eq!(signer.verify("nonsense", at(15)), None);
        let (body, signature) = token.rsplit_once('.').expect("a signature");
        let (header, _) = body.split_once('.').expect("a header");
        let forged = BASE64.encode(json!({"nbf": 10, "exp": 20, "sub": "b"}).to_string());
        assert_eq!(signer.verify(&format!("{header}.{forged}.{signature}"), at(15)), None);
        assert_eq!(signer.verify(&format!("{body}."), at(15)), None);
        assert_eq!(signer.verify(&format!("{body}.{}", BASE64.encode([0; 64])), at(15)), None);
        let lasting = signer.sign(&json!({"nbf": 10, "sub": "a"}));
        assert!(signer.verify(&lasting, at(1 << 37)).is_some());
    }

    #[test]
    fn the_public_key_has_two_coordinates() {
        let key = signer().public_key();
        for axis in ["x", "y"] {
            assert_eq!(BASE64.decode(key[axis].as_str().expect("a text")).expect("base64").len(), SIZE);
        }
    }

    #[test]
    fn signatures_survive_der() {
        let mut raw = [0; 2 * SIZE];
        for (first, second) in [(0x00, 0x80), (0x80, 0x00), (0x7f, 0xff), (0x00, 0x00)] {
            (raw[0], raw[1], raw[SIZE], raw[2 * SIZE - 1]) = (first, 0x90, second, 1);
            assert_eq!(from_der(&to_der(&raw)), Some(raw));
        }
        assert_eq!(to_der(&[0; 2 * SIZE]), [0x30, 6, 2, 1, 0, 2, 1, 0]);
        for broken in
            [&[][..], &[0x30], &[0x30, 6, 2, 1, 0], &[0x30, 6, 2, 99, 0, 2, 1, 0], &[0x31, 6, 2, 1, 0, 2, 1, 0]]
        {
            assert_eq!(from_der(broken), None);
        }
    }
}
