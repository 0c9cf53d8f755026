//! Watches that report when they work again, not only when they fail.
//!
//! After an outage kube's watcher goes on where it was, without listing again and without a word, and a quiet cluster has no
//! event for hours.

use super::failure::sentence;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// A watch that has not failed again for this long works: kube tries at least every 30 s, and connections open within 10 s.
const QUIET: Duration = Duration::from_mins(1);

/// What a watch reports.
#[derive(Debug)]
pub(super) enum Watched<K> {
    Event(watcher::Event<K>),
    /// It does not work, in the API server's words.
    Failed(String),
    /// It works again.
    Recovered,
}

/// Watches objects for ever.
pub(super) fn watched<K>(api: Api<K>, config: watcher::Config) -> BoxStream<'static, Watched<K>>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, config).default_backoff();
    with_recovery(events.map(|event| event.map_err(|error| describe(&error)))).boxed()
}

/// Adds to events and failures that failures are over: with the next event, or when there has been none for a while.
fn with_recovery<K>(events: impl Stream<Item = Result<watcher::Event<K>, String>>) -> impl Stream<Item = Watched<K>> {
    let state = (Box::pin(events), false, None);
    stream::unfold(state, |(mut events, mut has_failed, mut held)| async move {
        if let Some(event) = held.take() {
            return Some((Watched::Event(event), (events, has_failed, held)));
        }
        let next = match has_failed {
            true => tokio::time::timeout(QUIET, events.next()).await,
            false => Ok(events.next().await),
        };
        let report = match next {
            Ok(event) => match event? {
                Err(why) => {
                    has_failed = true;
                    Watched::Failed(why)
                }
                // A list begins; whether it can be read is open.
                Ok(watcher::Event::Init) => Watched::Event(watcher::Event::Init),
                Ok(event) if has_failed => {
                    (has_failed, held) = (false, Some(event));
                    Watched::Recovered
                }
                Ok(event) => Watched::Event(event),
            },
            Err(_) => {
                has_failed = false;
                Watched::Recovered
            }
        };
        Some((report, (events, has_failed, held)))
    })
}

/// Returns why a watch does not work, in the API server's words.
pub(super) fn describe(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => sentence(error),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watcher::Event;

    async fn check(events: Vec<Result<Event<u8>, String>>, expect: &[&str]) {
        // The last event never comes, as in a quiet cluster.
        let events = stream::iter(events).chain(stream::pending());
        let reports = with_recovery(events).take(expect.len()).map(|report| match report {
            Watched::Event(event) => format!("{event:?}"),
            Watched::Failed(why) => why,
            Watched::Recovered => "recovered".to_owned(),
        });
        let reports = tokio::time::timeout(QUIET * 2, reports.collect::<Vec<_>>()).await;
        assert_eq!(reports.unwrap(), expect);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_works_again_says_so() {
        let failed = || Err("failed".to_owned());
        check(vec![failed(), Ok(Event::Apply(1))], &["failed", "recovered", "Apply(1)"]).await;
        check(vec![failed(), failed(), Ok(Event::Delete(1))], &["failed", "failed", "recovered", "Delete(1)"]).await;
        // A list that only begins proves nothing.
        check(vec![Ok(Event::Init), failed(), Ok(Event::Init), failed()], &["Init", "failed", "Init", "failed"]).await;
        check(vec![failed(), Ok(Event::Init), Ok(Event::InitDone)], &["failed", "Init", "recovered", "InitDone"]).await;
        check(vec![failed()], &["failed", "recovered"]).await;
        check(vec![Ok(Event::Apply(1)), Ok(Event::Apply(2))], &["Apply(1)", "Apply(2)"]).await;
    }
}
