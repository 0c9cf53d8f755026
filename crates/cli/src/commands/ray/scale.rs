//! `kubectl ray scale`: changes the replicas of a worker group.

use super::create::FIELD_MANAGER;
use crate::connect::ConnectionArgs;
use crate::output::print_line;
use crate::resource::{Kind, Reference};
use anyhow::{bail, ensure};
use kube::api::PostParams;
use serde_json::Value;
use std::process::ExitCode;

/// How often a change by somebody else is taken in before giving up.
const MAX_CONFLICTS: usize = 5;

/// Change the number of workers
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Cluster(ClusterArgs),
}

/// Change the replicas of a worker group of a Ray cluster
#[derive(clap::Args)]
struct ClusterArgs {
    /// Ray cluster
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// Worker group
    #[arg(short, long, value_name = "NAME")]
    worker_group: String,
    #[command(flatten)]
    wanted: Wanted,
}

/// The numbers to set.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
struct Wanted {
    /// Replicas
    #[arg(short, long, value_name = "NUMBER", allow_negative_numbers = true)]
    replicas: Option<i32>,
    /// Minimum replicas
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    min_replicas: Option<i32>,
    /// Maximum replicas
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    max_replicas: Option<i32>,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let What::Cluster(args) = args.what;
    args.wanted.validate()?;
    let target = connection.connect().await?;
    let (name, group, namespace) = (&args.cluster, &args.worker_group, &target.namespace);
    let reference = Reference { kind: Kind::Cluster, name: name.clone() };
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let place = format!("worker group {group} in Ray cluster {name} in namespace {namespace}");
    for _ in 0..MAX_CONFLICTS {
        let mut cluster = target.get_ray(&reference).await?;
        let mut groups = cluster.data["spec"]["workerGroupSpecs"].as_array_mut().into_iter().flatten();
        let Some(found) = groups.find(|found| found["groupName"] == group.as_str()) else {
            bail!(
                "worker group {group} not found in Ray cluster {name} in namespace {namespace}. Available worker groups: {}",
                group_names(&cluster.data)
            );
        };
        let changes = args.wanted.apply(found)?;
        if changes.is_empty() {
            let place = place.replacen("worker", "Worker", 1);
            print_line(&format!("{place} already matches the requested configuration. Skipping."));
            return Ok(ExitCode::SUCCESS);
        }
        match target.ray_api(Kind::Cluster).replace(name, &params, &cluster).await {
            Ok(_) => {
                print_line(&format!("Updated {place} ({})", changes.join(", ")));
                return Ok(ExitCode::SUCCESS);
            }
            // The status changes while a cluster scales; look again.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(target.failed(&format!("cannot update Ray cluster {name}"), error)),
        }
    }
    bail!("Ray cluster {name} in namespace {namespace} keeps changing; try again")
}

