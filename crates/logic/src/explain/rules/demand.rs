//! Tasks and actors that wait for resources, by the autoscaler's report.
//!
//! What fits into the cluster as a whole is only queued: Ray places it when something else has ended.

use super::super::Cause;
use super::super::evidence::Evidence;

/// A demand that the cluster, as it is, can never place.
pub(super) fn unmet(evidence: &Evidence) -> Option<Cause> {
    let report = &evidence.ray.autoscaler;
    let demand = demands(report).find(|demand| !fits(demand, report))?;
    let cluster = evidence.clusters.first()?;
    let name = &cluster.metadata.name;
    let object = format!("RayCluster {name}");
    let groups = &cluster.spec.worker_group_specs;
    if !cluster.spec.enable_in_tree_autoscaling {
        let what = format!("Ray has no room on RayCluster {name} for {demand}, and the cluster does not autoscale.");
        let advice = "Raise replicas, give the workers more resources, or set enableInTreeAutoscaling.";
        return Some(Cause::new("DemandUnmet", object, what, advice));
    }
    let full = groups.iter().filter(|group| group.max_replicas.is_some_and(|max| group.replicas.unwrap_or(0) >= max));
    let full: Vec<&str> = full.map(|group| group.group_name.as_str()).collect();
    if !groups.is_empty() && full.len() == groups.len() {
        let what = format!(
            "Ray has no room on RayCluster {name} for {demand}, and its groups are at maxReplicas ({}).",
            full.join(", ")
        );
        return Some(Cause::new("MaxReplicasReached", object, what, "Raise maxReplicas of a group that can run it."));
    }
    if is_infeasible(report) {
        let what = format!("No worker group of RayCluster {name} offers what Ray needs for {demand}.");
        let advice = "Add a worker group with these resources, or ask for less in the task or actor.";
        return Some(Cause::new("DemandInfeasible", object, what, advice));
    }
    let what = format!("Ray waits for workers of RayCluster {name} that the autoscaler adds, for {demand}.");
    Some(Cause::new(
        "WaitsForAutoscaler",
        object,
        what,
        "Wait; kubectl logs of the container autoscaler shows what it does.",
    ))
}

/// Returns the first demand that waits for others to end.
pub(super) fn queued(evidence: &Evidence) -> Option<&str> {
    demands(&evidence.ray.autoscaler).next()
}

/// Returns lines such as `{'CPU': 1.0}: 2+ pending tasks/actors`.
fn demands(report: &str) -> impl Iterator<Item = &str> {
    let section = report.split_once("Demands:").map(|(_, rest)| rest).unwrap_or_default();
    section.lines().map(str::trim).filter(|line| line.starts_with('{'))
}

fn is_infeasible(report: &str) -> bool {
    report.to_lowercase().contains("infeasible") || report.contains("No available node types can fulfill")
}

/// Returns whether the whole cluster has what a demand asks for. A report without totals does not tell.
fn fits(demand: &str, report: &str) -> bool {
    let totals: Vec<(f64, &str)> = report.lines().filter_map(total).collect();
    let total_of = |name: &str| totals.iter().find(|(_, known)| *known == name).map_or(0.0, |(total, _)| *total);
    let mut needed: Vec<(&str, f64)> = Vec::new();
    for (name, amount) in bundles(demand).filter(|(name, _)| !name.starts_with("node:") && !name.contains("_group_")) {
        match needed.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += amount,
            None => needed.push((name, amount)),
        }
    }
    !totals.is_empty() && !is_infeasible(report) && needed.iter().all(|(name, amount)| *amount <= total_of(name))
}

/// Reads a line such as `0.0/2.0 CPU` or `0B/1.86GiB memory`.
fn total(line: &str) -> Option<(f64, &str)> {
    let (usage, name) = line.trim().split_once(' ')?;
    let (used, total) = usage.split_once('/')?;
    quantity(used)?;
    // A line may go on, such as with `(0.0 used of 1.0 reserved in placement groups)`.
    Some((quantity(total)?, name.split(" (").next()?))
}

/// Reads a number with or without a unit of bytes.
fn quantity(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let power = match text[unit..].strip_suffix("iB") {
        Some(prefix) => ["K", "M", "G", "T", "P"].iter().position(|known| *known == prefix)? + 1,
        None if ["", "B"].contains(&&text[unit..]) => 0,
        None => return None,
    };
    let number: f64 = text[..unit].parse().ok()?;
    Some(number * 1024_f64.powi(i32::try_from(power).ok()?))
}

/// Reads the resources of `{'CPU': 1.0, 'GPU': 1.0} * 2, {'CPU': 1.0} * 1 (PACK): 1+ pending placement groups`.
fn bundles(demand: &str) -> impl Iterator<Item = (&str, f64)> {
    demand.split('{').skip(1).flat_map(|bundle| {
        let (resources, rest) = bundle.split_once('}').unwrap_or((bundle, ""));
        let count = rest.strip_prefix(" * ").and_then(|rest| rest.split([',', ' ', ':']).next()?.parse().ok());
        let times: f64 = count.unwrap_or(1.0);
        resources.split(", ").filter_map(move |pair| {
            let (name, amount) = pair.rsplit_once(": ")?;
            Some((name.trim_matches(['\'', '"', ' ']), amount.trim().parse::<f64>().ok()? * times))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_fits_into_the_totals_of_its_report() {
        let usage = "Total Usage:\n 2.0/2.0 CPU\n 0.0/1.0 GPU (0.0 used of 1.0 reserved in placement groups)\n \
            0B/1.50GiB memory\nTotal Constraints:\n (no request_resources() constraints)\nTotal Demands:\n";
        let check = |demand: &str, expect: bool| assert_eq!(fits(demand, usage), expect, "{demand}");
        check("{'CPU': 1.0}: 500+ pending tasks/actors", true);
        check("{'CPU': 2.0, 'GPU': 1.0}: 1+ pending tasks/actors", true);
        check("{'CPU': 4.0}: 1+ pending tasks/actors", false);
        check("{'TPU': 1.0}: 1+ pending tasks/actors", false);
        check("{'memory': 1073741824.0}: 1+ pending tasks/actors", true);
        check("{'memory': 2147483648.0}: 1+ pending tasks/actors", false);
        check("{'CPU': 1.0} * 2 (PACK): 1+ pending placement groups", true);
        check("{'CPU': 1.0} * 2, {'CPU': 1.0} * 1 (SPREAD): 1+ pending placement groups", false);
        check("{'CPU': 1.0, 'node:10.0.0.1': 0.001}: 1+ pending tasks/actors", true);
        assert!(!fits("{'CPU': 1.0}: 1+ pending tasks/actors", "Total Demands:"), "without totals");
        let infeasible = format!("{usage}Error: No available node types can fulfill resource request");
        assert!(!fits("{'CPU': 2.0}: 1+ pending tasks/actors", &infeasible), "no single node has them");
    }
}
