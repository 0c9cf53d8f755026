//! The live connection of a browser: one WebSocket, any number of subscriptions.
//!
//! Browsers open at most six HTTP/1.1 connections to a host, so that with event streams the seventh tab would wait forever.
//! WebSockets are not counted among them.

use super::Page;
use super::feed::Cursor;
use super::question::read;
use super::session::Session;
use super::{driver_log, object, operator, pod_log, rates};
use crate::connect::Target;
use crate::resource::Kind;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{Extension, State};
use axum::response::Response;
use futures::{Sink, SinkExt, Stream, StreamExt};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// The protocol that a browser asks for, beside the one that carries its secret.
pub(super) const PROTOCOL: &str = "manta.v1";
/// How long changes are gathered before they are sent: three frames of a screen.
pub(super) const WINDOW: Duration = Duration::from_millis(50);
/// How many subscriptions one browser tab may have.
const MAX_SUBSCRIPTIONS: usize = 64;
/// The longest message of a browser.
const MAX_MESSAGE: usize = 64 << 10;
/// How many messages wait for a slow browser before their sources wait, too.
const MAX_QUEUED: usize = 16;
/// How often something is sent in any case, so that both ends notice a connection that is dead.
pub(super) const BEAT: Duration = Duration::from_secs(15);
/// After how long without a word, not even an answer to a ping, a browser is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(45);
/// How long a browser may take to receive one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// What is sent in vain: scripts do not see pings, and the page must notice silence, too.
const NOTHING: &str = r#"{"id":0}"#;

/// What a browser asks for.
#[derive(Deserialize)]
struct Request {
    id: u32,
    /// Ends the subscription if it is missing. For one that is not open, it only says that the viewer is there.
    open: Option<serde_json::Value>,
}

/// What a browser can watch.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    Rows { namespace: Option<String> },
    Object(Name),
    Log(pod_log::Choice),
    Driver { namespace: String, name: String },
    Operator {},
    Rates { namespace: String, cluster: String },
}

/// A Ray object.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Name {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Sends the messages of one subscription.
#[derive(Clone)]
pub(super) struct Outlet {
    id: u32,
    queue: mpsc::Sender<String>,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    id: u32,
    #[serde(flatten)]
    body: &'a T,
}

impl Outlet {
    /// Sends a message; waits while the browser is slow, and returns whether it is still there.
    pub(super) async fn send(&self, body: &impl Serialize) -> bool {
        let Ok(text) = serde_json::to_string(&Envelope { id: self.id, body }) else { return false };
        self.queue.send(text).await.is_ok()
    }

    /// Reports that the subscription cannot go on.
    pub(super) async fn fail(&self, error: &str) {
        self.send(&serde_json::json!({"error": error})).await;
    }
}

pub(super) async fn connect(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<Arc<Session>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.protocols([PROTOCOL]).max_message_size(MAX_MESSAGE).on_upgrade(async move |socket| {
        let (sender, receiver) = socket.split();
        serve(sender, receiver, page, session).await;
    })
}

/// Sends a message to a browser; returns whether it took it in time.
///
/// One that stops reading would hold what is queued for it, and its watches, for as long as it likes.
pub(super) async fn send_in_time(sender: &mut (impl Sink<Message> + Unpin), message: Message) -> bool {
    matches!(tokio::time::timeout(SEND_TIMEOUT, sender.send(message)).await, Ok(Ok(())))
}

async fn serve(
    mut sender: impl Sink<Message> + Unpin,
    mut receiver: impl Stream<Item = Result<Message, axum::Error>> + Unpin,
    page: Arc<Page>,
    session: Arc<Session>,
) {
    let (queue, mut queued) = mpsc::channel(MAX_QUEUED);
    let mut tasks = JoinSet::new();
    let mut open: HashMap<u32, AbortHandle> = HashMap::new();
    let mut beat = tokio::time::interval(BEAT);
    let mut heard = Instant::now();
    let ended = session.ended();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => return,
            received = receiver.next() => {
                heard = Instant::now();
                let text = match received {
                    Some(Ok(Message::Text(text))) => text,
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                };
                let Ok(request) = serde_json::from_str::<Request>(&text) else {
                    tracing::debug!("a browser sent a request that is not understood");
                    return;
                };
                session.touch();
                if let Some(before) = open.remove(&request.id) {
                    before.abort();
                }
                open.retain(|_, task| !task.is_finished());
                if let Some(source) = request.open.filter(|_| open.len() < MAX_SUBSCRIPTIONS) {
                    let outlet = Outlet { id: request.id, queue: queue.clone() };
                    let (page, session) = (Arc::clone(&page), Arc::clone(&session));
                    open.insert(request.id, tasks.spawn(async move { follow(source, &page, &session, outlet).await }));
                }
            }
            Some(text) = queued.recv() => {
                if !send_in_time(&mut sender, Message::Text(text.into())).await {
                    return;
                }
            }
            Some(_) = tasks.join_next() => {}
            _ = beat.tick() => {
                let is_there = heard.elapsed() < SILENCE
                    && send_in_time(&mut sender, Message::Text(NOTHING.into())).await
                    && send_in_time(&mut sender, Message::Ping(Default::default())).await;
                if !is_there {
                    return;
                }
            }
        }
    }
}

