//! ValidatingAdmissionPolicies: expressions judge writes, with variables and parameters.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use manta_apiserver::{Options, Server};
use serde_json::{Value, json};

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a valid object")
}

async fn bind(client: &Client, policy: Value, binding: Value) {
    use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
    let mut spec = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]}});
    spec.as_object_mut().expect("an object").extend(policy.as_object().cloned().expect("an object"));
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let made = json!({"metadata": {"name": "p.example.com"}, "spec": spec});
    policies.create(&PostParams::default(), &object(made)).await.expect("a policy");
    let mut spec = json!({"policyName": "p.example.com", "validationActions": ["Deny"]});
    spec.as_object_mut().expect("an object").extend(binding.as_object().cloned().expect("an object"));
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let made = json!({"metadata": {"name": "b.example.com"}, "spec": spec});
    bindings.create(&PostParams::default(), &object(made)).await.expect("a binding");
}

fn map(name: &str, data: Value) -> ConfigMap {
    object(json!({"metadata": {"name": name}, "data": data}))
}

#[tokio::test]
async fn a_policy_refuses_what_breaks_it() {
    let server = Server::start(Options::default()).await.expect("starts");
    let client = server.client();
    let policy = json!({
        "variables": [{"name": "size", "expression": "has(object.data) ? object.data.size() : 0"}],
        "matchConditions": [{"name": "not-the-server-s", "expression": "object.metadata.name != 'kube-root-ca.crt'"}],
        "validations": [{"expression": "variables.size <= 1", "messageExpression": "'has ' + string(variables.size)"}],
    });
    bind(&client, policy, json!({})).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &map("fine", json!({"a": "1"}))).await.expect("allowed");
    let refused = maps.create(&PostParams::default(), &map("large", json!({"a": "1", "b": "2"}))).await;
    let kube::Error::Api(status) = refused.expect_err("refused") else { panic!("no Status") };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let expect = "configmaps \"large\" is forbidden: ValidatingAdmissionPolicy 'p.example.com' with binding \
                  'b.example.com' denied request: has 2";
    assert_eq!(status.message, expect);
    let patch = json!({"data": {"b": "2"}});
    let refused = maps.patch("fine", &PatchParams::default(), &Patch::Merge(&patch)).await;
    assert!(refused.is_err(), "updates are judged, too");
}

#[tokio::test]
async fn a_policy_takes_parameters() {
    let server = Server::start(Options::default()).await.expect("starts");
    let client = server.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &map("limits", json!({"most": "1"}))).await.expect("created");
    let policy = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.data.size() <= int(params.data.most)", "reason": "Forbidden"}]});
    let binding = json!({"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    bind(&client, policy, binding).await;
    maps.create(&PostParams::default(), &map("fine", json!({"a": "1"}))).await.expect("allowed");
    let refused = maps.create(&PostParams::default(), &map("large", json!({"a": "1", "b": "2"}))).await;
    let kube::Error::Api(status) = refused.expect_err("refused") else { panic!("no Status") };
    assert_eq!(status.code, 403, "{}", status.message);
}
