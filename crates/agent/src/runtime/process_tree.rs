//! A container without namespaces: a supervised process tree that ends as a whole.
//!
//! The program runs under a small supervisor that is the subreaper of all its descendants. The supervisor kills the
//! whole tree when the program exits, when it receives [`KILL_TREE`], and when its own parent dies.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

use super::fork::{Fork, SingleThread, exit_now};

/// Kills the whole tree; SIGKILL itself would reach only the supervisor.
pub(super) const KILL_TREE: Signal = Signal::SIGUSR2;

/// Becomes the supervisor of a program; returns only in the program's process, ready to `exec`.
pub(super) fn supervise(one: SingleThread, close: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::USR2))?;
    match one.fork(nix::sched::CloneFlags::empty())? {
        Fork::Child => Ok(()),
        Fork::Parent(program) => {
            close()?;
            match watch(program) {
                Ok(never) => match never {},
                Err(_) => exit_now(126),
            }
        }
    }
}

fn watch(program: Pid) -> io::Result<Infallible> {
    loop {
        match SigSet::all().wait()? {
            Signal::SIGCHLD => {
                if let Some(code) = reap(program) {
                    kill_tree();
                    exit_now(code);
                }
            }
            KILL_TREE => {
                kill_tree();
                exit_now(128 + Signal::SIGKILL as i32);
            }
            other => {
                let _ = kill(program, other);
            }
        }
    }
}

/// Reaps ended children; returns the exit code of the program if it is among them.
fn reap(program: Pid) -> Option<i32> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, exit)) if pid == program => code = Some(exit),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => code = Some(128 + signal as i32),
            Ok(WaitStatus::StillAlive) | Err(_) => return code,
            Ok(_) => {}
        }
    }
}

/// Kills all descendants, repeating until none is left: a dying process may have forked.
fn kill_tree() {
    let me = getpid();
    loop {
        let tree = descendants(me, &parents());
        if tree.is_empty() {
            return;
        }
        for pid in tree {
            let _ = kill(pid, Signal::SIGKILL);
        }
        // At least one of them is a direct child and exits now.
        let _ = waitpid(None, None);
        reap(me);
    }
}

fn descendants(of: Pid, parents: &HashMap<i32, i32>) -> Vec<Pid> {
    let is_below = |mut pid: i32| {
        // A table read while processes come and go may contain a cycle.
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(parent) if *parent == of.as_raw() => return true,
                Some(parent) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(|pid| is_below(*pid)).map(Pid::from_raw).collect()
}

/// Returns the parent of every process of the host.
fn parents() -> HashMap<i32, i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name is in parentheses and may contain anything; state and parent follow.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_include_all_generations_and_no_other_process() {
        let table = HashMap::from([(2, 1), (3, 2), (4, 3), (5, 1), (6, 7), (7, 6)]);
        let mut pids: Vec<i32> = descendants(Pid::from_raw(2), &table).into_iter().map(Pid::as_raw).collect();
        pids.sort_unstable();
        assert_eq!(pids, [3, 4]);
        assert_eq!(descendants(Pid::from_raw(9), &table), []);
    }
}
