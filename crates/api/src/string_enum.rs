//! String enums of the API that preserve unknown values.

/// Declares an enum of strings.
///
/// The CRD accepts only the listed values, but an object that was stored under the CRD of another version may have
/// others. They are preserved as `Other`, so that an unknown value does not hide the whole object.
macro_rules! string_enum {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($variant,)+
            Other(String),
        }

        impl $name {
            /// The values that the CRD accepts.
            pub const VALUES: &'static [&'static str] = &[$($text),+];

            /// Returns the value in manifests.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Ok(Self::from(text.as_ref()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": Self::VALUES})
            }
        }
    };
}
pub(crate) use string_enum;

#[cfg(test)]
mod tests {
    use crate::{AutoscalerOptions, UpscalingMode};
    use serde_json::json;

    #[test]
    fn known_and_unknown_values_are_preserved() {
        let check = |text: &str, expect: UpscalingMode| {
            let options: AutoscalerOptions = serde_json::from_value(json!({"upscalingMode": text})).unwrap();
            assert_eq!(serde_json::to_value(&options).unwrap(), json!({"upscalingMode": text}));
            assert_eq!(options.upscaling_mode.unwrap(), expect);
        };
        check("Aggressive", UpscalingMode::Aggressive);
        check("aggressive", UpscalingMode::Other("aggressive".to_owned()));
        check("", UpscalingMode::Other(String::new()));
    }

    #[test]
    fn other_types_are_refused() {
        for odd in [json!(1), json!(true), json!(["Default"])] {
            serde_json::from_value::<UpscalingMode>(odd).unwrap_err();
        }
    }
}
