//! Content negotiation.

use http::HeaderMap;

use crate::error::ApiError;

/// The representation of objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The objects themselves.
    Object,
    /// A `meta.k8s.io/v1` Table.
    Table,
    /// `PartialObjectMetadata`.
    Metadata,
}

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Yaml,
}

/// The negotiated representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) view: View,
    pub(super) format: Format,
}

/// Picks the first supported media type of the Accept header.
pub(super) fn accepted(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    let plain = Accepted { view: View::Object, format: Format::Json };
    let Some(accept) = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()) else {
        return Ok(plain);
    };
    let found = accept.split(',').find_map(|option| {
        let mut parts = option.split(';').map(str::trim);
        let format = match parts.next()? {
            "application/json" | "*/*" | "application/*" | "" => Format::Json,
            "application/yaml" => Format::Yaml,
            _ => return None,
        };
        let view = match parts.find_map(|parameter| parameter.strip_prefix("as=")) {
            None => View::Object,
            Some("Table") => View::Table,
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => View::Metadata,
            Some(_) => return None,
        };
        Some(Accepted { view, format })
    });
    found.ok_or_else(ApiError::not_acceptable)
}

/// Returns whether a media type is among those that the client asks for by name.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    accept.split(',').any(|option| option.split(';').next().is_some_and(|name| name.trim() == media_type))
}

/// Returns the version of aggregated discovery that the client accepts.
pub(super) fn aggregated(headers: &HeaderMap) -> Option<&'static str> {
    let accept = headers.get(http::header::ACCEPT)?.to_str().ok()?;
    accept.split(',').find_map(|option| {
        let has = |wanted: &str| option.split(';').any(|part| part.trim() == wanted);
        let asked = has("application/json") && has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList");
        match (asked, has("v=v2"), has("v=v2beta1")) {
            (true, true, _) => Some("v2"),
            (true, _, true) => Some("v2beta1"),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::ACCEPT, accept.parse().expect("a header"))])
    }

    #[test]
    fn the_first_supported_media_type_wins() {
        let check = |accept: &str, expect: Option<(View, Format)>| {
            let got = accepted(&headers(accept)).ok().map(|found| (found.view, found.format));
            assert_eq!(got, expect, "{accept}");
        };
        check("application/json", Some((View::Object, Format::Json)));
        check("application/vnd.kubernetes.protobuf, application/json", Some((View::Object, Format::Json)));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some((View::Table, Format::Json)));
        check("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Some((View::Metadata, Format::Json)));
        check("application/yaml", Some((View::Object, Format::Yaml)));
        check("text/html", None);
        assert_eq!(
            aggregated(&headers(
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
            )),
            Some("v2")
        );
        assert_eq!(aggregated(&headers("application/json")), None);
    }
}
