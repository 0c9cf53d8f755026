//! HTTP: routes requests to the verbs and encodes their results.
//!
//! Kubernetes' paths follow one pattern for all kinds, and kinds come and go, so there is a single handler
//! that takes the path apart instead of a route per kind.

mod documents;
mod duplicate_fields;
mod negotiate;
mod path;
mod read;
mod respond;
mod stream;
#[cfg(test)]
mod tests;
mod usage;
mod watch;
mod write;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::FutureExt;
use http::{Method, StatusCode, header};
use tokio_util::sync::CancellationToken;

use crate::audit::Audit;
use crate::auth::{Attributes, User, impersonate};
use crate::controllers::supervisor;
use crate::discovery;
use crate::error::ApiError;
use crate::metrics;
use crate::ops::{Cluster, Target};
use crate::registry::Resource;
use crate::webhook;
use path::{Query, RequestInfo, Route};
pub(crate) use stream::Backend;

/// The largest accepted request body.
pub(crate) const BODY_LIMIT: usize = 3 << 20;

/// The state of the request handler.
#[derive(Clone)]
pub(crate) struct ApiContext {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) stop: CancellationToken,
    pub(crate) audit: Option<Arc<Audit>>,
}

/// Returns the whole API as a router. Requests without a `User` extension must bring credentials.
pub(crate) fn router(context: ApiContext) -> Router {
    Router::new().fallback(handle).with_state(context)
}

async fn handle(State(context): State<ApiContext>, request: Request) -> Response {
    let begun = context.cluster.clock.now();
    let uri = request.uri().clone();
    let user = identify(&context.cluster, &request);
    let (route, query) = (path::route(uri.path()), Query::parse(uri.query().unwrap_or("")));
    let attributes = match &route {
        Some(Route::Resource(info)) => attributes(&request, info, query.as_ref()),
        _ => plain_attributes(&request),
    };
    let response = match &user {
        Ok(user) => {
            let response = answer(&context, request, route, query, user, &attributes);
            AssertUnwindSafe(response).catch_unwind().await.unwrap_or_else(|panic| {
                context.cluster.panics.count("http");
                let panic = supervisor::message_of(&*panic);
                tracing::error!(path = uri.path(), verb = attributes.verb, panic, "a request panicked");
                Err(ApiError::internal("the request panicked; the server's log has the details"))
            })
        }
        Err(error) => Err(error.clone()),
    };
    let response = response.unwrap_or_else(|error| respond::failure(&error));
    if let Some(audit) = &context.audit {
        let user = user.unwrap_or_else(|_| User::anonymous());
        audit.record(&user, &attributes, &uri, response.status(), begun, context.cluster.clock.now());
    }
    response
}

/// Authenticates a request, and returns the user that it acts as.
fn identify(cluster: &Cluster, request: &Request) -> Result<User, ApiError> {
    impersonate(authenticate(cluster, request)?, request.headers(), cluster)
}

