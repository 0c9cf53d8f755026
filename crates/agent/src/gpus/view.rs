//! What a container sees of the machine's GPUs.

use std::path::PathBuf;

use super::{DeviceNode, Gpu, Naming, Vendor};

/// The part of a container's surroundings that depends on its GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuView {
    pub nodes: Vec<DeviceNode>,
    pub env: Vec<(String, String)>,
    /// Directories of driver libraries to show at the same path.
    pub libraries: Vec<PathBuf>,
    /// Libraries of drivers for containers that do not see the machine's own.
    pub driver: Vec<PathBuf>,
    /// Directories of the kernel to reduce to the entries named.
    pub lists: Vec<(PathBuf, Vec<String>)>,
}

/// Whether a container sees only its own device nodes, or those of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    Own,
    All,
}

/// Returns what a container sees that holds `own` of the GPUs that were `found` on the machine, offered or not.
pub fn view(found: &[Gpu], own: &[Gpu], visibility: Visibility) -> GpuView {
    let mut view = GpuView::default();
    let mut library_path: Vec<String> = Vec::new();
    for vendor in Vendor::ALL {
        // A machine without GPUs of a vendor has nothing to hide, and programs may look for its variables.
        if !found.iter().any(|gpu| gpu.vendor == vendor) {
            continue;
        }
        let held: Vec<&Gpu> = own.iter().filter(|gpu| gpu.vendor == vendor).collect();
        for (variable, naming) in vendor.variables {
            view.env.push(((*variable).to_owned(), names(&held, *naming, visibility)));
        }
        if let Some(list) = vendor.list {
            view.lists.push((list.into(), held.iter().filter_map(|gpu| gpu.bus.clone()).collect()));
        }
        view.nodes.extend(held.iter().flat_map(|gpu| gpu.nodes.clone()));
        if let Some(first) = held.first() {
            view.nodes.extend(first.shared_nodes.clone());
            view.libraries.extend(first.libraries.clone());
            view.driver.extend(first.driver.clone());
            library_path.extend(first.libraries.iter().map(|path| path.display().to_string()));
        }
    }
    if !library_path.is_empty() {
        view.env.push(("LD_LIBRARY_PATH".to_owned(), library_path.join(":")));
    }
    view
}

fn names(held: &[&Gpu], naming: Naming, visibility: Visibility) -> String {
    // Programs count the GPUs that they can open.
    let position = |(at, gpu): (usize, &&Gpu)| if visibility == Visibility::Own { at } else { gpu.index }.to_string();
    let all: Vec<String> = match naming {
        Naming::Identity { none } if held.is_empty() => vec![none.to_owned()],
        Naming::Identity { .. } if held.iter().all(|gpu| gpu.uuid.is_some()) => {
            held.iter().filter_map(|gpu| gpu.uuid.clone()).collect()
        }
        Naming::Identity { .. } | Naming::Position => held.iter().enumerate().map(position).collect(),
    };
    all.join(",")
}

#[cfg(test)]
pub(in crate::gpus) mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::find;
    use super::*;

    /// Makes the device nodes and reports of NVIDIA's driver, as plain files.
    pub(in crate::gpus) fn fake_nvidia(root: &Path, minors: &[u32]) {
        fs::create_dir_all(root.join("dev/nvidia-caps")).unwrap();
        for name in ["nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"] {
            fs::write(root.join("dev").join(name), "").unwrap();
        }
        for minor in minors {
            fs::write(root.join(format!("dev/nvidia{minor}")), "").unwrap();
            let report = root.join(format!("proc/driver/nvidia/gpus/0000:{minor:02}:00.0"));
            fs::create_dir_all(&report).unwrap();
            let text = format!(
                "Model: \t\t NVIDIA Fake {minor}\nIRQ:   \t\t 0\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
            );
            fs::write(report.join("information"), text).unwrap();
        }
    }

    /// Makes render nodes with the PCI vendors named, and AMD's compute device.
    pub(in crate::gpus) fn fake_amd(root: &Path, nodes: &[(u32, &str)]) {
        fs::create_dir_all(root.join("dev/dri")).unwrap();
        fs::write(root.join("dev/kfd"), "").unwrap();
        for (minor, vendor) in nodes {
            fs::write(root.join(format!("dev/dri/renderD{minor}")), "").unwrap();
            let device = root.join(format!("sys/class/drm/renderD{minor}/device"));
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
        }
    }

    fn machine() -> (tempfile::TempDir, Vec<Gpu>) {
        let root = tempfile::tempdir().unwrap();
        fake_nvidia(root.path(), &[0, 1]);
        fake_amd(root.path(), &[(128, "0x1002"), (129, "0x1002")]);
        let found = find(root.path(), "");
        (root, found)
    }

    fn targets(view: &GpuView) -> Vec<PathBuf> {
        view.nodes.iter().map(|node| node.target.clone()).collect()
    }

    fn env(view: &GpuView) -> Vec<String> {
        view.env.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_container_sees_its_own_device_nodes_only() {
        let (root, found) = machine();
        let got = view(&found, &found[1..2], Visibility::Own);
        let expect = ["nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"];
        assert_eq!(targets(&got), expect.map(|name| Path::new("/dev").join(name)));
        assert!(got.nodes.iter().all(|node| node.source.starts_with(root.path())));
        assert_eq!(got.lists, [("/proc/driver/nvidia/gpus".into(), vec!["0000:01:00.0".to_owned()])]);
        let expect = [
            "NVIDIA_VISIBLE_DEVICES=GPU-1",
            "CUDA_VISIBLE_DEVICES=GPU-1",
            "ROCR_VISIBLE_DEVICES=",
            "HIP_VISIBLE_DEVICES=",
        ];
        assert_eq!(env(&got), expect);
        let amd = view(&found, &found[3..4], Visibility::Own);
        assert_eq!(targets(&amd), ["/dev/dri/renderD129", "/dev/kfd"].map(PathBuf::from));
        assert_eq!(env(&amd)[2..], ["ROCR_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=0"]);
    }

    #[test]
    fn a_container_without_gpus_sees_none() {
        let (_root, found) = machine();
        let got = view(&found, &[], Visibility::Own);
        assert_eq!(got.nodes, []);
        assert_eq!(got.lists, [("/proc/driver/nvidia/gpus".into(), vec![])]);
        let expect =
            ["NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES="];
        assert_eq!(env(&got), expect);
        assert_eq!(view(&[], &[], Visibility::Own), GpuView::default(), "nothing to hide");
    }

    #[test]
    fn gpus_without_a_uuid_are_named_by_position() {
        let (root, _) = machine();
        fs::remove_dir_all(root.path().join("proc")).unwrap();
        let found = find(root.path(), "");
        assert_eq!(env(&view(&found, &found[1..2], Visibility::Own))[1], "CUDA_VISIBLE_DEVICES=0");
        assert_eq!(env(&view(&found, &found[1..2], Visibility::All))[1], "CUDA_VISIBLE_DEVICES=1");
    }

    #[test]
    fn driver_libraries_are_shown_and_searched() {
        let (root, _) = machine();
        let libraries = root.path().join("usr/local/nvidia/lib64");
        fs::create_dir_all(&libraries).unwrap();
        fs::write(libraries.join("libcuda.so.1"), "").unwrap();
        let found = find(root.path(), "");
        let got = view(&found, &found[..1], Visibility::Own);
        assert_eq!(got.libraries, std::slice::from_ref(&libraries));
        assert_eq!(env(&got).last().unwrap(), &format!("LD_LIBRARY_PATH={}", libraries.display()));
        assert!(view(&found, &[], Visibility::Own).libraries.is_empty());
    }
}
