//! Parsing of request paths and queries.

use std::collections::HashMap;

use crate::error::ApiError;

/// A parsed request path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A resource, a collection, or something below an object.
    Resource(RequestInfo),
    /// Anything else: discovery, health, OpenAPI.
    Plain(Vec<String>),
}

/// The parts of a resource path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestInfo {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) namespace: Option<String>,
    pub(super) resource: String,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    /// What follows the subresource; only proxies use it.
    pub(super) rest: Vec<String>,
}

/// Parses a path; `None` if a percent escape is malformed.
pub(super) fn route(path: &str) -> Option<Route> {
    let parts: Vec<String> =
        path.trim_matches('/').split('/').map(|part| decode(part, false)).collect::<Option<_>>()?;
    let text: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, tail) = match text.as_slice() {
        ["api", version, tail @ ..] if !tail.is_empty() => ("", *version, tail),
        ["apis", group, version, tail @ ..] if !tail.is_empty() => (*group, *version, tail),
        _ => return Some(Route::Plain(parts)),
    };
    let mut info = RequestInfo { group: group.into(), version: version.into(), ..RequestInfo::default() };
    let own = |text: &str| Some(text.to_owned());
    let tail = match tail {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => tail,
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
            info.namespace = own(namespace);
            rest
        }
        tail => tail,
    };
    match tail {
        [resource] => info.resource = (*resource).into(),
        [resource, name] => {
            (info.resource, info.name) = ((*resource).into(), own(name));
        }
        [resource, name, subresource, rest @ ..] => {
            (info.resource, info.name, info.subresource) = ((*resource).into(), own(name), own(subresource));
            info.rest = rest.iter().map(|part| (*part).to_owned()).collect();
        }
        [] => return Some(Route::Plain(parts)),
    }
    Some(Route::Resource(info))
}

/// The parameters of a request.
#[derive(Debug, Default)]
pub(super) struct Query {
    first: HashMap<String, String>,
    all: Vec<(String, String)>,
}

impl Query {
    /// Parses the parameters; `None` if one of them is no escaped UTF-8.
    ///
    /// Without it the request would mean another, such as the deletion of a whole collection without its selector.
    pub(super) fn parse(text: &str) -> Option<Query> {
        let mut query = Query::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decode(key, true)?, decode(value, true)?);
            query.first.entry(key.clone()).or_insert_with(|| value.clone());
            query.all.push((key, value));
        }
        Some(query)
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.first.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.all.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean parameter as Go's strconv parses it.
    pub(super) fn flag(&self, key: &str) -> bool {
        matches!(self.first.get(key).map(String::as_str), Some("" | "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }

    /// Returns a number, refusing what Go's strconv refuses.
    pub(super) fn number(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            let why =
                if matches!(error.kind(), PosOverflow | NegOverflow) { "value out of range" } else { "invalid syntax" };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        })
    }
}

fn decode(text: &str, plus: bool) -> Option<String> {
    if !(text.contains('%') || plus && text.contains('+')) {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                (high * 16 + low) as u8
            }
            b'+' if plus => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: (&str, &str, Option<&str>, &str, Option<&str>, Option<&str>)) {
        let Some(Route::Resource(info)) = route(path) else { panic!("{path} is no resource") };
        let got = (
            info.group.as_str(),
            info.version.as_str(),
            info.namespace.as_deref(),
            info.resource.as_str(),
            info.name.as_deref(),
            info.subresource.as_deref(),
        );
        assert_eq!(got, expect, "{path}");
    }

    #[test]
    fn paths_are_parsed() {
        check("/api/v1/pods", ("", "v1", None, "pods", None, None));
        check("/api/v1/namespaces", ("", "v1", None, "namespaces", None, None));
        check("/api/v1/namespaces/a", ("", "v1", None, "namespaces", Some("a"), None));
        check("/api/v1/namespaces/a/status", ("", "v1", None, "namespaces", Some("a"), Some("status")));
        check("/api/v1/namespaces/a/pods", ("", "v1", Some("a"), "pods", None, None));
        check("/api/v1/namespaces/a/pods/b/log", ("", "v1", Some("a"), "pods", Some("b"), Some("log")));
        check(
            "/apis/ray.io/v1/namespaces/a/rayclusters/b",
            ("ray.io", "v1", Some("a"), "rayclusters", Some("b"), None),
        );
        check("/apis/x.io/v1/clusterthings/b%3Ac", ("x.io", "v1", None, "clusterthings", Some("b:c"), None));
        assert_eq!(route("/apis/x.io/v1"), Some(Route::Plain(vec!["apis".into(), "x.io".into(), "v1".into()])));
        assert_eq!(route("/api/v1/pods/%zz"), None);
    }

    #[test]
    fn queries_are_decoded() {
        let parse = |text: &str| Query::parse(text).expect("escaped UTF-8");
        let query = parse("labelSelector=a%3Db&command=x&command=y+z&watch=1&empty=");
        assert_eq!(query.get("labelSelector"), Some("a=b"));
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["x", "y z"]);
        assert!(query.flag("watch"));
        assert_eq!(query.get("empty"), None);
        assert!(parse("limit=x").number("limit").is_err());
        assert!(parse("limit=99999999999999999999").number("limit").is_err());
        assert!(matches!(parse("limit=-1").number("limit"), Ok(Some(-1))));
    }

    #[test]
    fn queries_are_not_read_in_part() {
        for text in ["labelSelector=app%3Dx%ff", "labelSelector=app%3", "a=1&dry%ffRun=All", "fieldSelector=%zz"] {
            assert!(Query::parse(text).is_none(), "{text}");
        }
    }
}
