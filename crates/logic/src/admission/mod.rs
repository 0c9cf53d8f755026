//! Admission: objects are checked before they are stored, by the webhook ([`refuse`]) or by policies that the API server
//! evaluates itself ([`policy`]). [`certificate`] decides when the webhook's certificate is renewed.

pub mod certificate;
pub mod policy;
pub mod refuse;
