//! Validation of what leads to pods: Services, Endpoints, EndpointSlices, Ingresses, NetworkPolicies.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::fields::{
    address, cidr, indexed, label_name, named, one_of, port, port_name_faults, port_number, required, required_one_of,
    selector, text,
};
use super::immutable;
use crate::names;
use crate::schema::FieldError;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Validates a service.
pub(in crate::registry) fn service(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let (headless, kind) = (spec["clusterIP"] == "None", text(&spec["type"]));
    if spec["ports"].as_array().is_none_or(Vec::is_empty) && !headless && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let why = "may not be set to 'None' for LoadBalancer services";
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &spec["clusterIP"], why));
    }
    if kind == "ExternalName" {
        match text(&spec["externalName"]).trim_end_matches('.') {
            "" => errors.push(FieldError::required("spec.externalName", "")),
            name => {
                if let Some(why) = names::subdomain(name) {
                    errors.push(FieldError::invalid("spec.externalName", &spec["externalName"], &why));
                }
            }
        }
    }
    service_ports(&spec["ports"], headless, errors);
    if let Some(labels) = spec["selector"].as_object() {
        names::check_labels(labels, "spec.selector", errors);
    }
    affinity(spec, errors);
    for (index, external) in indexed(&spec["externalIPs"]) {
        external_address(external, &format!("spec.externalIPs[{index}]"), errors);
    }
    required_one_of(&spec["type"], "spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    reachable_from_outside(spec, kind, errors);
    one_of(&spec["internalTrafficPolicy"], "spec.internalTrafficPolicy", &["Cluster", "Local"], errors);
    one_of(
        &spec["trafficDistribution"],
        "spec.trafficDistribution",
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
        errors,
    );
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    one_of(&spec["ipFamilyPolicy"], "spec.ipFamilyPolicy", &policies, errors);
    let families: Vec<&Value> = spec["ipFamilies"].as_array().into_iter().flatten().collect();
    for (index, family) in families.iter().enumerate() {
        if !matches!(text(family), "IPv4" | "IPv6") {
            errors.push(FieldError::not_supported(format!("spec.ipFamilies[{index}]"), family, &["IPv4", "IPv6"]));
        }
        if families[..index].contains(family) {
            errors.push(FieldError::duplicate(format!("spec.ipFamilies[{index}]"), family));
        }
    }
    let kept = |value: &Value| value["spec"]["type"] != "ExternalName" && !value["spec"]["clusterIP"].is_null();
    if let Some(old) = old.filter(|old| kept(old) && kept(new))
        && old["spec"]["clusterIP"] != spec["clusterIP"]
    {
        let given = json!([spec["clusterIP"]]);
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &given, "may not change once set"));
    }
}

fn service_ports(ports: &Value, headless: bool, errors: &mut Vec<FieldError>) {
    let all: Vec<&Value> = ports.as_array().into_iter().flatten().collect();
    for (index, one) in all.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        let name = text(&one["name"]);
        if all.len() > 1 && name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !name.is_empty() {
            if let Some(why) = names::label(name) {
                errors.push(FieldError::invalid(format!("{path}.name"), &one["name"], &why));
            }
            if all[..index].iter().any(|other| text(&other["name"]) == name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &one["name"]));
            }
        }
        port_number(&one["port"], format!("{path}.port"), errors);
        required_one_of(&one["protocol"], format!("{path}.protocol"), PROTOCOLS, errors);
        port(&one["targetPort"], &format!("{path}.targetPort"), errors);
        named(&one["appProtocol"], format!("{path}.appProtocol"), names::label_key, errors);
        if !headless || one["nodePort"].as_i64().unwrap_or(0) != 0 {
            let number = one["nodePort"].as_i64().unwrap_or(0);
            if number != 0 && !(1..=65535).contains(&number) {
                // The range of node ports is checked when one is allocated.
                errors.push(FieldError::invalid(
                    format!("{path}.nodePort"),
                    &one["nodePort"],
                    "must be between 1 and 65535, inclusive",
                ));
            }
        }
        let clash = |other: &&&Value| other["port"] == one["port"] && other["protocol"] == one["protocol"];
        if all[..index].iter().any(|other| clash(&other)) {
            let shown = json!({"Port": one["port"], "Protocol": one["protocol"]});
            errors.push(FieldError::duplicate(path, &shown));
        }
    }
}

