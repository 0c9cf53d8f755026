//! Requests that only read, and what they could not read.

use crate::api_request::error_text;
use kube::Client;
use manta_logic::explain::Unreadable;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// The most objects of one list: a namespace can have thousands of events.
const MAX_OBJECTS: usize = 10_000;
/// Objects that are in memory at once.
const PAGE: usize = 500;
/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(4);

/// What a page says about the rest of its list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    #[serde(rename = "continue")]
    continue_: Option<String>,
    remaining_item_count: Option<i64>,
}

/// Reads objects of one namespace.
pub(super) struct Reader {
    client: Client,
    pub(super) namespace: String,
    pub(super) unreadable: Vec<Unreadable>,
}

impl Reader {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), unreadable: Vec::new() }
    }

    /// Returns a Ray object.
    pub(super) async fn get_object(&self, plural: &str, name: &str) -> Result<Value, kube::Error> {
        self.get(&format!("/apis/ray.io/v1/namespaces/{}/{plural}/{name}", self.namespace)).await
    }

    /// Returns an object that need not exist.
    pub(super) async fn get_optional(&mut self, plural: &str, api: &str, name: &str) -> Option<Value> {
        match self.get(&format!("{api}/namespaces/{}/{plural}/{name}", self.namespace)).await {
            Ok(object) => Some(object),
            Err(error) => self.note("get", plural, &error),
        }
    }

    /// Returns objects with these labels; none where their API is not installed.
    pub(super) async fn list<T: DeserializeOwned>(&mut self, plural: &str, api: &str, labels: &str) -> Vec<T> {
        self.list_if(plural, api, labels, Some).await
    }

    /// Returns what is to be kept of the objects with these labels.
    pub(super) async fn list_if<T: DeserializeOwned, U>(
        &mut self,
        plural: &str,
        api: &str,
        labels: &str,
        keep: impl Fn(T) -> Option<U>,
    ) -> Vec<U> {
        self.list_served(plural, api, labels, keep).await.unwrap_or_default()
    }

    /// Like [`Self::list_if`]; nothing where this version of the API is not served.
    pub(super) async fn list_served<T: DeserializeOwned, U>(
        &mut self,
        plural: &str,
        api: &str,
        labels: &str,
        keep: impl Fn(T) -> Option<U>,
    ) -> Option<Vec<U>> {
        self.list_selected(plural, api, "labelSelector", labels, keep).await
    }

    /// Returns the object of a name, for kinds that the operator may only list.
    pub(super) async fn list_named<T: DeserializeOwned>(&mut self, plural: &str, api: &str, name: &str) -> Vec<T> {
        let name = format!("metadata.name={name}");
        self.list_selected(plural, api, "fieldSelector", &name, Some).await.unwrap_or_default()
    }

    /// Reads page after page, so that no more than one is in memory, up to a bound.
    async fn list_selected<T: DeserializeOwned, U>(
        &mut self,
        plural: &str,
        api: &str,
        parameter: &str,
        selector: &str,
        keep: impl Fn(T) -> Option<U>,
    ) -> Option<Vec<U>> {
        #[derive(Deserialize)]
        struct List<T> {
            #[serde(default)]
            metadata: ListMeta,
            items: Vec<T>,
        }
        let mut first = format!("{api}/namespaces/{}/{plural}?limit={PAGE}", self.namespace);
        if !selector.is_empty() {
            first.push_str(&format!("&{parameter}={}", encoded(selector)));
        }
        let (mut kept, mut read, mut path) = (Vec::new(), 0, first.clone());
        loop {
            let page = match self.get::<List<T>>(&path).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if status.code == 404 => return None,
                Err(error) => {
                    let _: Option<()> = self.note("list", plural, &error);
                    return Some(kept);
                }
            };
            read += page.items.len();
            kept.extend(page.items.into_iter().filter_map(&keep));
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else { return Some(kept) };
            if read >= MAX_OBJECTS {
                let left =
                    page.metadata.remaining_item_count.map(|count| format!(" ({count} more)")).unwrap_or_default();
                self.note_text(&format!("list {plural}"), &format!("only the first {read} of them were read{left}"));
                return Some(kept);
            }
            path = format!("{first}&continue={}", encoded(&token));
        }
    }

    /// Returns a log.
    pub(super) async fn log(&self, pod: &str, container: &str, is_previous: bool) -> Result<String, kube::Error> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{pod}/log?container={container}&previous={is_previous}&tailLines={}&limitBytes={}",
            self.namespace,
            super::logs::LINES,
            super::logs::BYTES
        );
        in_time(self.client.request_text(request(&path)?)).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, kube::Error> {
        in_time(self.client.request(request(path)?)).await
    }

    /// Takes note of a source that could not be read. What does not exist is no such source.
    pub(super) fn note<T>(&mut self, verb: &str, resource: &str, error: &kube::Error) -> Option<T> {
        if matches!(error, kube::Error::Api(status) if status.code == 404) {
            return None;
        }
        self.note_text(&format!("{verb} {resource}"), &error_text(error));
        None
    }

    pub(super) fn note_text(&mut self, what: &str, why: &str) {
        if !self.unreadable.iter().any(|known| known.what == what) {
            self.unreadable.push(Unreadable { what: what.to_owned(), why: why.to_owned() });
        }
    }
}

/// Gives a request up that hangs, such as one for the log of a Pod on a dead node.
async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let late = || kube::Error::Service(format!("no answer within {} s", TIMEOUT.as_secs()).into());
    tokio::time::timeout(TIMEOUT, request).await.unwrap_or_else(|_| Err(late()))
}

/// Returns a value for a query, with the characters escaped that selectors and tokens of pages have.
fn encoded(value: &str) -> String {
    value.replace('%', "%25").replace('/', "%2F").replace('=', "%3D").replace('+', "%2B").replace('&', "%26")
}

fn request(path: &str) -> Result<http::Request<Vec<u8>>, kube::Error> {
    http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)
}
