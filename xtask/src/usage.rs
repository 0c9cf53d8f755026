//! CPU and memory use of a process, from `/proc`.

use anyhow::{Context, Result};

/// The use at one point in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) rss_bytes: u64,
    pub(crate) peak_bytes: u64,
}

impl Usage {
    pub(crate) fn of(pid: i32) -> Result<Self> {
        let read = |name: &str| {
            std::fs::read_to_string(format!("/proc/{pid}/{name}")).with_context(|| format!("cannot read /proc/{pid}"))
        };
        let status = read("status")?;
        Ok(Self {
            cpu_seconds: cpu_seconds(&read("stat")?).context("cannot read the CPU time")?,
            rss_bytes: kilobytes(&status, "VmRSS").context("cannot read the memory")? * 1024,
            peak_bytes: kilobytes(&status, "VmHWM").context("cannot read the peak of memory")? * 1024,
        })
    }
}

/// Returns user and system time; the kernel counts in hundredths of a second on all current platforms.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name is in parentheses and may contain spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(ticks as f64 / 100.0)
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_and_memory_are_parsed() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 10";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("nonsense"), None);
        assert_eq!(kilobytes("VmPeak:\t 9 kB\nVmRSS:\t 1234 kB\n", "VmRSS"), Some(1234));
        let own = Usage::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.rss_bytes > 100_000 && own.peak_bytes >= own.rss_bytes / 2);
    }
}
