//! kubectl, as people use it, against this server.

#[allow(dead_code, reason = "not every test needs all of it")]
mod served;

use std::io::Write;
use std::path::Path;

use manta_apiserver::Options;
use served::Served;

/// A server that stores, and kubectl pointed at it.
struct Cluster(Served);

impl Cluster {
    fn start() -> Cluster {
        Cluster(Served::start(|folder| Options { data: Some(folder.join("data")), ..Options::default() }))
    }

    /// Runs kubectl with a text on its standard input; returns what it printed, on either stream.
    fn kubectl(&self, args: &str, input: &str) -> String {
        let mut command = self.0.kubectl(args.split_whitespace());
        command.env("EDITOR", self.0.path("editor"));
        let mut child = command.spawn().expect("kubectl runs");
        child.stdin.take().expect("an input").write_all(input.as_bytes()).expect("kubectl reads");
        let output = child.wait_with_output().expect("kubectl ends");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    fn check(&self, args: &str, input: &str, expect: &str) {
        let got = self.kubectl(args, input);
        assert!(got.contains(expect), "kubectl {args}\nexpected: {expect}\ngot: {got}");
    }
}

fn write_editor(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, "#!/bin/sh\nsed -i 's/c: d/c: edited/' \"$1\"\n").expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

const DEPLOYMENT: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
  "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "nginx:1", "ports": [{"containerPort": 80}]}]}}}}"#;

const DEFINITION: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "boats.sea.example"}, "spec": {"group": "sea.example", "scope": "Namespaced",
    "names": {"kind": "Boat", "listKind": "BoatList", "plural": "boats", "singular": "boat"},
    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
      "type": "object", "description": "Something that floats.", "properties": {"spec": {"type": "object", "properties": {
        "sails": {"type": "integer", "description": "How many sails it carries."}}}}}}}]}}"#;

