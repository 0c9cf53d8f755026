//! Defaults of the kinds that make pods: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob.

use serde_json::{Value, json};

use super::pod::template;
use super::{field, object, set};

pub(in crate::registry) fn deployment(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    let strategy = object(spec, "strategy");
    set(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = object(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", "25%");
        set(rolling, "maxSurge", "25%");
    }
    template(object(spec, "template"));
    object(value, "status");
}

pub(in crate::registry) fn replica_set(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "replicas", 1);
    template(object(spec, "template"));
    set(object(value, "status"), "replicas", 0);
}

pub(in crate::registry) fn replication_controller(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "replicas", 1);
    if field(spec, "template").is_some() {
        template(object(spec, "template"));
    }
    let labels = spec["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        if spec["selector"].is_null() {
            spec["selector"] = labels.clone();
        }
        if value["metadata"]["labels"].is_null() {
            value["metadata"]["labels"] = labels;
        }
    }
    let status = object(value, "status");
    set(status, "replicas", 0);
}

pub(in crate::registry) fn stateful_set(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "podManagementPolicy", "OrderedReady");
    let strategy = object(spec, "updateStrategy");
    set(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        set(object(strategy, "rollingUpdate"), "partition", 0);
    }
    let retention = object(spec, "persistentVolumeClaimRetentionPolicy");
    set(retention, "whenDeleted", "Retain");
    set(retention, "whenScaled", "Retain");
    template(object(spec, "template"));
    for claim in super::items(spec, "volumeClaimTemplates") {
        set(claim, "apiVersion", "v1");
        set(claim, "kind", "PersistentVolumeClaim");
        super::other::claim(claim);
    }
    let status = object(value, "status");
    set(status, "replicas", 0);
    set(status, "availableReplicas", 0);
}

pub(in crate::registry) fn daemon_set(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "revisionHistoryLimit", 10);
    let strategy = object(spec, "updateStrategy");
    set(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = object(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", 1);
        set(rolling, "maxSurge", 0);
    }
    template(object(spec, "template"));
    let status = object(value, "status");
    for key in ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"] {
        set(status, key, 0);
    }
}

pub(in crate::registry) fn new_daemon_set(value: &mut Value) {
    object(object(value, "metadata"), "annotations")["deprecated.daemonset.template.generation"] = "1".into();
}

pub(in crate::registry) fn job(value: &mut Value) {
    job_spec(object(value, "spec"));
    object(value, "status");
}

fn job_spec(spec: &mut Value) {
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        set(spec, "completions", 1);
        set(spec, "parallelism", 1);
    }
    set(spec, "parallelism", 1);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    set(spec, "backoffLimit", if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX });
    let replacement = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    set(spec, "podReplacementPolicy", replacement);
    set(spec, "manualSelector", false);
    template(object(spec, "template"));
}

/// Initializes a new Job: a selector by uid, and the labels that match it.
pub(in crate::registry) fn new_job(value: &mut Value) {
    let (uid, name) = (value["metadata"]["uid"].clone(), value["metadata"]["name"].clone());
    let spec = object(value, "spec");
    if spec["manualSelector"] != true {
        let labels = object(object(object(spec, "template"), "metadata"), "labels");
        for prefix in ["", "batch.kubernetes.io/"] {
            labels[format!("{prefix}controller-uid")] = uid.clone();
            labels[format!("{prefix}job-name")] = name.clone();
        }
        // A selector of the client's own stays, so that validation refuses it.
        object(object(spec, "selector"), "matchLabels")["batch.kubernetes.io/controller-uid"] = uid;
    }
    // A job without labels shows those of its template.
    if value["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty) {
        let labels = value["spec"]["template"]["metadata"]["labels"].clone();
        if labels.is_object() {
            value["metadata"]["labels"] = labels;
        }
    }
    value["status"] = json!({});
}

pub(in crate::registry) fn cron_job(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "concurrencyPolicy", "Allow");
    set(spec, "suspend", false);
    set(spec, "successfulJobsHistoryLimit", 3);
    set(spec, "failedJobsHistoryLimit", 1);
    let template = object(spec, "jobTemplate");
    object(template, "metadata");
    let inner = object(template, "spec");
    self::template(object(inner, "template"));
    object(value, "status");
}

pub(in crate::registry) fn pod_template(value: &mut Value) {
    template(object(value, "template"));
}
