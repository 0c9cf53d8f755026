//! The machine and the versions that figures were measured with.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::workspace;

/// What figures depend on, besides the operators.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Machine {
    processor: String,
    cores: usize,
    memory_bytes: u64,
    kernel: String,
    commit: String,
    rustc: String,
    /// When the run began.
    date: String,
}

impl Machine {
    /// Describes this machine; what cannot be found out stays empty.
    pub(super) fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = field(&read("/proc/cpuinfo"), "model name");
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = memory.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        Self {
            processor,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kilobytes.unwrap_or_default() * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: output("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
            rustc: output("rustc", &["--version"]),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }

    /// Describes it in one line.
    pub(super) fn line(&self) -> String {
        let Self { processor, cores, kernel, commit, rustc, date, .. } = self;
        let gigabytes = self.memory_bytes as f64 / 1e9;
        format!("{cores} cores ({processor}), {gigabytes:.0} GB, Linux {kernel}, commit {commit}, {rustc}, {date}")
    }
}

fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    value.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(workspace::root()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_kernels_files_are_read() {
        let text = "processor\t: 0\nmodel name\t: Fast One\nmodel name\t: Fast Two\n";
        for (name, expect) in [("model name", "Fast One"), ("processor", "0"), ("missing", "")] {
            assert_eq!(field(text, name), expect);
        }
    }
}
