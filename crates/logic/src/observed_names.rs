//! Names of an observed object and of those beside it, the same for all kinds.

/// Implements them for an `Observed` whose object is in this field.
macro_rules! observed_names {
    ($field:ident) => {
        impl Observed {
            /// Returns the object's name.
            pub(crate) fn name(&self) -> &str {
                self.$field.metadata.name.as_deref().unwrap_or_default()
            }

            /// Returns the object's namespace.
            pub(crate) fn namespace(&self) -> &str {
                self.$field.metadata.namespace.as_deref().unwrap_or_default()
            }

            /// Returns `<namespace>/<name>` of an object beside it.
            pub(crate) fn path(&self, name: &str) -> String {
                format!("{}/{name}", self.namespace())
            }

            /// Returns the key of an object beside it.
            pub(crate) fn key(&self, kind: crate::action::Kind, name: &str) -> crate::action::ObjectKey {
                crate::action::ObjectKey::new(kind, self.namespace(), name)
            }
        }
    };
}

pub(crate) use observed_names;
