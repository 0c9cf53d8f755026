//! Resource limits: control groups where they are writable, otherwise files that emulate them.
//!
//! CPU is a share, never a quota: a quota makes short-lived helpers several times slower.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::rootfs::CgroupView;

const ROOT: &str = "/sys/fs/cgroup";
const CONTROLLERS: &[&str] = &["memory", "cpu", "cpuacct", "pids"];

/// The kind of control groups that the host offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroups {
    /// Version 1: one hierarchy per controller, these being writable.
    V1 {
        controllers: Vec<String>,
        group: String,
    },
    V2 {
        group: String,
    },
    /// None is writable: limits are shown to the program and enforced by the agent.
    Emulated,
}

/// The limits of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub memory: Option<i64>,
    /// Thousandths of a CPU requested.
    pub cpu_milli: Option<i64>,
    /// Thousandths of a CPU at most, shown but not enforced.
    pub cpu_limit_milli: Option<i64>,
}

/// The control group of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    Real { dirs: Vec<(String, PathBuf)> },
    Emulated { dir: PathBuf, limits: Limits },
}

impl Cgroups {
    /// Detects what is writable; `name` must be unique to the state folder. All groups together get the CPU weight of as
    /// many processes as there are CPUs, so that one busy process outside does not count as much as all pods.
    pub fn detect(name: &str, cpus: i64) -> Self {
        let group = format!("manta-{name}");
        let writable: Vec<String> = CONTROLLERS
            .iter()
            .filter(|c| try_dir(&Path::new(ROOT).join(c).join(&group)))
            .map(|c| (*c).to_owned())
            .collect();
        if writable.iter().any(|c| c == "memory") {
            let shares = cpus.saturating_mul(1024).clamp(1024, 262_144).to_string();
            if let Err(error) = fs::write(Path::new(ROOT).join("cpu").join(&group).join("cpu.shares"), shares) {
                tracing::debug!(%error, "cannot raise the CPU weight of pods");
            }
            return Self::V1 { controllers: writable, group };
        }
        let controllers = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap_or_default();
        let unified = Path::new(ROOT).join(&group);
        if controllers.split_whitespace().any(|c| c == "memory") && try_dir(&unified) {
            let enabled = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+memory +cpu +pids").is_ok()
                && fs::write(unified.join("cgroup.subtree_control"), "+memory +cpu +pids").is_ok();
            if enabled {
                let weight = cpus.saturating_mul(100).clamp(100, 10_000).to_string();
                if let Err(error) = fs::write(unified.join("cpu.weight"), weight) {
                    tracing::debug!(%error, "cannot raise the CPU weight of pods");
                }
                return Self::V2 { group };
            }
            let _ = fs::remove_dir(&unified);
        }
        Self::Emulated
    }

    /// Whether the kernel limits the number of processes.
    pub fn limits_processes(&self) -> bool {
        match self {
            Self::V1 { controllers, .. } => controllers.iter().any(|c| c == "pids"),
            Self::V2 { .. } => true,
            Self::Emulated => false,
        }
    }

    pub fn is_real(&self) -> bool {
        *self != Self::Emulated
    }

    /// Creates the group of one container; emulated files go into `dir`.
    pub fn create(&self, name: &str, limits: Limits, dir: &Path) -> io::Result<Group> {
        match self {
            Self::Emulated => {
                fs::create_dir_all(dir)?;
                let group = Group::Emulated { dir: dir.to_path_buf(), limits };
                group.refresh(0)?;
                Ok(group)
            }
            Self::V1 { controllers, group } => {
                let mut dirs = Vec::new();
                for controller in controllers {
                    let path = Path::new(ROOT).join(controller).join(group).join(name);
                    fs::create_dir_all(&path)?;
                    match controller.as_str() {
                        "memory" => set(&path, "memory.limit_in_bytes", limits.memory.map(|n| n.to_string())),
                        "pids" => set(&path, "pids.max", Some(max_processes().to_string())),
                        "cpu" => set(&path, "cpu.shares", limits.cpu_milli.map(cpu_shares)),
                        _ => Ok(()),
                    }?;
                    dirs.push((controller.clone(), path));
                }
                Ok(Group::Real { dirs })
            }
            Self::V2 { group } => {
                let path = Path::new(ROOT).join(group).join(name);
                fs::create_dir_all(&path)?;
                set(&path, "memory.max", limits.memory.map(|n| n.to_string()))?;
                set(&path, "pids.max", Some(max_processes().to_string()))?;
                set(&path, "cpu.weight", limits.cpu_milli.map(|m| (m / 10).clamp(1, 10_000).to_string()))?;
                Ok(Group::Real { dirs: vec![(String::new(), path)] })
            }
        }
    }

