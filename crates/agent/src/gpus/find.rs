//! Finds the GPUs of the machine from its device nodes, and selects those that the user offers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{DeviceNode, Gpu, Vendor};

/// Where the dynamic linker looks by itself.
const LINKER_DIRECTORIES: &[&str] = &[
    "lib",
    "lib64",
    "usr/lib",
    "usr/lib64",
    "usr/local/lib",
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
];

/// Where drivers are installed besides.
const DRIVER_DIRECTORIES: &[&str] =
    &["usr/local/nvidia/lib64", "usr/lib/wsl/lib", "run/opengl-driver/lib", "opt/rocm/lib"];

/// The PCI vendor of AMD's GPUs; render nodes of others are no compute devices.
const AMD_PCI_VENDOR: &str = "0x1002";

/// Returns the GPUs of the machine whose root is `root`, by vendor and position; `library_path` is the user's own
/// `LD_LIBRARY_PATH`.
pub fn find(root: &Path, library_path: &str) -> Vec<Gpu> {
    let mut all = nvidia(root);
    all.extend(amd(root));
    for vendor in Vendor::ALL {
        let libraries = libraries(root, vendor.library, library_path);
        let driver = driver_libraries(root, vendor);
        let shared_nodes = shared_nodes(root, vendor);
        for (index, gpu) in all.iter_mut().filter(|gpu| gpu.vendor == vendor).enumerate() {
            gpu.index = index;
            gpu.libraries.clone_from(&libraries);
            gpu.driver.clone_from(&driver);
            gpu.shared_nodes.clone_from(&shared_nodes);
        }
    }
    all
}

/// Returns the GPUs that `choice` offers: `all`, `none`, or positions such as `0,2`. Each vendor counts its own, so where
/// there are two, a position begins with the vendor, as in `amd:0`.
pub fn select(found: Vec<Gpu>, choice: &str) -> Result<Vec<Gpu>, String> {
    match choice {
        "all" => return Ok(found),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut chosen = Vec::new();
    for part in choice.split(',').map(str::trim) {
        chosen.push(position(&found, part)?);
    }
    Ok(found.into_iter().enumerate().filter(|(position, _)| chosen.contains(position)).map(|(_, gpu)| gpu).collect())
}

/// Returns where in the list the GPU is that a text such as `1` or `amd:1` names.
fn position(found: &[Gpu], text: &str) -> Result<usize, String> {
    let (vendor, number) = text.split_once(':').map_or((None, text), |(vendor, number)| (Some(vendor), number));
    let index: usize = number.parse().map_err(|_| {
        format!("{text:?} is not a choice of GPUs; use all, none, or positions separated by commas, such as 0,1")
    })?;
    let is_mixed = found.iter().any(|gpu| gpu.vendor != found[0].vendor);
    if vendor.is_none() && is_mixed {
        return Err(format!(
            "this machine has GPUs of two vendors, so {index} is ambiguous; use nvidia:{index} or amd:{index}"
        ));
    }
    let fits = |gpu: &Gpu| vendor.is_none_or(|vendor| gpu.vendor.name() == vendor);
    found.iter().position(|gpu| fits(gpu) && gpu.index == index).ok_or_else(|| {
        let of_vendor = vendor.map(|vendor| format!("{vendor} ")).unwrap_or_default();
        match found.iter().filter(|gpu| fits(gpu)).count() {
            0 => format!("there is no GPU {text}: no {of_vendor}GPU was found on this machine"),
            1 => format!("there is no GPU {text}: this machine has one {of_vendor}GPU, 0"),
            count => format!("there is no GPU {text}: this machine has the {of_vendor}GPUs 0 to {}", count - 1),
        }
    })
}

/// NVIDIA's: `/dev/nvidia0` and so on, with what the driver reports about each.
fn nvidia(root: &Path) -> Vec<Gpu> {
    let vendor = &Vendor::NVIDIA;
    let known = nvidia_details(root);
    let minors = numbered(&root.join("dev"), "nvidia");
    minors
        .into_iter()
        .map(|(minor, node)| {
            let details = known.get(&minor);
            Gpu {
                vendor,
                index: 0,
                model: details.and_then(|d| d.model.clone()),
                uuid: details.and_then(|d| d.uuid.clone()),
                bus: details.map(|d| d.bus.clone()),
                nodes: vec![DeviceNode::new(root, node)],
                shared_nodes: Vec::new(),
                libraries: None,
                driver: Vec::new(),
            }
        })
        .collect()
}

/// AMD's: the render nodes of AMD's GPUs, if the compute driver is there.
fn amd(root: &Path) -> Vec<Gpu> {
    if !root.join("dev/kfd").exists() {
        return Vec::new();
    }
    let pci_vendor = |minor: u32| {
        let file = root.join(format!("sys/class/drm/renderD{minor}/device/vendor"));
        fs::read_to_string(file).unwrap_or_default().trim().to_owned()
    };
    numbered(&root.join("dev/dri"), "renderD")
        .into_iter()
        .filter(|(minor, _)| pci_vendor(*minor) == AMD_PCI_VENDOR)
        .map(|(_, node)| Gpu {
            vendor: &Vendor::AMD,
            index: 0,
            model: None,
            uuid: None,
            bus: None,
            nodes: vec![DeviceNode::new(root, node)],
            shared_nodes: Vec::new(),
            libraries: None,
            driver: Vec::new(),
        })
        .collect()
}

/// What NVIDIA's driver reports about a GPU.
struct Details {
    model: Option<String>,
    uuid: Option<String>,
    bus: String,
}

/// Reads the driver's reports, by the minor number of the device node.
fn nvidia_details(root: &Path) -> BTreeMap<u32, Details> {
    let Ok(entries) = fs::read_dir(root.join("proc/driver/nvidia/gpus")) else { return BTreeMap::new() };
    let one = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("information")).ok()?;
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?.trim();
            // The driver writes question marks until the GPU has been used once.
            (!value.is_empty() && !value.contains("??")).then(|| value.to_owned())
        };
        let minor = field("Device Minor")?.parse().ok()?;
        let bus = entry.file_name().into_string().ok()?;
        Some((minor, Details { model: field("Model"), uuid: field("GPU UUID"), bus }))
    };
    entries.flatten().filter_map(one).collect()
}

