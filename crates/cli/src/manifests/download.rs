//! Downloads one manifest by HTTP or HTTPS.

use crate::output::error_text;
use anyhow::{Context, bail, ensure};
use http::{StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use std::time::Duration;

/// How long the server may take to accept a connection, and to send the next bytes.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Redirects that are followed; a loop must end.
const MAX_REDIRECTS: usize = 5;

/// Returns the contents of a URL, or why there are none and what to do instead.
pub(super) fn download(url: &str, max_bytes: u64) -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.context("cannot start").and_then(|runtime| runtime.block_on(follow(url, max_bytes)));
    done.map_err(|error| {
        // Proxies and logins are curl's business.
        format!("{}; download it another way, as in: curl -fsSL {url} | manta … -", error_text(&error))
    })
}

async fn follow(url: &str, max_bytes: u64) -> anyhow::Result<Vec<u8>> {
    let mut url: Uri = url.parse().context("not a URL")?;
    for _ in 0..=MAX_REDIRECTS {
        match request(&url, max_bytes).await? {
            Reply::Contents(contents) => return Ok(contents),
            Reply::Redirect(target) => {
                let target = resolve(&url, &target)?;
                ensure!(
                    target.scheme() == url.scheme() || url.scheme_str() == Some("http"),
                    "redirected from HTTPS to {target}"
                );
                url = target;
            }
        }
    }
    bail!("redirected more than {MAX_REDIRECTS} times")
}

enum Reply {
    Contents(Vec<u8>),
    Redirect(String),
}

/// Asks once. The client of Kubernetes brings TLS with the certificates of this machine.
async fn request(url: &Uri, max_bytes: u64) -> anyhow::Result<Reply> {
    let host = url.authority().context("the URL has no host")?;
    let base = Uri::builder().scheme(url.scheme_str().unwrap_or("https")).authority(host.clone()).path_and_query("/");
    let mut config = kube::Config::new(base.build()?);
    (config.connect_timeout, config.read_timeout) = (Some(TIMEOUT), Some(TIMEOUT));
    let client = kube::Client::try_from(config)?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = http::Request::get(path).body(kube::client::Body::empty())?;
    let response = client.send(request).await.map_err(|error| match error {
        kube::Error::Service(cause) => anyhow::anyhow!(cause),
        other => other.into(),
    })?;
    let status = response.status();
    if status.is_redirection() {
        let target = response.headers().get(header::LOCATION).and_then(|target| target.to_str().ok());
        return Ok(Reply::Redirect(target.context("redirected without a Location")?.to_owned()));
    }
    ensure!(status == StatusCode::OK, "the server replied {status}");
    let limit = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let body = Limited::new(response.into_body(), limit).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error)).context("cannot read the response")?;
    Ok(Reply::Contents(body.to_bytes().to_vec()))
}

/// Returns the target of a redirect, which may be relative to the server.
fn resolve(from: &Uri, target: &str) -> anyhow::Result<Uri> {
    let absolute = match target.strip_prefix('/') {
        Some(_) if !target.starts_with("//") => {
            format!("{}://{}{target}", from.scheme_str().unwrap_or("https"), from.authority().context("no host")?)
        }
        _ => target.to_owned(),
    };
    let url: Uri = absolute.parse().with_context(|| format!("redirected to {target:?}"))?;
    ensure!(matches!(url.scheme_str(), Some("http" | "https")), "redirected to {target:?}");
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// Serves these responses by path, and returns the address.
    fn serve(responses: &'static [(&'static str, &'static str)]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines: Vec<String> =
                    BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let path = lines[0].split(' ').nth(1).unwrap();
                let found = responses.iter().find(|(at, _)| *at == path);
                let response = found.map_or("404 Not Found\r\ncontent-length: 0\r\n\r\n", |(_, response)| response);
                let _ = write!(stream, "HTTP/1.1 {}", response.replacen("\r\n", "\r\nconnection: close\r\n", 1));
            }
        });
        address
    }

    #[test]
    fn manifests_are_downloaded_and_redirects_followed() {
        let server = serve(&[
            ("/a.yaml?x=1", "200 OK\r\ncontent-length: 2\r\n\r\nhi"),
            ("/moved", "302 Found\r\nlocation: /a.yaml?x=1\r\ncontent-length: 0\r\n\r\n"),
            ("/loop", "302 Found\r\nlocation: /loop\r\ncontent-length: 0\r\n\r\n"),
            ("/file", "302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n"),
        ]);
        let get = |path: &str, limit| download(&format!("{server}{path}"), limit);
        assert_eq!(get("/a.yaml?x=1", 10), Ok(b"hi".to_vec()));
        assert_eq!(get("/moved", 10), Ok(b"hi".to_vec()));
        let check = |path: &str, limit, expect: &str| {
            let why = get(path, limit).unwrap_err();
            assert!(why.starts_with(expect) && why.contains(&format!("curl -fsSL {server}{path}")), "{why}");
        };
        check("/none", 10, "the server replied 404 Not Found");
        check("/loop", 10, "redirected more than 5 times");
        check("/file", 10, "redirected to \"file:///etc/passwd\"");
        check("/a.yaml?x=1", 1, "cannot read the response: length limit exceeded");
        assert!(download("http://127.0.0.1:1/x", 10).unwrap_err().contains("refused"));
    }
}
