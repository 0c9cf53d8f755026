//! Build script of the crates whose tests read `../shared`, the recordings of KubeRay beside the workspace.
//!
//! It sets the cfg `has_shared`, without which those tests are ignored.

#![expect(clippy::print_stdout, reason = "cargo reads the output of a build script")]

fn main() {
    const FOLDER: &str = "../../../shared/parity";
    println!("cargo::rustc-check-cfg=cfg(has_shared)");
    // A missing path would make cargo run this script, and build the crate, every time.
    if std::path::Path::new(FOLDER).is_dir() {
        println!("cargo::rerun-if-changed={FOLDER}");
        println!("cargo::rustc-cfg=has_shared");
    }
}
