//! The system calls a container may make: the default list of the container runtimes.
//!
//! Everything that is not listed fails with EPERM. `clone3` fails with ENOSYS instead, so that the C library falls
//! back to `clone`, whose flags a filter can inspect. What the runtimes allow to holders of extra capabilities
//! (mounting, namespaces, kernel modules, tracing of the kernel) is never allowed where such a capability is never
//! granted.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Cmp, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// Flags of `clone` that create namespaces.
const NAMESPACES: u64 = 0x7E02_0000;
/// Execution domains that programs legitimately ask for.
const PERSONALITIES: &[u64] = &[0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];
/// Socket families with a history of kernel faults and no use in a pod.
const NO_SOCKETS: &[libc::c_int] = &[libc::AF_VSOCK, libc::AF_ALG];

/// `fchmodat2`, which libc does not name for every architecture.
const FCHMODAT2: i64 = 452;

/// Installs the filter for this process and everything it will execute; also sets `no_new_privs`.
pub(super) fn install(capabilities: CapabilitySet) -> io::Result<()> {
    for program in [allowed(capabilities)?, missing()?] {
        seccompiler::apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

fn allowed(capabilities: CapabilitySet) -> io::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        LISTED.iter().chain(LISTED_FOR_ARCH).chain([&FCHMODAT2]).map(|number| (*number, Vec::new())).collect();
    for (capability, numbers) in LISTED_FOR_CAPABILITY {
        if capabilities.contains(*capability) {
            rules.extend(numbers.iter().map(|number| (*number, Vec::new())));
        }
    }
    let no_namespaces = Condition::new(0, Len::Qword, Cmp::MaskedEq(NAMESPACES), 0).map_err(io::Error::other)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_namespaces]).map_err(io::Error::other)?]);
    let personality = |value: &u64| {
        let same = Condition::new(0, Len::Dword, Cmp::Eq, *value).map_err(io::Error::other)?;
        SeccompRule::new(vec![same]).map_err(io::Error::other)
    };
    rules.insert(libc::SYS_personality, PERSONALITIES.iter().map(personality).collect::<io::Result<_>>()?);
    let families = NO_SOCKETS.iter().map(|family| {
        Condition::new(0, Len::Dword, Cmp::Ne, u64::try_from(*family).unwrap_or_default()).map_err(io::Error::other)
    });
    let families = SeccompRule::new(families.collect::<io::Result<_>>()?).map_err(io::Error::other)?;
    rules.insert(libc::SYS_socket, vec![families]);
    let refuse = SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap_or(1));
    compile(SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch()?))
}

fn missing() -> io::Result<BpfProgram> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let refuse = SeccompAction::Errno(u32::try_from(libc::ENOSYS).unwrap_or(38));
    compile(SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch()?))
}

fn compile(filter: Result<SeccompFilter, seccompiler::BackendError>) -> io::Result<BpfProgram> {
    filter.and_then(TryInto::try_into).map_err(io::Error::other)
}

fn arch() -> io::Result<TargetArch> {
    std::env::consts::ARCH.try_into().map_err(io::Error::other)
}

macro_rules! system_calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

const LISTED: &[i64] = system_calls![
    SYS_accept SYS_accept4 SYS_adjtimex SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_chroot SYS_clock_adjtime
    SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_clone3 SYS_close SYS_close_range SYS_connect
    SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
    SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate
    SYS_fanotify_mark SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync
    SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate
    SYS_futex SYS_futex_waitv SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups
    SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid
    SYS_getresuid SYS_getrlimit SYS_get_robust_list SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch
    SYS_io_cancel SYS_ioctl SYS_io_destroy SYS_io_getevents SYS_ioprio_get SYS_ioprio_set
    SYS_io_setup SYS_io_submit SYS_kill SYS_landlock_add_rule SYS_landlock_create_ruleset SYS_landlock_restrict_self
    SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr
    SYS_madvise SYS_membarrier SYS_memfd_create SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall
    SYS_mmap SYS_mprotect SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend
    SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall
    SYS_munmap SYS_name_to_handle_at SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2 SYS_pidfd_open
    SYS_pidfd_send_signal SYS_pidfd_getfd SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_ppoll SYS_prctl
    SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_process_mrelease SYS_process_vm_readv SYS_process_vm_writev
    SYS_pselect6 SYS_ptrace SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv
    SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages SYS_removexattr SYS_renameat SYS_renameat2
    SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo
    SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_getaffinity
    SYS_sched_getattr SYS_sched_getparam SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam
    SYS_sched_setscheduler SYS_sched_yield SYS_seccomp SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendfile
    SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid
    SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_set_robust_list SYS_setsid
    SYS_setsockopt SYS_set_tid_address SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown
    SYS_sigaltstack SYS_signalfd4 SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync
    SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete SYS_timer_getoverrun
    SYS_timer_gettime SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill
    SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
];

/// What the runtimes allow to holders of a capability that can be added.
const LISTED_FOR_CAPABILITY: &[(CapabilitySet, &[i64])] = &[
    (CapabilitySet::SYS_NICE, system_calls![SYS_get_mempolicy SYS_mbind SYS_set_mempolicy]),
    (CapabilitySet::SYS_PTRACE, system_calls![SYS_kcmp SYS_process_madvise]),
];

/// The older forms of the same calls.
#[cfg(target_arch = "x86_64")]
const LISTED_FOR_ARCH: &[i64] = system_calls![
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_ctl_old
    SYS_epoll_wait SYS_epoll_wait_old SYS_eventfd SYS_fork SYS_futimesat SYS_getdents SYS_getpgrp SYS_inotify_init
    SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_modify_ldt SYS_open SYS_pause SYS_pipe SYS_poll
    SYS_readlink SYS_rename SYS_rmdir SYS_select SYS_signalfd SYS_stat SYS_symlink SYS_time SYS_unlink SYS_utime
    SYS_utimes SYS_vfork
];
#[cfg(not(target_arch = "x86_64"))]
const LISTED_FOR_ARCH: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_filters_compile_and_dangerous_calls_are_not_listed() {
        assert!(allowed(CapabilitySet::all()).unwrap().len() < 4096);
        let lengths = [CapabilitySet::empty(), CapabilitySet::SYS_NICE].map(|set| allowed(set).unwrap().len());
        assert!(lengths[0] < lengths[1]);
        assert!(!missing().unwrap().is_empty());
        let listed: Vec<i64> = LISTED.iter().chain(LISTED_FOR_ARCH).copied().collect();
        for number in [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_fsopen,
            libc::SYS_mount_setattr,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_request_key,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_open_by_handle_at,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_syslog,
            libc::SYS_acct,
            libc::SYS_quotactl,
        ] {
            assert!(!listed.contains(&number), "{number}");
        }
    }
}