fn affinity(spec: &Value, errors: &mut Vec<FieldError>) {
    required_one_of(&spec["sessionAffinity"], "spec.sessionAffinity", &["ClientIP", "None"], errors);
    let config = &spec["sessionAffinityConfig"];
    if spec["sessionAffinity"] == "ClientIP" {
        let seconds = &config["clientIP"]["timeoutSeconds"];
        if seconds.as_i64().is_some_and(|seconds| !(1..=86400).contains(&seconds)) {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            errors.push(FieldError::invalid(field, seconds, "must be greater than 0 and less than 86400"));
        }
    } else if !config.is_null() {
        let why = "must not be set when session affinity is None";
        errors.push(FieldError::forbidden("spec.sessionAffinityConfig", why));
    }
}

fn reachable_from_outside(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let balanced = kind == "LoadBalancer";
    if kind == "ClusterIP" {
        for (index, port) in indexed(&spec["ports"]) {
            if port["nodePort"].as_i64().unwrap_or(0) != 0 {
                let why = "may not be used when `type` is 'ClusterIP'";
                errors.push(FieldError::forbidden(format!("spec.ports[{index}].nodePort"), why));
            }
        }
    }
    let policy = &spec["externalTrafficPolicy"];
    let external = matches!(kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && spec["externalIPs"].as_array().is_some_and(|list| !list.is_empty()));
    if external {
        one_of(policy, "spec.externalTrafficPolicy", &["Cluster", "Local"], errors);
    } else if !text(policy).is_empty() {
        let why = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid("spec.externalTrafficPolicy", policy, why));
    }
    if spec["healthCheckNodePort"].as_i64().unwrap_or(0) != 0 && !(balanced && policy == "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid("spec.healthCheckNodePort", &spec["healthCheckNodePort"], why));
    }
    if !spec["loadBalancerClass"].is_null() && !balanced {
        errors.push(FieldError::forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'"));
    }
    if !spec["allocateLoadBalancerNodePorts"].is_null() && !balanced {
        let why = "may only be used when `type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden("spec.allocateLoadBalancerNodePorts", why));
    }
    if spec["loadBalancerSourceRanges"].as_array().is_some_and(|ranges| !ranges.is_empty()) {
        if !balanced {
            let why = "may only be used when `type` is 'LoadBalancer'";
            errors.push(FieldError::forbidden("spec.LoadBalancerSourceRanges", why));
        }
        for (index, range) in indexed(&spec["loadBalancerSourceRanges"]) {
            cidr(range, &format!("spec.LoadBalancerSourceRanges[{index}]"), errors);
        }
    }
}

/// Validates an address that traffic may be sent to: not the machine itself, nothing local to a link.
fn external_address(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let Some(parsed) = address(value, field, errors) else { return };
    if let Some(why) = internal_range(parsed) {
        errors.push(FieldError::invalid(field, value, &why));
    }
}

/// Returns why traffic may not be sent to an address, in whatever form it is written.
pub(crate) fn internal_range(address: IpAddr) -> Option<String> {
    const LINK: &str = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
    const MULTICAST: &str = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
    let canonical = address.to_canonical();
    if canonical.is_unspecified() {
        return Some(format!("may not be unspecified ({address})"));
    }
    if canonical.is_loopback() {
        return Some("may not be in the loopback range (127.0.0.0/8, ::1/128)".into());
    }
    match canonical {
        IpAddr::V4(four) if four.is_link_local() => Some(LINK.into()),
        IpAddr::V4(four) if four.octets()[..3] == [224, 0, 0] => Some(MULTICAST.into()),
        IpAddr::V6(six) if six.is_unicast_link_local() => Some(LINK.into()),
        IpAddr::V6(six) if six.segments()[0] & 0xff0f == 0xff02 => Some(MULTICAST.into()),
        _ => None,
    }
}

