//! Attacks: other sites, rebound names, other users of the machine, and text that would like to be markup.

use crate::objects::{cluster_spec, event, failed_job, job_spec, object, plant_cluster, pod, ready};
use crate::world::{Served, World, check_complaints};
use anyhow::{Context, Result, ensure};
use http::HeaderMap;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

async fn status(
    world: &World,
    method: Method,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<(StatusCode, HeaderMap, String)> {
    let mut request = reqwest::Client::new().request(method.clone(), format!("{}{path}", world.page.origin()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let reply = request.send().await?;
    let (status, headers) = (reply.status(), reply.headers().clone());
    Ok((status, headers, reply.text().await?))
}

pub(crate) async fn requests_without_the_secret_are_refused(world: &World) -> Result<()> {
    let secret = world.page.secret();
    let bearer = format!("Bearer {secret}");
    let paths = ["/api/session", "/api/templates", "/api/live", "/api/exec"];
    for path in paths {
        for wrong in ["", "Bearer ", "Bearer 00", &format!("Basic {secret}"), &format!("Bearer {}", &secret[..63])] {
            let (code, _, body) = status(world, Method::GET, path, &[("authorization", wrong)]).await?;
            ensure!(code == StatusCode::UNAUTHORIZED, "{path} {wrong}: {code}");
            ensure!(!body.contains(secret));
        }
        // A cookie or a parameter is no way in: browsers send cookies to all ports of a host.
        let cookie = format!("session={secret}; manta={secret}");
        let (code, ..) = status(world, Method::GET, &format!("{path}?key={secret}"), &[("cookie", &cookie)]).await?;
        ensure!(code == StatusCode::UNAUTHORIZED, "{path}");
    }
    let (code, headers, _) = status(world, Method::GET, "/api/session", &[("authorization", &bearer)]).await?;
    ensure!(code == StatusCode::OK);
    ensure!(headers["cache-control"] == "no-store" && !headers.contains_key("set-cookie"));
    let log = std::fs::read_to_string(world.page.process.log_path())?;
    ensure!(log.matches(secret).count() == 1, "the secret is printed once, in the address");
    // The printed address works only in a browser that keeps it: nothing of it is sent to other pages.
    let (_, headers, document) = status(world, Method::GET, "/", &[]).await?;
    let policy = headers["content-security-policy"].to_str()?;
    for part in
        ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "require-trusted-types-for 'script'"]
    {
        ensure!(policy.contains(part), "{policy}");
    }
    ensure!(!policy.contains("unsafe"), "{policy}");
    ensure!(headers["referrer-policy"] == "no-referrer" && headers["x-frame-options"] == "DENY");
    ensure!(!document.contains(secret));
    Ok(())
}

/// An account that every machine has and that owns nothing.
const NOBODY: u32 = 65534;

/// Returns why a scenario cannot run.
pub(crate) fn lacks(scenario: &str) -> Option<String> {
    let is_root = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t0"));
    let needs_root = scenario.ends_with("other_accounts_are_refused");
    (needs_root && !is_root).then(|| "only root can act as another account".to_owned())
}

/// Everybody can read the command line of the browser that `manta page` starts, with the secret.
pub(crate) async fn other_accounts_are_refused(world: &World) -> Result<()> {
    let allowed = Served::start(
        world.folder.path(),
        "allowed",
        &world.plane.kubeconfig_path(),
        &["--allow-user", &NOBODY.to_string()],
    )
    .await?;
    for (page, expect) in [(&world.page, "HTTP/1.1 403 Forbidden"), (&allowed, "HTTP/1.1 200 OK")] {
        let (address, port) = page.host().split_once(':').context("a port")?;
        let secret = page.secret();
        let request = format!(
            "GET /api/session HTTP/1.1\\r\\nHost: localhost\\r\\nAuthorization: Bearer {secret}\\r\\nConnection: close\\r\\n\\r\\n"
        );
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec 3<>/dev/tcp/{address}/{port}; printf '{request}' >&3; cat <&3")]);
        let answer = shell.uid(NOBODY).gid(NOBODY).current_dir("/").output()?.stdout;
        let answer = String::from_utf8(answer)?;
        ensure!(answer.lines().next() == Some(expect), "{answer}");
    }
    Ok(())
}

pub(crate) async fn other_origins_are_refused(world: &World) -> Result<()> {
    let bearer = format!("Bearer {}", world.page.secret());
    let own = world.page.origin().to_owned();
    let check = async |method: Method, path: &str, headers: &[(&'static str, &str)], expect: bool| -> Result<()> {
        let headers = [&[("authorization", bearer.as_str())], headers].concat();
        let (code, ..) = status(world, method, path, &headers).await?;
        ensure!((code != StatusCode::FORBIDDEN) == expect, "{path} {headers:?}: {code}");
        Ok(())
    };
    check(Method::GET, "/api/session", &[("origin", &own)], true).await?;
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost:8265", "file://"] {
        check(Method::GET, "/api/session", &[("origin", origin)], false).await?;
        check(Method::POST, "/api/act", &[("origin", origin)], false).await?;
        // A WebSocket is not subject to the same-origin policy, so the server has to look.
        let mut request = format!("ws://{}/api/live", world.page.host()).into_client_request()?;
        request.headers_mut().insert("origin", origin.parse()?);
        let protocols = format!("manta.v1, session.{}", world.page.secret());
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse()?);
        let refused = tokio_tungstenite::connect_async(request).await;
        ensure!(refused.is_err(), "{origin} opened a WebSocket");
    }
    for site in ["cross-site", "same-site"] {
        check(Method::POST, "/api/act", &[("sec-fetch-site", site)], false).await?;
        check(Method::GET, "/app.js", &[("sec-fetch-site", site), ("sec-fetch-dest", "script")], false).await?;
        check(
            Method::GET,
            "/",
            &[("sec-fetch-site", site), ("sec-fetch-dest", "iframe"), ("sec-fetch-mode", "navigate")],
            false,
        )
        .await?;
    }
    // No answer allows another origin to read it.
    let (_, headers, _) = status(world, Method::OPTIONS, "/api/session", &[("origin", &own)]).await?;
    ensure!(!headers.contains_key("access-control-allow-origin"));
    Ok(())
}

pub(crate) async fn rebound_names_are_refused(world: &World) -> Result<()> {
    let bearer = format!("Bearer {}", world.page.secret());
    for host in
        ["evil.example", "evil.example:80", "127.0.0.1.nip.io", "localhost.evil.example", "x@localhost", "10.0.0.1"]
    {
        let (code, _, body) =
            status(world, Method::GET, "/api/session", &[("host", host), ("authorization", &bearer)]).await?;
        ensure!(code == StatusCode::FORBIDDEN && !body.contains("viewer"), "{host}: {code} {body}");
        let (code, _, body) = status(world, Method::GET, "/", &[("host", host)]).await?;
        ensure!(code == StatusCode::FORBIDDEN && !body.contains("<html"), "{host}: {code}");
    }
    // The names of dashboards cannot be guessed, and lead nowhere else.
    let (code, _, body) = status(world, Method::GET, "/api/session", &[("host", "ray-0.localhost")]).await?;
    ensure!(code == StatusCode::UNAUTHORIZED, "{code} {body}");
    Ok(())
}

pub(crate) async fn no_path_leads_out_of_the_files(world: &World) -> Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for path in [
        "/../Cargo.toml",
        "/..%2fCargo.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/./page/mod.rs",
        "/web/../../mod.rs",
        "/app.js/../mod.rs",
        "/app.js%00.html",
        "/\\..\\mod.rs",
        "/api/../app.js",
        "http://127.0.0.1:1/",
    ] {
        // Sent as it is: clients would resolve the dots.
        let mut stream = tokio::net::TcpStream::connect(world.page.host()).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", world.page.host());
        stream.write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        let code = reply.split(' ').nth(1).context("no status")?.to_owned();
        ensure!(["400", "403", "404", "401"].contains(&code.as_str()) || path.starts_with("http:"), "{path}: {code}");
        ensure!(
            !reply.contains("root:") && !reply.contains("[package]") && !reply.contains("pub(crate)"),
            "{path}: {reply}"
        );
    }
    Ok(())
}

