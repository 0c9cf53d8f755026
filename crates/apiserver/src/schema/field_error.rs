//! Field errors in the words of Kubernetes.
//!
//! A `FieldError` prints as `spec.replicas: Invalid value: -1: must not be negative`; the part after the field is
//! what a Status cause carries as its message, and `reason()` what it carries as its reason.

use std::fmt;

use serde_json::Value;

use super::go_text;

/// Why a field is wrong; the names are the reasons of a Status cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl ErrorType {
    /// Returns the words every message of this type begins with.
    fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One wrong field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub error_type: ErrorType,
    /// The path of the field; `<nil>` for the object itself, as Kubernetes prints it.
    pub field: String,
    /// The message without the field.
    pub body: String,
}

impl FieldError {
    fn with_value(error_type: ErrorType, field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let body = format!("{}: {}", error_type.title(), go_text::bad_value(value));
        Self::finish(error_type, field, body, detail)
    }

    fn without_value(error_type: ErrorType, field: impl Into<String>, detail: &str) -> Self {
        Self::finish(error_type, field, error_type.title().to_owned(), detail)
    }

    fn finish(error_type: ErrorType, field: impl Into<String>, mut body: String, detail: &str) -> Self {
        if !detail.is_empty() {
            body.push_str(": ");
            body.push_str(detail);
        }
        Self { error_type, field: field.into(), body }
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::without_value(ErrorType::Required, field, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::without_value(ErrorType::Forbidden, field, detail)
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_value(ErrorType::Invalid, field, value, detail)
    }

    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_value(ErrorType::TypeInvalid, field, value, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::with_value(ErrorType::Duplicate, field, value, "")
    }

    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::with_value(ErrorType::NotFound, field, value, "")
    }

    /// Returns a value outside an enumeration, with the values that would do.
    pub fn not_supported<S: AsRef<str>>(field: impl Into<String>, value: &Value, supported: &[S]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| go_text::quote(s.as_ref())).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::with_value(ErrorType::NotSupported, field, value, &detail)
    }

    pub fn too_long(field: impl Into<String>, max: i64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::without_value(ErrorType::TooLong, field, &format!("may not be more than {max} {unit}"))
    }

    pub fn too_many(field: impl Into<String>, actual: usize, max: i64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::with_value(ErrorType::TooMany, field, &actual.into(), &format!("must have at most {max} {unit}"))
    }

    /// Returns the reason of the Status cause.
    pub fn reason(&self) -> &'static str {
        match self.error_type {
            ErrorType::NotFound => "FieldValueNotFound",
            ErrorType::Required => "FieldValueRequired",
            ErrorType::Duplicate => "FieldValueDuplicate",
            ErrorType::Invalid => "FieldValueInvalid",
            ErrorType::NotSupported => "FieldValueNotSupported",
            ErrorType::Forbidden => "FieldValueForbidden",
            ErrorType::TooLong => "FieldValueTooLong",
            ErrorType::TooMany => "FieldValueTooMany",
            ErrorType::Internal => "InternalError",
            ErrorType::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// CEL rules are not run on an object with such an error: they could not trust its shape.
    pub(crate) fn blocks_rules(&self) -> bool {
        matches!(
            self.error_type,
            ErrorType::NotSupported
                | ErrorType::Required
                | ErrorType::TooLong
                | ErrorType::TooMany
                | ErrorType::TypeInvalid
        )
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_read_like_those_of_kubernetes() {
        let check = |error: FieldError, expect: &str| assert_eq!(error.to_string(), expect);
        check(FieldError::required("spec.a", ""), "spec.a: Required value");
        check(FieldError::required("spec.a", "set it"), "spec.a: Required value: set it");
        check(FieldError::invalid("spec.a", &json!(-1), "too small"), "spec.a: Invalid value: -1: too small");
        check(FieldError::invalid("a", &json!({"b": "<"}), ""), r#"a: Invalid value: {"b":"\u003c"}"#);
        check(FieldError::duplicate("a[1]", &json!("x\n")), r#"a[1]: Duplicate value: "x\n""#);
        check(FieldError::too_long("a", 1), "a: Too long: may not be more than 1 byte");
        check(FieldError::too_many("a", 3, 2), "a: Too many: 3: must have at most 2 items");
        check(
            FieldError::not_supported("a", &json!("z"), &["x", "y"]),
            r#"a: Unsupported value: "z": supported values: "x", "y""#,
        );
    }
}
