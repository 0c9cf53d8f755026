//! What Linux says about this process: memory, processor time, open files.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Linux tells processor time in hundredths of a second to every program.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds what can be found out; elsewhere than on Linux, nothing.
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
    if let Some(ticks) = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(processor_ticks) {
        let help = "Total user and system CPU time spent in seconds";
        registry.register("process_cpu_seconds", help, ConstCounter::new(ticks / TICKS_PER_SECOND));
    }
}

fn field_of(status: &str, field: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}

/// User and system time: the 14th and 15th field; the second is a name in brackets that may hold anything.
fn processor_ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_linux_are_read() {
        assert_eq!(field_of("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12.0));
        assert_eq!(field_of("Name:\tx\n", "VmRSS:"), None);
        assert_eq!(processor_ticks("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 0"), Some(42.0));
        assert_eq!(processor_ticks("7 (a"), None);
    }
}