/// Names become parts of paths at the API server; the page passes on no path of a browser's choice.
pub(crate) async fn no_name_leads_to_another_path(world: &World) -> Result<()> {
    let ask = async |path: &str, body: Value| -> Result<(StatusCode, String)> {
        let request = reqwest::Client::new().post(format!("{}{path}", world.page.origin()));
        let reply = request.bearer_auth(world.page.secret()).body(body.to_string()).send().await?;
        Ok((reply.status(), reply.text().await?))
    };
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}";
    for wrong in ["default/pods", "../../../../api/v1/namespaces/default/secrets", "x?watch=1", "%2e%2e", ".."] {
        for (path, body) in [
            ("/api/explain", json!({"kind": "RayJob", "namespace": wrong, "name": "a"})),
            ("/api/explain", json!({"kind": "RayJob", "namespace": "default", "name": wrong})),
            ("/api/act", json!({"kind": "RayJob", "namespace": wrong, "name": "a", "uid": "u", "action": "delete"})),
            (
                "/api/act",
                json!({"kind": "RayJob", "namespace": "default", "name": wrong, "uid": "u", "action": "delete"}),
            ),
            ("/api/records", json!({"namespace": wrong})),
            ("/api/plan", json!({"namespace": wrong})),
            ("/api/rights", json!({"namespace": wrong})),
            ("/api/dashboard", json!({"namespace": "default", "cluster": wrong})),
            ("/api/create", json!({"namespace": wrong, "text": map})),
            (
                "/api/create",
                json!({"namespace": "default", "text": format!("{map}\n").replace("a}", &format!("a, namespace: {}}}", json!(wrong)))}),
            ),
        ] {
            let (code, reply) = ask(path, body.clone()).await?;
            ensure!(
                code == StatusCode::BAD_REQUEST && reply.contains("is no name of an object"),
                "{path} {body}: {code} {reply}"
            );
        }
    }
    Ok(())
}

