//! Validation of Jobs and CronJobs.

use serde_json::{Value, json};

use super::fields::{indexed, join, non_negative, one_of, required_one_of, text};
use super::immutable;
use super::workload::any_template;
use crate::names;
use crate::schema::FieldError;
use crate::selector::{LabelRule, labels_match};
use crate::store::{Entry, ObjectKey};

/// The most pods of an Indexed Job that may run at once.
const MAX_INDEXED_PARALLELISM: i64 = 100_000;
/// The most indexes of a Job; each of them is remembered once it is completed.
const MAX_INDEXES: i64 = 100_000;
/// The longest name of a CronJob: its Jobs get eleven more characters.
const MAX_CRON_NAME: usize = 52;

/// Validates Jobs.
pub(in crate::registry) fn job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    job_spec(spec, "spec", errors);
    let manual = spec["manualSelector"] == true;
    let generated = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": new["metadata"]["uid"]}});
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else if old.is_none() && !manual && spec["selector"] != generated {
        errors.push(FieldError::invalid("spec.selector", &spec["selector"], "`selector` not auto-generated"));
    }
    if spec["selector"].is_null() || !selects(&spec["selector"], &spec["template"]) {
        let labels = &spec["template"]["metadata"]["labels"];
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
    }
    if spec["completionMode"] == "Indexed"
        && let Some(last) = spec["completions"].as_i64().filter(|count| *count > 0).map(|count| count - 1)
    {
        let host = format!("{}-{last}", text(&new["metadata"]["name"]));
        if let Some(why) = names::label(&host) {
            let why = format!("will not able to create pod with invalid DNS label: {host}: {why}");
            errors.push(FieldError::invalid(
                "metadata.name",
                &new["metadata"]["name"],
                why.split(": must").next().unwrap_or(&why),
            ));
        }
    }
    let Some(old) = old else { return };
    // The size of an Indexed Job may change as long as all of its indexes run at once.
    let elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    if !elastic {
        immutable(new, Some(old), "/spec/completions", errors);
    }
    for field in
        ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        immutable(new, Some(old), &format!("/spec/{field}"), errors);
    }
    let suspended = old["spec"]["suspend"] == true && old["status"]["startTime"].is_null();
    if strip_movable(new, suspended) != strip_movable(old, suspended) {
        let mut error = FieldError::invalid("spec.template", &spec["template"], "field is immutable");
        error.field = "spec.template".to_owned();
        errors.push(error);
    }
}

/// Returns the template without what may change before a suspended Job starts.
fn strip_movable(job: &Value, suspended: bool) -> Value {
    let mut template = job["spec"]["template"].clone();
    if suspended {
        for key in ["annotations", "labels"] {
            template["metadata"].as_object_mut().map(|metadata| metadata.remove(key));
        }
        for key in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
            template["spec"].as_object_mut().map(|spec| spec.remove(key));
        }
    }
    template
}

fn selects(selector: &Value, template: &Value) -> bool {
    let entry = Entry::new(0, ObjectKey::new("", "").into(), template.clone());
    labels_match(&LabelRule::from_object(selector), &entry)
}

/// Validates CronJobs.
pub(in crate::registry) fn cron_job(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    match text(&spec["schedule"]) {
        "" => errors.push(FieldError::required("spec.schedule", "")),
        schedule => {
            if let Some(why) = super::cron::error_of(schedule) {
                errors.push(FieldError::invalid("spec.schedule", &spec["schedule"], &why));
            }
        }
    }
    time_zone(&spec["timeZone"], errors);
    let limits = ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
    non_negative(spec, &limits, "spec", errors);
    required_one_of(&spec["concurrencyPolicy"], "spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"], errors);
    let inner = &spec["jobTemplate"]["spec"];
    if !inner["selector"].is_null() {
        let why = "`selector` will be auto-generated";
        errors.push(FieldError::invalid("spec.jobTemplate.spec.selector", &inner["selector"], why));
    }
    if inner["manualSelector"] == true {
        errors.push(FieldError::not_supported("spec.jobTemplate.spec.manualSelector", &json!(true), &["nil", "false"]));
    }
    job_spec(inner, "spec.jobTemplate.spec", errors);
    let name = &new["metadata"]["name"];
    if text(name).len() > MAX_CRON_NAME {
        errors.push(FieldError::invalid("metadata.name", name, "must be no more than 52 characters"));
    }
}

fn time_zone(zone: &Value, errors: &mut Vec<FieldError>) {
    let Some(name) = zone.as_str() else { return };
    if name.is_empty() {
        errors.push(FieldError::invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string"));
    } else if name.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(FieldError::invalid("spec.timeZone", zone, why));
    } else if jiff::tz::TimeZone::get(name).is_err() {
        errors.push(FieldError::invalid("spec.timeZone", zone, &format!("unknown time zone {name}")));
    }
}

