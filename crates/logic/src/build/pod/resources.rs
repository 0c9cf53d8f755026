//! Conversion of Kubernetes resources to the parameters of `ray start`.
//!
//! Ray takes `num-cpus`, `memory`, `num-gpus`, and a JSON object for all other resources.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use manta_quantity::Quantity;
use std::collections::BTreeMap;

type Quantities = BTreeMap<String, QuantityText>;

/// The accelerators that have a name of their own in Ray.
const ACCELERATORS: [&str; 3] = ["neuron_cores", "TPU", "NPU"];

/// Returns requirements whose limits equal the requests.
pub(in crate::build) fn requirements(cpu: &str, memory: &str) -> ResourceRequirements {
    requests_and_limits(cpu, memory, cpu, memory)
}

/// Returns requirements with these requests and limits.
pub(in crate::build) fn requests_and_limits(
    cpu: &str,
    memory: &str,
    cpu_limit: &str,
    memory_limit: &str,
) -> ResourceRequirements {
    let list = |cpu: &str, memory: &str| {
        let entry = |name: &str, amount: &str| (name.to_owned(), QuantityText(amount.to_owned()));
        Some(BTreeMap::from([entry("cpu", cpu), entry("memory", memory)]))
    };
    ResourceRequirements { requests: list(cpu, memory), limits: list(cpu_limit, memory_limit), claims: None }
}

/// Sets the parameters that follow from a container's resources unless the user sets them.
pub(super) fn apply_container(params: &mut BTreeMap<String, String>, resources: Option<&ResourceRequirements>) {
    let Some(resources) = resources else { return };
    if !params.contains_key("num-cpus") {
        let cpus = amount(resources.limits.as_ref(), "cpu").or_else(|| amount(resources.requests.as_ref(), "cpu"));
        if let Some(cpus) = cpus {
            params.insert("num-cpus".to_owned(), cpus.value().to_string());
        }
    }
    if !params.contains_key("memory")
        && let Some(memory) = amount(resources.limits.as_ref(), "memory")
    {
        params.insert("memory".to_owned(), memory.value().to_string());
    }
    if let Some(limits) = &resources.limits {
        apply_accelerators(params, limits);
    }
}

/// Sets the GPUs and the first accelerator with a name of its own.
fn apply_accelerators(params: &mut BTreeMap<String, String>, limits: &Quantities) {
    // As in KubeRay, invalid JSON is left to `ray start` to report, and GPUs are not set either.
    let Ok(mut custom) = parse_custom(params.get("resources")) else { return };
    if !params.contains_key("num-gpus") {
        let gpus = limits.keys().filter(|key| is_gpu(key)).find_map(|key| amount(Some(limits), key));
        if let Some(gpus) = gpus {
            params.insert("num-gpus".to_owned(), gpus.value().to_string());
        }
    }
    if ACCELERATORS.iter().any(|ray_name| custom.contains_key(*ray_name)) {
        return;
    }
    let found = limits.keys().find_map(|key| Some((accelerator(key)?, amount(Some(limits), key)?)));
    if let Some((ray_name, count)) = found {
        custom.insert(ray_name.to_owned(), count.as_f64());
        params.insert("resources".to_owned(), print_custom(&custom));
    }
}

/// Returns Ray's name for an accelerator with a name of its own.
fn accelerator(key: &str) -> Option<&'static str> {
    match key {
        "aws.amazon.com/neuroncore" => Some("neuron_cores"),
        "google.com/tpu" => Some("TPU"),
        key if is_ascend(key) => Some("NPU"),
        _ => None,
    }
}

