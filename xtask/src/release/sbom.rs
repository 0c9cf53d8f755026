//! The software bill of materials: the crates that are linked into `manta`, as CycloneDX 1.6.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::archive::run;
use super::binary::Binary;
use crate::process::cargo;
use crate::workspace;

/// Returns the SBOM of the binary.
pub(super) fn of(binary: &Binary) -> Result<Value> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &binary.target]);
    let metadata = run(command.current_dir(workspace::root())).context("cannot read the dependencies")?;
    let lock = std::fs::read_to_string(workspace::root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    describe(&serde_json::from_str(&metadata)?, &checksums(&lock), "manta")
}

/// Describes a package and everything it links, from `cargo metadata`.
fn describe(metadata: &Value, checksums: &BTreeMap<(String, String), String>, root: &str) -> Result<Value> {
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"]).map(|p| (text(&p["id"]), p)).collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"]).map(|n| (text(&n["id"]), n)).collect();
    let root = packages.iter().find(|(_, p)| p["name"] == root).map(|(id, _)| *id);
    let root = root.context("cargo metadata does not know the package")?;
    let linked = linked(&nodes, root);
    let reference = |id: &str| packages.get(id).map_or_else(String::new, |package| purl(package));
    let components: Vec<Value> = linked
        .iter()
        .filter(|id| **id != root)
        .filter_map(|id| packages.get(id))
        .map(|package| component(package, checksums))
        .collect();
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|id| {
            let mut on: Vec<String> = nodes.get(id).into_iter().flat_map(|n| normal(n)).map(reference).collect();
            on.sort();
            json!({"ref": reference(id), "dependsOn": on})
        })
        .collect();
    let described = packages.get(root).map(|package| component(package, checksums)).unwrap_or_default();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": described},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Returns the ids of all packages that are linked, directly or not, the root included.
fn linked<'a>(nodes: &BTreeMap<&str, &'a Value>, root: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::from([root]);
    let mut queue = VecDeque::from([root]);
    while let Some(id) = queue.pop_front() {
        let next = nodes.get(id).into_iter().flat_map(|node| normal(node));
        queue.extend(next.filter(|id| found.insert(*id)).collect::<Vec<_>>());
    }
    found
}

/// Returns the normal dependencies of a node, without those of tests and build scripts.
fn normal(node: &Value) -> impl Iterator<Item = &str> {
    let is_normal = |dep: &&Value| list(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null());
    list(&node["deps"]).filter(is_normal).map(|dep| text(&dep["pkg"]))
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let mut component = Map::new();
    let kind = if name == "manta" { "application" } else { "library" };
    for (key, value) in [("type", kind), ("name", name), ("version", version)] {
        component.insert(key.to_owned(), json!(value));
    }
    let purl = purl(package);
    component.insert("bom-ref".to_owned(), json!(purl));
    component.insert("purl".to_owned(), json!(purl));
    if let Some(license) = package["license"].as_str() {
        // Some crates still separate alternatives with a slash, which SPDX does not know.
        component.insert("licenses".to_owned(), json!([{"expression": license.replace('/', " OR ")}]));
    }
    if let Some(checksum) = checksums.get(&(name.to_owned(), version.to_owned())) {
        component.insert("hashes".to_owned(), json!([{"alg": "SHA-256", "content": checksum}]));
    }
    Value::Object(component)
}

fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

/// Reads the checksums of crates, by name and version, from Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |entry: &str, name: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let entry = |entry: &str| Some(((field(entry, "name")?, field(entry, "version")?), field(entry, "checksum")?));
    lock.split("[[package]]").filter_map(entry).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let package =
            |name: &str, license: &str| json!({"id": name, "name": name, "version": "1.0.0", "license": license});
        let dep = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        json!({
            "packages": [package("manta", "Apache-2.0"), package("a", "MIT/Apache-2.0"), package("b", "MIT"),
                         package("build", "MIT"), package("test", "MIT"), package("other", "MIT")],
            "resolve": {"nodes": [
                {"id": "manta", "deps": [dep("a", Value::Null), dep("test", json!("dev")), dep("build", json!("build"))]},
                {"id": "a", "deps": [dep("b", Value::Null)]},
                {"id": "b", "deps": []},
                {"id": "other", "deps": []},
            ]},
        })
    }

    #[test]
    fn only_linked_crates_are_listed() {
        let lock = "[[package]]\nname = \"b\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n";
        let sbom = describe(&metadata(), &checksums(lock), "manta").unwrap();
        let purls: Vec<&str> = list(&sbom["components"]).map(|c| text(&c["purl"])).collect();
        assert_eq!(purls, ["pkg:cargo/a@1.0.0", "pkg:cargo/b@1.0.0"]);
        assert_eq!(sbom["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(sbom["components"][1]["hashes"][0]["content"], "abc");
        assert_eq!(sbom["metadata"]["component"]["type"], "application");
        assert_eq!(sbom["dependencies"][0], json!({"ref": "pkg:cargo/a@1.0.0", "dependsOn": ["pkg:cargo/b@1.0.0"]}));
        assert!(describe(&metadata(), &BTreeMap::new(), "absent").is_err());
    }
}
