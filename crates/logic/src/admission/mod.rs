//! What is decided before an object is stored: by the webhook ([`refuse`]) or, without one, by a policy that the API
//! server evaluates itself ([`policy`]); and when the webhook's certificate is due ([`certificate`]).

pub mod certificate;
pub mod policy;
pub mod refuse;
