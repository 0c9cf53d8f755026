//! The jobs and Serve applications of one Ray cluster, and the dashboard's responses about them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A response: status code and body.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Json(u16, Value),
    Text(u16, String),
}

impl Answer {
    pub(super) fn text(status: u16, text: &str) -> Self {
        Self::Text(status, text.to_owned())
    }
}

#[derive(Debug)]
pub(super) struct Ray {
    jobs: BTreeMap<String, Value>,
    apps: BTreeMap<String, Value>,
    /// The status of a newly submitted application.
    new_app_status: String,
    serve_config: Option<Value>,
}

impl Default for Ray {
    fn default() -> Self {
        Self {
            jobs: BTreeMap::new(),
            apps: BTreeMap::new(),
            new_app_status: "DEPLOYING".to_owned(),
            serve_config: None,
        }
    }
}

impl Ray {
    pub(super) fn job(&self, submission_id: &str) -> Option<&Value> {
        self.jobs.get(submission_id)
    }

    pub(super) fn serve_config(&self) -> Option<&Value> {
        self.serve_config.as_ref()
    }

    /// Merges fields into a job's info; its times follow from its status.
    pub(super) fn set_job(&mut self, submission_id: &str, fields: &Value) {
        let job = self.jobs.entry(submission_id.to_owned()).or_insert_with(
            || json!({"type": "SUBMISSION", "submission_id": submission_id, "status": "PENDING", "message": ""}),
        );
        merge(job, fields);
        let now = Timestamp::now().as_millisecond();
        if job["status"] != "PENDING" && job["start_time"].is_null() {
            job["start_time"] = json!(now);
        }
        if has_ended(job) && job["end_time"].is_null() {
            job["end_time"] = json!(now);
        }
    }

    /// Merges fields into an application's details; `"*"` means all, and sets the status of later ones too.
    pub(super) fn set_app(&mut self, name: &str, fields: &Value) {
        if name == "*" {
            if let Some(status) = fields["status"].as_str() {
                status.clone_into(&mut self.new_app_status);
            }
            self.apps.values_mut().for_each(|app| merge(app, fields));
        } else {
            merge(self.apps.entry(name.to_owned()).or_insert_with(|| new_app(name, "DEPLOYING")), fields);
        }
    }

    pub(super) fn forget(&mut self) {
        *self = Self { new_app_status: std::mem::take(&mut self.new_app_status), ..Self::default() };
    }

    pub(super) fn answer(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            ("GET", ["api", "serve", "applications"]) => Answer::Json(200, self.serve_details()),
            ("PUT", ["api", "serve", "applications"]) => self.deploy(body),
            ("GET", ["api", "jobs"]) => Answer::Json(200, self.jobs.values().cloned().collect()),
            ("POST", ["api", "jobs"]) => self.submit(body),
            (_, ["api", "jobs", id, rest @ ..]) => self.answer_for_job(method, id, rest),
            _ => Answer::text(404, "404: Not Found"),
        }
    }

    fn serve_details(&self) -> Value {
        let mut details = json!({"applications": self.apps, "proxies": {}});
        if let Some(capacity) = self.serve_config.as_ref().and_then(|config| config.get("target_capacity")) {
            details["target_capacity"] = capacity.clone();
        }
        details
    }

    /// Replaces all applications by those in the configuration, as Serve does.
    fn deploy(&mut self, config: &Value) -> Answer {
        let Some(wanted) = config["applications"].as_array() else {
            return Answer::text(400, "validation error: applications: field required");
        };
        let mut apps = BTreeMap::new();
        for app in wanted {
            let Some(name) = app["name"].as_str() else {
                return Answer::text(400, "validation error: applications: name: field required");
            };
            let mut made = new_app(name, &self.new_app_status);
            made["deployed_app_config"] = app.clone();
            apps.insert(name.to_owned(), made);
        }
        self.apps = apps;
        self.serve_config = Some(config.clone());
        Answer::text(200, "")
    }

    fn submit(&mut self, request: &Value) -> Answer {
        let (Some(entrypoint), id) = (request["entrypoint"].as_str(), request["submission_id"].as_str()) else {
            return Answer::text(400, "entrypoint must be a string");
        };
        let id = id.map_or_else(|| format!("raysubmit_{}", self.jobs.len()), str::to_owned);
        if self.jobs.contains_key(&id) {
            let text = format!("Job with submission_id {id} already exists. Please use a different submission_id.");
            return Answer::Text(500, text);
        }
        self.set_job(
            &id,
            &json!({"entrypoint": entrypoint, "metadata": request["metadata"], "runtime_env": request["runtime_env"]}),
        );
        Answer::Json(200, json!({"job_id": id, "submission_id": id}))
    }

    fn answer_for_job(&mut self, method: &str, id: &str, rest: &[&str]) -> Answer {
        let Some(job) = self.jobs.get(id) else { return Answer::Text(404, format!("Job {id} does not exist")) };
        let ended = has_ended(job);
        match (method, rest) {
            ("GET", []) => Answer::Json(200, job.clone()),
            ("GET", ["logs"]) => Answer::Json(200, json!({"logs": ""})),
            ("POST", ["stop"]) => {
                if !ended {
                    self.set_job(id, &json!({"status": "STOPPED"}));
                }
                Answer::Json(200, json!({"stopped": !ended}))
            }
            ("DELETE", []) if !ended => Answer::Text(500, format!("Job {id} is still running")),
            ("DELETE", []) => {
                self.jobs.remove(id);
                Answer::Json(200, json!({"deleted": true}))
            }
            _ => Answer::text(404, "404: Not Found"),
        }
    }
}