/// Returns whether a resource counts Ascend NPUs (`huawei.com/Ascend910B`), and not their memory or a virtual slice.
fn is_ascend(key: &str) -> bool {
    let model = key.strip_prefix("huawei.com/Ascend");
    model.is_some_and(|model| !model.is_empty() && model.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Sets the parameters that follow from the group's `resources`, which override all others.
pub(super) fn apply_group(params: &mut BTreeMap<String, String>, resources: Option<&BTreeMap<String, String>>) {
    let mut custom = BTreeMap::new();
    for (name, text) in resources.into_iter().flatten() {
        let Ok(quantity) = Quantity::parse(text) else { continue };
        let param = match name.to_lowercase().as_str() {
            "cpu" => "num-cpus",
            "memory" => "memory",
            lower if is_gpu(lower) => "num-gpus",
            _ => {
                custom.insert(name.clone(), quantity.as_f64());
                continue;
            }
        };
        params.insert(param.to_owned(), quantity.value().to_string());
    }
    if !custom.is_empty() {
        params.insert("resources".to_owned(), print_custom(&custom));
    }
}

/// Returns whether a resource counts GPUs or slices of NVIDIA GPUs (`nvidia.com/mig-1g.5gb`).
pub fn is_gpu(key: &str) -> bool {
    key.ends_with("gpu") || is_mig_slice(key)
}

fn is_mig_slice(key: &str) -> bool {
    let before_memory = key.strip_suffix("gb").and_then(strip_digits);
    let before_compute = before_memory.and_then(|rest| rest.strip_suffix("g.")).and_then(strip_digits);
    before_compute.is_some_and(|rest| rest.ends_with("nvidia.com/mig-"))
}

/// Returns the text without its trailing digits, if there are any.
fn strip_digits(text: &str) -> Option<&str> {
    let rest = text.trim_end_matches(|c: char| c.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

/// Returns the quantity of a resource unless it is missing or zero.
fn amount(list: Option<&Quantities>, key: &str) -> Option<Quantity> {
    Quantity::parse(&list?.get(key)?.0).ok().filter(|quantity| !quantity.is_zero())
}

/// Parses the JSON object inside any quotes around it.
fn parse_custom(param: Option<&String>) -> Result<BTreeMap<String, f64>, serde_json::Error> {
    match param {
        Some(text) => serde_json::from_str(text.trim_matches(['\'', '"', '`', ' '])),
        None => Ok(BTreeMap::new()),
    }
}

/// Returns compact JSON in quotes for the shell.
fn print_custom(resources: &BTreeMap<String, f64>) -> String {
    let entry =
        |(name, amount): (&String, &f64)| format!("{}:{}", serde_json::Value::from(name.as_str()), number(*amount));
    let entries: Vec<String> = resources.iter().map(entry).collect();
    format!("'{{{}}}'", entries.join(","))
}

/// Returns a number as Go writes it in JSON: whole numbers without a fraction, extreme ones with an exponent.
fn number(amount: f64) -> String {
    match amount.abs() {
        size if size != 0.0 && size < 1e-6 => format!("{amount:e}"),
        size if size >= 1e21 => format!("{amount:e}").replace('e', "e+"),
        _ => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Applies a container's limits to parameters.
    fn check_limits(params: Value, limits: Value, expect: Value) {
        let mut made: BTreeMap<String, String> = serde_json::from_value(params).unwrap();
        let requirements = serde_json::from_value(json!({"limits": limits})).unwrap();
        apply_container(&mut made, Some(&requirements));
        assert_eq!(json!(made), expect, "{limits}");
    }

    #[test]
    fn accelerators_become_flags() {
        check_limits(json!({}), json!({"nvidia.com/gpu": "1"}), json!({"num-gpus": "1"}));
        check_limits(json!({}), json!({"nvidia.com/mig-2g.32gb": "1"}), json!({"num-gpus": "1"}));
        check_limits(json!({}), json!({"google.com/tpu": "4"}), json!({"resources": "'{\"TPU\":4}'"}));
        check_limits(
            json!({}),
            json!({"aws.amazon.com/neuroncore": "4"}),
            json!({"resources": "'{\"neuron_cores\":4}'"}),
        );
        let all = json!({"aws.amazon.com/neuroncore": "4", "nvidia.com/gpu": "1", "google.com/tpu": "8"});
        check_limits(json!({}), all, json!({"num-gpus": "1", "resources": "'{\"neuron_cores\":4}'"}));
        check_limits(json!({"num-gpus": "7"}), json!({"nvidia.com/gpu": "1"}), json!({"num-gpus": "7"}));
        check_limits(json!({}), json!({"amd.com/gpu": "0", "nvidia.com/gpu": "2"}), json!({"num-gpus": "2"}));
        check_limits(json!({}), json!({"huawei.com/npu": "1"}), json!({}));
        for ascend in ["huawei.com/Ascend910", "huawei.com/Ascend310P", "huawei.com/Ascend910B"] {
            check_limits(json!({}), json!({ascend: "8"}), json!({"resources": "'{\"NPU\":8}'"}));
        }
        check_limits(json!({}), json!({"huawei.com/Ascend910B-memory": "65536", "huawei.com/Ascend": "1"}), json!({}));
        let own = json!({"resources": "'{\"NPU\":2}'"});
        check_limits(own.clone(), json!({"huawei.com/Ascend910": "8"}), own);
    }

    #[test]
    fn accelerators_are_added_to_the_users_resources() {
        let neuron = json!({"aws.amazon.com/neuroncore": "4"});
        check_limits(
            json!({"resources": "\"{\"custom_resource\":2}\""}),
            neuron.clone(),
            json!({"resources": "'{\"custom_resource\":2,\"neuron_cores\":4}'"}),
        );
        for own in ["'{\"neuron_cores\":3,\"a\":1}'", "'{\"custom\":2,\"TPU\":4}'"] {
            check_limits(json!({"resources": own}), neuron.clone(), json!({"resources": own}));
        }
        let limits = json!({"aws.amazon.com/neuroncore": "4", "nvidia.com/gpu": "1"});
        check_limits(json!({"resources": "{"}), limits, json!({"resources": "{"}));
        check_limits(
            json!({"resources": "{\"a\":0.5,\"b\":1e30,\"c\":0}"}),
            neuron,
            json!({"resources": "'{\"a\":0.5,\"b\":1e+30,\"c\":0,\"neuron_cores\":4}'"}),
        );
    }

    #[test]
    fn cpus_and_memory_become_flags() {
        check_limits(
            json!({}),
            json!({"cpu": "1500m", "memory": "1Gi"}),
            json!({"num-cpus": "2", "memory": "1073741824"}),
        );
        check_limits(
            json!({"num-cpus": "0", "memory": "5"}),
            json!({"cpu": "1", "memory": "1Gi"}),
            json!({"num-cpus": "0", "memory": "5"}),
        );
        check_limits(json!({}), json!({"cpu": "0", "memory": "0"}), json!({}));
        check_limits(json!({}), json!({"cpu": "no number", "memory": "1 GB"}), json!({}));
        let check_requests = |resources: Value, expect: Value| {
            let mut made = BTreeMap::new();
            apply_container(&mut made, Some(&serde_json::from_value(resources).unwrap()));
            assert_eq!(json!(made), expect);
        };
        check_requests(json!({"requests": {"cpu": "2", "memory": "1Gi"}}), json!({"num-cpus": "2"}));
        check_requests(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "0"}}), json!({"num-cpus": "2"}));
        check_requests(json!({"requests": {"nvidia.com/gpu": "2"}}), json!({}));
    }

    /// Applies a group's own resources to parameters.
    fn check_group(params: Value, resources: Value, expect: Value) {
        let mut made: BTreeMap<String, String> = serde_json::from_value(params).unwrap();
        let resources: Option<BTreeMap<String, String>> = serde_json::from_value(resources).unwrap();
        apply_group(&mut made, resources.as_ref());
        assert_eq!(json!(made), expect);
    }

    #[test]
    fn group_resources_override_parameters() {
        check_group(json!({"num-cpus": "1"}), json!(null), json!({"num-cpus": "1"}));
        check_group(json!({}), json!({"cpu": "2", "memory": "4Gi"}), json!({"num-cpus": "2", "memory": "4294967296"}));
        check_group(json!({}), json!({"CPU": "2", "GPU": "4"}), json!({"num-cpus": "2", "num-gpus": "4"}));
        check_group(
            json!({}),
            json!({"nvidia.com/gpu": "1", "TPU": "4"}),
            json!({"num-gpus": "1", "resources": "'{\"TPU\":4}'"}),
        );
        check_group(
            json!({"num-cpus": "1", "memory": "1000", "resources": "'{\"Custom-Resource\": 10}'"}),
            json!({"cpu": "4", "Custom-Resource": "5"}),
            json!({"num-cpus": "4", "memory": "1000", "resources": "'{\"Custom-Resource\":5}'"}),
        );
        check_group(
            json!({}),
            json!({"half": "500m", "tenth": "0.3", "odd": "?"}),
            json!({"resources": "'{\"half\":0.5,\"tenth\":0.3}'"}),
        );
    }

    #[test]
    fn gpu_resources_are_recognized_by_name() {
        for (key, expect) in [
            ("nvidia.com/gpu", true),
            ("amd.com/gpu", true),
            ("nvidia.com/mig-12g.128gb", true),
            ("nvidia.com/gpu-mig-12g.128gb", false),
            ("nvidia.com/mig-g.128gb", false),
            ("nvidia.com/mig-1g.gb", false),
            ("cpu", false),
            ("memory", false),
        ] {
            assert_eq!(is_gpu(key), expect, "{key}");
        }
    }
}