/// The entries of a directory called `prefix` and a number, in the order of the numbers.
fn numbered(directory: &Path, prefix: &str) -> BTreeMap<u32, PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|e| Some((e.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?, e.path()))).collect()
}

fn shared_nodes(root: &Path, vendor: &Vendor) -> Vec<DeviceNode> {
    let dev = root.join("dev");
    let mut nodes: Vec<PathBuf> =
        vendor.common.iter().map(|name| dev.join(name)).filter(|path| path.exists()).collect();
    for directory in vendor.common_directories {
        let mut inside: Vec<PathBuf> =
            fs::read_dir(dev.join(directory)).into_iter().flatten().flatten().map(|e| e.path()).collect();
        inside.sort();
        nodes.extend(inside);
    }
    nodes.into_iter().map(|node| DeviceNode::new(root, node)).collect()
}

/// The directory that holds a library, unless the dynamic linker finds it by itself.
fn libraries(root: &Path, library: &str, library_path: &str) -> Option<PathBuf> {
    let has = |directory: &PathBuf| directory.join(library).exists();
    if LINKER_DIRECTORIES.iter().map(|d| root.join(d)).any(|d| has(&d)) {
        return None;
    }
    let own = library_path.split(':').filter(|d| d.starts_with('/')).map(PathBuf::from);
    DRIVER_DIRECTORIES.iter().map(|d| root.join(d)).chain(own).find(has)
}