#[test]
fn kubectl_works_as_on_any_cluster() {
    let cluster = Cluster::start();
    write_editor(&cluster.0.path("editor"));
    let check = |args: &str, input: &str, expect: &str| cluster.check(args, input, expect);

    // Create, apply, get.
    check("version", "", "Server Version: v1.34");
    check("create namespace demo", "", "namespace/demo created");
    check("config set-context --current --namespace=demo", "", "modified");
    check("apply -f -", DEPLOYMENT, "deployment.apps/web created");
    check("apply -f -", DEPLOYMENT, "deployment.apps/web unchanged");
    check("apply -f -", &DEPLOYMENT.replace("nginx:1", "nginx:2"), "deployment.apps/web configured");
    check("diff -f -", DEPLOYMENT, "+      - image: nginx:1");
    check(
        "apply --server-side -f -",
        &DEPLOYMENT.replace("nginx:1", "nginx:2"),
        "deployment.apps/web serverside-applied",
    );
    check("get deployment web -o jsonpath={.metadata.annotations}", "", "deployment.kubernetes.io/revision");
    check(
        "apply --server-side --field-manager=other -f -",
        &DEPLOYMENT.replace("nginx:1", "nginx:3"),
        "conflict with \"kubectl\"",
    );
    check("get deployments", "", "NAME   READY   UP-TO-DATE   AVAILABLE   AGE");
    check("get deployments,replicasets,pods -o wide", "", "pod-template-hash=");
    check("get deployment web -o yaml", "", "kind: Deployment");
    check("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}", "", "nginx:2");
    check("get pods -o name", "", "pod/web-");
    check("get all", "", "deployment.apps/web");
    check("get pods -l app=web --field-selector=status.phase=Pending -o name", "", "pod/web-");
    check("get pods -A --sort-by=.metadata.name", "", "demo ");
    check("describe deployment web", "", "StrategyType:           RollingUpdate");
    check("describe pods -l app=web", "", "Pending");
    check("api-resources", "", "deploy");
    check("explain pod.spec.containers", "", "List of containers belonging to the pod.");
    check("explain pod.spec.containers.image", "", "Container image name.");
    check("apply -f -", DEFINITION, "created");
    check("wait --for=condition=Established crd/boats.sea.example --timeout=10s", "", "condition met");
    check("explain boat", "", "Something that floats.");
    check("explain boat.spec.sails", "", "How many sails it carries.");
    check("explain boat.metadata.name", "", "Name must be unique within a namespace.");

    // The other ways to make things; most of them send protobuf.
    check("create configmap settings --from-literal=a=b", "", "configmap/settings created");
    check("create secret generic s --from-literal=a=b", "", "secret/s created");
    check("create serviceaccount robot", "", "serviceaccount/robot created");
    check("create token robot", "", "eyJ");
    check("create role r --verb=get --resource=pods", "", "created");
    check("create rolebinding rb --role=r --serviceaccount=demo:robot", "", "created");
    check("create job once --image=busybox -- true", "", "job.batch/once created");
    check("create service clusterip svc --tcp=80", "", "service/svc created");
    check("run p --image=busybox", "", "pod/p created");
    check("auth can-i create pods", "", "yes");
    check("auth whoami", "", "kubernetes-admin");

    // Changing things.
    check("label configmap settings x=y", "", "labeled");
    check("annotate configmap settings x=y", "", "annotated");
    check(r#"patch configmap settings -p {"data":{"c":"d"}}"#, "", "patched");
    check(r#"patch configmap settings --type=json -p [{"op":"add","path":"/data/e","value":"f"}]"#, "", "patched");
    check(r#"patch configmap settings --type=merge -p {"data":{"a":null}}"#, "", "patched");
    check("edit configmap settings", "", "configmap/settings edited");
    check("get configmap settings -o jsonpath={.data}", "", r#"{"c":"edited","e":"f"}"#);
    check("scale deployment web --replicas=1", "", "scaled");
    check("wait --for=jsonpath={.spec.replicas}=1 deployment/web --timeout=10s", "", "condition met");
    check("set image deployment/web c=nginx:4", "", "image updated");
    check(
        "apply -f -",
        "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"bad\"}, \"spec\": {\"bogus\": 1}}",
        "unknown field \"spec.bogus\"",
    );

    check(
        "apply -f -",
        "{\"apiVersion\": \"nowhere.io/v1\", \"kind\": \"Nothing\", \"metadata\": {\"name\": \"x\"}}",
        "no matches for kind \"Nothing\" in version \"nowhere.io/v1\"",
    );

    // Deleting, with every cascade.
    check("delete deployment web --cascade=foreground --timeout=20s", "", "deleted");
    check("get replicasets,pods -l app=web", "", "No resources found");
    check("delete job once --cascade=orphan", "", "deleted");
    check("get pods -l job-name=once -o name", "", "pod/once-");
    check("delete pod p --wait=true --timeout=10s", "", "deleted");
    check("delete configmap -l x=y", "", "deleted");
    check("get events", "", "LAST SEEN");
    check("delete namespace demo --timeout=30s", "", "deleted");
    check("get namespace demo", "", "not found");
}

#[test]
fn kubectl_sees_what_a_service_account_may_do() {
    let options = |folder: &Path| Options { data: Some(folder.join("data")), rbac: true, ..Options::default() };
    let cluster = Cluster(Served::start(options));
    let account = "--as system:serviceaccount:default:default";
    cluster.check("auth can-i * *", "", "yes");
    cluster.check(&format!("auth can-i * * {account}"), "", "no");
    cluster.check(&format!("get pods {account}"), "", "cannot list resource \"pods\"");
    cluster.check("create rolebinding viewer --clusterrole=view --serviceaccount=default:default", "", "created");
    cluster.check(&format!("auth can-i list pods {account}"), "", "yes");
    cluster.check(&format!("auth can-i create pods {account}"), "", "no");
    cluster.check(&format!("get pods {account}"), "", "No resources found");
}
