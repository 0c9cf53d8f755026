//! The macro that declares a kind with metadata, spec and status.
//!
//! It replaces kube's derive macro, whose types refuse a stored object without `spec`. Here a missing spec is an empty
//! one.

/// Declares a kind of `ray.io/v1` with its spec and status types.
macro_rules! ray_kind {
    ($(#[$meta:meta])* $kind:ident, $plural:literal, $spec:ty, $status:ty) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $kind {
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            #[serde(default)]
            pub spec: $spec,
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl $kind {
            /// The kind in manifests.
            pub const KIND: &'static str = stringify!($kind);
            /// The plural in URLs and in the CRD's name.
            pub const PLURAL: &'static str = $plural;

            /// Returns a new object of this kind.
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut object = Self { spec, ..Self::default() };
                object.metadata.name = Some(name.to_owned());
                object
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct(stringify!($kind), 5)?;
                object.serialize_field("apiVersion", crate::API_VERSION)?;
                object.serialize_field("kind", stringify!($kind))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                match &self.status {
                    Some(status) => object.serialize_field("status", status)?,
                    None => object.skip_field("status")?,
                }
                object.end()
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = kube::core::NamespaceResourceScope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                crate::GROUP.into()
            }
            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                crate::VERSION.into()
            }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use ray_kind;

#[cfg(test)]
mod tests {
    use crate::{RayCluster, RayClusterSpec};
    use kube::Resource;
    use serde_json::json;

    #[test]
    fn objects_serialize_their_kind_and_no_empty_status() {
        let cluster = RayCluster::new("a", RayClusterSpec::default());
        let written = json!({
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": "a"},
            "spec": {"headGroupSpec": {"template": {}}},
        });
        assert_eq!(serde_json::to_value(&cluster).unwrap(), written);
        assert_eq!(serde_json::from_value::<RayCluster>(written).unwrap(), cluster);
    }

    #[test]
    fn kinds_have_their_url() {
        assert_eq!(RayCluster::url_path(&(), Some("ns")), "/apis/ray.io/v1/namespaces/ns/rayclusters");
    }
}