/// The libraries of a driver, from the directory where the dynamic linker finds them.
fn driver_libraries(root: &Path, vendor: &Vendor) -> Vec<PathBuf> {
    let directories = LINKER_DIRECTORIES.iter().map(|d| root.join(d));
    let Some(directory) = directories.into_iter().find(|d| d.join(vendor.library).exists()) else { return Vec::new() };
    let is_driver = |name: &str| {
        name.contains(".so") && vendor.driver_libraries.iter().any(|beginning| name.starts_with(beginning))
    };
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|e| e.file_name().to_str().is_some_and(is_driver)).map(|e| e.path()).collect();
    // A link that leads nowhere cannot be bound.
    found.retain(|path| path.exists());
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{fake_amd, fake_nvidia};
    use super::*;

    fn names(gpus: &[Gpu]) -> Vec<String> {
        gpus.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn gpus_are_found_by_their_device_nodes() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(find(root.path(), ""), []);
        fake_nvidia(root.path(), &[0, 1, 10]);
        fake_amd(root.path(), &[(128, "0x1002"), (129, "0x10de"), (130, "0x1002")]);
        let found = find(root.path(), "");
        let expect = [
            "nvidia.com/gpu 0 (NVIDIA Fake 0)",
            "nvidia.com/gpu 1 (NVIDIA Fake 1)",
            "nvidia.com/gpu 2 (NVIDIA Fake 10)",
            "amd.com/gpu 0",
            "amd.com/gpu 1",
        ];
        assert_eq!(names(&found), expect);
        assert_eq!(found[4].nodes, [DeviceNode::new(root.path(), root.path().join("dev/dri/renderD130"))]);
        assert_eq!(found[4].nodes[0].target, Path::new("/dev/dri/renderD130"));
    }

    #[test]
    fn a_driver_that_reports_nothing_still_offers_its_gpus() {
        let root = tempfile::tempdir().unwrap();
        fake_nvidia(root.path(), &[0]);
        fs::remove_dir_all(root.path().join("proc")).unwrap();
        assert_eq!(names(&find(root.path(), "")), ["nvidia.com/gpu 0"]);
    }

    #[test]
    fn users_choose_the_gpus_that_are_offered() {
        let root = tempfile::tempdir().unwrap();
        fake_nvidia(root.path(), &[0, 1]);
        let check = |choice: &str, expect: Result<&[usize], &str>| {
            let got = select(find(root.path(), ""), choice).map(|all| all.iter().map(|g| g.index).collect::<Vec<_>>());
            match (got, expect) {
                (Ok(got), Ok(expect)) => assert_eq!(got, expect),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (got, _) => panic!("{choice}: {got:?}"),
            }
        };
        check("all", Ok(&[0, 1]));
        check("none", Ok(&[]));
        check("1", Ok(&[1]));
        check("1, 0,1", Ok(&[0, 1]));
        check("2", Err("this machine has the GPUs 0 to 1"));
        check("first", Err("use all, none, or positions"));
        check("nvidia:1", Ok(&[1]));
        check("amd:0", Err("no amd GPU was found"));
        assert!(select(Vec::new(), "0").unwrap_err().contains("no GPU was found"));
    }

    #[test]
    fn gpus_of_two_vendors_are_chosen_with_the_vendor() {
        let root = tempfile::tempdir().unwrap();
        fake_nvidia(root.path(), &[0, 1]);
        fake_amd(root.path(), &[(128, "0x1002"), (129, "0x1002")]);
        let chosen = |choice: &str| select(find(root.path(), ""), choice).map(|gpus| names(&gpus));
        let expect = ["nvidia.com/gpu 1 (NVIDIA Fake 1)", "amd.com/gpu 0"].map(str::to_owned);
        assert_eq!(chosen("amd:0,nvidia:1").unwrap(), expect);
        assert_eq!(chosen("all").unwrap().len(), 4);
        assert!(chosen("0").unwrap_err().contains("use nvidia:0 or amd:0"));
        assert!(chosen("amd:2").unwrap_err().contains("the amd GPUs 0 to 1"));
    }

    #[test]
    fn driver_libraries_off_the_linkers_path_are_named() {
        let root = tempfile::tempdir().unwrap();
        let make = |directory: &str| {
            fs::create_dir_all(root.path().join(directory)).unwrap();
            fs::write(root.path().join(directory).join("libcuda.so.1"), "").unwrap();
        };
        fake_nvidia(root.path(), &[0]);
        let found = |path: &str| find(root.path(), path)[0].libraries.clone();
        assert_eq!(found(""), None);
        make("custom");
        let custom = root.path().join("custom");
        assert_eq!(found(&format!("relative::{}", custom.display())), Some(custom.clone()));
        make("usr/local/nvidia/lib64");
        assert_eq!(found(""), Some(root.path().join("usr/local/nvidia/lib64")));
        make("usr/lib/x86_64-linux-gnu");
        assert_eq!(found(&custom.display().to_string()), None);
    }

    #[test]
    fn the_libraries_of_the_driver_are_listed() {
        let root = tempfile::tempdir().unwrap();
        fake_nvidia(root.path(), &[0]);
        let driver = || find(root.path(), "")[0].driver.clone();
        assert_eq!(driver(), [] as [PathBuf; 0]);
        let directory = root.path().join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&directory).unwrap();
        for name in ["libcuda.so.550.54", "libnvidia-ml.so.1", "libnvidia-x.txt", "libc.so.6", "libcudart.so.12"] {
            fs::write(directory.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("libcuda.so.550.54", directory.join("libcuda.so.1")).unwrap();
        std::os::unix::fs::symlink("gone", directory.join("libnvidia-gone.so")).unwrap();
        let expect = ["libcuda.so.1", "libcuda.so.550.54", "libnvidia-ml.so.1"].map(|name| directory.join(name));
        assert_eq!(driver(), expect);
    }
}
