//! The same requests to this server and to the real kube-apiserver: the answers must be the same.
//!
//! A case is a list of requests. Both servers get it, each in a namespace of its own; status codes and bodies are
//! compared after what must differ (uids, revisions, times, addresses) has been replaced. Where ours differs on
//! purpose, `differences.rs` says where and why; an entry there that is no longer needed is an error, too.

#![recursion_limit = "512"]

mod cases;
mod differences;
mod harness;
mod refusals;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_objects_are_refused_as_by_the_real_server() {
    let (real, ours) = (Side::real().await, Side::ours().await);
    let (real_namespace, our_namespace) = tokio::join!(real.namespace(), ours.namespace());
    let rows = refusals::rows();
    let only = std::env::var("CONFORMANCE_ONLY").unwrap_or_default();
    let mut used = vec![0; refusals::LISTED.len()];
    let (mut stored, mut failures, mut refused) = (Vec::new(), Vec::new(), 0);
    for row in rows.iter().filter(|row| row.name.contains(&only)) {
        let (wanted, got): (Answer, Answer) =
            tokio::join!(refusals::send(&real, row, &real_namespace), refusals::send(&ours, row, &our_namespace));
        refused += usize::from(wanted.code >= 400);
        let Some(difference) = refusals::difference(&wanted, &got) else { continue };
        if wanted.code >= 400 && got.code < 400 {
            stored.push(format!("{}: {difference}", row.name));
            continue;
        }
        // The words may differ in a listed row; its code may only where the row says so.
        let covers = |listed: &refusals::Listed| {
            row.name.contains(listed.row) && listed.codes(&wanted) == (wanted.code, got.code)
        };
        match refusals::LISTED.iter().position(covers) {
            Some(listed) => used[listed] += 1,
            None => failures.push(format!("{}: {difference}", row.name)),
        }
    }
    println!(
        "refusals: {} requests, {refused} refused by the real server, {} of them accepted by ours, {} unlisted differences",
        rows.len(),
        stored.len(),
        failures.len()
    );
    assert!(
        stored.is_empty(),
        "accepted what the real server refuses:\n{}\n\nother differences:\n{}",
        stored.join("\n"),
        failures.join("\n")
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let listed = refusals::LISTED.iter().zip(&used).filter(|(_, used)| **used != 1);
    let wrong: Vec<String> =
        listed.map(|(listed, used)| format!("{} rows differ: {} ({})", used, listed.row, listed.reason)).collect();
    assert!(!only.is_empty() || wrong.is_empty(), "a listed difference covers one row:\n{}", wrong.join("\n"));
}
