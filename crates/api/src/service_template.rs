//! A Service inside a spec.
//!
//! `k8s_openapi`'s `Service` is a complete object: it refuses a foreign `apiVersion` and always serializes `apiVersion`,
//! `kind` and `metadata`. In a spec the CRD accepts any of these or none, so [`ServiceTemplate`] stores which ones were
//! given.

use k8s_openapi::api::core::v1::{Service, ServiceSpec, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

/// A Service, and which of `apiVersion`, `kind` and `metadata` were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceTemplate {
    service: Service,
    api_version: Option<String>,
    kind: Option<String>,
    has_metadata: bool,
}

impl From<Service> for ServiceTemplate {
    fn from(service: Service) -> Self {
        Self { service, ..Self::default() }
    }
}

impl Deref for ServiceTemplate {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

impl DerefMut for ServiceTemplate {
    fn deref_mut(&mut self) -> &mut Service {
        &mut self.service
    }
}

/// The template in a manifest.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api_version: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Cow<'a, ObjectMeta>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Cow<'a, ServiceSpec>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Cow<'a, ServiceStatus>>,
}

impl Serialize for ServiceTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let metadata = &self.service.metadata;
        let has_metadata = self.has_metadata || *metadata != ObjectMeta::default();
        let written = Written {
            api_version: self.api_version.as_deref().map(Cow::Borrowed),
            kind: self.kind.as_deref().map(Cow::Borrowed),
            metadata: has_metadata.then_some(Cow::Borrowed(metadata)),
            spec: self.service.spec.as_ref().map(Cow::Borrowed),
            status: self.service.status.as_ref().map(Cow::Borrowed),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ServiceTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        Ok(Self {
            api_version: written.api_version.map(Cow::into_owned),
            kind: written.kind.map(Cow::into_owned),
            has_metadata: written.metadata.is_some(),
            service: Service {
                metadata: written.metadata.map(Cow::into_owned).unwrap_or_default(),
                spec: written.spec.map(Cow::into_owned),
                status: written.status.map(Cow::into_owned),
            },
        })
    }
}

impl JsonSchema for ServiceTemplate {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "ServiceTemplate".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Service>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn fields_are_neither_added_nor_lost() {
        let check = |written: Value| {
            let template: ServiceTemplate = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(serde_json::to_value(&template).unwrap(), written);
        };
        check(json!({}));
        check(json!({"metadata": {}}));
        check(json!({"apiVersion": "v2", "kind": "Servise", "metadata": {"name": "head"}}));
        check(json!({"spec": {"type": "NodePort"}, "status": {"loadBalancer": {}}}));
    }

    #[test]
    fn a_template_derefs_to_its_service() {
        let mut template = ServiceTemplate::from(Service::default());
        template.metadata.name = Some("head".to_owned());
        assert_eq!(serde_json::to_value(&template).unwrap(), json!({"metadata": {"name": "head"}}));
    }
}