fn new_app(name: &str, status: &str) -> Value {
    json!({"name": name, "status": status, "message": "", "deployments": {}})
}

fn has_ended(job: &Value) -> bool {
    ["SUCCEEDED", "FAILED", "STOPPED"].iter().any(|status| job["status"] == *status)
}

fn merge(target: &mut Value, fields: &Value) {
    let (Some(target), Some(fields)) = (target.as_object_mut(), fields.as_object()) else { return };
    target.extend(
        fields.iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect::<Map<_, _>>(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ray: &mut Ray, method: &str, path: &str, body: Value, expect: (u16, &str)) {
        let (status, text) = match ray.answer(method, path, &body) {
            Answer::Json(status, value) => (status, value.to_string()),
            Answer::Text(status, text) => (status, text),
        };
        assert!(status == expect.0 && text.contains(expect.1), "{method} {path}: {status} {text}, want {expect:?}");
    }

    #[test]
    fn a_job_is_submitted_once_then_read_and_stopped() {
        let ray = &mut Ray::default();
        check(ray, "GET", "/api/jobs/a", Value::Null, (404, "Job a does not exist"));
        let job = json!({"entrypoint": "python x.py", "submission_id": "a"});
        check(ray, "POST", "/api/jobs/", job.clone(), (200, r#""job_id":"a""#));
        check(ray, "POST", "/api/jobs/", job, (500, "Please use a different submission_id"));
        check(ray, "GET", "/api/jobs/a", Value::Null, (200, r#""status":"PENDING""#));
        ray.set_job("a", &json!({"status": "RUNNING"}));
        assert!(ray.job("a").is_some_and(|job| job["start_time"].is_i64() && job["end_time"].is_null()));
        check(ray, "POST", "/api/jobs/a/stop", Value::Null, (200, r#""stopped":true"#));
        check(ray, "POST", "/api/jobs/a/stop", Value::Null, (200, r#""stopped":false"#));
        check(ray, "GET", "/api/jobs/", Value::Null, (200, r#""status":"STOPPED""#));
        check(ray, "DELETE", "/api/jobs/a", Value::Null, (200, "true"));
        check(ray, "GET", "/api/jobs/a", Value::Null, (404, "does not exist"));
        check(ray, "POST", "/api/jobs/", json!({}), (400, "entrypoint"));
        check(ray, "GET", "/api/version", Value::Null, (404, ""));
    }

    #[test]
    fn serve_runs_the_applications_of_the_last_configuration() {
        let ray = &mut Ray::default();
        let path = "/api/serve/applications/";
        check(ray, "GET", path, Value::Null, (200, r#""applications":{}"#));
        check(ray, "PUT", path, json!({"applications": [{"name": "a"}, {"name": "b"}]}), (200, ""));
        check(ray, "GET", path, Value::Null, (200, r#""name":"b","status":"DEPLOYING""#));
        ray.set_app("*", &json!({"status": "RUNNING"}));
        check(ray, "PUT", path, json!({"applications": [{"name": "c"}], "target_capacity": 20}), (200, ""));
        check(ray, "GET", path, Value::Null, (200, r#""name":"c","status":"RUNNING""#));
        check(ray, "GET", path, Value::Null, (200, r#""target_capacity":20"#));
        ray.set_app("c", &json!({"status": "UNHEALTHY", "message": "no"}));
        check(ray, "GET", path, Value::Null, (200, r#""message":"no""#));
        check(ray, "PUT", path, json!("not a config"), (400, "applications"));
    }
}
