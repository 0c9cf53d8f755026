//! The memory use of each container, for hosts without writable control groups.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns resident bytes by PID namespace, that is, by container.
pub fn by_pid_namespace() -> HashMap<u64, u64> {
    let mut sums: HashMap<u64, u64> = HashMap::new();
    let page = rustix::param::page_size() as u64;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_str().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())) {
            continue;
        }
        if let (Some(namespace), Some(pages)) = (pid_namespace(&path), own_pages(&path)) {
            *sums.entry(namespace).or_default() += pages * page;
        }
    }
    sums
}

/// Returns the PID namespace that a process runs in.
pub fn pid_namespace_of(pid: i32) -> Option<u64> {
    pid_namespace(&Path::new("/proc").join(pid.to_string()))
}

fn pid_namespace(process: &Path) -> Option<u64> {
    fs::metadata(process.join("ns/pid")).ok().map(|m| m.ino())
}

/// Returns the private pages of a process; shared ones would be counted once per process.
fn own_pages(process: &Path) -> Option<u64> {
    let text = fs::read_to_string(process.join("statm")).ok()?;
    let mut fields = text.split_whitespace().skip(1).map(|f| f.parse::<u64>().ok());
    let (resident, shared) = (fields.next()??, fields.next()??);
    Some(resident.saturating_sub(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let own = pid_namespace_of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(by_pid_namespace()[&own] > 0);
        assert_eq!(pid_namespace_of(-1), None);
    }
}
