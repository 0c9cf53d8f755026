//! The addresses of the history server: those of KubeRay's, and through them those of Ray's dashboard.

use super::events::Replay;
use super::live::{LIVE, LiveCluster, LiveClusters};
use super::replies::{self, Parameters};
use super::storage::{SessionKey, Storage, started};
use axum::Router;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, SET_COOKIE};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{Html, IntoResponse, Json, Response};
use jiff::Timestamp;
use manta_agent::network::loopback::Guard;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How many stored sessions are listed.
const LISTED: usize = 100;
/// How many sessions are kept in memory.
const KEPT: usize = 16;
/// How long a browser remembers the session that it chose.
const COOKIE_SECONDS: u32 = 600;
/// Paths that have a reply on every cluster, if an empty one.
const EMPTY: [&str; 3] = ["/api/serve/applications", "/api/v0/placement_groups", "/api/data/datasets"];

/// Everything that requests share.
pub(super) struct Server {
    storage: Storage,
    live: LiveClusters,
    dashboard: Option<PathBuf>,
    /// Under which names it is reached, on a loopback address: every page in a browser can send requests there.
    names: Option<Guard>,
    /// The sessions that were entered last.
    loaded: Mutex<VecDeque<(SessionKey, Arc<Replay>)>>,
}

/// A session that a request is about.
enum Session {
    Stored(SessionKey, Arc<Replay>),
    Live(LiveCluster),
}

impl Server {
    pub(super) fn new(storage: Storage, live: LiveClusters, dashboard: Option<PathBuf>, names: Option<Guard>) -> Self {
        Self { storage, live, dashboard, names, loaded: Mutex::default() }
    }

    fn replay(&self, key: &SessionKey) -> Option<Arc<Replay>> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.iter().find(|(known, _)| known == key).map(|(_, replay)| Arc::clone(replay))
    }

    /// Loads a session into memory, unless it is there.
    async fn load(self: &Arc<Self>, key: &SessionKey) -> Arc<Replay> {
        if let Some(replay) = self.replay(key) {
            return replay;
        }
        let (server, wanted) = (Arc::clone(self), key.clone());
        let read = move || Arc::new(Replay::of(&server.storage.event_lines(&wanted)));
        let replay = tokio::task::spawn_blocking(read).await.unwrap_or_default();
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.truncate(KEPT - 1);
        loaded.push_front((key.clone(), Arc::clone(&replay)));
        replay
    }
}

pub(super) fn router(server: Arc<Server>) -> Router {
    Router::new().fallback(handle).with_state(server)
}

