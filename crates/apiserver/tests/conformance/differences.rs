//! Where this server answers differently from the real one, and why.

use super::harness::Difference;

/// One difference that is meant.
pub(crate) struct Listed {
    /// A part of the case's name; empty for all cases.
    case: &'static str,
    /// A part of the request; empty for all requests.
    request: &'static str,
    /// How the place in the answer begins, with `*` for one key or index.
    pointer: &'static str,
    pub(crate) reason: &'static str,
}

const fn listed(case: &'static str, request: &'static str, pointer: &'static str, reason: &'static str) -> Listed {
    Listed { case, request, pointer, reason }
}

const GO_VALUE: &str = "the real message prints the Go value of the field, which only Go code can have";
const JSON_PARSER: &str = "the words of Go's JSON decoder, where ours says the same in others";

pub(crate) const LISTED: &[Listed] = &[
    listed("", "", "/items/*/kind", "items of built-in lists carry their kind: they are sent as they are stored"),
    listed(
        "",
        "",
        "/items/*/apiVersion",
        "items of built-in lists carry their version: they are sent as they are stored",
    ),
    listed("", "", "/columnDefinitions/*/description", "columns are not described: kubectl does not show it"),
    listed("bodies", "POST", "/message", JSON_PARSER),
    listed("lists", "continue=nonsense", "/message", JSON_PARSER),
    listed(
        "custom",
        "widgets",
        "/message",
        "messages that quote the body, or name both managers of a field, end differently",
    ),
    listed("pods", "PATCH", "/details/causes/0/message", GO_VALUE),
    listed("pods", "PATCH", "/message", GO_VALUE),
    listed("workloads", "PATCH", "/details/causes", GO_VALUE),
    listed("workloads", "PATCH", "/message", GO_VALUE),
    listed("custom", "customresourcedefinitions", "/details/causes", GO_VALUE),
    listed("custom", "customresourcedefinitions", "/message", GO_VALUE),
    listed("merge patch", "PATCH", "/details/causes", GO_VALUE),
    listed("merge patch", "PATCH", "/message", GO_VALUE),
    listed("", "", "warnings", "kinds that nothing acts on are stored with a warning"),
    listed("delete", "DELETE", "/message", "the message quotes a resourceVersion"),
    listed("finalizers", "PATCH", "/details/causes", "the real server says this twice"),
    listed(
        "custom",
        "fieldManager=m2",
        "/details/causes",
        "managers are tracked from the first apply on: before-first-apply stands for all earlier ones",
    ),
    listed("custom", "/status", "/details/causes", "the real server complains about the scale's number a second time"),
    listed(
        "custom",
        "/nonsense",
        "/details",
        "a subresource that a custom kind does not have is looked up as an object",
    ),
];

impl Listed {
    pub(crate) fn covers(&self, case: &str, request: &str, difference: &Difference) -> bool {
        let mut place = difference.pointer.split('/');
        let within = self.pointer.split('/').all(|part| place.next().is_some_and(|found| part == "*" || part == found));
        within && case.contains(self.case) && request.contains(self.request)
    }
}
