//! Sessions: who looks at the page, and with which rights.
//!
//! The secret of a session is sent in a header, never in a cookie: browsers send the cookies of a host to all of its ports,
//! and the dashboards of Ray, which run code of users, listen on others.

use super::Page;
use super::failure::{Failure, Json};
use super::feed::Feed;
use super::question::parse;
use crate::connect::Target;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Request, StatusCode, header};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// After how long without a sign of its viewer a session ends.
const IDLE: Duration = Duration::from_secs(12 * 60 * 60);
/// How many namespaces a viewer may have looked at before those that nobody looks at any more are forgotten.
const MAX_FEEDS: usize = 8;
/// How long the request of somebody who signs in may take to arrive, and how long it may be.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_SIGN_IN: usize = 64 << 10;
/// The most sessions that are open at once.
const MAX_SESSIONS: usize = 200;
/// How a WebSocket, whose headers a script cannot choose, carries the secret among its protocols.
const PROTOCOL_PREFIX: &str = "session.";

/// How viewers identify themselves.
pub(crate) enum Entry {
    /// By the address that the terminal prints.
    Link,
    /// By a token of their own for this API server; the configuration has no credentials.
    Token(Box<kube::Config>),
}

/// A viewer who is known, and what is cached for that viewer alone.
pub(super) struct Session {
    pub(super) target: Target,
    viewer: String,
    feeds: Mutex<HashMap<Option<String>, Arc<Feed>>>,
    /// When its viewer last did something; nothing, if it lasts as long as the page is served.
    used: Option<Mutex<Instant>>,
    /// Whether it was closed to make way for others.
    closed: watch::Sender<bool>,
}

impl Session {
    fn new(target: Target, viewer: String, lasts: bool) -> Self {
        let used = (!lasts).then(|| Mutex::new(Instant::now()));
        Self { target, viewer, feeds: Mutex::default(), used, closed: watch::Sender::new(false) }
    }

    /// Notes that its viewer did something: sent a request, opened a view, typed, moved the mouse over the page.
    pub(super) fn touch(&self) {
        if let Some(used) = &self.used {
            *lock(used) = Instant::now();
        }
    }

    /// Returns whether its secret opens nothing any more.
    pub(super) fn has_ended(&self) -> bool {
        *self.closed.borrow() || self.ends_at().is_some_and(|end| end <= Instant::now())
    }

    /// Returns when it ends, if its viewer does nothing until then.
    fn ends_at(&self) -> Option<Instant> {
        self.used.as_ref().map(|used| *lock(used) + IDLE)
    }

    /// Waits until it has ended: connections that are open must not outlast it.
    pub(super) async fn ended(&self) {
        let mut closed = self.closed.subscribe();
        while !self.has_ended() {
            let idle = async {
                match self.ends_at() {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = idle => {}
                // The sender lives as long as the session.
                _ = closed.changed() => {}
            }
        }
    }

    /// Returns the rows of all namespaces, or of one.
    pub(super) fn feed(&self, namespace: Option<&str>) -> Arc<Feed> {
        let mut feeds = lock(&self.feeds);
        if feeds.len() >= MAX_FEEDS {
            feeds.retain(|namespace, feed| namespace.is_none() || Arc::strong_count(feed) > 1);
        }
        let start = || Feed::start(&self.target.client, namespace);
        Arc::clone(feeds.entry(namespace.map(str::to_owned)).or_insert_with(start))
    }
}

/// All open sessions, by their secrets.
pub(super) struct Sessions {
    entry: Entry,
    open: Mutex<HashMap<String, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new(entry: Entry) -> Self {
        Self { entry, open: Mutex::default() }
    }

    /// Opens a session and returns its secret.
    pub(super) async fn open(&self, target: Target) -> String {
        let viewer = name_of_viewer(&target).await.unwrap_or_else(|_| "unknown".to_owned());
        self.insert(target, viewer)
    }

