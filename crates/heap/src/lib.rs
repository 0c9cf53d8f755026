//! Keeps the C library's heap small: one for all threads, and freed memory given back.
//!
//! A start, a burst of work or a new CRD needs far more memory than the time after it, and glibc keeps what was freed.
//! With other C libraries these functions do nothing.

#![allow(unsafe_code)]

use std::time::Duration;

/// How often the size of the process is looked at.
const INTERVAL: Duration = Duration::from_secs(10);

/// How much a process grows in a burst, in pages of the system (1 MB with the usual ones).
const BURST: u64 = 256;

/// How many intervals after a burst memory is given back once more: kube-apiserver closes connections after 90 idle seconds, and
/// their buffers keep pages that are otherwise free.
const SETTLED: u32 = 10;

/// The size from which an allocation is a mapping of its own: the pages of lists are needed for a moment, and leave holes
/// in the heap otherwise.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: i32 = 64 << 10;

/// Makes all threads share one heap, and keeps large allocations out of it.
///
/// To be called before the first thread is started: a heap for each of them keeps what that thread has freed.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes settings of the allocator, which is safe at any time.
    unsafe {
        nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1);
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, OWN_MAPPING);
    }
}

/// Gives freed memory back to the system. This walks the whole heap, and holds up whoever allocates meanwhile.
pub fn release_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: only releases pages that hold no allocation.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Gives freed memory back after every burst of work, and once more when its connections are closed; never returns.
pub async fn keep_releasing() {
    let mut tick = tokio::time::interval(INTERVAL);
    let mut process = Process::default();
    loop {
        tick.tick().await;
        if process.is_to_release(resident_pages()) {
            release_freed();
            process.released(resident_pages());
        }
    }
}

/// The size of the process when memory was last given back; nothing where it cannot be told.
#[derive(Default)]
struct Process {
    after_release: Option<u64>,
    /// After how many more looks memory is given back once more.
    once_more: Option<u32>,
}

impl Process {
    /// Returns whether to give memory back now: after a burst, and once more when it has settled.
    fn is_to_release(&mut self, now: Option<u64>) -> bool {
        if self.has_grown(now) {
            self.once_more = Some(SETTLED);
            return true;
        }
        self.once_more = self.once_more.and_then(|looks| looks.checked_sub(1));
        self.once_more == Some(0)
    }

    /// Returns whether there was a burst since then. What shrinks has nothing to give back, but is measured from there.
    fn has_grown(&mut self, now: Option<u64>) -> bool {
        let (Some(before), Some(now)) = (self.after_release, now) else { return true };
        self.after_release = Some(before.min(now));
        now >= before + BURST
    }

    fn released(&mut self, now: Option<u64>) {
        self.after_release = now;
    }
}

/// Returns the resident memory of this process in pages, where there is a `/proc`.
fn resident_pages() -> Option<u64> {
    std::fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_after_a_burst_only() {
        let mut process = Process::default();
        assert!(process.has_grown(Some(1000)), "the start is a burst");
        process.released(Some(800));
        for (now, grown) in [(800, false), (1055, false), (1056, true), (700, false), (955, false), (956, true)] {
            assert_eq!(process.has_grown(Some(now)), grown, "{now}");
        }
    }

    #[test]
    fn memory_is_given_back_once_more_when_a_burst_has_settled() {
        let mut process = Process::default();
        let mut released = |look: u32, size: u64| {
            let released = process.is_to_release(Some(size));
            if released {
                process.released(Some(size));
            }
            released.then_some(look)
        };
        let rest: Vec<u32> = (0..40).filter_map(|look| released(look, 800)).collect();
        assert_eq!(rest, [0, SETTLED]);
        // The second burst begins before the first has settled.
        let sizes = (0..40).map(|look| if look < 5 { 1056 } else { 1312 });
        let bursts: Vec<u32> = (0..40).zip(sizes).filter_map(|(look, size)| released(look, size)).collect();
        assert_eq!(bursts, [0, 5, 5 + SETTLED]);
    }

    #[test]
    fn memory_is_given_back_where_nobody_knows_how_much_there_is() {
        let mut process = Process::default();
        process.released(None);
        assert!(process.has_grown(None) && process.has_grown(Some(1)));
    }

    #[cfg(target_env = "gnu")]
    #[tokio::test(start_paused = true)]
    async fn what_a_burst_leaves_is_given_back_within_seconds() {
        keep_small();
        let releasing = tokio::spawn(keep_releasing());
        tokio::time::sleep(INTERVAL).await;
        let small: Vec<Box<[u8; 4000]>> = (0..10_000).map(|_| Box::new([1; 4000])).collect();
        // Something that stays, above what is freed: without it the heap shrinks by itself.
        let stays: Vec<Box<[u8; 4000]>> = (0..10).map(|_| Box::new([1; 4000])).collect();
        drop(small);
        let before = resident_pages().unwrap();
        tokio::time::sleep(INTERVAL * 2).await;
        let after = resident_pages().unwrap();
        assert!(after + 5_000 < before, "{after} after {before}");
        drop(stays);
        releasing.abort();
    }
}
