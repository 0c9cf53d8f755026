//! The GPUs of this machine: which there are, which pod holds which, and what a container sees of them.
//!
//! ```text
//!   find (reads /dev, /proc, /sys) ─▶ Vec<Gpu> ─▶ Allocations: pod ─▶ its GPUs ─▶ view: device nodes and variables
//! ```
//!
//! A GPU belongs to one pod at a time. Its device nodes are bound into the containers that asked for it, and a container
//! that asked for none has neither device nodes nor a name for one.

mod allocate;
mod find;
mod view;

use std::path::{Path, PathBuf};

pub use allocate::Allocations;
pub use find::{find, select};
pub use view::{GpuView, Visibility, view};

/// Who made a GPU; everything that differs between makers is in the table [`Vendor::ALL`].
#[derive(Debug, PartialEq, Eq)]
pub struct Vendor {
    /// The resource that pods ask for.
    pub resource: &'static str,
    /// Device nodes that every pod with a GPU of this vendor needs, where they exist.
    common: &'static [&'static str],
    /// Directories whose device nodes every pod with a GPU needs, where they exist.
    common_directories: &'static [&'static str],
    /// Variables that name the GPUs a program may use, and how.
    variables: &'static [(&'static str, Naming)],
    /// A library of the driver that programs load.
    library: &'static str,
    /// What the names of the driver's libraries begin with that belong to the kernel's module: an image cannot bring its
    /// own.
    driver_libraries: &'static [&'static str],
    /// The kernel's list of GPUs, which has an entry for each by its bus address.
    list: Option<&'static str>,
}

/// How a variable names GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// By UUID where there is one, else by position; `none` is the value for no GPU.
    Identity { none: &'static str },
    /// By position among the GPUs that the program can open.
    Position,
}

impl Vendor {
    /// Its name as users write it: `nvidia` of `nvidia.com/gpu`.
    fn name(&self) -> &'static str {
        self.resource.split('.').next().unwrap_or(self.resource)
    }

    /// Every vendor whose GPUs are offered.
    pub const ALL: &'static [Self] = &[Self::NVIDIA, Self::AMD];

    const NVIDIA: Self = Self {
        resource: "nvidia.com/gpu",
        common: &["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"],
        common_directories: &["nvidia-caps"],
        variables: &[
            ("NVIDIA_VISIBLE_DEVICES", Naming::Identity { none: "void" }),
            ("CUDA_VISIBLE_DEVICES", Naming::Identity { none: "" }),
        ],
        library: "libcuda.so.1",
        driver_libraries: &["libcuda.so", "libcudadebugger.so", "libnvidia-", "libnvcuvid.so", "libnvoptix.so"],
        list: Some("/proc/driver/nvidia/gpus"),
    };

    const AMD: Self = Self {
        resource: "amd.com/gpu",
        common: &["kfd"],
        common_directories: &[],
        // Ray accepts ROCR_VISIBLE_DEVICES only beside HIP_VISIBLE_DEVICES.
        variables: &[("ROCR_VISIBLE_DEVICES", Naming::Position), ("HIP_VISIBLE_DEVICES", Naming::Position)],
        library: "libhsa-runtime64.so.1",
        // Images bring ROCm themselves.
        driver_libraries: &[],
        list: None,
    };
}

/// One GPU of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub vendor: &'static Vendor,
    /// The position among the GPUs of its vendor, as the vendor's own tools count.
    pub index: usize,
    /// The vendor's name for the model, where the driver reports it.
    pub model: Option<String>,
    /// A name that no other GPU has.
    uuid: Option<String>,
    /// The address on the PCI bus, as the kernel's list writes it.
    bus: Option<String>,
    /// Its own device nodes.
    nodes: Vec<DeviceNode>,
    /// The device nodes that it shares with the other GPUs of its vendor.
    shared_nodes: Vec<DeviceNode>,
    /// The directory of the driver's libraries, if the dynamic linker does not look there by itself.
    libraries: Option<PathBuf>,
    /// The driver's libraries among those where the dynamic linker looks, which an image does not have.
    driver: Vec<PathBuf>,
}

/// A device node of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    pub source: PathBuf,
    /// Its path on the machine, which is also its path in containers.
    pub target: PathBuf,
}

impl DeviceNode {
    fn new(root: &Path, source: PathBuf) -> Self {
        let target = Path::new("/").join(source.strip_prefix(root).unwrap_or(&source));
        Self { source, target }
    }
}

/// The GPUs of a node.
#[derive(Debug, Clone, Default)]
pub struct Gpus {
    /// All of the machine, which includes those that pods must not see.
    pub found: Vec<Gpu>,
    /// Those that pods may have.
    pub offered: Vec<Gpu>,
}

impl Gpus {
    /// Returns how many GPUs are offered, by resource.
    pub fn capacity(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let count = |vendor: &Vendor| self.offered.iter().filter(|gpu| gpu.vendor == vendor).count();
        Vendor::ALL.iter().map(move |vendor| (vendor.resource, count(vendor))).filter(|(_, count)| *count > 0)
    }
}

impl std::fmt::Display for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.vendor.resource, self.index)?;
        match &self.model {
            Some(model) => write!(f, " ({model})"),
            None => Ok(()),
        }
    }
}