async fn handle(State(server): State<Arc<Server>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if let Some(Err(why)) = server.names.as_ref().map(|names| names.check_headers(&headers)) {
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    if method != Method::GET && method != Method::HEAD {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["readz" | "livez"] => "ok".into_response(),
        ["select_cluster"] => Html(chooser(&listed(&server).await)).into_response(),
        ["clusters"] => Json(listed(&server).await).into_response(),
        ["enter_cluster", namespace, kind, name] => enter(&server, namespace, kind, name, "latest").await,
        ["enter_cluster", namespace, kind, name, session] => enter(&server, namespace, kind, name, session).await,
        ["enter_cluster", ..] => {
            (StatusCode::BAD_REQUEST, "use /enter_cluster/NAMESPACE/KIND/NAME[/SESSION]").into_response()
        }
        [] | ["index.html" | "favicon.ico" | "static" | "speedscope-1.5.3", ..] => file(&server, path),
        _ => match session_of(&server, &headers).await {
            Ok(Session::Live(cluster)) => server.live.ask(&cluster, path, query).await,
            Ok(Session::Stored(key, replay)) => answer(&server.storage, &key, &replay, path, query),
            Err(refusal) => refusal,
        },
    }
}

/// Returns the clusters that run, and the stored sessions of those that do not.
async fn listed(server: &Server) -> Value {
    let live = server.live.list().await;
    let is_live = |key: &SessionKey| {
        live.iter().any(|cluster| (&cluster.key.namespace, &cluster.key.cluster) == (&key.namespace, &key.cluster))
    };
    let stored = server.storage.sessions();
    let stored = stored.iter().filter(|key| !is_live(key)).take(LISTED).map(|key| entry(key, started(&key.session)));
    live.iter().map(|cluster| entry(&cluster.key, cluster.created)).chain(stored).collect()
}

fn entry(key: &SessionKey, created: Option<Timestamp>) -> Value {
    let mut entry = json!({
        "name": key.cluster, "namespace": key.namespace, "sessionName": key.session,
        "createTime": created.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        "createTimeStamp": created.map(Timestamp::as_second),
    });
    if let Some((kind, name)) = &key.owner {
        entry["ownerKind"] = kind.as_str().into();
        entry["ownerName"] = name.as_str().into();
    }
    entry
}

/// Enters a session: loads it, and lets the browser remember it.
async fn enter(server: &Arc<Server>, namespace: &str, kind: &str, name: &str, session: &str) -> Response {
    if !matches!(kind, "raycluster" | "rayjob" | "rayservice") {
        return (StatusCode::BAD_REQUEST, "the kind is raycluster, rayjob or rayservice").into_response();
    }
    let is_meant = |key: &SessionKey| {
        let is_named = match &key.owner {
            Some((owner_kind, owner)) if kind != "raycluster" => owner_kind == kind && owner == name,
            _ => kind == "raycluster" && key.cluster == name,
        };
        is_named && key.namespace == namespace
    };
    let wants_live = session == "latest" || session == LIVE;
    let live = if wants_live { server.live.list().await } else { Vec::new() };
    let key = match live.into_iter().find(|cluster| is_meant(&cluster.key)) {
        Some(cluster) => cluster.key,
        None => {
            let stored = server.storage.sessions();
            let found = stored.into_iter().find(|key| is_meant(key) && (session == "latest" || key.session == session));
            let Some(key) = found else {
                let text = format!("no session {session} of {kind} {namespace}/{name} is stored");
                return (StatusCode::NOT_FOUND, text).into_response();
            };
            server.load(&key).await;
            key
        }
    };
    let body = json!({"result": "success", "name": key.cluster, "namespace": key.namespace, "session": key.session});
    let mut response = Json(body).into_response();
    let (owner_kind, owner) = key.owner.clone().unwrap_or_default();
    for (name, value) in [
        ("cluster_name", &key.cluster),
        ("cluster_namespace", &key.namespace),
        ("session_name", &key.session),
        ("owner_kind", &owner_kind),
        ("owner_name", &owner),
    ] {
        let cookie = format!("{name}={value}; Path=/; Max-Age={COOKIE_SECONDS}; SameSite=Lax");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }
    response
}

/// Returns the session in the cookies of a request.
async fn session_of(server: &Server, headers: &HeaderMap) -> Result<Session, Response> {
    let cookies: Vec<&str> = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).collect();
    let cookie = |name: &str| {
        let pairs = cookies.iter().flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let found = pairs.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.to_owned()).filter(|value| !value.is_empty())
    };
    let (Some(cluster), Some(namespace), Some(session)) =
        (cookie("cluster_name"), cookie("cluster_namespace"), cookie("session_name"))
    else {
        return Err((StatusCode::BAD_REQUEST, "choose a cluster first: /select_cluster").into_response());
    };
    if session == LIVE {
        let found = server.live.get(&namespace, &cluster).await;
        return found.map(Session::Live).ok_or_else(not_loaded);
    }
    let key = SessionKey { namespace, cluster, session, owner: cookie("owner_kind").zip(cookie("owner_name")) };
    match server.replay(&key) {
        Some(replay) => Ok(Session::Stored(key, replay)),
        None => Err(not_loaded()),
    }
}

fn not_loaded() -> Response {
    let text = "session snapshot not in cache; reload via /enter_cluster";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Replies for a session that is over.
fn answer(storage: &Storage, key: &SessionKey, replay: &Replay, path: &str, query: &str) -> Response {
    let parameters = Parameters::parse(query);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let found = |reply: Option<Value>| reply.map_or_else(not_found, |reply| Json(reply).into_response());
    match parts.as_slice() {
        ["nodes"] => Json(replies::nodes(replay, parameters.get("view"))).into_response(),
        ["nodes", id] => found(replies::node(replay, id)),
        ["events"] => Json(replies::events(&storage.event_log_lines(key), parameters.get("job_id"))).into_response(),
        ["logical", "actors"] => Json(replies::actors(replay)).into_response(),
        ["logical", "actors", id] => found(replies::actor(replay, id)),
        ["api", "jobs"] => Json(replies::jobs(replay, &stored_jobs(storage, key))).into_response(),
        ["api", "jobs", id] => found(replies::job(replay, &stored_jobs(storage, key), id)),
        ["api", "cluster_status"] => {
            Json(replies::cluster_status(replay, parameters.get("format") == Some("1"))).into_response()
        }
        ["api", "v0", "tasks"] => Json(replies::tasks(replay, &parameters)).into_response(),
        ["api", "v0", "tasks", "summarize"] => Json(replies::task_summary(replay, &parameters)).into_response(),
        ["api", "v0", "tasks", "timeline"] => Json(replies::timeline(replay, &parameters)).into_response(),
        ["api", "v0", "logs"] => match storage.logs(key, parameters.get("node_id").unwrap_or_default()) {
            Some(files) => Json(replies::logs(&files, parameters.get("glob"))).into_response(),
            None => (StatusCode::BAD_REQUEST, "node_id is required").into_response(),
        },
        ["api", "v0", "logs", "file"] => log_file(storage, key, &parameters),
        ["api", "v0", "logs", "stream"] => (StatusCode::NOT_IMPLEMENTED, "the session is over").into_response(),
        ["api", "grafana_health" | "prometheus_health"] => StatusCode::NOT_IMPLEMENTED.into_response(),
        _ => snapshot(storage, key, path, query),
    }
}

/// Returns the dashboard's list of jobs, if the collector was told to fetch it.
fn stored_jobs(storage: &Storage, key: &SessionKey) -> Value {
    let stored = storage.snapshot(key, "/api/jobs/", "").unwrap_or_default();
    serde_json::from_slice(&stored).unwrap_or_default()
}

fn not_found() -> Response {
    StatusCode::NOT_FOUND.into_response()
}

fn log_file(storage: &Storage, key: &SessionKey, parameters: &Parameters) -> Response {
    let (Some(node), Some(file)) = (parameters.get("node_id"), parameters.get("filename")) else {
        return (StatusCode::BAD_REQUEST, "node_id and filename are required").into_response();
    };
    let Some(text) = storage.log(key, node, file) else { return not_found() };
    let count = parameters.get("lines").and_then(|count| count.parse().ok()).unwrap_or(-1);
    let lines = replies::last_lines(&text, count).to_vec();
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], lines).into_response()
}

