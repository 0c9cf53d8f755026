//! Where the objects of a preview come from.

use super::world::World;
use crate::api_request::{error_text, look_up};
use crate::watches::{PAGE, selectors};
use axum::Router;
use kube::Client;
use kube::api::ListParams;
use kube::core::request::Request;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::plan::LookedUp;
use serde_json::{Value, json};

/// A cluster to preview on.
pub enum Cluster {
    /// These objects and no others.
    Objects(Vec<Value>),
    /// What the API server shows in these namespaces; all, if none is named.
    Live { client: Client, namespaces: Vec<String> },
}

/// Why a preview cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The API server's message names the verb and the resource that are not allowed.
    #[error("cannot list {plural}: {}", error_text(source))]
    List { plural: &'static str, source: kube::Error },
}

/// The result of listing a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    All,
    /// The API server does not serve the kind.
    Unserved,
}

impl Cluster {
    /// Returns a client for Ray's dashboards, which previews do not ask.
    pub(super) fn client(&self) -> Client {
        match self {
            Self::Objects(_) => Client::new(Router::new(), "default"),
            Self::Live { client, .. } => client.clone(),
        }
    }

    /// Loads the objects of a kind.
    pub(super) async fn list(&self, kind: Kind, world: &mut World) -> Result<Listed, PreviewError> {
        let listed = match self {
            Self::Objects(objects) => {
                for object in objects {
                    if let Some(key) = key_of(object, "default").filter(|key| key.kind == kind) {
                        world.put(&key, object.clone());
                    }
                }
                Listed::All
            }
            Self::Live { client, namespaces } => {
                let failed = |source| PreviewError::List { plural: kind.resource().plural, source };
                list_live(client, namespaces, kind, world).await.map_err(failed)?
            }
        };
        if listed == Listed::All {
            world.set_listed(kind);
        }
        Ok(listed)
    }

    /// Looks up an object that is not listed.
    pub(super) async fn look_up(&self, key: &ObjectKey) -> LookedUp {
        match self {
            Self::Objects(objects) => {
                let found = objects.iter().find(|object| key_of(object, "default").as_ref() == Some(key));
                found.map_or(LookedUp::Absent, |object| LookedUp::Found(object.clone().into()))
            }
            Self::Live { client, .. } => look_up(client, key).await,
        }
    }
}

async fn list_live(
    client: &Client,
    namespaces: &[String],
    kind: Kind,
    world: &mut World,
) -> Result<Listed, kube::Error> {
    let scopes: Vec<Option<&str>> = match namespaces {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    for scope in scopes {
        for selector in selectors(kind) {
            match list_pages(client, kind, scope, *selector, world).await {
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Listed::Unserved),
                other => other?,
            }
        }
    }
    Ok(Listed::All)
}

async fn list_pages(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
    selector: Option<&str>,
    world: &mut World,
) -> Result<(), kube::Error> {
    let resource = kind.resource();
    let prefix = if resource.group.is_empty() { "/api" } else { "/apis" };
    let scope = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let url = format!("{prefix}/{}{scope}/{}", resource.api_version(), resource.plural);
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = selector.map(str::to_owned);
    loop {
        let request = Request::new(&url).list(&params).map_err(kube::Error::BuildRequest)?;
        let mut page: Value = client.request(request).await?;
        for mut object in page["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
            object["apiVersion"] = json!(resource.api_version());
            object["kind"] = json!(resource.kind);
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
            if let Some(key) = key_of(&object, "") {
                world.put(&key, object);
            }
        }
        match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token.to_owned()),
            None => return Ok(()),
        }
    }
}

/// Returns the key of an object, if plans know its kind.
pub(super) fn key_of(object: &Value, default_namespace: &str) -> Option<ObjectKey> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = Kind::of_object(&text(&object["apiVersion"]), &text(&object["kind"]))?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or(default_namespace);
    Some(ObjectKey::new(kind, namespace, object["metadata"]["name"].as_str()?))
}
