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
        ("manta-quantity", &[]),
        ("manta-heap", &[]),
        ("manta-logic", &["manta-api", "manta-quantity"]),
        ("manta-operator", &["manta-api", "manta-heap", "manta-logic"]),
        // These two know nothing of Ray.
        ("manta-apiserver", &["manta-quantity"]),
        ("manta-agent", &["manta-quantity"]),
        (
            "manta",
            &[
                "manta-agent",
                "manta-api",
                "manta-apiserver",
                "manta-heap",
                "manta-logic",
                "manta-operator",
                "manta-quantity",
            ],
        ),
        ("manta-sim", &["manta-api", "manta-apiserver", "manta-logic", "manta-operator", "manta-testkit"]),
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
fn few_files_of_the_operator_write_to_the_api_server() {
    let source = root().join("crates/operator/src");
    let writes = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        ["PostParams", "PatchParams", "DeleteParams"].iter().any(|params| text.contains(params))
    };
    let files: BTreeSet<String> = rust_files(&source)
        .iter()
        .filter(|file| writes(file))
        .map(|file| file.strip_prefix(&source).unwrap().to_string_lossy().into_owned())
        .collect();
    let expect = [
        "events.rs",
        "execute/kubernetes.rs",
        "leader/mod.rs",
        "metrics/protected.rs",
        "status_writer.rs",
        "webhooks/self_signed.rs",
    ];
    assert_eq!(files, expect.map(str::to_owned).into(), "ARCHITECTURE.md lists the writers");
}

#[test]
fn the_walk_in_architecture_names_functions_that_exist() {
    let architecture = read("ARCHITECTURE.md");
    let (_, table) = architecture.split_once("| # | file in `crates/` | function |").expect("the table");
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let rows: Vec<Vec<&str>> = rows
        .map_while(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            cells[1].parse::<usize>().is_ok().then_some(cells)
        })
        .collect();
    assert!((10..=15).contains(&rows.len()), "{} hops", rows.len());
    for cells in rows {
        let (file, function) = (cells[2].trim_matches('`'), cells[3].trim_matches('`'));
        let text = read(&format!("crates/{file}"));
        let defined = [format!("fn {function}("), format!("fn {function}<")].iter().any(|head| text.contains(head));
        assert!(defined, "{file} has no function {function}");
    }
}

#[test]
fn the_code_map_names_paths_that_exist() {
    let architecture = read("ARCHITECTURE.md");
    let (_, table) = architecture.split_once("| where | what |\n| --- | --- |\n").expect("the table");
    for row in table.lines().map_while(|line| line.strip_prefix("| ")) {
        let mut folder = PathBuf::new();
        for path in row.split('|').next().unwrap_or_default().split(", ").map(|path| path.trim().trim_matches('`')) {
            // The later ones of a row stand in the folder of the first.
            let whole =
                if path.contains('/') || folder.as_os_str().is_empty() { path.into() } else { folder.join(path) };
            assert!(root().join(&whole).exists(), "{} does not exist", whole.display());
            folder = whole.parent().unwrap_or(Path::new("")).to_owned();
        }
    }
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
