//! RayServices with real Ray.

use serde_json::{Value, json};

use crate::user::{User, cluster};

const CODE: &str =
    "from ray import serve\n@serve.deployment\nclass A:\n  def __call__(self, r): return 'served'\napp = A.bind()\n";

pub(crate) async fn a_service_answers_through_its_service(user: &User) {
    let mut spec = cluster(0);
    let head = &mut spec["headGroupSpec"]["template"]["spec"];
    // The application is a file that the head writes for itself.
    head["initContainers"] = json!([{
        "name": "code", "image": "busybox", "command": ["sh", "-c", "printf '%s' \"$CODE\" > /code/app.py"],
        "env": [{"name": "CODE", "value": CODE}], "volumeMounts": [{"name": "code", "mountPath": "/code"}],
    }]);
    head["containers"][0]["volumeMounts"] = json!([{"name": "code", "mountPath": "/home/ray/code"}]);
    head["volumes"] = json!([{"name": "code", "emptyDir": {}}]);
    let serve = "applications:\n- name: a\n  route_prefix: /\n  import_path: app:app\n  \
                 runtime_env: {env_vars: {PYTHONPATH: /home/ray/code}}\n";
    user.create("RayService", "svc", json!({"serveConfigV2": serve, "rayClusterConfig": spec})).await;
    let status = user.until("RayService", "svc", |status| is_ready(status).then(|| status.clone())).await;
    let cluster = status["activeServiceStatus"]["rayClusterName"].as_str().expect("a cluster").to_owned();
    let head = user.head(&cluster).await.metadata.name.expect("a name");
    let fetch =
        "import urllib.request as u; print(u.urlopen('http://svc-serve-svc:8000/', timeout=20).read().decode())";
    assert_eq!(user.run_in(&head, &["python", "-c", fetch]).await.trim(), "served");
}

fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}