/// Serves a page of another origin on loopback, as a dashboard or a local development server would.
async fn other_site() -> Result<String> {
    let router = axum::Router::new().fallback(|| async { axum::response::Html("<h1>another site</h1>") });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}/"))
}

pub(crate) async fn other_sites_in_the_browser_get_nothing(world: &World) -> Result<()> {
    let tab = world.browser.open(&other_site().await?).await?;
    let own = world.page.origin();
    let secret = world.page.secret();
    // Even with the secret, which it cannot know.
    let fetch = format!(
        "fetch('{own}/api/session', {{headers: {{Authorization: 'Bearer {secret}'}}}}).then((r) => r.text(), (e) => 'refused')"
    );
    ensure!(tab.eval(&fetch).await? == "refused");
    let blind = format!(
        "fetch('{own}/api/act', {{method: 'POST', mode: 'no-cors', body: '{{}}'}}).then((r) => r.type + r.status, () => 'refused')"
    );
    let blind = tab.eval(&blind).await?;
    ensure!(blind == "opaque0" || blind == "refused", "{blind}");
    let socket = format!(
        "new Promise((done) => {{ const s = new WebSocket('ws://{}/api/live', ['manta.v1', 'session.{secret}']); s.onopen = () => done('open'); s.onerror = () => done('refused'); }})",
        world.page.host()
    );
    ensure!(tab.eval(&socket).await? == "refused");
    let frame = format!(
        "new Promise((done) => {{ const f = document.createElement('iframe'); f.onload = () => {{ try {{ done(String(f.contentDocument)); }} catch {{ done('null'); }} }}; f.src = '{own}/'; document.body.append(f); }})"
    );
    ensure!(tab.eval(&frame).await? == "null", "the page cannot be framed");
    let script = format!(
        "new Promise((done) => {{ const s = document.createElement('script'); s.onload = () => done('loaded'); s.onerror = () => done('refused'); s.src = '{own}/app.js'; document.body.append(s); }})"
    );
    ensure!(tab.eval(&script).await? == "refused");
    Ok(())
}

/// Would run, fetch or frame something, if it ever became markup.
const MARKUP: &str =
    "<img src=x onerror=\"window.attacked = 1\"><script>window.attacked = 1</script><iframe src=/></iframe>";

pub(crate) async fn text_never_becomes_markup(world: &World) -> Result<()> {
    let namespace = world.namespace("markup").await?;
    let mut status = ready(1, 1);
    status["state"] = MARKUP.into();
    status["reason"] = MARKUP.into();
    status["conditions"][0]["message"] = MARKUP.into();
    let mut cluster = object("RayCluster", &namespace, "target", &cluster_spec(&[]), &status);
    cluster["metadata"]["annotations"] = json!({"note": MARKUP});
    cluster["metadata"]["labels"] = json!({"javascript": "alert"});
    world.create(cluster).await?;
    let mut worker = pod("target-pod", "target", "worker", "g", &crate::objects::Is::Failing);
    worker["status"]["containerStatuses"][0]["state"]["waiting"]["message"] = MARKUP.into();
    worker["status"]["message"] = MARKUP.into();
    world.create_pod(&namespace, worker).await?;
    world.create_event(&namespace, event("RayCluster", &namespace, "target", "Warning", "Bad", MARKUP)).await?;
    let mut failed = failed_job();
    failed["message"] = format!("exit code 1\nTraceback (most recent call last)\n{MARKUP}").into();
    let mut spec = job_spec();
    spec["entrypoint"] = MARKUP.into();
    world.create(object("RayJob", &namespace, "job", &spec, &failed)).await?;

    let tab = world.open().await?;
    tab.fill("#search", "markup/").await?;
    tab.sees(".table-space .state", "<img src=x").await?;
    tab.eval(&format!("location.hash = '#/RayCluster/{namespace}/target'")).await?;
    tab.sees(".event", "<script>").await?;
    tab.eval("document.querySelector('button.cell').click()").await?;
    tab.sees(".pod", "<iframe").await?;
    tab.eval("document.querySelector('details.card').open = true").await?;
    tab.sees(".raw", "onerror").await?;
    tab.eval(&format!("location.hash = '#/RayJob/{namespace}/job'")).await?;
    tab.sees(".traceback", "<script>").await?;
    tab.eval("location.hash = '#/RayCluster/%3Cimg%20src=x%20onerror=alert(1)%3E/%22%3E%3Cscript%3E'").await?;
    tab.sees("h1", "\"><script>").await?;
    let found = tab.eval("[window.attacked, document.querySelectorAll('main img, main iframe, main script').length, document.scripts.length]").await?;
    ensure!(found == json!([null, 0, 1]), "{found}");
    // And if a script tried, the browser would refuse.
    let sink = tab.eval("(() => { try { document.body.insertAdjacentHTML('beforeend', '<p>'); return 'made'; } catch { return 'refused'; } })()").await?;
    ensure!(sink == "refused", "{sink}");
    // Only the attempt above is refused.
    let complaints = tab.complaints();
    ensure!(complaints.iter().all(|text| text.contains("TrustedHTML")), "{complaints:?}");
    Ok(())
}

