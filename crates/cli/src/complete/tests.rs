//! Candidates for words of a command line.

use super::*;

/// Returns the candidates for the last word that start with it.
fn complete(line: &str) -> (String, Vec<String>) {
    let mut command = crate::command();
    command.build();
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let (last, before) = words.split_last().unwrap();
    let read = read(&command, before);
    let (prefix, word, found) = candidates(&read, last);
    match found {
        Candidates::Words(words) => {
            let words = words.into_iter().map(|(word, _)| word).filter(|found| found.starts_with(word));
            (prefix.to_owned(), words.collect())
        }
        Candidates::Names(names) => (prefix.to_owned(), vec![format!("{names:?}")]),
        Candidates::Files => (prefix.to_owned(), vec!["Files".to_owned()]),
        Candidates::Nothing => (prefix.to_owned(), Vec::new()),
    }
}

#[test]
fn commands_flags_and_values_are_completed() {
    let check = |line: &str, expect: &[&str]| assert_eq!(complete(line).1, expect, "{line}");
    check("pl", &["plan"]);
    check("ray sc", &["scale"]);
    check("ray get wo", &["workergroup"]);
    check("ray get cluster --all", &["--all-namespaces"]);
    check("ray get cluster -o ", &["wide", "yaml", "json", "name"]);
    check("ray get cluster --output=j", &["json"]);
    check("ray log demo --node-type ", &["all", "head", "worker"]);
    check("ray log demo --link ", &["gke"]);
    check("completion ba", &["bash"]);
    check("lint -o ", &["text", "json"]);
    check("ray get cluster --nope ", &["Clusters"]);
    check("ray create cluster new-", &[]);
}

#[test]
fn names_are_asked_for_where_they_belong() {
    let check = |line: &str, expect: Names| assert_eq!(complete(line).1, [format!("{expect:?}")], "{line}");
    check("ray get cluster ", Names::Clusters);
    check("ray list clusters ", Names::Clusters);
    check("ray get workergroup -c demo ", Names::Groups);
    check("ray get node ", Names::Nodes);
    check("ray get job ", Names::Jobs);
    check("ray get service ", Names::Services);
    check("ray get cronjob ", Names::CronJobs);
    check("ray get token ", Names::Clusters);
    check("ray scale cluster ", Names::Clusters);
    check("ray scale cluster demo -w ", Names::Groups);
    check("ray scale cluster demo --worker-group=", Names::Groups);
    check("ray create workergroup g --ray-cluster ", Names::Clusters);
    check("ray delete a rayjob/", Names::Resources);
    check("ray session ", Names::Resources);
    check("plan ", Names::Resources);
    check("open ", Names::Resources);
    check("job logs ", Names::Jobs);
    check("ray get cluster -n ", Names::Namespaces);
    check("plan --context ", Names::Contexts);
    check("plan --cluster ", Names::KubeconfigClusters);
    check("plan --user ", Names::KubeconfigUsers);
}

#[test]
fn files_are_left_to_the_shell() {
    for line in ["plan -f ", "plan --kubeconfig ", "ray create cluster --file ", "job submit -- python "] {
        assert_eq!(complete(line).1, ["Files"], "{line}");
    }
}

#[test]
fn a_value_after_an_equals_sign_keeps_its_flag() {
    assert_eq!(complete("ray get cluster --output=y"), ("--output=".to_owned(), vec!["yaml".to_owned()]));
    // Bash makes words of their own of the sign and of what follows.
    assert_eq!(complete("ray get cluster --output = y").1, ["yaml"]);
}

#[test]
fn connection_flags_are_those_of_the_line() {
    let mut command = crate::command();
    command.build();
    let words = ["ray", "get", "cluster", "-nteam", "--context", "far", "-A", "--insecure-skip-tls-verify"];
    let line = read(&command, &words.map(str::to_owned));
    assert_eq!(connection(&line).unwrap().given_namespace(), Some("team"));
    assert!(value(&line, "all_namespaces").is_some());
    assert_eq!(value(&line, "context"), Some("far"));
}