    fn insert(&self, target: Target, viewer: String) -> String {
        let secret = new_secret();
        let session = Arc::new(Session::new(target, viewer, matches!(self.entry, Entry::Link)));
        // The first view waits for nothing, if the watches run already.
        session.feed(None);
        if session.used.is_some() {
            let session = Arc::clone(&session);
            // Nothing goes on with the rights of a viewer whose session is over.
            tokio::spawn(async move {
                session.ended().await;
                lock(&session.feeds).clear();
            });
        }
        let mut open = lock(&self.open);
        open.retain(|_, session| !session.has_ended());
        if matches!(self.entry, Entry::Token(_)) && open.len() >= MAX_SESSIONS {
            let oldest = open.iter().min_by_key(|(_, session)| session.ends_at()).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest.and_then(|key| open.remove(&key)) {
                oldest.closed.send_replace(true);
            }
        }
        open.insert(secret.clone(), session);
        secret
    }

    fn find(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let secret = secret_of(headers)?;
        let mut open = lock(&self.open);
        let session = open.get(secret).cloned()?;
        if session.has_ended() {
            open.remove(secret);
            return None;
        }
        session.touch();
        Some(session)
    }
}

fn secret_of(headers: &HeaderMap) -> Option<&str> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let protocols = text(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
    bearer.or_else(|| protocols.split(',').find_map(|protocol| protocol.trim().strip_prefix(PROTOCOL_PREFIX)))
}

/// Returns 256 random bits as text.
pub(super) fn new_secret() -> String {
    let mut bytes = [0; 32];
    #[expect(clippy::expect_used, reason = "a system without randomness can keep no secret")]
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds the session of a request to it, or refuses it.
pub(super) async fn authenticate(State(page): State<Arc<Page>>, mut request: Request<Body>, next: Next) -> Response {
    match page.sessions.find(request.headers()) {
        Some(session) => {
            request.extensions_mut().insert(session);
            next.run(request).await
        }
        None => {
            let why = "no session: open the address that the terminal printed, or sign in again";
            Failure::new(StatusCode::UNAUTHORIZED, why).into_response()
        }
    }
}

/// Returns how a viewer signs in.
pub(super) async fn entry(State(page): State<Arc<Page>>) -> Json<Value> {
    Json(json!({"entry": match page.sessions.entry { Entry::Link => "link", Entry::Token(_) => "token" }}))
}

#[derive(Deserialize)]
struct SignIn {
    token: String,
}

/// Opens a session for a viewer who enters a token.
pub(super) async fn enter(State(page): State<Arc<Page>>, body: Body) -> Result<Json<Value>, Failure> {
    let Entry::Token(config) = &page.sessions.entry else {
        return Err(Failure::new(StatusCode::FORBIDDEN, "this page is opened by the address that the terminal prints"));
    };
    let SignIn { token } = parse(&read_token(body).await?)?;
    let mut config = config.as_ref().clone();
    config.auth_info = kube::config::AuthInfo { token: Some(token.trim().to_owned().into()), ..Default::default() };
    let target = Target {
        namespace: config.default_namespace.clone(),
        context: None,
        url: config.cluster_url.to_string(),
        client: kube::Client::try_from(config)
            .map_err(|error| Failure::bad_request(format!("this is no usable token: {error}")))?,
    };
    let viewer = name_of_viewer(&target)
        .await
        .map_err(|error| Failure::from_kube("the API server refuses the token", &error))?;
    Ok(Json(json!({"key": page.sessions.insert(target, viewer)})))
}

/// Reads the body of a sign-in. Nobody is known yet who could keep the connection busy, so it must come at once.
async fn read_token(body: Body) -> Result<Bytes, Failure> {
    let read = tokio::time::timeout(SIGN_IN_TIMEOUT, axum::body::to_bytes(body, MAX_SIGN_IN)).await;
    let timed_out = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the token did not arrive in time; sign in again");
    let failed = |error| Failure::bad_request(format!("the token cannot be read: {error}"));
    read.map_err(timed_out)?.map_err(failed)
}

/// Asks the API server who the credentials belong to.
async fn name_of_viewer(target: &Target) -> Result<String, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(target.client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|status| status.user_info);
    Ok(user.and_then(|user| user.username).unwrap_or_else(|| "unknown".to_owned()))
}

/// Returns who looks, and at what.
pub(super) async fn describe(Extension(session): Extension<Arc<Session>>) -> Json<Value> {
    let target = &session.target;
    Json(json!({
        "viewer": session.viewer,
        "cluster": target.context,
        "server": target.url,
        "namespace": target.namespace,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use http::HeaderValue;

    /// Returns the session of a viewer who entered a token.
    pub(in crate::page) fn session_by_token() -> Arc<Session> {
        let (sessions, secret) = sessions(by_token());
        sessions.find(&bearer(&secret)).unwrap()
    }

    /// Lets the time pass in which an idle session ends.
    pub(in crate::page) async fn outlive() {
        tokio::time::advance(IDLE).await;
    }

    /// Returns an API server that is not there.
    fn target() -> Target {
        let config = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        Target {
            namespace: "default".to_owned(),
            context: None,
            url: config.cluster_url.to_string(),
            client: kube::Client::try_from(config).unwrap(),
        }
    }

    fn sessions(entry: Entry) -> (Sessions, String) {
        let sessions = Sessions::new(entry);
        let secret = sessions.insert(target(), "viewer".to_owned());
        (sessions, secret)
    }

    fn bearer(secret: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::try_from(format!("Bearer {secret}")).unwrap())])
    }

    fn by_token() -> Entry {
        Entry::Token(Box::new(kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_not_used_for_long_opens_nothing_any_more() {
        for (entry, expect) in [(Entry::Link, true), (by_token(), false)] {
            let (sessions, secret) = sessions(entry);
            let session = sessions.find(&bearer(&secret)).unwrap();
            tokio::time::advance(IDLE).await;
            assert_eq!(sessions.find(&bearer(&secret)).is_some(), expect);
            assert_eq!(lock(&sessions.open).len(), usize::from(expect));
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(lock(&session.feeds).len(), usize::from(expect), "its watches end, too");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn open_connections_end_with_their_session() {
        // Without watches, which would try to connect for all these hours.
        let session = Session::new(target(), "viewer".to_owned(), false);
        let start = Instant::now();
        // Somebody looks on without a request, and then goes home.
        let looks_on = async {
            tokio::time::sleep(IDLE / 2).await;
            session.touch();
        };
        tokio::join!(session.ended(), looks_on);
        assert_eq!(start.elapsed().as_secs(), (IDLE + IDLE / 2).as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_that_makes_way_ends_its_connections() {
        let (sessions, secret) = sessions(by_token());
        let session = sessions.find(&bearer(&secret)).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..MAX_SESSIONS {
            sessions.insert(session.target.clone(), "other".to_owned());
        }
        assert!(session.has_ended());
        tokio::time::timeout(Duration::from_secs(1), session.ended()).await.unwrap();
        assert_eq!(lock(&sessions.open).len(), MAX_SESSIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_in_that_does_not_arrive_is_not_awaited() {
        let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let start = Instant::now();
        assert!(read_token(never).await.is_err());
        assert_eq!(start.elapsed(), SIGN_IN_TIMEOUT);
        assert!(read_token(Body::from(vec![0; MAX_SIGN_IN + 1])).await.is_err());
        assert_eq!(read_token(Body::from("{}")).await.unwrap(), "{}");
    }

    #[tokio::test]
    async fn namespaces_that_nobody_looks_at_are_forgotten() {
        let (sessions, secret) = sessions(Entry::Link);
        let session = sessions.find(&bearer(&secret)).unwrap();
        let watched = session.feed(Some("watched"));
        for number in 0..100 {
            session.feed(Some(&format!("n{number}")));
        }
        assert!(lock(&session.feeds).len() <= MAX_FEEDS);
        assert!(Arc::ptr_eq(&watched, &session.feed(Some("watched"))), "one watch, however often it is looked at");
        assert!(lock(&session.feeds).contains_key(&None), "the overview stays");
    }

    #[test]
    fn the_secret_is_in_a_header_or_among_the_protocols() {
        let check = |pairs: &[(http::HeaderName, &'static str)], expect: Option<&str>| {
            let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            assert_eq!(secret_of(&HeaderMap::from_iter(pairs)), expect);
        };
        check(&[(header::AUTHORIZATION, "Bearer abc")], Some("abc"));
        check(&[(header::SEC_WEBSOCKET_PROTOCOL, "manta.v1, session.abc")], Some("abc"));
        check(&[(header::COOKIE, "session.abc")], None);
        check(&[(header::AUTHORIZATION, "Basic abc")], None);
        check(&[], None);
        assert_eq!(new_secret().len(), 64);
        assert_ne!(new_secret(), new_secret());
    }
}