fn authenticate(cluster: &Cluster, request: &Request) -> Result<User, ApiError> {
    if let Some(user) = request.extensions().get::<User>() {
        return Ok(user.clone());
    }
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token =
        token.and_then(|value| value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")));
    let token = token.map(|(_, token)| token);
    match token {
        Some(token) => cluster.authority.user_of_token(token.trim(), cluster).ok_or_else(ApiError::unauthorized),
        None if cluster.authority.authenticate => Ok(User::anonymous()),
        None => Ok(User::admin()),
    }
}

async fn answer(
    context: &ApiContext,
    request: Request,
    route: Option<Route>,
    query: Option<Query>,
    user: &User,
    attributes: &Attributes,
) -> Result<Response, ApiError> {
    let cluster = &context.cluster;
    let Some(route) = route else {
        return Err(ApiError::bad_request("the path is not properly escaped"));
    };
    let Some(query) = query else {
        let why = "a query parameter is not properly escaped: after % must follow the two hexadecimal digits of a \
                   byte, and the bytes must be UTF-8";
        return Err(ApiError::bad_request(why));
    };
    match route {
        Route::Plain(parts) => {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            if cluster.authority.rbac || !is_open(&parts) {
                require(cluster, user, attributes)?;
            }
            plain(cluster, &request, &parts)
        }
        Route::Resource(info) if info.group == usage::GROUP && cluster.node().is_some() => {
            require(cluster, user, attributes)?;
            if !matches!(attributes.verb.as_str(), "get" | "list") {
                return Err(ApiError::method_not_allowed());
            }
            let value = usage::read(cluster, &info, &query).await?;
            Ok(respond::value(StatusCode::OK, JSON, &value))
        }
        Route::Resource(info) => {
            let now = cluster.registry.now();
            let Some(resource) = now.find(&info.group, &info.version, &info.resource).cloned() else {
                require(cluster, user, attributes)?;
                let known =
                    now.resources.iter().any(|known| *known.group == *info.group && *known.version == *info.version);
                return if known { Err(ApiError::no_such_path()) } else { Ok(not_found()) };
            };
            if resource.namespaced != info.namespace.is_some() && (info.namespace.is_some() || info.name.is_some()) {
                return Ok(not_found());
            }
            require(cluster, user, attributes)?;
            let mut answer = resource_request(context, request, &resource, info, query, user).await;
            if let Ok(response) = &mut answer
                && &*resource.table == "endpoints"
            {
                let warning = "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
                response.headers_mut().append(header::WARNING, http::HeaderValue::from_static(warning));
            }
            answer
        }
    }
}

/// Returns whether a path is served without authorization: discovery and health.
fn is_open(parts: &[&str]) -> bool {
    matches!(parts, ["" | "version" | "healthz" | "livez" | "readyz" | "api" | "apis" | "openapi", ..])
}

fn require(cluster: &Cluster, user: &User, attributes: &Attributes) -> Result<(), ApiError> {
    let authority = &cluster.authority;
    if !authority.rbac && authority.authenticate && user.is_anonymous() {
        return Err(ApiError::unauthorized());
    }
    authority.allows(user, attributes, cluster).map(|_| ()).map_err(|_| {
        if attributes.resource.is_empty() {
            return ApiError::forbidden_path(&user.name, &attributes.verb, &attributes.path);
        }
        let named =
            crate::error::Named { group: &attributes.group, what: &attributes.resource, name: &attributes.name };
        let scope = match attributes.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let what = match attributes.subresource.as_str() {
            "" => attributes.resource.clone(),
            below => format!("{}/{below}", attributes.resource),
        };
        ApiError::forbidden(
            named,
            &format!(
                "User {:?} cannot {} resource {what:?} in API group {:?} {scope}",
                user.name, attributes.verb, attributes.group
            ),
        )
    })
}

fn plain_attributes(request: &Request) -> Attributes {
    Attributes {
        verb: request.method().as_str().to_lowercase(),
        path: request.uri().path().to_owned(),
        ..Attributes::default()
    }
}

fn attributes(request: &Request, info: &RequestInfo, query: Option<&Query>) -> Attributes {
    let named = info.name.is_some();
    let verb = match *request.method() {
        Method::GET | Method::HEAD if query.is_some_and(|query| query.flag("watch")) => "watch",
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    };
    Attributes {
        verb: verb.into(),
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone().unwrap_or_default(),
        namespace: info.namespace.clone().unwrap_or_default(),
        name: info.name.clone().unwrap_or_default(),
        path: String::new(),
    }
}

/// Serves the non-resource paths.
fn plain(cluster: &Cluster, request: &Request, parts: &[&str]) -> Result<Response, ApiError> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    let now = cluster.registry.now();
    let headers = request.headers();
    let aggregated = negotiate::aggregated(headers);
    let measures = cluster.node().is_some();
    let value = match (parts, aggregated) {
        (["apis"], Some(version)) if measures => {
            let mut all = discovery::aggregated(&now, false, version);
            if let Some(items) = all["items"].as_array_mut() {
                items.push(usage::aggregated());
            }
            return Ok(aggregate(&all, version));
        }
        (["apis"], None) if measures => {
            let mut all = discovery::groups(&now);
            if let Some(groups) = all["groups"].as_array_mut() {
                groups.push(usage::group());
            }
            Some(all)
        }
        (["apis", usage::GROUP], _) if measures => Some(usage::group()),
        (["apis", usage::GROUP, "v1beta1"], _) if measures => Some(usage::resources()),
        (["api"], Some(version)) => return Ok(aggregate(&discovery::aggregated(&now, true, version), version)),
        (["apis"], Some(version)) => return Ok(aggregate(&discovery::aggregated(&now, false, version), version)),
        (["api"], None) => Some(discovery::core_versions()),
        (["apis"], None) => Some(discovery::groups(&now)),
        (["api", "v1"], _) => discovery::resources(&now, "", "v1"),
        (["apis", group], _) => discovery::group(&now, group),
        (["apis", group, version], _) => discovery::resources(&now, group, version),
        (["version"], _) => Some(discovery::version()),
        (["healthz" | "livez" | "readyz", ..], _) => return Ok(health(cluster, request, parts)),
        (["metrics"], _) => {
            let text = metrics::render(cluster);
            return Ok(respond::raw(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into()));
        }
        ([".well-known", "openid-configuration"], _) => Some(cluster.authority.openid_configuration()),
        (["openid", "v1", "jwks"], _) => {
            let keys = serde_json::to_vec(&cluster.authority.key_set()).unwrap_or_default();
            return Ok(respond::raw(StatusCode::OK, "application/jwk-set+json", keys.into()));
        }
        (["openapi", version, rest @ ..], _) => {
            return Ok(documents::serve(&now, version, rest, headers).unwrap_or_else(not_found));
        }
        ([""], _) => Some(discovery::root(&now)),
        _ => None,
    };
    match value {
        Some(value) => Ok(respond::value(StatusCode::OK, negotiate::accepted(headers).unwrap_or(JSON), &value)),
        None => Ok(not_found()),
    }
}