pub(crate) async fn output_never_becomes_markup(world: &World) -> Result<()> {
    let namespace = world.namespace("output").await?;
    plant_cluster(world, &namespace, "loud").await?;
    let tab = world.open_object("RayCluster", &namespace, "loud").await?;
    tab.click("button.cell.ready", "").await?;
    // There is no node, so what programs print is handed to the log and the terminal as the server would.
    tab.click(".pod button", "Log").await?;
    tab.until("document.querySelector('.log')").await?;
    let text = json!(format!("one\n{MARKUP}\n\u{1b}[31m{MARKUP}"));
    tab.eval(&format!("document.querySelector('.log').manta.log.receive({{text: {text}, source: {text}}})")).await?;
    tab.sees(".log .line", "<script>window.attacked").await?;
    for wanted in ["<img src=x", "</script>", "onerror=\"window"] {
        tab.fill(".log-bar input[type=search]", wanted).await?;
        tab.until(&format!(
            "[...document.querySelectorAll('.log mark')].filter((mark) => mark.textContent === {}).length === 2",
            json!(wanted)
        ))
        .await?;
    }
    tab.click(".pod button", "Terminal").await?;
    tab.sees(".terminal-box .muted", "").await?;
    tab.eval(&format!(
        "document.querySelector('.terminal-box').manta.terminal.socket.onmessage({{data: new TextEncoder().encode({text})}})"
    ))
    .await?;
    tab.until("document.querySelector('.terminal').innerText.replace(/\\s/g, '').includes('<iframesrc=/></iframe>')")
        .await?;
    let end = json!(json!({"end": MARKUP}).to_string());
    tab.eval(&format!("document.querySelector('.terminal-box').manta.terminal.socket.onmessage({{data: {end}}})"))
        .await?;
    tab.sees(".terminal-box .muted", "<img src=x").await?;
    let found =
        tab.eval("[window.attacked, document.querySelectorAll('main img, main iframe, main script').length]").await?;
    ensure!(found == json!([null, 0]), "{found}");
    check_complaints(&tab)
}

pub(crate) async fn only_ray_kinds_are_created(world: &World) -> Result<()> {
    let create = async |text: &str| -> Result<(StatusCode, String)> {
        let body = json!({"text": text, "namespace": "default"}).to_string();
        let request = reqwest::Client::new().post(format!("{}/api/create", world.page.origin()));
        let reply = request.bearer_auth(world.page.secret()).body(body).send().await?;
        Ok((reply.status(), reply.text().await?))
    };
    for manifest in [
        "apiVersion: v1\nkind: Pod\nmetadata: {name: evil}\nspec: {containers: [{name: x, image: x}]}",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: evil}",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: evil}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}",
        "apiVersion: evil.example/v1\nkind: RayCluster\nmetadata: {name: evil}",
    ] {
        let (code, body) = create(manifest).await?;
        ensure!(code == StatusCode::BAD_REQUEST, "{manifest}: {code} {body}");
    }
    // One wrong object, and none is created.
    let mixed = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first, namespace: default}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: evil}";
    let (code, _) = create(mixed).await?;
    ensure!(code == StatusCode::BAD_REQUEST);
    let maps = world.api("ConfigMap", "", "default");
    ensure!(maps.get_opt("first").await?.is_none());
    // What the API server accepts on trial and then refuses comes too late to undo what was created.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: second-, namespace: default}";
    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice, namespace: default}";
    let (code, body) = create(&format!("{map}\n---\n{twice}\n---\n{twice}")).await?;
    ensure!(code == StatusCode::CONFLICT && body.contains("These exist already: ConfigMap second-"), "{code} {body}");
    ensure!(maps.get_opt("twice").await?.is_some());
    Ok(())
}
