//! Tells tests at compile time whether KubeRay's recordings lie beside the workspace, so that tests without them are
//! reported as ignored.

#![allow(clippy::print_stdout, reason = "cargo reads the output")]

fn main() {
    let recordings = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/parity/cases");
    println!("cargo::rustc-check-cfg=cfg(recordings)");
    println!("cargo::rerun-if-changed={recordings}");
    println!("cargo::rerun-if-changed=build.rs");
    if std::path::Path::new(recordings).is_dir() {
        println!("cargo::rustc-cfg=recordings");
    }
}