async fn follow(source: serde_json::Value, page: &Page, session: &Session, outlet: Outlet) {
    // A page that is older or newer than this server may ask for what it does not have.
    let source = match read(source) {
        Ok(source) => source,
        Err(error) => return outlet.fail(&format!("this server cannot show that: {error}")).await,
    };
    match source {
        Source::Rows { namespace } => rows(session, namespace.as_deref(), &outlet).await,
        Source::Object(name) => object::follow(&session.target.client, &name, &outlet).await,
        Source::Log(choice) => pod_log::follow(&session.target, &choice, &outlet).await,
        Source::Rates { namespace, cluster } => {
            let target = Target { namespace, ..session.target.clone() };
            rates::follow(&target, &cluster, &outlet).await;
        }
        Source::Operator {} => operator::follow(page, session, &outlet).await,
        Source::Driver { namespace, name } => driver_log::follow(page, session, &namespace, &name, &outlet).await,
    }
}

/// Sends all rows, then what changes.
async fn rows(session: &Session, namespace: Option<&str>, outlet: &Outlet) {
    let feed = session.feed(namespace);
    let mut version = feed.version();
    let mut cursor = Cursor::default();
    loop {
        version.mark_unchanged();
        let changes = feed.changes_since(cursor);
        cursor = changes.cursor;
        let has_more = changes.has_more;
        if !outlet.send(&changes).await {
            return;
        }
        if !has_more {
            if version.changed().await.is_err() {
                return;
            }
            tokio::time::sleep(WINDOW).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::session::tests::session_by_token;
    use crate::page::{Entry, Settings};
    use futures::stream;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// What a browser receives, if it reads at all.
    struct Browser {
        reads: bool,
        received: mpsc::UnboundedSender<Message>,
    }

    impl Sink<Message> for Browser {
        type Error = axum::Error;

        fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            if self.reads { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), Self::Error> {
            self.received.send(message).map_err(axum::Error::new)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
    }

    fn page() -> Arc<Page> {
        Page::new(Settings { entry: Entry::Link, access: Arc::default(), job_output: None, operator: None })
    }

    /// Returns after how many seconds the server leaves a browser, and what it has sent until then.
    async fn served(reads: bool, says: impl Stream<Item = Result<Message, axum::Error>>) -> (u64, Vec<Message>) {
        let (received, mut sent) = mpsc::unbounded_channel();
        let session = session_by_token();
        let start = Instant::now();
        serve(Browser { reads, received }, Box::pin(says), page(), session).await;
        let seconds = start.elapsed().as_secs();
        let mut messages = Vec::new();
        while let Ok(message) = sent.try_recv() {
            messages.push(message);
        }
        (seconds, messages)
    }

    #[tokio::test(start_paused = true)]
    async fn a_browser_that_says_nothing_is_left() {
        let (seconds, messages) = served(true, stream::pending()).await;
        assert_eq!(seconds, SILENCE.as_secs());
        // At once, and after 15 and 30 s.
        let beats = messages.iter().filter(|message| **message == Message::Text(NOTHING.into())).count();
        let pings = messages.iter().filter(|message| matches!(message, Message::Ping(_))).count();
        assert_eq!((beats, pings), (3, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_browser_that_answers_pings_stays() {
        let pongs = stream::unfold(0, async |count| {
            tokio::time::sleep(BEAT).await;
            (count < 100).then_some((Ok(Message::Pong(Default::default())), count + 1))
        });
        let (seconds, _) = served(true, pongs).await;
        assert_eq!(seconds, 101 * BEAT.as_secs(), "until it leaves");
    }

    #[tokio::test(start_paused = true)]
    async fn a_browser_that_does_not_read_is_left() {
        let (seconds, messages) = served(false, stream::pending()).await;
        assert_eq!((seconds, messages.len()), (SEND_TIMEOUT.as_secs(), 0));
    }
}