/// Serves the health checks: a server whose store failed is alive, but not ready.
fn health(cluster: &Cluster, request: &Request, parts: &[&str]) -> Response {
    let failure = cluster.store.failure().filter(|_| parts[0] != "livez");
    let checks = [("ping", None), ("store", failure.map(|failure| failure.to_string()))];
    let wanted: Vec<_> = checks.into_iter().filter(|(name, _)| parts.get(1).is_none_or(|part| part == name)).collect();
    if wanted.is_empty() {
        return not_found();
    }
    let healthy = wanted.iter().all(|(_, failure)| failure.is_none());
    let verbose = Query::parse(request.uri().query().unwrap_or("")).is_some_and(|query| query.flag("verbose"));
    let status = if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    let mut text = String::new();
    if healthy && !verbose {
        text.push_str("ok");
    } else {
        for (name, failure) in &wanted {
            text.push_str(&match failure {
                None => format!("[+]{name} ok\n"),
                Some(why) => format!("[-]{name} failed: {why}\n"),
            });
        }
        text.push_str(&format!("{} check {}\n", parts[0], if healthy { "passed" } else { "failed" }));
    }
    respond::raw(status, "text/plain; charset=utf-8", text.into())
}

const JSON: negotiate::Accepted =
    negotiate::Accepted { view: negotiate::View::Object, format: negotiate::Format::Json };

fn aggregate(value: &serde_json::Value, version: &'static str) -> Response {
    let kind = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    respond::raw(StatusCode::OK, kind, serde_json::to_vec(value).unwrap_or_default().into())
}

/// Returns the real server's response to an unknown path.
fn not_found() -> Response {
    respond::raw(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".into())
}

async fn resource_request(
    context: &ApiContext,
    request: Request<Body>,
    resource: &Arc<Resource>,
    info: RequestInfo,
    query: Query,
    user: &User,
) -> Result<Response, ApiError> {
    let cluster = &context.cluster;
    let method = request.method().clone();
    if info.name.is_some() && info.subresource.is_none() && !resource.is_stored() {
        return Ok(not_found());
    }
    let accepted = negotiate::accepted(request.headers());
    let namespace = info.namespace.as_deref().unwrap_or("");
    let reading = method == Method::GET || method == Method::HEAD;
    let Some(name) = info.name.as_deref() else {
        return match method {
            _ if reading && !resource.is_stored() => Err(ApiError::method_not_allowed()),
            _ if reading && query.flag("watch") => {
                watch::watch(cluster, resource, &info, &query, accepted?, context.stop.clone()).await
            }
            _ if reading => read::list(cluster, resource, &info, &query, accepted?).await,
            Method::POST if resource.namespaced && info.namespace.is_none() => Err(ApiError::method_not_allowed()),
            Method::POST => write::create(cluster, resource, namespace, request, &query, accepted?, user).await,
            Method::DELETE if resource.verbs().contains(&"deletecollection") => {
                write::delete_collection(cluster, resource, &info, request, &query, user).await
            }
            _ => Err(ApiError::method_not_allowed()),
        };
    };
    let target = Target { resource, namespace, name };
    if let Some(subresource) = info.subresource.as_deref() {
        let Some(known) = resource.subresources().into_iter().find(|known| known.name == subresource) else {
            return Err(ApiError::no_such_path());
        };
        let verb = match method {
            _ if reading => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        // A proxy passes on whatever the server behind it understands.
        let is_passed_on = subresource == "proxy" && method == Method::OPTIONS;
        if !known.verbs.contains(&verb) && !is_passed_on {
            return Err(ApiError::method_not_allowed());
        }
        return match subresource {
            "log" | "exec" | "attach" | "portforward" | "proxy" => {
                if subresource != "log" {
                    let kind = known.kind.map_or("", |(_, _, kind)| kind);
                    let options = stream::options(kind, &info, &query);
                    webhook::connection(cluster, target, subresource, options, user).await?;
                }
                stream::serve(cluster, target, subresource, &info, request, &query).await
            }
            _ => write::subresource(cluster, target, subresource, request, &query, user).await,
        };
    }
    match method {
        _ if reading && query.flag("watch") => {
            watch::watch(cluster, resource, &info, &query, accepted?, context.stop.clone()).await
        }
        _ if reading => read::get(cluster, target, accepted?).await,
        Method::PUT => write::update(cluster, target, None, request, &query, user).await,
        Method::PATCH => write::patch(cluster, target, None, request, &query, user).await,
        Method::DELETE => write::delete(cluster, target, request, &query, user).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}
