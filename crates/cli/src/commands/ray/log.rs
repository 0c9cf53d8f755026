//! `kubectl ray log`: downloads the logs of a Ray cluster's nodes.

use super::print_error;
use crate::connect::{ConnectionArgs, Target};
use crate::head;
use crate::output::print_line;
use crate::resource::Reference;
use crate::tar;
use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, ListParams, LogParams};
use kube::{Api, ResourceExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::io::AsyncReadExt;

/// Where Ray keeps its logs in a container.
const LOG_FOLDER: &str = "/tmp/ray/session_latest/logs/";

/// Download the logs of the nodes of a Ray cluster, job or service
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of a Ray cluster, or TYPE/NAME
    #[arg(value_name = "CLUSTER | TYPE/NAME")]
    resource: Reference,
    /// Existing directory for the logs [default: a new one with the name of the resource]
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,
    /// Which nodes
    #[arg(long, value_name = "TYPE", default_value = "all")]
    node_type: NodeType,
    /// Print a link to the logs of the cloud provider instead
    #[arg(long, value_name = "PROVIDER")]
    link: Option<Link>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum NodeType {
    All,
    Head,
    Worker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Link {
    /// Google Cloud Logging
    Gke,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let target = connection.connect().await?;
    let object = target.get_ray(&args.resource).await?;
    let cluster = head::cluster_of(&args.resource, &object.data)?;
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let found = pods.list(&ListParams::default().labels(&selector(&cluster, args.node_type))).await;
    let found = found.map_err(|error| target.failed("cannot list Pods", error))?.items;
    if let Some(Link::Gke) = args.link {
        return print_gke_link(&target, &cluster, &found);
    }
    print_line(match args.node_type {
        NodeType::All => "Command set to retrieve both head and worker node logs.",
        NodeType::Head => "Command set to retrieve only head node logs.",
        NodeType::Worker => "Command set to retrieve only worker node logs.",
    });
    if found.is_empty() {
        bail!("No Ray nodes found for resource {}", args.resource.name);
    }
    let folder = folder(args.out_dir, &args.resource.name)?;
    let mut code = ExitCode::SUCCESS;
    for pod in &found {
        let name = pod.name_any();
        print_line(&format!("Downloading log for Ray Node {name}"));
        if let Err(error) = download(&target, &pods, pod, &folder.join(&name)).await {
            // The other nodes may still have theirs.
            print_error(&error.context(format!("Ray node {name}")));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

fn selector(cluster: &str, node_type: NodeType) -> String {
    let types = match node_type {
        NodeType::All => "ray.io/node-type",
        NodeType::Head => "ray.io/node-type=head",
        NodeType::Worker => "ray.io/node-type=worker",
    };
    format!("ray.io/cluster={cluster},{types}")
}

/// Returns the directory for the logs; a given one must exist.
fn folder(given: Option<PathBuf>, name: &str) -> anyhow::Result<PathBuf> {
    if let Some(folder) = given {
        match std::fs::metadata(&folder) {
            Ok(found) if found.is_dir() => return Ok(folder),
            Ok(_) => bail!("Path is not a directory. Failed with: {}", folder.display()),
            Err(error) => bail!("Directory does not exist. Failed with: {}: {error}", folder.display()),
        }
    }
    print_line("No output directory specified, creating dir under current directory using resource name.");
    let folder = PathBuf::from(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create the directory {name}"))?;
    Ok(folder)
}

/// Writes what a node's first container printed, and Ray's own log files.
async fn download(target: &Target, pods: &Api<Pod>, pod: &Pod, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create the directory {}", folder.display()))?;
    let name = pod.name_any();
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first()).context("the Pod has no container")?;
    let params = LogParams { container: Some(container.name.clone()), ..LogParams::default() };
    let printed = pods.logs(&name, &params).await.map_err(|error| target.failed("cannot read the log", error))?;
    let file = folder.join("stdout.log");
    std::fs::write(&file, printed).with_context(|| format!("cannot write {}", file.display()))?;
    let command = ["tar", "--warning=no-file-changed", "-cf", "-", "-C", LOG_FOLDER, "."];
    let params = AttachParams { container: Some(container.name.clone()), ..AttachParams::default() };
    let params = params.stdin(false).stdout(true).stderr(true);
    let mut process = pods
        .exec(&name, command, &params)
        .await
        .map_err(|error| target.failed("cannot run tar in the container", error))?;
    let mut output = process.stdout().context("the command has no output")?;
    let mut errors = process.stderr().context("the command has no error output")?;
    let status = process.take_status().context("the command has no status")?;
    let mut complaint = String::new();
    let complaints = async {
        // Its text is for people; what is not UTF-8 is left out.
        let _ = (&mut errors).take(4096).read_to_string(&mut complaint).await;
        tokio::io::copy(&mut errors, &mut tokio::io::sink()).await
    };
    let (unpacked, _) = tokio::join!(tar::unpack(&mut output, folder), complaints);
    let count = unpacked.with_context(|| format!("cannot unpack {LOG_FOLDER}: {}", complaint.trim()))?;
    let failed = status.await.filter(|status| status.status.as_deref() == Some("Failure"));
    // tar reports files that grow while it reads them, which is what logs do.
    if let (Some(status), 0) = (failed, count) {
        bail!("cannot read {LOG_FOLDER}: {} {}", complaint.trim(), status.message.unwrap_or_default());
    }
    Ok(())
}

fn print_gke_link(target: &Target, cluster: &str, pods: &[Pod]) -> anyhow::Result<ExitCode> {
    let context = target.context.as_deref().unwrap_or_default();
    let url = gke_link(context, &target.namespace, cluster)
        .with_context(|| format!("the context {context} is not one of GKE; those are called gke_PROJECT_LOCATION_CLUSTER"))?;
    let has_sidecar = pods
        .iter()
        .any(|pod| pod.spec.iter().flat_map(|spec| &spec.containers).any(|container| container.name == "fluentbit"));
    if !has_sidecar {
        print_line("warning: no Pod of the Ray cluster has a container fluentbit, so its log files may not be there");
    }
    print_line(&url);
    Ok(ExitCode::SUCCESS)
}

/// Returns the address of a cluster's logs in Google Cloud Logging.
fn gke_link(context: &str, namespace: &str, cluster: &str) -> Option<String> {
    let mut parts = context.strip_prefix("gke_")?.splitn(3, '_');
    let (project, location, gke) = (parts.next()?, parts.next()?, parts.next()?);
    let query = [
        "resource.type=\"k8s_container\"".to_owned(),
        format!("resource.labels.project_id=\"{project}\""),
        format!("resource.labels.location=\"{location}\""),
        format!("resource.labels.cluster_name=\"{gke}\""),
        format!("resource.labels.namespace_name=\"{namespace}\""),
        format!("labels.\"k8s-pod/ray_io/cluster\"=\"{cluster}\""),
    ]
    .join("\n");
    let encoded: String = query
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    Some(format!("https://console.cloud.google.com/logs/query;query={encoded}?project={project}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_name_project_and_cluster() {
        let got = gke_link("gke_my-project_us-central1-a_prod", "n", "demo").unwrap();
        assert!(got.starts_with("https://console.cloud.google.com/logs/query;query=resource.type%3D%22k8s_container%22%0A"));
        assert!(got.contains("cluster_name%3D%22prod%22") && got.ends_with("?project=my-project"), "{got}");
        assert_eq!(gke_link("kind-kind", "n", "demo"), None);
        assert_eq!(gke_link("gke_a_b", "n", "demo"), None);
    }
}
