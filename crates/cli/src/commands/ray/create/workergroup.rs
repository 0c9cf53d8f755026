//! `kubectl ray create workergroup`: adds a worker group to a Ray cluster.

use super::config::check_tpu;
use super::{FIELD_MANAGER, RAY_VERSION, build, check_quantities, key_values};
use crate::connect::ConnectionArgs;
use crate::output::print_line;
use crate::resource::{Kind, Reference};
use anyhow::{Context, ensure};
use kube::api::PostParams;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Add a worker group to a Ray cluster
#[derive(clap::Args)]
pub(super) struct Args {
    /// Name of the group
    #[arg(value_name = "GROUP")]
    group: String,
    /// Ray cluster to add it to
    #[arg(short = 'c', long, value_name = "NAME")]
    ray_cluster: String,
    /// Version of Ray
    #[arg(long, value_name = "VERSION", default_value = RAY_VERSION)]
    ray_version: String,
    /// Image [default: rayproject/ray with the version]
    #[arg(long)]
    image: Option<String>,
    /// Replicas
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    worker_replicas: i32,
    /// Minimum replicas
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    worker_min_replicas: i32,
    /// Maximum replicas
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    worker_max_replicas: i32,
    /// Hosts of each replica
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    num_of_hosts: i32,
    /// CPUs of each worker
    #[arg(long, value_name = "QUANTITY", default_value = "2")]
    worker_cpu: String,
    /// Memory of each worker
    #[arg(long, value_name = "QUANTITY", default_value = "4Gi")]
    worker_memory: String,
    /// GPUs of each worker
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    worker_gpu: String,
    /// TPUs of each worker
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    worker_tpu: String,
    /// Parameters of ray start, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    worker_ray_start_params: Vec<String>,
    /// Node selectors, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    worker_node_selectors: Vec<String>,
}

pub(super) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let group = group(&args)?;
    let target = connection.connect().await?;
    let name = &args.ray_cluster;
    let mut cluster = target.get_ray(&Reference { kind: Kind::Cluster, name: name.clone() }).await?;
    let spec = cluster.data["spec"].as_object_mut().with_context(|| format!("Ray cluster {name} has no spec"))?;
    let groups = spec.entry("workerGroupSpecs").or_insert_with(|| json!([]));
    if groups.is_null() {
        *groups = json!([]);
    }
    let groups = groups.as_array_mut().with_context(|| format!("the worker groups of Ray cluster {name} are not a list"))?;
    ensure!(
        groups.iter().all(|existing| existing["groupName"] != args.group.as_str()),
        "Ray cluster {name} in namespace {} has a worker group {} already",
        target.namespace,
        args.group
    );
    groups.push(group);
    // With the version that was read: a change in the meantime is not overwritten.
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let replaced = target.ray_api(Kind::Cluster).replace(name, &params, &cluster).await;
    replaced.map_err(|error| target.failed(&format!("cannot update Ray cluster {name}"), error))?;
    print_line(&format!("Updated Ray cluster {}/{name} with new worker group", target.namespace));
    Ok(ExitCode::SUCCESS)
}

/// Returns the group; its limits equal its requests.
fn group(args: &Args) -> anyhow::Result<Value> {
    check_quantities(&[
        ("worker-cpu", Some(&args.worker_cpu)),
        ("worker-memory", Some(&args.worker_memory)),
        ("worker-gpu", Some(&args.worker_gpu)),
        ("worker-tpu", Some(&args.worker_tpu)),
    ])?;
    let (min, max) = (args.worker_min_replicas, args.worker_max_replicas);
    ensure!(min >= 0 && args.worker_replicas >= 0 && max >= 0, "the numbers of replicas cannot be negative");
    ensure!(min <= max, "--worker-min-replicas ({min}) cannot be greater than --worker-max-replicas ({max})");
    let selectors = key_values("--worker-node-selectors", &args.worker_node_selectors)?;
    check_tpu(Some(&args.worker_tpu), Some(args.num_of_hosts), &selectors)?;
    let amounts = build::non_zero(&[
        ("cpu", Some(&args.worker_cpu)),
        ("memory", Some(&args.worker_memory)),
        ("nvidia.com/gpu", Some(&args.worker_gpu)),
        ("google.com/tpu", Some(&args.worker_tpu)),
    ]);
    let image = args.image.clone().unwrap_or_else(|| format!("rayproject/ray:{}", args.ray_version));
    let container =
        json!({"name": "ray-worker", "image": image, "resources": {"requests": amounts, "limits": amounts}});
    let mut pod = json!({"containers": [container]});
    if !selectors.is_empty() {
        pod["nodeSelector"] = json!(selectors);
    }
    Ok(json!({
        "groupName": args.group,
        "replicas": args.worker_replicas,
        "minReplicas": min,
        "maxReplicas": max,
        "numOfHosts": args.num_of_hosts,
        "rayStartParams": key_values("--worker-ray-start-params", &args.worker_ray_start_params)?,
        "template": {"spec": pod},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn limits_equal_requests() {
        let line = Line::parse_from(["x", "gpu-group", "-c", "a", "--worker-gpu", "1", "--worker-cpu", "8"]);
        let got = group(&line.args).unwrap();
        let container = &got["template"]["spec"]["containers"][0];
        let amounts = json!({"cpu": "8", "memory": "4Gi", "nvidia.com/gpu": "1"});
        assert_eq!(container["resources"], json!({"requests": amounts, "limits": amounts}));
        assert_eq!(container["image"], "rayproject/ray:2.52.0");
        assert_eq!((&got["minReplicas"], &got["maxReplicas"], &got["numOfHosts"]), (&json!(1), &json!(10), &json!(1)));
    }
}