fn job_spec(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    non_negative(spec, &numbers, path, errors);
    let manager = &spec["managedBy"];
    if !manager.is_null() {
        let fine = text(manager)
            .split_once('/')
            .is_some_and(|(domain, name)| names::subdomain(domain).is_none() && !name.is_empty());
        if !fine {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(join(path, "managedBy"), manager, why));
        }
    }
    let indexed_mode = spec["completionMode"] == "Indexed";
    if !spec["completionMode"].is_null() && !["Indexed", "NonIndexed"].contains(&text(&spec["completionMode"])) {
        let field = join(path, "completionMode");
        errors.push(FieldError::not_supported(field, &spec["completionMode"], &["NonIndexed", "Indexed"]));
    }
    if indexed_mode {
        indexes(spec, path, errors);
    } else {
        let why = "requires indexed completion mode";
        if !spec["backoffLimitPerIndex"].is_null() {
            errors.push(FieldError::invalid(join(path, "backoffLimitPerIndex"), &spec["backoffLimitPerIndex"], why));
        }
        if !spec["maxFailedIndexes"].is_null() {
            errors.push(FieldError::invalid(join(path, "maxFailedIndexes"), &spec["maxFailedIndexes"], why));
        }
        if !spec["successPolicy"].is_null() {
            errors.push(FieldError::invalid(join(path, "successPolicy"), &spec["successPolicy"], why));
        }
    }
    if !spec["podFailurePolicy"].is_null() {
        failure_policy(spec, &join(path, "podFailurePolicy"), errors);
    }
    if indexed_mode && !spec["successPolicy"].is_null() {
        success_policy(spec, &join(path, "successPolicy"), errors);
    }
    let replacement = &spec["podReplacementPolicy"];
    let supported: &[&str] =
        if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    one_of(replacement, join(path, "podReplacementPolicy"), supported, errors);
    any_template(&spec["template"], &format!("{path}.template"), errors);
    let supported = ["OnFailure", "Never"];
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let field = format!("{path}.template.spec.restartPolicy");
    if !supported.contains(&text(policy)) {
        match text(policy) {
            "" | "Always" => errors.push(FieldError::required(field, "valid values: \"OnFailure\", \"Never\"")),
            _ => errors.push(FieldError::not_supported(field, policy, &supported)),
        }
    } else if !spec["podFailurePolicy"].is_null() && policy != "Never" {
        let why = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.push(FieldError::invalid(field, policy, why));
    }
}

fn indexes(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(completions) = spec["completions"].as_i64() else {
        let why = "when completion mode is Indexed";
        return errors.push(FieldError::required(join(path, "completions"), why));
    };
    if completions > MAX_INDEXES {
        let why = format!("this server runs at most {MAX_INDEXES} indexes");
        errors.push(FieldError::invalid(join(path, "completions"), &spec["completions"], &why));
    }
    if spec["parallelism"].as_i64().is_some_and(|parallelism| parallelism > MAX_INDEXED_PARALLELISM) {
        let why = format!("must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed");
        errors.push(FieldError::invalid(join(path, "parallelism"), &spec["parallelism"], &why));
    }
    let most = &spec["maxFailedIndexes"];
    if most.as_i64().is_some_and(|most| most > completions) {
        let why = "must be less than or equal to completions";
        errors.push(FieldError::invalid(join(path, "maxFailedIndexes"), most, why));
    }
    if !most.is_null() && spec["backoffLimitPerIndex"].is_null() {
        let why = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(join(path, "backoffLimitPerIndex"), why));
    }
}

fn failure_policy(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let lists = ["containers", "initContainers"];
    let known: Vec<&str> = lists
        .iter()
        .flat_map(|list| spec["template"]["spec"][*list].as_array().into_iter().flatten())
        .map(|container| text(&container["name"]))
        .collect();
    for (index, rule) in indexed(&spec["podFailurePolicy"]["rules"]) {
        let field = format!("{path}.rules[{index}]");
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        let action = &rule["action"];
        if action == "FailIndex" && spec["backoffLimitPerIndex"].is_null() {
            let why = "requires the backoffLimitPerIndex to be set";
            errors.push(FieldError::invalid(format!("{field}.action"), action, why));
        } else if text(action).is_empty() {
            let why = "valid values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\"";
            errors.push(FieldError::required(format!("{field}.action"), why));
        } else if !actions.contains(&text(action)) {
            errors.push(FieldError::not_supported(format!("{field}.action"), action, &actions));
        }
        let codes = &rule["onExitCodes"];
        let has_conditions = rule["onPodConditions"].as_array().is_some_and(|list| !list.is_empty());
        if codes.is_object() {
            exit_codes(codes, &format!("{field}.onExitCodes"), &known, errors);
        }
        for (number, pattern) in indexed(&rule["onPodConditions"]) {
            let field = format!("{field}.onPodConditions[{number}]");
            super::fields::label_name(&pattern["type"], &format!("{field}.type"), errors);
            if pattern["status"].is_null() {
                errors.push(FieldError::required(
                    format!("{field}.status"),
                    "valid values: \"False\", \"True\", \"Unknown\"",
                ));
            } else {
                one_of(&pattern["status"], format!("{field}.status"), &["False", "True", "Unknown"], errors);
            }
        }
        match (codes.is_object(), has_conditions) {
            (true, true) => {
                let why = "specifying both OnExitCodes and OnPodConditions is not supported";
                errors.push(FieldError::invalid(field, rule, why));
            }
            (false, false) => {
                errors.push(FieldError::invalid(
                    field,
                    rule,
                    "specifying one of OnExitCodes and OnPodConditions is required",
                ));
            }
            _ => {}
        }
    }
}

