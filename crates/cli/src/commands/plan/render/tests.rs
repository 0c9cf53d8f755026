//! What a plan looks like.

use super::*;
use manta_logic::action::Step;
use manta_operator::preview::Remark;

fn change(step: Step, before: Option<Value>, after: Option<Value>) -> Change {
    let owner = ObjectKey::new(Kind::RayCluster, "ns", "demo");
    Change { owner, action: step.action, why: step.why, before, after }
}

fn pod(group: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": "p", "labels": {"ray.io/cluster": "demo", "ray.io/group": group}}})
}

#[test]
fn a_change_is_a_diff_with_its_reason() {
    let key = ObjectKey::new(Kind::Service, "ns", "svc");
    let object = |port: u16| {
        json!({"metadata": {"name": "svc", "uid": "u", "resourceVersion": "3"}, "spec": {"port": port}, "status": {}})
    };
    let step = Step::replace(key, &object(2), "the port is wrong");
    let preview =
        Preview { changes: vec![change(step, Some(object(1)), Some(object(2)))], objects: 1, ..Preview::default() };
    let expect = "\
# replace Service ns/svc for RayCluster demo: the port is wrong
diff -u -N LIVE/v1.Service.ns.svc PLANNED/v1.Service.ns.svc
--- LIVE/v1.Service.ns.svc
+++ PLANNED/v1.Service.ns.svc
@@ -3,4 +3,4 @@
 metadata:
   name: svc
 spec:
-  port: 1
+  port: 2
# 1 change for 1 object: 1 to replace; pods: 0 created, 0 deleted, 0 restarted
";
    assert_eq!(as_diff(&preview, false).unwrap(), expect);
    assert!(as_diff(&preview, true).unwrap().contains("\x1b[32m+  port: 2\x1b[0m\n"));
}

#[test]
fn nothing_to_do_is_said_with_what_is_waited_for() {
    let object = ObjectKey::new(Kind::RayJob, "ns", "train");
    let remark = |kind, text: &str| Remark { object: object.clone(), kind, text: text.to_owned() };
    let remarks = vec![remark(RemarkKind::Warning, "bad\x1b[2J"), remark(RemarkKind::Waiting, "its cluster")];
    let preview = Preview { remarks, objects: 2, ..Preview::default() };
    let expect = "\
# warning: RayJob ns/train: bad\u{fffd}[2J
# waiting: RayJob ns/train: its cluster
# nothing to do for 2 objects
";
    assert_eq!(as_summary(&preview), expect);
}

#[test]
fn secrets_are_redacted_and_changes_in_them_shown() {
    let key = ObjectKey::new(Kind::Secret, "ns", "token");
    let secret = |token: &str| {
        let annotations = json!({LAST_APPLIED: token});
        json!({"metadata": {"name": "token", "annotations": annotations}, "data": {"auth_token": token, "same": "s3"}})
    };
    let step = Step::replace(key.clone(), &secret("new"), "why");
    let preview = Preview { changes: vec![change(step, Some(secret("old")), Some(secret("new")))], ..Preview::default() };
    for text in [as_diff(&preview, false).unwrap(), as_json(&preview).to_string()] {
        assert!(text.contains("*** (before)") && text.contains("*** (after)"), "{text}");
        assert!(!text.contains("old") && !text.contains("new") && !text.contains("s3"), "{text}");
    }
    let step = Step::create(key, &json!({"stringData": {"auth_token": "t0p"}}), "why");
    let after = Some(json!({"stringData": {"auth_token": "t0p"}}));
    let preview = Preview { changes: vec![change(step, None, after)], ..Preview::default() };
    assert!(!as_diff(&preview, false).unwrap().contains("t0p"));
}

#[test]
fn pods_that_come_back_in_their_group_restart() {
    let key = ObjectKey::new(Kind::Pod, "ns", "p");
    let create = |group: &str| change(Step::create(key.clone(), &pod(group), "why"), None, Some(pod(group)));
    let delete = |group: &str| change(Step::delete(key.clone(), "u", "why"), Some(pod(group)), None);
    let changes = vec![delete("a"), delete("a"), create("a"), create("b"), delete("c")];
    let preview = Preview { changes, collected_pods: vec![pod("d")], ..Preview::default() };
    assert_eq!(count_pods(&preview), PodCounts { created: 2, deleted: 4, restarted: 1 });
}

#[test]
fn requests_to_ray_are_sentences() {
    let endpoint = manta_logic::dashboard::DashboardEndpoint {
        namespace: "ns".into(),
        address: "a".into(),
        service: "s".into(),
        token_secret: None,
    };
    let key = ObjectKey::new(Kind::RayCluster, "ns", "demo");
    let request = RayRequest::StopJob { job_id: "j".into() };
    let step = Step::new(Action::Ray { key, endpoint, request }, "it is deleted");
    let preview = Preview { changes: vec![change(step, None, None)], objects: 1, ..Preview::default() };
    let text = as_diff(&preview, false).unwrap();
    assert!(text.starts_with("# ask the Ray of demo to stop job j: it is deleted\n# 1 change"), "{text}");
}
