//! Services, Endpoints, EndpointSlices, Ingresses, NetworkPolicies.

use serde_json::{Value, json};

use super::{Row, base};

pub(super) fn rows() -> Vec<Row> {
    let service = base(
        "Service",
        "/api/v1/namespaces/{ns}/services",
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": {"a": "b"}, "ports": [{"name": "p", "port": 80}]}}),
    );
    let mut rows = vec![service.good()];
    rows.extend(service.each([
        ("/metadata/name", json!("1abc")),
        ("/metadata/name", json!("a.b")),
        ("/spec/ports", json!([])),
        ("/spec/ports", json!([{"port": 0}])),
        ("/spec/ports", json!([{"port": 70000}])),
        ("/spec/ports", json!([{"port": 1}, {"port": 2}])),
        ("/spec/ports", json!([{"name": "a", "port": 1}, {"name": "a", "port": 2}])),
        ("/spec/ports", json!([{"name": "a", "port": 1}, {"name": "b", "port": 1}])),
        ("/spec/ports", json!([{"name": "Bad_Name", "port": 1}])),
        ("/spec/ports", json!([{"port": 1, "protocol": "Odd"}])),
        ("/spec/ports", json!([{"port": 1, "targetPort": 0}])),
        ("/spec/ports", json!([{"port": 1, "targetPort": "Bad_Name"}])),
        ("/spec/ports", json!([{"port": 1, "nodePort": 30001}])),
        ("/spec/ports", json!([{"port": 1, "appProtocol": "bad protocol"}])),
        ("/spec/type", json!("Odd")),
        ("/spec/type", json!("ExternalName")),
        ("/spec/selector", json!({"bad key": "x"})),
        ("/spec/clusterIP", json!("None")),
        ("/spec/clusterIP", json!("1.2.3")),
        ("/spec/sessionAffinity", json!("Odd")),
        ("/spec/sessionAffinity", json!("ClientIP")),
        ("/spec/sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 5}})),
        ("/spec/externalIPs", json!(["x"])),
        ("/spec/externalIPs", json!(["127.0.0.1"])),
        ("/spec/externalTrafficPolicy", json!("Local")),
        ("/spec/internalTrafficPolicy", json!("Odd")),
        ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
        ("/spec/loadBalancerClass", json!("example.com/class")),
        ("/spec/healthCheckNodePort", json!(30002)),
        ("/spec/ipFamilies", json!(["IPv4", "IPv4"])),
        ("/spec/ipFamilies", json!(["IPv6"])),
        ("/spec/ipFamilyPolicy", json!("RequireDualStack")),
        ("/spec/ipFamilyPolicy", json!("Odd")),
        ("/spec/trafficDistribution", json!("Odd")),
        ("/spec/externalName", json!("Bad Name")),
    ]));
    rows.push(service.create(&[
        ("/spec/sessionAffinity", json!("ClientIP")),
        ("/spec/sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 0}})),
    ]));
    rows.push(service.create(&[("/spec/type", json!("ExternalName")), ("/spec/externalName", json!("bad name"))]));
    rows.push(
        service.create(&[("/spec/type", json!("NodePort")), ("/spec/ports", json!([{"port": 1, "nodePort": 70000}]))]),
    );
    rows.push(service.create(&[("/spec/type", json!("NodePort")), ("/spec/externalTrafficPolicy", json!("Odd"))]));
    rows.push(
        service.create(&[("/spec/type", json!("LoadBalancer")), ("/spec/loadBalancerSourceRanges", json!(["x"]))]),
    );
    rows.push(service.update("", json!({"spec": {"ports": [{"port": 0}]}})));
    rows.push(service.update("", json!({"spec": {"clusterIP": "None"}})));
    let endpoints = base(
        "Endpoints",
        "/api/v1/namespaces/{ns}/endpoints",
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"},
            "subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"name": "p", "port": 80}]}]}),
    );
    rows.push(endpoints.good());
    rows.extend(endpoints.each([
        ("/subsets", json!([{}])),
        ("/subsets", json!([{"addresses": [{"ip": ""}]}])),
        ("/subsets", json!([{"addresses": [{"ip": "x"}]}])),
        ("/subsets", json!([{"addresses": [{"ip": "127.0.0.1"}]}])),
        ("/subsets", json!([{"addresses": [{"ip": "10.1.2.3", "hostname": "Bad_Name"}]}])),
        ("/subsets", json!([{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 0}]}])),
        ("/subsets", json!([{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 1}, {"port": 2}]}])),
        ("/subsets", json!([{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 1, "protocol": "Odd"}]}])),
    ]));
    let slice = base(
        "EndpointSlice",
        "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "e"},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"name": "p", "port": 80}]}),
    );
    rows.push(slice.good());
    rows.extend(slice.each([
        ("/addressType", Value::Null),
        ("/addressType", json!("Odd")),
        ("/endpoints", json!([{"addresses": []}])),
        ("/endpoints", json!([{"addresses": ["x"]}])),
        ("/endpoints", json!([{"addresses": ["::1"]}])),
        ("/endpoints", json!([{"addresses": ["10.1.2.3"], "hostname": "Bad_Name"}])),
        ("/ports", json!([{"name": "Bad_Name", "port": 1}])),
        ("/ports", json!([{"name": "p", "port": 1}, {"name": "p", "port": 2}])),
        ("/ports", json!([{"name": "p", "port": 1, "protocol": "Odd"}])),
    ]));
    rows.push(slice.update("", json!({"addressType": "IPv6"})));
    let ingress = base(
        "Ingress",
        "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"},
            "spec": {"rules": [{"host": "a.example.com", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
    );
    let backend = |backend: Value| json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    rows.push(ingress.good());
    rows.extend(ingress.each([
        ("/spec/rules", json!([])),
        ("/spec/rules/0/host", json!("Bad Host")),
        ("/spec/rules/0/host", json!("1.2.3.4")),
        ("/spec/rules/0/host", json!("*.example.com")),
        ("/spec/rules/0/host", json!("a.*.com")),
        ("/spec/rules/0/http/paths", json!([])),
        ("/spec/rules/0/http/paths/0/pathType", json!("Odd")),
        ("/spec/rules/0/http/paths/0/pathType", Value::Null),
        ("/spec/rules/0/http/paths/0/path", json!("relative")),
        ("/spec/rules/0/http/paths/0/path", json!("/a//b")),
        ("/spec/rules/0/http/paths", backend(json!({}))),
        ("/spec/rules/0/http/paths", backend(json!({"service": {"name": "s"}}))),
        ("/spec/rules/0/http/paths", backend(json!({"service": {"name": "Bad_Name", "port": {"number": 1}}}))),
        ("/spec/rules/0/http/paths", backend(json!({"service": {"name": "s", "port": {"number": 1, "name": "p"}}}))),
        ("/spec/rules/0/http/paths", backend(json!({"service": {"name": "s", "port": {"number": 70000}}}))),
        ("/spec/ingressClassName", json!("Bad Class")),
        ("/spec/tls", json!([{"hosts": ["bad host"]}])),
    ]));
    let policy = base(
        "NetworkPolicy",
        "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"},
            "spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}]}}),
    );
    rows.push(policy.good());
    rows.extend(policy.each([
        ("/spec/podSelector", json!({"matchLabels": {"bad key": "x"}})),
        ("/spec/policyTypes", json!(["Odd"])),
        ("/spec/policyTypes", json!(["Ingress", "Egress", "Ingress"])),
        ("/spec/ingress", json!([{"from": [{}]}])),
        ("/spec/ingress", json!([{"from": [{"ipBlock": {"cidr": "x"}}]}])),
        ("/spec/ingress", json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}}]}])),
        ("/spec/ingress", json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}])),
        ("/spec/ingress", json!([{"ports": [{"port": 0}]}])),
        ("/spec/ingress", json!([{"ports": [{"port": 70000}]}])),
        ("/spec/ingress", json!([{"ports": [{"port": 80, "endPort": 70}]}])),
        ("/spec/ingress", json!([{"ports": [{"protocol": "Odd"}]}])),
    ]));
    rows
}