    /// Removes the groups of earlier runs under this name, killing what is still in them.
    pub fn sweep(name: &str) -> usize {
        let group = format!("manta-{name}");
        let roots =
            CONTROLLERS.iter().map(|c| Path::new(ROOT).join(c).join(&group)).chain([Path::new(ROOT).join(&group)]);
        roots.map(|root| remove_tree(&root)).max().unwrap_or_default()
    }
}

/// What the processes of a group have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time since the group was created, in nanoseconds.
    pub cpu_nanos: u64,
    /// Memory that cannot be reclaimed at once.
    pub memory_bytes: u64,
}

impl Group {
    /// Returns what the group has used. An emulated group knows its memory only.
    pub fn usage(&self) -> Usage {
        let dirs: Vec<&Path> = match self {
            Self::Real { dirs } => dirs.iter().map(|(_, dir)| dir.as_path()).collect(),
            Self::Emulated { dir, .. } => vec![dir],
        };
        let read = |file: &str| dirs.iter().find_map(|dir| fs::read_to_string(dir.join(file)).ok());
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let field = |file: &str, name: &str| {
            let text = read(file)?;
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
        };
        let nanos = number("cpuacct.usage").or_else(|| Some(field("cpu.stat", "usage_usec")?.saturating_mul(1000)));
        let current = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
        let idle = field("memory.stat", "total_inactive_file").or_else(|| field("memory.stat", "inactive_file"));
        Usage { cpu_nanos: nanos.unwrap_or(0), memory_bytes: current.saturating_sub(idle.unwrap_or(0)) }
    }

    /// Returns the `cgroup.procs` files of the group.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        match self {
            Self::Real { dirs } => dirs.iter().map(|(_, dir)| dir.join("cgroup.procs")).collect(),
            Self::Emulated { .. } => Vec::new(),
        }
    }

    /// Returns what the container sees at /sys/fs/cgroup.
    pub fn view(&self) -> CgroupView {
        match self {
            Self::Emulated { dir, .. } => CgroupView::Unified(dir.clone()),
            Self::Real { dirs } => match dirs.as_slice() {
                [(controller, dir)] if controller.is_empty() => CgroupView::Unified(dir.clone()),
                dirs => CgroupView::Split(dirs.to_vec()),
            },
        }
    }

    /// Whether the kernel has OOM-killed a process of the group.
    pub fn oom_killed(&self) -> bool {
        let Self::Real { dirs } = self else { return false };
        let count = |text: String| {
            let line = text.lines().find_map(|l| l.strip_prefix("oom_kill ").map(str::to_owned));
            line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or_default()
        };
        dirs.iter().any(|(_, dir)| {
            ["memory.oom_control", "memory.events"]
                .iter()
                .any(|f| fs::read_to_string(dir.join(f)).is_ok_and(|t| count(t) > 0))
        })
    }

    /// Returns the memory limit that the agent has to enforce itself.
    pub fn enforced_limit(&self) -> Option<i64> {
        match self {
            Self::Emulated { limits, .. } => limits.memory,
            Self::Real { .. } => None,
        }
    }

    /// Updates the files of an emulated group.
    pub fn refresh(&self, used: u64) -> io::Result<()> {
        let Self::Emulated { dir, limits } = self else { return Ok(()) };
        let max = limits.memory.map_or("max".to_owned(), |n| n.to_string());
        let quota = limits.cpu_limit_milli.map_or("max".to_owned(), |m| m.saturating_mul(100).to_string());
        for (name, text) in [
            ("memory.max", format!("{max}\n")),
            ("memory.current", format!("{used}\n")),
            ("memory.stat", format!("anon {used}\nfile 0\ninactive_file 0\nactive_file 0\n")),
            ("cpu.max", format!("{quota} 100000\n")),
        ] {
            let path = dir.join(name);
            if fs::read_to_string(&path).is_ok_and(|old| old == text) {
                continue;
            }
            // Replaced atomically: a reader must never see a partial number.
            let fresh = dir.join(".new");
            fs::write(&fresh, text)?;
            fs::rename(&fresh, &path)?;
        }
        Ok(())
    }

    /// Removes the group; processes in it must be gone.
    pub fn remove(&self) {
        if let Self::Real { dirs } = self {
            for (_, dir) in dirs {
                let _ = fs::remove_dir(dir);
            }
        }
    }
}

