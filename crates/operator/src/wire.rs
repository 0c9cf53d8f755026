//! How a watched object comes off the wire: decoded into its view, with nothing kept beside it.
//!
//! `managedFields` and every field that no plan reads are skipped while decoding. An object that
//! cannot be read is carried as such: one odd object never stops a watch.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::view::{EndpointSliceView, JobView, MetaView, PodView, ServiceView, WholeView};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;

/// A type that a watch decodes into.
pub trait View: DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static {
    /// The object's namespace and name.
    fn key(&self) -> (&str, &str);

    /// Drops what is read but not needed.
    fn trim(&mut self) {}
}

macro_rules! projected {
    ($($view:ty),*) => {$(
        impl View for $view {
            fn key(&self) -> (&str, &str) {
                (&self.metadata.namespace, &self.metadata.name)
            }
        }
    )*};
}
projected!(PodView, ServiceView, EndpointSliceView, JobView, WholeView);

macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl View for $kind {
            fn key(&self) -> (&str, &str) {
                let meta = &self.metadata;
                (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
            }

            fn trim(&mut self) {
                self.metadata.managed_fields = None;
                if let Some(annotations) = &mut self.metadata.annotations {
                    // A second copy of the whole spec, of no use here. Our writes are patches, so it
                    // stays on the API server.
                    annotations.remove(LAST_APPLIED);
                }
            }
        }
    )*};
}
whole!(RayCluster, RayJob, RayService, RayCronJob);

/// kubectl's own record of what was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object as a watch delivers it.
#[derive(Clone, Debug)]
pub(crate) struct Wire<V> {
    meta: ObjectMeta,
    pub(crate) view: Result<Arc<V>, String>,
}

impl<'de, V: View> Deserialize<'de> for Wire<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let identity: Identity = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        let view = serde_json::from_str::<V>(raw.get());
        Ok(Self {
            meta: ObjectMeta {
                name: Some(identity.metadata.name),
                namespace: Some(identity.metadata.namespace).filter(|namespace| !namespace.is_empty()),
                uid: Some(identity.metadata.uid),
                resource_version: Some(identity.metadata.resource_version),
                ..ObjectMeta::default()
            },
            view: match view {
                Ok(mut view) => {
                    view.trim();
                    Ok(Arc::new(view))
                }
                Err(error) => Err(error.to_string()),
            },
        })
    }
}

/// The least that is needed to follow an object.
#[derive(Deserialize)]
struct Identity {
    metadata: MetaView,
}

impl<V: View> kube::Resource for Wire<V> {
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
