//! The files of the page, which are part of the binary.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Method, Request, StatusCode, header};

/// Embeds files by name.
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("web/", $name)))),+]
    };
}

/// Every file that is served, and nothing else is: no path ever reaches the disk.
const FILES: &[(&str, &str)] = files![
    "index.html",
    "page.css",
    "icon.svg",
    "app.js",
    "dom.js",
    "format.js",
    "server.js",
    "store.js",
    "keys.js",
    "overview.js",
    "table.js",
    "object.js",
    "cluster.js",
    "job.js",
    "service.js",
    "cronjob.js",
    "operator.js",
    "log.js",
    "terminal.js",
    "screen.js",
    "actions.js",
    "create.js",
    "explain.js",
];

/// Names a folder to read the files from instead, so that a change of a script needs no build.
#[cfg(debug_assertions)]
const FOLDER_VARIABLE: &str = "MANTA_PAGE_FILES";

/// Serves a file by its exact name; every view has an address of its own, and all get the same document.
pub(super) async fn serve(request: Request<Body>) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    let is_get = request.method() == Method::GET || request.method() == Method::HEAD;
    if !is_get && !path.starts_with("api/") {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET is served here\n".into());
    }
    let name = if path.is_empty() { "index.html" } else { path };
    match FILES.iter().find(|(file, _)| *file == name) {
        Some((name, contents)) => text(StatusCode::OK, media_type(name), current(name, contents)),
        None => text(StatusCode::NOT_FOUND, "text/plain", "there is no such file\n".into()),
    }
}

#[cfg(debug_assertions)]
fn current(name: &str, embedded: &'static str) -> Body {
    let folder = std::env::var_os(FOLDER_VARIABLE);
    match folder.and_then(|folder| std::fs::read(std::path::Path::new(&folder).join(name)).ok()) {
        Some(changed) => changed.into(),
        None => embedded.into(),
    }
}

#[cfg(not(debug_assertions))]
fn current(_: &str, embedded: &'static str) -> Body {
    embedded.into()
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

fn text(status: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page/web");
        let mut files: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut embedded: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        files.sort();
        embedded.sort_unstable();
        assert_eq!(embedded, files);
    }

    #[test]
    fn scripts_never_make_markup_from_text() {
        for (name, contents) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!contents.contains(sink), "{name} uses {sink}");
            }
        }
        let (_, document) = FILES.iter().find(|(name, _)| *name == "index.html").unwrap();
        for forbidden in ["http://", "https://", "<style", "style=", "onclick", "<script>"] {
            assert!(!document.contains(forbidden), "index.html contains {forbidden}");
        }
    }
}
