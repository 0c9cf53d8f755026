//! Checks the YAML inside specs that Ray reads: `serveConfigV2` and `runtimeEnvYAML`.
//!
//! Ray ignores most of the keys that it does not know, so a misspelt one changes nothing and nobody is told. The shapes
//! are those of Ray 2.60, with the keys of older versions that newer ones dropped.

use super::yaml::{Documents, Node};
use super::{Report, Severity, suspicious};
use crate::suggest;

/// What a value may contain.
enum Shape {
    Any,
    Map(&'static [(&'static str, &'static Shape)]),
    List(&'static Shape),
}

const ANY: &Shape = &Shape::Any;

const RUNTIME_ENV: &Shape = &Shape::Map(&[
    ("_inject_current_ray", ANY),
    ("_nsight", ANY),
    ("_ray_commit", ANY),
    ("_ray_release", ANY),
    ("_rocprof_sys", ANY),
    ("conda", ANY),
    ("config", &Shape::Map(&[("eager_install", ANY), ("log_files", ANY), ("setup_timeout_seconds", ANY)])),
    ("container", ANY),
    ("env_vars", ANY),
    ("excludes", ANY),
    ("image_uri", ANY),
    ("java_jars", ANY),
    ("mpi", ANY),
    ("nsight", ANY),
    ("pip", ANY),
    ("py_executable", ANY),
    ("py_modules", ANY),
    ("uv", ANY),
    ("worker_process_setup_hook", ANY),
    ("working_dir", ANY),
]);

const LOGGING: &Shape = &Shape::Map(&[
    ("additional_log_standard_attrs", ANY),
    ("enable_access_log", ANY),
    ("encoding", ANY),
    ("log_level", ANY),
    ("logs_dir", ANY),
]);

const AUTOSCALING: &Shape = &Shape::Map(&[
    ("aggregation_function", ANY),
    ("downscale_delay_s", ANY),
    ("downscale_smoothing_factor", ANY),
    ("downscale_to_zero_delay_s", ANY),
    ("downscaling_factor", ANY),
    ("initial_replicas", ANY),
    ("look_back_period_s", ANY),
    ("max_replicas", ANY),
    ("metrics_interval_s", ANY),
    ("min_replicas", ANY),
    ("policy", ANY),
    ("smoothing_factor", ANY),
    ("target_num_ongoing_requests_per_replica", ANY),
    ("target_ongoing_requests", ANY),
    ("upscale_delay_s", ANY),
    ("upscale_smoothing_factor", ANY),
    ("upscaling_factor", ANY),
]);

const ACTOR_OPTIONS: &Shape = &Shape::Map(&[
    ("accelerator_type", ANY),
    ("fallback_strategy", ANY),
    ("label_selector", ANY),
    ("memory", ANY),
    ("num_cpus", ANY),
    ("num_gpus", ANY),
    ("object_store_memory", ANY),
    ("resources", ANY),
    ("runtime_env", RUNTIME_ENV),
]);

const DEPLOYMENT: &Shape = &Shape::Map(&[
    ("autoscaling_config", AUTOSCALING),
    ("backpressure_config", &Shape::Map(&[("retry_after_s", ANY), ("status_code", ANY)])),
    ("deployment_actors", ANY),
    ("gang_scheduling_config", ANY),
    ("graceful_shutdown_timeout_s", ANY),
    ("graceful_shutdown_wait_loop_s", ANY),
    ("health_check_period_s", ANY),
    ("health_check_timeout_s", ANY),
    ("is_driver_deployment", ANY),
    ("logging_config", LOGGING),
    ("max_concurrent_queries", ANY),
    ("max_ongoing_requests", ANY),
    ("max_queued_requests", ANY),
    ("max_replicas_per_node", ANY),
    ("max_surge_percent", ANY),
    ("name", ANY),
    ("num_replicas", ANY),
    ("placement_group_bundle_label_selector", ANY),
    ("placement_group_bundles", ANY),
    ("placement_group_strategy", ANY),
    ("ray_actor_options", ACTOR_OPTIONS),
    ("request_router_config", ANY),
    ("rolling_update_percentage", ANY),
    ("route_prefix", ANY),
    ("user_config", ANY),
]);

const APPLICATION: &Shape = &Shape::Map(&[
    ("args", ANY),
    ("autoscaling_policy", ANY),
    ("deployments", &Shape::List(DEPLOYMENT)),
    ("external_scaler_enabled", ANY),
    ("host", ANY),
    ("import_path", ANY),
    ("logging_config", LOGGING),
    ("name", ANY),
    ("port", ANY),
    ("route_prefix", ANY),
    ("runtime_env", RUNTIME_ENV),
]);

const SERVE: &Shape = &Shape::Map(&[
    ("applications", &Shape::List(APPLICATION)),
    ("controller_options", &Shape::Map(&[("runtime_env", RUNTIME_ENV)])),
    (
        "grpc_options",
        &Shape::Map(&[
            ("enable_reflection", ANY),
            ("grpc_servicer_functions", ANY),
            ("port", ANY),
            ("request_timeout_s", ANY),
        ]),
    ),
    (
        "http_options",
        &Shape::Map(&[
            ("host", ANY),
            ("keep_alive_timeout_s", ANY),
            ("port", ANY),
            ("request_timeout_s", ANY),
            ("root_path", ANY),
            ("ssl_ca_certs", ANY),
            ("ssl_certfile", ANY),
            ("ssl_keyfile", ANY),
            ("ssl_keyfile_password", ANY),
        ]),
    ),
    ("logging_config", LOGGING),
    ("proxy_location", ANY),
    ("target_capacity", ANY),
    ("tracing_config", &Shape::Map(&[("enabled", ANY), ("exporter_import_path", ANY), ("sampling_ratio", ANY)])),
]);

/// The fields that hold YAML for Ray.
const FIELDS: [(&[&str], &Shape); 3] = [
    (&["spec", "serveConfigV2"], SERVE),
    (&["spec", "runtimeEnvYAML"], RUNTIME_ENV),
    (&["spec", "jobTemplate", "runtimeEnvYAML"], RUNTIME_ENV),
];

/// Reports the keys that Ray does not know, on their own lines.
pub(crate) fn check(root: &Node, report: &mut Report<'_>) {
    for (path, shape) in FIELDS {
        let Some(field) = root.at(path) else { continue };
        let Some(text) = field.as_str() else { continue };
        let mut check = Check { field, report, path: path.join(".") };
        let mut inner = Report { file: "", findings: Vec::new() };
        let mut documents = Documents::new(text);
        if let Some(document) = documents.next(&mut inner) {
            check.value(&document, shape);
            check.suspicious(&document);
        }
        for problem in inner.findings.into_iter().filter(|problem| problem.severity != Severity::Note) {
            check.report.error(check.line(problem.line), &check.path, &problem.message);
        }
    }
}

struct Check<'a, 'b> {
    /// The field that holds the YAML.
    field: &'a Node,
    report: &'a mut Report<'b>,
    path: String,
}

impl Check<'_, '_> {
    /// Returns the line in the file of a line of the text.
    fn line(&self, inner: usize) -> usize {
        // A block begins with its first line of text; other texts may be folded.
        if self.field.is_block() { self.field.line + inner.saturating_sub(1) } else { self.field.line }
    }

    /// Reports curly quotes and template expressions; those outside of a block are found in the field itself.
    fn suspicious(&mut self, document: &Node) {
        if !self.field.is_block() {
            return;
        }
        let mut found = Vec::new();
        suspicious::visit(document, &mut self.path.clone(), &mut |line, path, problem| {
            found.push((line, path.to_owned(), problem.to_owned()));
        });
        for (line, path, problem) in found {
            self.report.warning(self.line(line), &path, &problem);
        }
    }

    fn value(&mut self, value: &Node, shape: &Shape) {
        let length = self.path.len();
        match shape {
            Shape::Any => {}
            Shape::List(inner) => {
                for (index, item) in value.items().enumerate() {
                    self.path.push_str(&format!("[{index}]"));
                    self.value(item, inner);
                    self.path.truncate(length);
                }
            }
            Shape::Map(known) => {
                for entry in value.entries() {
                    self.path.push_str(&format!(".{}", entry.key));
                    match known.iter().find(|(name, _)| *name == entry.key) {
                        Some((_, inner)) => self.value(&entry.value, inner),
                        None => {
                            let hint = suggest::closest(&entry.key, known.iter().map(|(name, _)| *name))
                                .map_or_else(String::new, |name| format!(", did you mean \"{name}\"?"));
                            let line = self.line(entry.line);
                            self.report.warning(line, &self.path, &format!("Ray does not know this key{hint}"));
                        }
                    }
                    self.path.truncate(length);
                }
            }
        }
    }
}