/// Validates Endpoints.
pub(in crate::registry) fn endpoints(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    for (index, subset) in indexed(&new["subsets"]) {
        let path = format!("subsets[{index}]");
        let count = |key: &str| subset[key].as_array().map_or(0, Vec::len);
        if count("addresses") + count("notReadyAddresses") == 0 {
            let why = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(path.as_str(), why));
        }
        for list in ["addresses", "notReadyAddresses"] {
            for (number, one) in indexed(&subset[list]) {
                let field = format!("{path}.{list}[{number}]");
                external_address(&one["ip"], &format!("{field}.ip"), errors);
                named(&one["hostname"], format!("{field}.hostname"), names::label, errors);
                named(&one["nodeName"], format!("{field}.nodeName"), names::subdomain, errors);
            }
        }
        let several = count("ports") > 1;
        for (number, port) in indexed(&subset["ports"]) {
            let field = format!("{path}.ports[{number}]");
            if several && text(&port["name"]).is_empty() {
                errors.push(FieldError::required(format!("{field}.name"), ""));
            }
            named(&port["name"], format!("{field}.name"), names::label, errors);
            port_number(&port["port"], format!("{field}.port"), errors);
            required_one_of(&port["protocol"], format!("{field}.protocol"), PROTOCOLS, errors);
        }
    }
}

/// Validates EndpointSlices.
pub(in crate::registry) fn endpoint_slice(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let kind = text(&new["addressType"]);
    required_one_of(&new["addressType"], "addressType", &["FQDN", "IPv4", "IPv6"], errors);
    for (index, endpoint) in indexed(&new["endpoints"]) {
        let path = format!("endpoints[{index}]");
        if endpoint["addresses"].as_array().is_none_or(Vec::is_empty) {
            errors.push(FieldError::required(format!("{path}.addresses"), "must contain at least 1 address"));
        }
        for (number, value) in indexed(&endpoint["addresses"]) {
            slice_address(value, kind, &format!("{path}.addresses[{number}]"), errors);
        }
        named(&endpoint["hostname"], format!("{path}.hostname"), names::label, errors);
        named(&endpoint["nodeName"], format!("{path}.nodeName"), names::subdomain, errors);
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in indexed(&new["ports"]) {
        let path = format!("ports[{index}]");
        let name = text(&port["name"]);
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &port["name"]));
        }
        seen.push(name);
        named(&port["name"], format!("{path}.name"), names::label, errors);
        required_one_of(&port["protocol"], format!("{path}.protocol"), PROTOCOLS, errors);
        named(&port["appProtocol"], format!("{path}.appProtocol"), names::label_key, errors);
    }
    immutable(new, old, "/addressType", errors);
}

fn slice_address(value: &Value, kind: &str, field: &str, errors: &mut Vec<FieldError>) {
    match (kind, text(value).parse::<IpAddr>()) {
        ("IPv4", Ok(IpAddr::V4(_))) => external_address(value, field, errors),
        ("IPv6", Ok(IpAddr::V6(_))) => external_address(value, field, errors),
        ("IPv4", Ok(_)) => errors.push(FieldError::invalid(field, value, "must be a valid IPv4 address")),
        ("IPv6", Ok(_)) => errors.push(FieldError::invalid(field, value, "must be a valid IPv6 address")),
        ("IPv4" | "IPv6", Err(_)) => {
            address(value, field, errors);
        }
        ("FQDN", _) => host_name(value, field, errors),
        _ => {}
    }
}

/// Validates a domain name of at least two labels, which may end in a dot.
fn host_name(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let name = text(value);
    if name.is_empty() {
        return errors.push(FieldError::required(field, ""));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if let Some(why) = names::subdomain(name) {
        errors.push(FieldError::invalid(field, value, &why));
    } else if !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(field, value, why));
    }
}

/// Validates ingresses.
pub(in crate::registry) fn ingress(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let ruled = spec["rules"].as_array().is_some_and(|rules| !rules.is_empty());
    if spec["defaultBackend"].is_null() && !ruled {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", &Value::Null, why));
    }
    if !spec["defaultBackend"].is_null() {
        backend(&spec["defaultBackend"], "spec.defaultBackend", errors);
    }
    for (index, rule) in indexed(&spec["rules"]) {
        let path = format!("spec.rules[{index}]");
        host(&rule["host"], &format!("{path}.host"), errors);
        if !rule["http"].is_null() && rule["http"]["paths"].as_array().is_none_or(Vec::is_empty) {
            errors.push(FieldError::required(format!("{path}.http.paths"), ""));
        }
        for (number, one) in indexed(&rule["http"]["paths"]) {
            http_path(one, &format!("{path}.http.paths[{number}]"), errors);
        }
    }
    for (index, tls) in indexed(&spec["tls"]) {
        for (number, name) in indexed(&tls["hosts"]) {
            let field = format!("spec.tls[{index}].hosts[{number}]");
            let plain = text(name).strip_prefix("*.").unwrap_or(text(name));
            if let Some(why) = names::subdomain(plain) {
                errors.push(FieldError::invalid(field, name, &why));
            }
        }
    }
    named(&spec["ingressClassName"], "spec.ingressClassName", names::subdomain, errors);
}

