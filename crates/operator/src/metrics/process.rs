//! Metrics of this process from `/proc`: memory, CPU time, open files.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Linux reports CPU time to user space in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Registers the process metrics; on systems without `/proc`, none.
pub(super) fn register(registry: &mut Registry) {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    for (field, name, help) in [
        ("VmRSS:", "process_resident_memory_bytes", "Resident memory size in bytes"),
        ("VmSize:", "process_virtual_memory_bytes", "Virtual memory size in bytes"),
    ] {
        if let Some(kibibytes) = field_of(&status, field) {
            registry.register(name, help, ConstGauge::new(kibibytes * 1024.0));
        }
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        let count = u32::try_from(files.count()).unwrap_or(u32::MAX);
        registry.register("process_open_fds", "Number of open file descriptors", ConstGauge::new(f64::from(count)));
    }
    let limit = std::fs::read_to_string("/proc/self/limits").ok();
    if let Some(most) = limit.as_deref().and_then(|limits| field_of(limits, "Max open files")) {
        registry.register("process_max_fds", "Maximum number of open file descriptors", ConstGauge::new(most));
    }
    if let Some(start) = start_time() {
        let help = "Start time of the process since unix epoch in seconds";
        registry.register("process_start_time_seconds", help, ConstGauge::new(start));
    }
    if let Some(ticks) = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(processor_ticks) {
        let help = "Total user and system CPU time spent in seconds";
        registry.register("process_cpu_seconds", help, ConstCounter::new(ticks / TICKS_PER_SECOND));
    }
}

fn field_of(status: &str, field: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}

/// Returns user plus system time: fields 14 and 15. The second field is a name in parentheses that may hold anything.
fn processor_ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?)
}

/// Returns when the process started: field 22 counts from boot, whose time is in `/proc/stat`.
fn start_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let booted = field_of(&std::fs::read_to_string("/proc/stat").ok()?, "btime ")?;
    Some(booted + ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        assert_eq!(field_of("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12.0));
        assert_eq!(field_of("Name:\tx\n", "VmRSS:"), None);
        assert_eq!(processor_ticks("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 0"), Some(42.0));
        assert_eq!(processor_ticks("7 (a"), None);
        assert_eq!(field_of("Max open files            1024    524288   files\n", "Max open files"), Some(1024.0));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let start = start_time().unwrap();
        assert!(start <= now + 1.0 && start > now - 86_400.0, "{start} is not before {now}");
    }
}
