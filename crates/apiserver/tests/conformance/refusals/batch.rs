//! Jobs and CronJobs.

use serde_json::{Value, json};

use super::{Row, base};

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}})
}

pub(super) fn rows() -> Vec<Row> {
    let job = base(
        "Job",
        "/apis/batch/v1/namespaces/{ns}/jobs",
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"suspend": true, "template": template()}}),
    );
    let mut rows = vec![job.good()];
    rows.extend(job.each([
        ("/spec/parallelism", json!(-1)),
        ("/spec/completions", json!(-1)),
        ("/spec/backoffLimit", json!(-1)),
        ("/spec/activeDeadlineSeconds", json!(-1)),
        ("/spec/ttlSecondsAfterFinished", json!(-1)),
        ("/spec/template/spec/restartPolicy", json!("Always")),
        ("/spec/template/spec/restartPolicy", Value::Null),
        ("/spec/template/spec/restartPolicy", json!("Odd")),
        ("/spec/template/spec/containers", json!([])),
        ("/spec/completionMode", json!("Indexed")),
        ("/spec/completionMode", json!("Odd")),
        ("/spec/podReplacementPolicy", json!("Odd")),
        ("/spec/podReplacementPolicy", json!("Failed")),
        ("/spec/backoffLimitPerIndex", json!(1)),
        ("/spec/maxFailedIndexes", json!(1)),
        ("/spec/managedBy", json!("odd")),
        ("/spec/managedBy", json!("example.com/manager")),
        ("/spec/selector", json!({"matchLabels": {"a": "b"}})),
        ("/spec/manualSelector", json!(true)),
        ("/spec/podFailurePolicy", json!({"rules": []})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "FailJob"}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "Odd", "onExitCodes": {"operator": "In", "values": [1]}}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": []}}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 1]}}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "Odd", "values": [1]}}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "FailJob", "onExitCodes": {"containerName": "x", "operator": "In", "values": [1]}}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "Odd"}]}]})),
        ("/spec/podFailurePolicy", json!({"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}]})),
        ("/spec/successPolicy", json!({"rules": [{"succeededCount": 1}]})),
    ]));
    let indexed = |more: &[(&str, Value)]| {
        let mut all = vec![
            ("/spec/completionMode", json!("Indexed")),
            ("/spec/completions", json!(3)),
            ("/spec/parallelism", json!(3)),
        ];
        all.extend(more.iter().cloned());
        job.create(&all)
    };
    rows.push(indexed(&[]));
    rows.push(indexed(&[("/spec/parallelism", json!(1_000_000))]));
    rows.push(indexed(&[("/spec/backoffLimitPerIndex", json!(1))]));
    rows.push(indexed(&[("/spec/backoffLimitPerIndex", json!(-1))]));
    rows.push(indexed(&[("/spec/backoffLimitPerIndex", json!(1)), ("/spec/maxFailedIndexes", json!(4))]));
    rows.push(indexed(&[("/spec/maxFailedIndexes", json!(1))]));
    rows.push(indexed(&[("/spec/successPolicy", json!({"rules": []}))]));
    rows.push(indexed(&[("/spec/successPolicy", json!({"rules": [{}]}))]));
    rows.push(indexed(&[("/spec/successPolicy", json!({"rules": [{"succeededCount": 5}]}))]));
    rows.push(indexed(&[("/spec/successPolicy", json!({"rules": [{"succeededIndexes": "0-9"}]}))]));
    rows.push(indexed(&[("/spec/successPolicy", json!({"rules": [{"succeededIndexes": "odd"}]}))]));
    rows.push(indexed(&[(
        "/spec/successPolicy",
        json!({"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]}),
    )]));
    rows.push(indexed(&[("/metadata/name", json!("x".repeat(62)))]));
    for patch in [
        json!({"spec": {"completions": 4}}),
        json!({"spec": {"parallelism": 4}}),
        json!({"spec": {"completionMode": "Indexed"}}),
        json!({"spec": {"selector": {"matchLabels": {"x": "y"}}}}),
        json!({"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}),
        json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}),
        json!({"spec": {"backoffLimit": 2}}),
        json!({"spec": {"backoffLimitPerIndex": 2}}),
        json!({"spec": {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X", "status": "True"}]}]}}}),
    ] {
        rows.push(job.update("", patch));
    }
    for status in [
        json!({"active": -1}),
        json!({"succeeded": -1}),
        json!({"ready": 1}),
        json!({"completionTime": "2024-01-01T00:00:00Z"}),
        json!({"startTime": "2024-01-01T00:00:00Z"}),
        json!({"conditions": [{"type": "Complete", "status": "True"}]}),
        json!({"conditions": [{"type": "Failed", "status": "True"}]}),
        json!({"conditions": [{"type": "Complete", "status": "True"}, {"type": "Failed", "status": "True"}]}),
        json!({"completedIndexes": "0"}),
        json!({"failedIndexes": "0"}),
    ] {
        rows.push(job.update("/status", json!({"status": status})));
    }
    let cron = base(
        "CronJob",
        "/apis/batch/v1/namespaces/{ns}/cronjobs",
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
            "spec": {"schedule": "0 0 * * *", "suspend": true, "jobTemplate": {"spec": {"template": template()}}}}),
    );
    rows.push(cron.good());
    rows.extend(cron.each([
        ("/spec/schedule", json!("")),
        ("/spec/schedule", json!("every day")),
        ("/spec/schedule", json!("60 * * * *")),
        ("/spec/schedule", json!("* * * *")),
        ("/spec/schedule", json!("@daily")),
        ("/spec/schedule", json!("@every 1h")),
        ("/spec/schedule", json!("@never")),
        ("/spec/schedule", json!("TZ=UTC 0 0 * * *")),
        ("/spec/schedule", json!("5-1 * * * *")),
        ("/spec/schedule", json!("*/0 * * * *")),
        ("/spec/timeZone", json!("Europe/Zurich")),
        ("/spec/timeZone", json!("Odd/Zone")),
        ("/spec/timeZone", json!("")),
        ("/spec/timeZone", json!("local")),
        ("/spec/concurrencyPolicy", json!("Odd")),
        ("/spec/startingDeadlineSeconds", json!(-1)),
        ("/spec/successfulJobsHistoryLimit", json!(-1)),
        ("/spec/failedJobsHistoryLimit", json!(-1)),
        ("/spec/jobTemplate/spec/parallelism", json!(-1)),
        ("/spec/jobTemplate/spec/template/spec/restartPolicy", json!("Always")),
        ("/spec/jobTemplate/spec/manualSelector", json!(true)),
        ("/metadata/name", json!("x".repeat(53))),
    ]));
    rows
}