fn host(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let name = text(value);
    if name.is_empty() {
        return;
    }
    if name.parse::<IpAddr>().is_ok() {
        return errors.push(FieldError::invalid(field, value, "must be a DNS name, not an IP address"));
    }
    if name.contains('*') {
        let rest = name.strip_prefix("*.").filter(|rest| !rest.contains('*'));
        if rest.is_none_or(|rest| names::subdomain(rest).is_some()) {
            let why = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                       consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character \
                       (e.g. '*.example.com', regex used for validation is \
                       '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
            errors.push(FieldError::invalid(field, value, why));
        }
    } else if let Some(why) = names::subdomain(name) {
        errors.push(FieldError::invalid(field, value, &why));
    }
}

fn http_path(one: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
    match text(&one["pathType"]) {
        "" => errors.push(FieldError::required(format!("{path}.pathType"), "pathType must be specified")),
        given if !kinds.contains(&given) => {
            errors.push(FieldError::not_supported(format!("{path}.pathType"), &one["pathType"], &kinds));
        }
        "ImplementationSpecific" => {}
        _ => {
            let (wanted, field) = (text(&one["path"]), format!("{path}.path"));
            if !wanted.starts_with('/') {
                errors.push(FieldError::invalid(field.as_str(), &json!(wanted), "must be an absolute path"));
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if wanted.contains(bad) {
                    errors.push(FieldError::invalid(
                        field.as_str(),
                        &json!(wanted),
                        &format!("must not contain '{bad}'"),
                    ));
                }
            }
            for bad in ["/..", "/."] {
                if wanted.ends_with(bad) {
                    errors.push(FieldError::invalid(
                        field.as_str(),
                        &json!(wanted),
                        &format!("cannot end with '{bad}'"),
                    ));
                }
            }
        }
    }
    backend(&one["backend"], &format!("{path}.backend"), errors);
}

fn backend(backend: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_object(), resource.is_object()) {
        (true, true) => {
            return errors.push(FieldError::invalid(path, &json!(""), "cannot set both resource and service backends"));
        }
        (false, false) => {
            return errors.push(FieldError::invalid(path, &json!(""), "resource or service backend is required"));
        }
        (false, true) => return,
        (true, false) => {}
    }
    match text(&service["name"]) {
        "" => errors.push(FieldError::required(format!("{path}.service.name"), "")),
        name => {
            if let Some(why) = names::NameRule::Label1035.refuse(name) {
                errors.push(FieldError::invalid(format!("{path}.service.name"), &service["name"], &why));
            }
        }
    }
    let (name, number) = (text(&service["port"]["name"]), service["port"]["number"].as_i64().unwrap_or(0));
    match (name.is_empty(), number == 0) {
        (false, false) => {
            let why = "cannot set both port name & port number";
            errors.push(FieldError::invalid(path, &json!(""), why));
        }
        (true, true) => errors.push(FieldError::required(path, "port name or number is required")),
        (false, true) => {
            let faults = port_name_faults(name);
            errors.extend(
                faults.iter().map(|why| FieldError::invalid(format!("{path}.service.port.name"), &json!(name), why)),
            );
        }
        (true, false) => port_number(&service["port"]["number"], format!("{path}.service.port.number"), errors),
    }
}

