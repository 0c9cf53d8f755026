//! Checks the pod templates of an object as the API server would check their Pods.

use manta_apiserver::registry::template_errors;
use serde_json::Value;

use super::rules::Problem;
use super::wording;

/// Volumes that the operator adds to Pods, so that templates may mount them without declaring them.
const ADDED_VOLUMES: [&str; 5] = ["gcs-storage", "ray-logs", "ray-tls", "ray-token", "shared-mem"];

/// Returns what the API server would refuse in the Pods of an object.
pub(crate) fn warnings(object: &Value, cluster_path: &str) -> Vec<Problem> {
    let at = |path: &str| path.split('.').fold(object, |value, key| &value[key]);
    let cluster = at(cluster_path);
    let head = (format!("{cluster_path}.headGroupSpec.template"), &cluster["headGroupSpec"]["template"]);
    let groups = cluster["workerGroupSpecs"].as_array().into_iter().flatten().enumerate();
    let workers =
        groups.map(|(index, group)| (format!("{cluster_path}.workerGroupSpecs[{index}].template"), &group["template"]));
    let submitters = ["spec.submitterPodTemplate", "spec.jobTemplate.submitterPodTemplate"];
    let submitters = submitters.into_iter().map(|path| (path.to_owned(), at(path)));
    std::iter::once(head)
        .chain(workers)
        .chain(submitters)
        .filter(|(_, template)| template.is_object())
        .flat_map(|(path, template)| of_template(path, template))
        .collect()
}

fn of_template(path: String, template: &Value) -> impl Iterator<Item = Problem> {
    let errors = template_errors(&with_quantities_as_text(template)).into_iter();
    // Without containers the object itself is refused.
    let errors = errors.filter(|error| error.field != "spec.containers");
    let is_added = |body: &str| ADDED_VOLUMES.iter().any(|name| body == format!("Not found: \"{name}\""));
    errors.filter(move |error| !is_added(&error.body)).map(move |error| {
        let field = format!("{path}.{}", error.field);
        let reason = wording::reword(&error.field, &error.body, None);
        Problem { path: field, message: format!("the Pod would be refused: {reason}") }
    })
}

/// Returns a template with every quantity as text, which is how Pods carry them.
fn with_quantities_as_text(template: &Value) -> Value {
    let mut template = template.clone();
    for list in ["containers", "initContainers"] {
        let containers = template["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for kind in ["limits", "requests"] {
                let amounts = container.pointer_mut(&format!("/resources/{kind}")).and_then(Value::as_object_mut);
                for amount in amounts.into_iter().flat_map(|amounts| amounts.values_mut()) {
                    if amount.is_number() {
                        *amount = amount.to_string().into();
                    }
                }
            }
        }
    }
    template
}