fn exit_codes(codes: &Value, path: &str, containers: &[&str], errors: &mut Vec<FieldError>) {
    let operators = ["In", "NotIn"];
    match text(&codes["operator"]) {
        "" => errors.push(FieldError::required(format!("{path}.operator"), "valid values: \"In\", \"NotIn\"")),
        given if !operators.contains(&given) => {
            errors.push(FieldError::not_supported(format!("{path}.operator"), &codes["operator"], &operators));
        }
        _ => {}
    }
    let name = &codes["containerName"];
    if !name.is_null() && !containers.contains(&text(name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(format!("{path}.containerName"), name, why));
    }
    let field = format!("{path}.values");
    let values = codes["values"].as_array().cloned().unwrap_or_default();
    if values.is_empty() {
        errors.push(FieldError::invalid(field.as_str(), &codes["values"], "at least one value is required"));
    }
    let mut sorted = true;
    for (index, value) in values.iter().enumerate() {
        if codes["operator"] == "In" && *value == 0 {
            errors.push(FieldError::invalid(format!("{field}[{index}]"), value, "must not be 0 for the In operator"));
        }
        sorted &= index == 0 || values[index - 1].as_i64() <= value.as_i64();
        if values[..index].contains(value) {
            errors.push(FieldError::duplicate(format!("{field}[{index}]"), value));
        }
    }
    if !sorted {
        errors.push(FieldError::invalid(field, &codes["values"], "must be ordered"));
    }
}

fn success_policy(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let completions = spec["completions"].as_i64().unwrap_or(0);
    let rules = &spec["successPolicy"]["rules"];
    if rules.as_array().is_none_or(Vec::is_empty) {
        let why = "at least one rules must be specified when the successPolicy is specified";
        return errors.push(FieldError::required(format!("{path}.rules"), why));
    }
    for (index, rule) in indexed(rules) {
        let field = format!("{path}.rules[{index}]");
        let (count, wanted) = (&rule["succeededCount"], &rule["succeededIndexes"]);
        if count.is_null() && wanted.is_null() {
            let why = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(field.as_str(), why));
        }
        let mut total = completions;
        if let Some(listed) = wanted.as_str() {
            match index_count(listed, completions) {
                Ok(found) => total = found,
                Err(why) => {
                    let why = format!("error parsing succeededIndexes: {why}");
                    errors.push(FieldError::invalid(format!("{field}.succeededIndexes"), wanted, &why));
                }
            }
        }
        if let Some(number) = count.as_i64() {
            let field = format!("{field}.succeededCount");
            if number < 0 {
                errors.push(FieldError::invalid(field, count, "must be greater than or equal to 0"));
            } else if number > total {
                let why = match wanted.is_null() {
                    true => {
                        format!("must be less than or equal to {completions} (the number of specified completions)")
                    }
                    false => format!(
                        "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
                    ),
                };
                errors.push(FieldError::invalid(field, count, &why));
            }
        }
    }
}