/// Validates NetworkPolicies.
pub(in crate::registry) fn network_policy(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    selector(&spec["podSelector"], "spec.podSelector", errors);
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in indexed(&spec[list]) {
            let path = format!("spec.{list}[{index}]");
            for (number, port) in indexed(&rule["ports"]) {
                policy_port(port, &format!("{path}.ports[{number}]"), errors);
            }
            for (number, peer) in indexed(&rule[peers]) {
                policy_peer(peer, &format!("{path}.{peers}[{number}]"), errors);
            }
        }
    }
    let kinds = spec["policyTypes"].as_array().cloned().unwrap_or_default();
    if kinds.len() > 2 {
        let why = "may not specify more than two policyTypes";
        return errors.push(FieldError::invalid("spec.policyTypes", &spec["policyTypes"], why));
    }
    for (index, kind) in kinds.iter().enumerate() {
        one_of(kind, format!("spec.policyTypes[{index}]"), &["Ingress", "Egress"], errors);
    }
}

fn policy_port(one: &Value, path: &str, errors: &mut Vec<FieldError>) {
    one_of(&one["protocol"], format!("{path}.protocol"), &["TCP", "UDP", "SCTP"], errors);
    if !one["port"].is_null() {
        port(&one["port"], &format!("{path}.port"), errors);
    }
    let end = &one["endPort"];
    if let Some(last) = end.as_i64() {
        match one["port"].as_i64() {
            Some(first) if last < first => {
                errors.push(FieldError::invalid(
                    format!("{path}.endPort"),
                    end,
                    "must be greater than or equal to `port`",
                ));
            }
            Some(_) => port_number(end, format!("{path}.endPort"), errors),
            None => errors.push(FieldError::required(format!("{path}.port"), "must be specified when `endPort` is")),
        }
    }
}

fn policy_peer(peer: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let given = ["podSelector", "namespaceSelector", "ipBlock"].iter().filter(|key| !peer[**key].is_null()).count();
    selector(&peer["podSelector"], &format!("{path}.podSelector"), errors);
    selector(&peer["namespaceSelector"], &format!("{path}.namespaceSelector"), errors);
    let block = &peer["ipBlock"];
    if block.is_object() {
        let field = format!("{path}.ipBlock");
        required(&block["cidr"], format!("{field}.cidr"), errors);
        let whole =
            if text(&block["cidr"]).is_empty() { None } else { cidr(&block["cidr"], &format!("{field}.cidr"), errors) };
        for (index, value) in indexed(&block["except"]) {
            let field = format!("{field}.except[{index}]");
            let part = cidr(value, &field, errors);
            if let (Some(whole), Some(part)) = (whole, part)
                && !contains(whole, part)
            {
                errors.push(FieldError::invalid(field, value, "must be a strict subset of `cidr`"));
            }
        }
    }
    if given == 0 {
        errors.push(FieldError::required(path, "must specify a peer"));
    } else if given > 1 && block.is_object() {
        let why = "may not specify both ipBlock and another peer";
        errors.push(FieldError::forbidden(path, why));
    }
}

/// Returns whether a range of addresses is a true part of another.
fn contains(whole: (IpAddr, u8), part: (IpAddr, u8)) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(four) => (u128::from(u32::from(four)) << 96, true),
        IpAddr::V6(six) => (u128::from(six), false),
    };
    let ((outer, outer_four), (inner, inner_four)) = (bits(whole.0), bits(part.0));
    let shift = 128 - u32::from(whole.1);
    let same = shift == 128 || outer >> shift == inner >> shift;
    outer_four == inner_four && part.1 > whole.1 && same
}

/// Validates ingress classes.
pub(in crate::registry) fn ingress_class(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let controller = &new["spec"]["controller"];
    match text(controller) {
        "" => errors.push(FieldError::required("spec.controller", "")),
        name if !name.contains('/') => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid("spec.controller", controller, why));
        }
        name => label_name(
            &json!(name.replacen('/', "~", 1).replace('/', ".").replacen('~', "/", 1)),
            "spec.controller",
            errors,
        ),
    }
    immutable(new, old, "/spec/controller", errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_must_be_inside_of_its_range() {
        let range = |text: &str| cidr(&json!(text), "f", &mut Vec::new()).expect("valid");
        assert!(contains(range("10.0.0.0/8"), range("10.1.0.0/16")));
        assert!(!contains(range("10.0.0.0/8"), range("11.0.0.0/16")));
        assert!(!contains(range("10.0.0.0/8"), range("10.0.0.0/8")));
        assert!(!contains(range("0.0.0.0/0"), range("::/1")));
    }
}
