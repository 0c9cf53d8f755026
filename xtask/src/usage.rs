//! CPU and memory use of a process, from `/proc`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

/// The use at one point in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) rss_bytes: u64,
    pub(crate) peak_bytes: u64,
    /// Resident pages that no other process and no file shares.
    pub(crate) private_bytes: u64,
}

impl Usage {
    pub(crate) fn of(pid: i32) -> Result<Self> {
        let status = read(pid, "status")?;
        let rollup = read(pid, "smaps_rollup")?;
        let private = ["Private_Clean", "Private_Dirty"].map(|name| kilobytes(&rollup, name));
        Ok(Self {
            cpu_seconds: cpu_seconds_of(pid)?,
            rss_bytes: kilobytes(&status, "VmRSS").context("cannot read the memory")? * 1024,
            peak_bytes: kilobytes(&status, "VmHWM").context("cannot read the peak of memory")? * 1024,
            private_bytes: private.iter().flatten().sum::<u64>() * 1024,
        })
    }
}

/// Returns the CPU time of a process. This costs it nothing, where [`Usage::of`] walks its pages.
pub(crate) fn cpu_seconds_of(pid: i32) -> Result<f64> {
    cpu_seconds(&read(pid, "stat")?).context("cannot read the CPU time")
}

fn read(pid: i32, name: &str) -> Result<String> {
    std::fs::read_to_string(format!("/proc/{pid}/{name}")).with_context(|| format!("cannot read /proc/{pid}"))
}

/// Makes the peak of a process's memory start over from what it uses now.
pub(crate) fn reset_peak(pid: i32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Follows the private memory of a process, of which the kernel keeps no peak.
pub(crate) struct PrivatePeak {
    stop: Arc<AtomicBool>,
    highest: JoinHandle<u64>,
}

impl PrivatePeak {
    /// Looks a few times a second; each look walks the process's pages.
    const INTERVAL: Duration = Duration::from_millis(250);

    pub(crate) fn follow(pid: i32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let highest = std::thread::spawn(move || {
            let mut highest = 0;
            while let Ok(usage) = Usage::of(pid) {
                highest = highest.max(usage.private_bytes);
                if stopped.load(Ordering::Acquire) {
                    break;
                }
                std::thread::park_timeout(Self::INTERVAL);
            }
            highest
        });
        Self { stop, highest }
    }

    /// Returns the highest value that was seen, in bytes.
    pub(crate) fn end(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.highest.thread().unpark();
        self.highest.join().unwrap_or_default()
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
        assert!(own.private_bytes > 10_000 && own.private_bytes < own.peak_bytes * 2);
    }

    #[test]
    fn a_peak_starts_over() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let private = PrivatePeak::follow(pid);
        let ballast = vec![1_u8; 64 << 20];
        let high = Usage::of(pid).unwrap();
        assert!(private.end() > 60 << 20);
        drop(ballast);
        // Other tests use this process's memory meanwhile, and the kernel counts per thread.
        let dropped = Usage::of(pid).unwrap();
        assert!(dropped.peak_bytes + (16 << 20) > high.rss_bytes, "{dropped:?} after {high:?}");
        reset_peak(pid).unwrap();
        let low = Usage::of(pid).unwrap();
        assert!(low.peak_bytes < dropped.peak_bytes - (32 << 20), "{low:?} after {dropped:?}");
    }
}
