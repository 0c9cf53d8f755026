//! From quantities to Ray's notion of resources.
//!
//! Containers count CPUs, memory and accelerators in Kubernetes' names; `ray start` wants
//! `num-cpus`, `memory`, `num-gpus`, and a JSON object for everything else.

use crate::quantity::Quantity;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use std::collections::BTreeMap;

type Quantities = BTreeMap<String, QuantityText>;

/// Accelerators that Ray knows by names of its own.
const ACCELERATORS: [(&str, &str); 2] = [("aws.amazon.com/neuroncore", "neuron_cores"), ("google.com/tpu", "TPU")];

/// Limits that equal the requests.
pub(in crate::build) fn requirements(cpu: &str, memory: &str) -> ResourceRequirements {
    requests_and_limits(cpu, memory, cpu, memory)
}

/// Requests, then limits.
pub(super) fn requests_and_limits(
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

/// The parameters that follow from a container's resources, where the user gave none.
pub(super) fn apply_container(params: &mut BTreeMap<String, String>, resources: Option<&ResourceRequirements>) {
    let Some(resources) = resources else { return };
    if !params.contains_key("num-cpus") {
        let cpus = amount(resources.limits.as_ref(), "cpu").or_else(|| amount(resources.requests.as_ref(), "cpu"));
        if let Some(cpus) = cpus {
            params.insert("num-cpus".to_owned(), cpus.ceil_i64().to_string());
        }
    }
    if !params.contains_key("memory")
        && let Some(memory) = amount(resources.limits.as_ref(), "memory")
    {
        params.insert("memory".to_owned(), memory.ceil_i64().to_string());
    }
    if let Some(limits) = &resources.limits {
        apply_accelerators(params, limits);
    }
}

/// GPUs and the first accelerator with a name of its own.
fn apply_accelerators(params: &mut BTreeMap<String, String>, limits: &Quantities) {
    // What cannot be read is left to `ray start` to complain about, GPUs included: as KubeRay does.
    let Ok(mut custom) = read_custom(params.get("resources")) else { return };
    if !params.contains_key("num-gpus") {
        let gpus = limits.keys().filter(|key| is_gpu(key)).find_map(|key| amount(Some(limits), key));
        if let Some(gpus) = gpus {
            params.insert("num-gpus".to_owned(), gpus.ceil_i64().to_string());
        }
    }
    if ACCELERATORS.iter().any(|(_, ray_name)| custom.contains_key(*ray_name)) {
        return;
    }
    let found = ACCELERATORS.iter().find_map(|(key, ray_name)| Some((ray_name, amount(Some(limits), key)?)));
    if let Some((ray_name, count)) = found {
        custom.insert((*ray_name).to_owned(), count.as_f64());
        params.insert("resources".to_owned(), print_custom(&custom));
    }
}

/// The parameters that follow from the group's own `resources`, which win over everything.
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
        params.insert(param.to_owned(), quantity.ceil_i64().to_string());
    }
    if !custom.is_empty() {
        params.insert("resources".to_owned(), print_custom(&custom));
    }
}

/// Whether a resource counts GPUs: whole ones, or slices of NVIDIA's (`nvidia.com/mig-1g.5gb`).
pub fn is_gpu(key: &str) -> bool {
    key.ends_with("gpu") || is_mig_slice(key)
}

fn is_mig_slice(key: &str) -> bool {
    let before_memory = key.strip_suffix("gb").and_then(strip_digits);
    let before_compute = before_memory.and_then(|rest| rest.strip_suffix("g.")).and_then(strip_digits);
    before_compute.is_some_and(|rest| rest.ends_with("nvidia.com/mig-"))
}

/// The text without the digits that it ends with, if there are any.
fn strip_digits(text: &str) -> Option<&str> {
    let rest = text.trim_end_matches(|c: char| c.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

/// An amount that is there and not nothing.
fn amount(list: Option<&Quantities>, key: &str) -> Option<Quantity> {
    Quantity::parse(&list?.get(key)?.0).ok().filter(|quantity| !quantity.is_zero())
}

/// Reads the JSON object between whatever quotes the user put around it.
fn read_custom(param: Option<&String>) -> Result<BTreeMap<String, f64>, serde_json::Error> {
    match param {
        Some(text) => serde_json::from_str(text.trim_matches(['\'', '"', '`', ' '])),
        None => Ok(BTreeMap::new()),
    }
}

/// Compact JSON in quotes for the shell.
fn print_custom(resources: &BTreeMap<String, f64>) -> String {
    let entry =
        |(name, amount): (&String, &f64)| format!("{}:{}", serde_json::Value::from(name.as_str()), number(*amount));
    let entries: Vec<String> = resources.iter().map(entry).collect();
    format!("'{{{}}}'", entries.join(","))
}

/// A number as Go's JSON has it: whole ones without a fraction, extreme ones with an exponent.
fn number(amount: f64) -> String {
    match amount.abs() {
        size if size != 0.0 && size < 1e-6 => format!("{amount:e}"),
        size if size >= 1e21 => format!("{amount:e}").replace('e', "e+"),
        _ => amount.to_string(),
    }
}