/// Replies with what the collector fetched from the dashboard while the cluster ran.
fn snapshot(storage: &Storage, key: &SessionKey, path: &str, query: &str) -> Response {
    if let Some(stored) = storage.snapshot(key, path, query) {
        return ([(CONTENT_TYPE, "application/json")], stored).into_response();
    }
    match path {
        "/timezone" => Json(json!({"offset": "+00:00", "value": "Etc/UTC"})).into_response(),
        _ if EMPTY.iter().any(|known| path.starts_with(known)) => Json(json!({})).into_response(),
        _ => not_found(),
    }
}

/// Replies with a file of Ray's dashboard.
fn file(server: &Server, path: &str) -> Response {
    let Some(folder) = &server.dashboard else {
        return match path {
            "/" => (StatusCode::SEE_OTHER, [("location", "/select_cluster")]).into_response(),
            _ => not_found(),
        };
    };
    let path = Path::new(path.trim_start_matches('/'));
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return not_found();
    }
    let path = if path.as_os_str().is_empty() { Path::new("index.html") } else { path };
    let kind = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("ico") => "image/x-icon",
        _ => "application/octet-stream",
    };
    match std::fs::read(folder.join(path)) {
        Ok(contents) => ([(CONTENT_TYPE, kind)], contents).into_response(),
        Err(_) => not_found(),
    }
}

/// Returns a page that lets a user choose a session.
fn chooser(clusters: &Value) -> String {
    let row = |cluster: &Value| {
        let text = |name: &str| escaped(cluster[name].as_str().unwrap_or_default());
        let (kind, name) = match cluster["ownerKind"].as_str() {
            Some(kind) => (escaped(kind), text("ownerName")),
            None => ("raycluster".to_owned(), text("name")),
        };
        let url = format!("/enter_cluster/{}/{kind}/{name}/{}", text("namespace"), text("sessionName"));
        format!(
            "<tr><td><a href=\"#\" data-enter=\"{url}\">{}</a></td><td>{}</td><td>{kind} {name}</td><td>{}</td><td>{}</td></tr>\n",
            text("name"),
            text("namespace"),
            text("sessionName"),
            text("createTime"),
        )
    };
    let rows: String = clusters.as_array().into_iter().flatten().map(row).collect();
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Ray clusters</title>\n\
         <style>body {{ font: 14px sans-serif; margin: 2em }} td, th {{ padding: 0.3em 1em; text-align: left }}</style>\n\
         <h1>Ray clusters</h1>\n<table>\n<tr><th>Cluster<th>Namespace<th>Of<th>Session<th>Started</tr>\n{rows}</table>\n\
         <script>\nfor (const link of document.querySelectorAll('[data-enter]')) {{\n\
         \x20 link.onclick = async (event) => {{\n    event.preventDefault();\n\
         \x20   const reply = await fetch(link.dataset.enter);\n\
         \x20   if (reply.ok) location.href = '/'; else alert(await reply.text());\n  }};\n}}\n</script>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_page_are_no_markup() {
        let page = chooser(&json!([{"name": "<b>", "namespace": "\"n\"", "sessionName": "s", "createTime": "t"}]));
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>") && page.contains("&quot;n&quot;"), "{page}");
    }
}
