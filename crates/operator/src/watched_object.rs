//! An object as a watch delivers it: decoded into its view, with nothing stored beside it.
//!
//! `managedFields` and every field that no plan reads are skipped while decoding. An object that
//! cannot be decoded is delivered as an error, so that it never stops the watch.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use manta_logic::view::{EndpointSliceView, JobView, PodView, ServiceView, WholeView};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;

/// A type that a watch decodes into.
pub trait View: DeserializeOwned + std::fmt::Debug + Send + Sync + 'static {
    /// Returns the object's namespace and name.
    fn key(&self) -> (&str, &str);

    /// Returns the object's resource version.
    fn version(&self) -> &str;

    /// Returns the whole object as JSON; known of Ray objects only.
    fn text(&self) -> Option<&str> {
        None
    }

    /// Returns whether nothing but the status has changed since an earlier version; known of Ray objects only.
    fn differs_in_status_only(&self, _before: &Self) -> bool {
        false
    }
}

macro_rules! projected {
    ($($view:ty),*) => {$(
        impl View for $view {
            fn key(&self) -> (&str, &str) {
                (&self.metadata.namespace, &self.metadata.name)
            }

            fn version(&self) -> &str {
                &self.metadata.resource_version
            }
        }
    )*};
}
projected!(PodView, ServiceView, EndpointSliceView, JobView, WholeView);

/// An object as a watch delivers it.
#[derive(Debug)]
pub(crate) struct Watched<V> {
    meta: ObjectMeta,
    pub(crate) view: Result<Arc<V>, String>,
}

impl<V> Clone for Watched<V> {
    fn clone(&self) -> Self {
        Self { meta: self.meta.clone(), view: self.view.clone() }
    }
}

impl<'de, V: View> Deserialize<'de> for Watched<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        match serde_json::from_str::<V>(raw.get()) {
            Ok(view) => {
                let (namespace, name) = view.key();
                Ok(Self { meta: meta(namespace, name, view.version()), view: Ok(Arc::new(view)) })
            }
            Err(error) => {
                let identity: Nameable = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
                let Identity { namespace, name, resource_version } = identity.metadata;
                Ok(Self { meta: meta(&namespace, &name, &resource_version), view: Err(error.to_string()) })
            }
        }
    }
}

/// Returns the metadata that the watch itself needs.
fn meta(namespace: &str, name: &str, version: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    }
}

/// An object of which only the identity can be decoded.
#[derive(Deserialize)]
struct Nameable {
    metadata: Identity,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Identity {
    namespace: String,
    name: String,
    resource_version: String,
}

impl<V: View> kube::Resource for Watched<V> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }
    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }
    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }
    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }
    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
