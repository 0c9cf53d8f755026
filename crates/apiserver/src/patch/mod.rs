//! The four kinds of patches, as functions from JSON to JSON.
//!
//! | content type | function | knows types |
//! |---|---|---|
//! | `application/json-patch+json` | [`json_patch`] | no |
//! | `application/merge-patch+json` | [`merge_patch`] | no |
//! | `application/strategic-merge-patch+json` | [`strategic_merge_patch`] | built-in ones |
//! | `application/apply-patch+yaml` | [`apply`](apply::apply) | all |
//!
//! [`apply::track_update`] keeps `managedFields` right after every other kind of write.

pub mod apply;
mod json;
mod merge;
#[cfg(test)]
mod properties;
mod strategic;

pub use self::json::json_patch;
pub use self::merge::merge_patch;
pub use self::strategic::strategic_merge_patch;

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is not a patch at all: 400 BadRequest.
    #[error("{0}")]
    Malformed(String),
    /// It has too many operations: 413.
    #[error("{0}")]
    TooLarge(String),
    /// It does not fit this object: 422. The real server keeps the text to itself and answers that it
    /// "rejected our request due to an error in our request".
    #[error("{0}")]
    Inapplicable(String),
    /// A strategic merge failed half way: 500, as the real server answers.
    #[error("{0}")]
    Failed(String),
}