fn group_names(cluster: &Value) -> String {
    let groups = cluster["spec"]["workerGroupSpecs"].as_array().into_iter().flatten();
    let names: Vec<&str> = groups.filter_map(|group| group["groupName"].as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Wanted {
    /// Checks what can be checked without the cluster.
    fn validate(self) -> anyhow::Result<()> {
        ensure!(
            self.replicas.is_some() || self.min_replicas.is_some() || self.max_replicas.is_some(),
            "must specify at least one of --replicas, --min-replicas, or --max-replicas (non-negative integers)"
        );
        for (flag, number) in [
            ("--replicas", self.replicas),
            ("--min-replicas", self.min_replicas),
            ("--max-replicas", self.max_replicas),
        ] {
            ensure!(number.is_none_or(|number| number >= 0), "{flag} must be a non-negative integer");
        }
        if let (Some(min), Some(max)) = (self.min_replicas, self.max_replicas) {
            ensure!(min <= max, "--min-replicas ({min}) cannot be greater than --max-replicas ({max})");
        }
        if let (Some(replicas), Some(min)) = (self.replicas, self.min_replicas) {
            ensure!(replicas >= min, "--replicas ({replicas}) cannot be less than --min-replicas ({min})");
        }
        if let (Some(replicas), Some(max)) = (self.replicas, self.max_replicas) {
            ensure!(replicas <= max, "--replicas ({replicas}) cannot be greater than --max-replicas ({max})");
        }
        Ok(())
    }

    /// Changes a group, and returns what changed.
    fn apply(self, group: &mut Value) -> anyhow::Result<Vec<String>> {
        let number = |key: &str, default: i64| group[key].as_i64().unwrap_or(default);
        let live_min = number("minReplicas", 0);
        let live_max = number("maxReplicas", i64::from(i32::MAX));
        let live_replicas = number("replicas", live_min);
        let wanted = |flag: Option<i32>, live: i64| flag.map_or(live, i64::from);
        let (min, max) = (wanted(self.min_replicas, live_min), wanted(self.max_replicas, live_max));
        let replicas = wanted(self.replicas, live_replicas);
        if self.replicas.is_some() {
            ensure!(replicas <= max, "cannot set --replicas ({replicas}) greater than --max-replicas ({max})");
            ensure!(replicas >= min, "cannot set --replicas ({replicas}) smaller than --min-replicas ({min})");
        }
        if self.min_replicas.is_some() {
            ensure!(min <= max, "cannot set --min-replicas ({min}) greater than --max-replicas ({max})");
        }
        if self.max_replicas.is_some() {
            ensure!(max >= min, "cannot set --max-replicas ({max}) smaller than --min-replicas ({min})");
        }
        let mut changes = Vec::new();
        for (key, label, given, live, new) in [
            ("minReplicas", "minReplicas", self.min_replicas.is_some(), live_min, min),
            ("maxReplicas", "maxReplicas", self.max_replicas.is_some(), live_max, max),
            ("replicas", "Replicas", self.replicas.is_some(), live_replicas, replicas),
        ] {
            if given && live != new {
                group[key] = new.into();
                changes.push(format!("Scaled {label}: {live} to {new}"));
            }
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wanted(replicas: Option<i32>, min: Option<i32>, max: Option<i32>) -> Wanted {
        Wanted { replicas, min_replicas: min, max_replicas: max }
    }

    #[test]
    fn flags_are_checked_before_the_cluster_is_asked() {
        let check = |wanted: Wanted, expect: &str| {
            let got = wanted.validate().map_err(|error| error.to_string()).err().unwrap_or_default();
            assert_eq!(got, expect, "{wanted:?}");
        };
        let none = "must specify at least one of --replicas, --min-replicas, or --max-replicas (non-negative integers)";
        check(wanted(None, None, None), none);
        check(wanted(Some(-2), None, None), "--replicas must be a non-negative integer");
        check(wanted(None, Some(3), Some(2)), "--min-replicas (3) cannot be greater than --max-replicas (2)");
        check(wanted(Some(1), Some(2), None), "--replicas (1) cannot be less than --min-replicas (2)");
        check(wanted(Some(3), None, Some(2)), "--replicas (3) cannot be greater than --max-replicas (2)");
        check(wanted(Some(0), Some(0), Some(0)), "");
    }

    #[test]
    fn a_group_is_changed_within_its_bounds() {
        let check = |wanted: Wanted, expect: Result<&[&str], &str>| {
            let mut group = json!({"replicas": 2, "minReplicas": 1, "maxReplicas": 5});
            let got = wanted.apply(&mut group).map_err(|error| error.to_string());
            let expect = expect.map(|it| it.iter().map(|&it| it.to_owned()).collect::<Vec<_>>()).map_err(str::to_owned);
            assert_eq!(got, expect, "{wanted:?}");
        };
        check(
            wanted(Some(7), Some(3), Some(9)),
            Ok(&["Scaled minReplicas: 1 to 3", "Scaled maxReplicas: 5 to 9", "Scaled Replicas: 2 to 7"]),
        );
        check(wanted(Some(2), None, None), Ok(&[]));
        check(wanted(Some(6), None, None), Err("cannot set --replicas (6) greater than --max-replicas (5)"));
        check(wanted(Some(0), None, None), Err("cannot set --replicas (0) smaller than --min-replicas (1)"));
        check(wanted(None, Some(6), None), Err("cannot set --min-replicas (6) greater than --max-replicas (5)"));
        check(wanted(None, None, Some(0)), Err("cannot set --max-replicas (0) smaller than --min-replicas (1)"));
    }
}
