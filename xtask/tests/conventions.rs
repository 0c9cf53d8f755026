//! Conventions of the workspace that a test can check: dependency direction, the purity of `logic`, and the table of
//! dependencies in CONTRIBUTING.md.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// Runs cargo in the workspace and returns its stdout.
fn cargo(args: &[&str]) -> String {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = cargo.args(args).arg("--locked").current_dir(root()).output().expect("cargo starts");
    assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the workspace crates that each workspace crate depends on, without dev-dependencies.
fn workspace_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let of = |package: &Value| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let normal = dependencies.filter(|dependency| dependency["kind"] != "dev");
        let ours = normal.filter_map(|dependency| dependency["name"].as_str()).filter(|name| names.contains(name));
        ours.map(str::to_owned).collect()
    };
    packages.iter().map(|package| (package["name"].as_str().unwrap().to_owned(), of(package))).collect()
}

#[test]
fn crates_depend_in_one_direction() {
    let expect = [
        ("manta-api", &[][..]),
        ("manta-logic", &["manta-api"]),
        ("manta-operator", &["manta-api", "manta-logic"]),
        // These two know nothing of Ray.
        ("manta-apiserver", &[]),
        ("manta-agent", &[]),
        ("manta", &["manta-agent", "manta-api", "manta-apiserver", "manta-logic", "manta-operator"]),
        // Every crate uses it in its tests, so it can use none.
        ("manta-testkit", &[]),
        ("xtask", &["manta-testkit"]),
    ];
    let expect = expect.map(|(name, allowed)| (name.to_owned(), allowed.iter().map(|s| (*s).to_owned()).collect()));
    assert_eq!(workspace_dependencies(), BTreeMap::from(expect), "ARCHITECTURE.md shows the allowed direction");
}

#[test]
fn logic_has_no_runtime_no_client_and_no_randomness() {
    let tree = cargo(&["tree", "--package", "manta-logic", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("serde_json"), "the tree was read: {tree}");
    let forbidden = [
        "tokio",
        "async-std",
        "futures",
        "kube-client",
        "kube-runtime",
        "hyper",
        "reqwest",
        "axum",
        "tracing-subscriber",
        "rand",
        "getrandom",
        "fastrand",
        "uuid",
    ];
    let found: Vec<&str> = forbidden.into_iter().filter(|name| crates.contains(name)).collect();
    assert_eq!(found, [] as [&str; 0], "decisions depend on their arguments only");
}

#[test]
fn clippy_keeps_clock_and_environment_out_of_logic() {
    let config = read("crates/logic/clippy.toml");
    for method in [
        "std::env::var",
        "std::env::var_os",
        "std::time::SystemTime::now",
        "std::time::Instant::now",
        "jiff::Timestamp::now",
        "jiff::Zoned::now",
    ] {
        let entry = format!("path = \"{method}\", reason = \"");
        assert!(config.contains(&entry), "crates/logic/clippy.toml must disallow {method}, with a reason");
    }
    // The configuration of the property tests reads a variable; no decision depends on it.
    let tests = root().join("crates/logic/src/properties.rs");
    for file in rust_files(&root().join("crates/logic/src")).into_iter().filter(|file| *file != tests) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("disallowed_methods"), "{} switches the lint off", file.display());
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_dependency_has_a_row_in_contributing() {
    let manifest = read("Cargo.toml");
    let (_, section) = manifest.split_once("[workspace.dependencies]\n").expect("the section");
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let entries = lines.filter_map(|line| line.split_once(" = ")).filter(|(_, value)| !value.contains("path = "));
    let dependencies: BTreeSet<&str> = entries.map(|(name, _)| name).collect();

    let contributing = read("CONTRIBUTING.md");
    let (_, table) = contributing.split_once("| crate | why |\n| --- | --- |\n").expect("the table");
    let rows = table.lines().map_while(|line| line.strip_prefix("| ")?.split_once(" | "));
    let mut listed: Vec<&str> = rows.flat_map(|(names, _)| names.split(", ")).collect();
    listed.sort_unstable();
    assert!(listed.windows(2).all(|pair| pair[0] != pair[1]), "a crate has two rows");
    let listed: BTreeSet<&str> = listed.into_iter().collect();

    let without_row: Vec<&&str> = dependencies.difference(&listed).collect();
    assert!(without_row.is_empty(), "no row in CONTRIBUTING.md for {without_row:?}");
    let without_dependency: Vec<&&str> = listed.difference(&dependencies).collect();
    assert!(without_dependency.is_empty(), "no dependency in Cargo.toml for the rows of {without_dependency:?}");
}
