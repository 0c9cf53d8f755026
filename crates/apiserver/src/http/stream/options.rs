//! What a client asks of a connection, as the object that admission reviews.

use serde_json::{Value, json};

use super::{Query, RequestInfo};

/// Returns the options of a connection, such as `PodExecOptions`.
pub(in crate::http) fn options(kind: &str, info: &RequestInfo, query: &Query) -> Value {
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    if matches!(kind, "PodExecOptions" | "PodAttachOptions") {
        for key in ["stdin", "stdout", "stderr", "tty"] {
            if query.get(key).is_some() && query.flag(key) {
                options[key] = true.into();
            }
        }
        if let Some(container) = query.get("container") {
            options["container"] = container.into();
        }
    }
    let list = |key| query.all(key).filter(|value| !value.is_empty());
    match kind {
        "PodExecOptions" if list("command").next().is_some() => {
            options["command"] = list("command").collect::<Vec<_>>().into();
        }
        "PodPortForwardOptions" if list("ports").next().is_some() => {
            let ports = list("ports").flat_map(|ports| ports.split(','));
            options["ports"] = ports.filter_map(|port| port.trim().parse::<u16>().ok()).collect::<Vec<_>>().into();
        }
        "PodProxyOptions" | "ServiceProxyOptions" | "NodeProxyOptions" => {
            options["path"] = format!("/{}", info.rest.join("/")).into();
        }
        _ => {}
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_what_the_client_asked_for() {
        let check = |kind: &str, query: &str, expect: Value| {
            let info = RequestInfo { rest: vec!["a".into(), "b".into()], ..RequestInfo::default() };
            let mut options = options(kind, &info, &Query::parse(query).expect("escaped"));
            assert_eq!((options["kind"].take(), options["apiVersion"].take()), (json!(kind), json!("v1")));
            assert_eq!(options, expect, "{kind} {query}");
        };
        let check = |kind: &str, query: &str, mut expect: Value| {
            (expect["kind"], expect["apiVersion"]) = (Value::Null, Value::Null);
            check(kind, query, expect);
        };
        check("PodAttachOptions", "stdin=true&tty=false&container=c", json!({"stdin": true, "container": "c"}));
        check("PodExecOptions", "command=ls&command=-l&stdout=1", json!({"command": ["ls", "-l"], "stdout": true}));
        check("PodPortForwardOptions", "ports=80,81&ports=x", json!({"ports": [80, 81]}));
        check("ServiceProxyOptions", "", json!({"path": "/a/b"}));
    }
}