/// Returns how many processes and threads a container may have: half of what the kernel can number, so that no
/// container can take the last one.
pub fn max_processes() -> u64 {
    let most = fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse::<u64>().ok());
    (most.unwrap_or(32_768) / 2).clamp(1024, 32_768)
}

fn cpu_shares(milli: i64) -> String {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144).to_string()
}

fn set(dir: &Path, file: &str, value: Option<String>) -> io::Result<()> {
    let Some(value) = value else { return Ok(()) };
    fs::write(dir.join(file), value)
}

fn try_dir(path: &Path) -> bool {
    // Only a directory of a cgroup file system holds cgroup.procs; a plain directory of the same name does not.
    path.parent().is_some_and(|p| p.join("cgroup.procs").exists())
        && (path.is_dir() || fs::create_dir(path).is_ok())
        && fs::OpenOptions::new().write(true).open(path.join("cgroup.procs")).is_ok()
}

fn remove_tree(root: &Path) -> usize {
    let Ok(entries) = fs::read_dir(root) else { return 0 };
    let mut found = 0;
    for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        found += 1;
        let procs = fs::read_to_string(entry.path().join("cgroup.procs")).unwrap_or_default();
        for pid in procs.lines().filter_map(|l| l.parse().ok()).filter(|pid| *pid > 0) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = fs::remove_dir(entry.path());
    }
    let _ = fs::remove_dir(root);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_both_versions() {
        let check = |files: &[(&str, &str)], cpu_nanos: u64, memory_bytes: u64| {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                fs::write(dir.path().join(name), text).unwrap();
            }
            let group = Group::Real { dirs: vec![(String::new(), dir.path().to_path_buf())] };
            assert_eq!(group.usage(), Usage { cpu_nanos, memory_bytes }, "{files:?}");
        };
        let second = [
            ("cpu.stat", "usage_usec 7\nuser_usec 5\n"),
            ("memory.current", "9000\n"),
            ("memory.stat", "anon 1\ninactive_file 1000\n"),
        ];
        check(&second, 7000, 8000);
        let first = [
            ("cpuacct.usage", "123\n"),
            ("memory.usage_in_bytes", "9000\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n"),
        ];
        check(&first, 123, 7000);
        check(&[], 0, 0);
    }

    #[test]
    fn emulated_files_show_limits_and_use() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { memory: Some(1 << 30), cpu_milli: Some(500), cpu_limit_milli: Some(1500) };
        let group = Cgroups::Emulated.create("c", limits, dir.path()).unwrap();
        group.refresh(4096).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("memory.max"), "1073741824\n");
        assert_eq!(read("memory.current"), "4096\n");
        assert_eq!(read("cpu.max"), "150000 100000\n");
        assert_eq!(group.enforced_limit(), Some(1 << 30));
        let open = Cgroups::Emulated.create("c", Limits::default(), &dir.path().join("2")).unwrap();
        assert_eq!(read("2/memory.max"), "max\n");
        assert_eq!((open.procs_files().len(), open.oom_killed()), (0, false));
    }
}
