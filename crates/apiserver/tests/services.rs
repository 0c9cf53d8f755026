//! Services: their node ports, and the endpoints that requests to them reach.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use manta_apiserver::{Options, Server};
use serde_json::{Value, json};

fn service(name: &str, kind: &str, ports: Value) -> Service {
    let object = json!({"metadata": {"name": name}, "spec": {"type": kind, "selector": {"a": "b"}, "ports": ports}});
    serde_json::from_value(object).expect("a service")
}

fn node_ports(service: &Service) -> Vec<Option<i32>> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default();
    ports.iter().map(|port| port.node_port).collect()
}

/// Returns the code and the message of a refusal.
fn refusal<T: std::fmt::Debug>(answer: kube::Result<T>) -> (u16, String) {
    match answer.expect_err("refused") {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn node_ports_are_in_range_and_belong_to_one_service() {
    let server = Server::start(Options::default()).await.expect("starts");
    let services: Api<Service> = Api::default_namespaced(server.client());
    let create = async |service: Service| services.create(&PostParams::default(), &service).await;
    let first = service("first", "NodePort", json!([{"port": 80, "nodePort": 30080}]));
    create(first.clone()).await.expect("created");
    for (port, why) in [
        (80, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (32768, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (30080, "provided port is already allocated"),
    ] {
        let given = json!([{"port": 80, "nodePort": port}]);
        let expect = format!("Service \"second\" is invalid: spec.ports[0].nodePort: Invalid value: {port}: {why}");
        assert_eq!(refusal(create(service("second", "NodePort", given)).await), (422, expect));
    }
    // One number serves both protocols of a port, and belongs to nobody once its service is gone.
    let both = json!([{"name": "t", "port": 53, "nodePort": 30053}, {"name": "u", "port": 53, "protocol": "UDP"}]);
    let both = create(service("both", "NodePort", both)).await.expect("created");
    assert_eq!(node_ports(&both), [Some(30053), Some(30053)]);
    services.delete("first", &DeleteParams::default()).await.expect("deleted");
    create(first).await.expect("the port is free again");
    let none = json!({"metadata": {"name": "none"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}],
        "allocateLoadBalancerNodePorts": false}});
    let none = create(serde_json::from_value(none).expect("a service")).await.expect("created");
    assert_eq!(node_ports(&none), [None]);
}

#[tokio::test]
async fn a_replaced_service_keeps_its_node_ports() {
    let server = Server::start(Options::default()).await.expect("starts");
    let services: Api<Service> = Api::default_namespaced(server.client());
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let before = services.create(&PostParams::default(), &service("s", "NodePort", ports)).await.expect("created");
    let before = node_ports(&before);
    let ports = json!([{"name": "c", "port": 83}, {"name": "b", "port": 82}, {"name": "a", "port": 80}]);
    let after = services.replace("s", &PostParams::default(), &service("s", "NodePort", ports)).await;
    let after = node_ports(&after.expect("replaced"));
    assert_eq!((after[2], after[1]), (before[0], before[1]));
    assert!(after[0].is_some() && !before.contains(&after[0]), "{after:?}");
}