/// Returns how many indexes a text names.
fn index_count(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    for part in text.split(',') {
        let (first, end) = part.split_once('-').unwrap_or((part, part));
        let parse = |text: &str| {
            text.parse::<i64>().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))
        };
        let (first, end) = (parse(first)?, parse(end)?);
        if end >= completions {
            return Err(format!("too large index: {:?}", end.to_string()));
        }
        if last.is_some_and(|last| first <= last) || end < first {
            return Err(format!("non-increasing order, previous: {}, current: {first}", last.unwrap_or(first)));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Validates the status of a Job.
pub(in crate::registry) fn job_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (status, spec) = (&new["status"], &new["spec"]);
    non_negative(status, &["active", "succeeded", "failed", "ready", "terminating"], "status", errors);
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    if number("ready") > number("active") {
        let why = "cannot set more ready pods than active";
        errors.push(FieldError::invalid("status.ready", &status["ready"], why));
    }
    let is = |object: &Value, kind: &str| {
        object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == kind && one["status"] == "True")
    };
    if is(new, "Complete") && is(new, "Failed") {
        errors.push(FieldError::invalid(
            "status.conditions",
            &status["conditions"],
            "cannot set Complete=True and Failed=true conditions",
        ));
    }
    if is(new, "Complete") && is(new, "FailureTarget") {
        errors.push(FieldError::invalid(
            "status.conditions",
            &status["conditions"],
            "cannot set Complete=True and FailureTarget=true conditions",
        ));
    }
    if is(new, "Complete") && !is(old, "Complete") {
        if !is(new, "SuccessCriteriaMet") {
            errors.push(FieldError::invalid(
                "status.conditions",
                &status["conditions"],
                "cannot set Complete=True without SuccessCriteriaMet=true",
            ));
        }
        if status["completionTime"].is_null() {
            errors.push(FieldError::required("status.completionTime", "completionTime is required for Complete jobs"));
        }
    }
    if is(new, "Failed") && !is(old, "Failed") && !is(new, "FailureTarget") {
        errors.push(FieldError::invalid(
            "status.conditions",
            &status["conditions"],
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ));
    }
    let finished = is(new, "Complete") || is(new, "Failed");
    if finished && number("active") > 0 {
        errors.push(FieldError::invalid("status.active", &status["active"], "active>0 is invalid for finished job"));
    }
    if finished && status["startTime"].is_null() {
        errors.push(FieldError::required("status.startTime", "startTime is required for finished job"));
    }
    if !status["completionTime"].is_null() && !is(new, "Complete") {
        errors.push(FieldError::invalid(
            "status.completionTime",
            &status["completionTime"],
            "cannot set completionTime when there is no Complete=True condition",
        ));
    }
    if spec["completionMode"] != "Indexed" && !text(&status["completedIndexes"]).is_empty() {
        errors.push(FieldError::invalid(
            "status.completedIndexes",
            &status["completedIndexes"],
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        ));
    }
    if spec["backoffLimitPerIndex"].is_null() && status["failedIndexes"].is_string() {
        errors.push(FieldError::invalid(
            "status.failedIndexes",
            &status["failedIndexes"],
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(extra: Value) -> Vec<String> {
        let mut job = json!({"metadata": {"name": "j"}, "spec": {"completionMode": "NonIndexed", "completions": 3,
            "manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "restartPolicy": "Never", "dnsPolicy": "Default",
            "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}]}}}});
        for (key, value) in extra.as_object().into_iter().flatten() {
            job["spec"][key.as_str()] = value.clone();
        }
        let mut errors = Vec::new();
        super::job(&job, None, &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn what_needs_indexes_is_refused_without_them() {
        assert!(fields(json!({})).is_empty());
        assert!(fields(json!({"completionMode": "Indexed", "backoffLimitPerIndex": 1})).is_empty());
        assert_eq!(fields(json!({"backoffLimitPerIndex": 1})), ["spec.backoffLimitPerIndex"]);
        assert_eq!(fields(json!({"successPolicy": {"rules": []}})), ["spec.successPolicy"]);
        assert_eq!(fields(json!({"completionMode": "Odd"})), ["spec.completionMode"]);
    }

    #[test]
    fn templates_are_checked_as_of_other_kinds() {
        let template = |key: &str, value: Value| {
            let mut template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never",
                "dnsPolicy": "Default", "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}]}});
            match key {
                "ephemeralContainers" => template["spec"][key] = value,
                key => template["metadata"][key] = value,
            }
            template
        };
        let of = |template: &Value| fields(json!({"template": template}));
        assert_eq!(of(&template("labels", json!({"a": "b", "bad key": "c"}))), ["spec.template.labels"]);
        assert_eq!(of(&template("annotations", json!({"bad key": "c"}))), ["spec.template.annotations"]);
        let ephemeral = json!([{"name": "e", "image": "i", "imagePullPolicy": "Always"}]);
        assert_eq!(of(&template("ephemeralContainers", ephemeral)), ["spec.template.spec.ephemeralContainers"]);
        let cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "@daily", "concurrencyPolicy": "Allow",
            "jobTemplate": {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template("name", json!("t"))}}}});
        let mut errors = Vec::new();
        cron_job(&cron, None, &mut errors);
        let got: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(got, ["spec.jobTemplate.spec.selector"], "{errors:?}");
    }

    #[test]
    fn indexes_are_counted() {
        assert_eq!(index_count("0-1,3", 4), Ok(3));
        assert!(index_count("0-4", 4).is_err());
        assert!(index_count("2,1", 4).is_err());
        assert!(index_count("x", 4).is_err());
    }
}
