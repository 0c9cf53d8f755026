//! The same requests to this server and to the real kube-apiserver: the answers must be the same.
//!
//! A case is a list of requests. Both servers get it, each in a namespace of its own; status codes and bodies are
//! compared after what must differ (uids, revisions, times, addresses) has been replaced. Where ours differs on
//! purpose, `differences.rs` says where and why; an entry there that is no longer needed is an error, too.

#![recursion_limit = "512"]

mod cases;
mod differences;
mod harness;

use differences::LISTED;
use harness::{Answer, Case, Side, compare};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_the_real_server() {
    let real = Side::real().await;
    let ours = Side::ours().await;
    let mut requests = 0;
    let mut failures = Vec::new();
    let mut used = vec![0; LISTED.len()];
    let cases: Vec<Case> = cases::all();
    let only = std::env::var("CONFORMANCE_ONLY").unwrap_or_default();
    let chosen: Vec<&Case> = cases.iter().filter(|case| case.name.contains(&only)).collect();
    for case in &chosen {
        let (wanted, got): (Vec<Answer>, Vec<Answer>) = tokio::join!(real.play(case), ours.play(case));
        for (index, (wanted, got)) in wanted.iter().zip(&got).enumerate() {
            requests += 1;
            let request = case.steps[index].describe();
            for difference in compare(wanted, got) {
                let known = LISTED.iter().position(|listed| listed.covers(&case.name, &request, &difference));
                match known {
                    Some(known) => used[known] += 1,
                    None => failures.push(format!("{}: {request}\n    {difference}", case.name)),
                }
            }
        }
    }
    let stale: Vec<&str> =
        LISTED.iter().zip(&used).filter(|(_, used)| **used == 0).map(|(listed, _)| listed.reason).collect();
    println!(
        "conformance: {} cases, {requests} requests, {} listed differences, {} unlisted",
        chosen.len(),
        LISTED.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(!only.is_empty() || stale.is_empty(), "no longer different: {stale:?}");
}
