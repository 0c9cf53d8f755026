//! `manta new`: prints a commented manifest to start from.

use crate::output::write_stdout;
use std::process::ExitCode;

/// Print a commented manifest to start from: a Ray cluster, job or service
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to describe
    kind: NewKind,
    /// Its name
    #[arg(default_value = "demo")]
    name: String,
    /// Version of Ray
    #[arg(long, value_name = "VERSION", default_value = crate::local::RAY_VERSION)]
    ray_version: String,
    /// Workers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    workers: u16,
    /// CPUs of the head and of each worker
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    cpus: u16,
    /// GiB of memory of the head and of each worker
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    memory: u16,
    /// GPUs of each worker
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    gpus: u16,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum NewKind {
    Cluster,
    Job,
    Service,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let text = manifest(&args);
    write_stdout(|out| out.write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a manifest of every kind, with the title of each.
pub(crate) fn templates() -> Vec<(String, String)> {
    let of = |(title, kind)| {
        let args = Args {
            kind,
            name: "demo".to_owned(),
            ray_version: crate::local::RAY_VERSION.to_owned(),
            workers: 1,
            cpus: 1,
            memory: 2,
            gpus: 0,
        };
        (String::from(title), manifest(&args))
    };
    [("Cluster", NewKind::Cluster), ("Job", NewKind::Job), ("Service", NewKind::Service)].map(of).into()
}

fn manifest(args: &Args) -> String {
    let name = &args.name;
    match args.kind {
        NewKind::Cluster => format!(
            "# A Ray cluster. Apply it with kubectl apply -f FILE, or run it on this machine with manta up -f FILE.\n\
             apiVersion: ray.io/v1\nkind: RayCluster\nmetadata:\n  name: {name}\nspec:\n{}",
            cluster(args, 2)
        ),
        NewKind::Job => format!(
            "# A job with a Ray cluster of its own.\n\
             apiVersion: ray.io/v1\nkind: RayJob\nmetadata:\n  name: {name}\nspec:\n\
             \x20 # The command; it runs on the head.\n  entrypoint: python -c 'import ray; ray.init(); print(ray.cluster_resources())'\n\
             \x20 # The operator submits the job itself, without a submitter pod.\n  submissionMode: HTTPMode\n\
             \x20 # Deletes the cluster ten minutes after the job has ended.\n  shutdownAfterJobFinishes: true\n  ttlSecondsAfterFinished: 600\n\
             \x20 rayClusterSpec:\n{}",
            cluster(args, 4)
        ),
        NewKind::Service => format!(
            "# A Serve application. A change of rayClusterConfig makes a second cluster, which takes over once it serves.\n\
             apiVersion: ray.io/v1\nkind: RayService\nmetadata:\n  name: {name}\nspec:\n\
             \x20 # Serve's own configuration: import_path is the module and the application in your image.\n\
             \x20 serveConfigV2: |\n    applications:\n    - name: {name}\n      route_prefix: /\n      import_path: app:app\n\
             \x20 rayClusterConfig:\n{}",
            cluster(args, 4)
        ),
    }
}

/// Returns the spec of the cluster, indented.
fn cluster(args: &Args, indent: usize) -> String {
    let Args { ray_version, workers, cpus, memory, gpus, .. } = args;
    let gpu = if *gpus == 0 { String::new() } else { format!(", nvidia.com/gpu: {gpus}") };
    let max = workers.saturating_add(4);
    let text = format!(
        "\
rayVersion: \"{ray_version}\"
headGroupSpec:
  rayStartParams: {{}}
  template:
    spec:
      containers:
      - name: ray-head
        image: rayproject/ray:{ray_version}
        ports:
        - {{containerPort: 6379, name: gcs-server}}
        - {{containerPort: 8265, name: dashboard}}
        - {{containerPort: 10001, name: client}}
        - {{containerPort: 8000, name: serve}}
        # Ray needs memory for its object store, too; equal requests and limits keep the head from being evicted.
        resources:
          requests: {{cpu: {cpus}, memory: {memory}Gi}}
          limits: {{cpu: {cpus}, memory: {memory}Gi}}
workerGroupSpecs:
- groupName: workers
  # The autoscaler, if enabled with enableInTreeAutoscaling, stays between these bounds.
  replicas: {workers}
  minReplicas: 0
  maxReplicas: {max}
  rayStartParams: {{}}
  template:
    spec:
      containers:
      - name: ray-worker
        image: rayproject/ray:{ray_version}
        resources:
          requests: {{cpu: {cpus}, memory: {memory}Gi{gpu}}}
          limits: {{cpu: {cpus}, memory: {memory}Gi{gpu}}}
"
    );
    text.lines().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, ValueEnum};
    use manta_cli::lint::{Linter, Severity};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn new_manifests_have_nothing_to_lint() {
        for kind in NewKind::value_variants() {
            let kind = kind.to_possible_value().unwrap().get_name().to_owned();
            for flags in [&[][..], &["mine", "--gpus", "2", "--workers", "0", "--memory", "8"]] {
                let line = Line::parse_from(["x", &kind].iter().chain(flags));
                let text = manifest(&line.args);
                let (mut findings, objects) = Linter::default().read("new.yaml", text.as_bytes());
                findings.retain(|finding| finding.severity <= Severity::Warning);
                let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
                assert_eq!((findings, objects.len()), (vec![], 1), "{text}");
            }
        }
    }
}
