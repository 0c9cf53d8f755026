//! Child processes that are killed when this process ends, however it ends.
//!
//! ```text
//!   this process ──pipe──▶ sh ──▶ daemon
//!                           └───▶ watcher: reads the pipe; at end of file kills the daemon by pid
//! ```
//!
//! The kernel closes the pipe when this process exits, even after a panic or SIGKILL. This needs neither `unsafe` nor a
//! signal handler.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The shell script: `$1` is the directory to remove at the end (or empty), `$2` the pid file, the rest the command.
const SCRIPT: &str = r#"
folder=$1 pidfile=$2
shift 2
exec 3<&0
"$@" </dev/null 3<&- &
daemon=$!
echo $daemon >"$pidfile"
(
    read -r _ <&3
    [ -e "$pidfile.ended" ] || kill -KILL $daemon
    tries=0
    while [ $tries -lt 100 ] && kill -0 $$; do tries=$((tries + 1)); sleep 0.05; done
    [ -z "$folder" ] || rm -rf "$folder"
) >/dev/null 2>&1 &
exec 3<&-
wait $daemon
code=$?
: >"$pidfile.ended"
exit $code
"#;

/// A running process that is killed when this value is dropped or this process ends.
#[derive(Debug)]
pub struct Supervised {
    name: String,
    shell: Child,
    pid: Pid,
    log: PathBuf,
}

impl Supervised {
    /// Starts `command` with its output in `<folder>/<name>.log`.
    pub fn start(folder: &Path, name: &str, command: &Command) -> Result<Self> {
        Self::start_cleaning(folder, name, command, None)
    }

    /// Like `start`; also deletes the directory `remove` once the process has been killed.
    pub(crate) fn start_cleaning(folder: &Path, name: &str, command: &Command, remove: Option<&Path>) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let pid_file = folder.join(format!("{name}.pid"));
        for stale in [&pid_file, &folder.join(format!("{name}.pid.ended"))] {
            let _ = fs::remove_file(stale);
        }
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "supervised"]).arg(remove.map_or(OsStr::new(""), Path::as_os_str)).arg(&pid_file);
        shell.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            shell.current_dir(dir);
        }
        // A process group of its own: Ctrl-C in a terminal ends this process first, which then ends the daemon.
        let mut shell = shell
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = match wait_for_pid(&pid_file) {
            Ok(pid) => pid,
            Err(error) => {
                drop(shell.stdin.take());
                return Err(error.context(format!("cannot start {name}")));
            }
        };
        Ok(Self { name: name.to_owned(), shell, pid, log })
    }

    /// Returns the process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Stops it from running, as a machine that is suspended would, until `resume`.
    pub fn pause(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    /// Lets it run again.
    pub fn resume(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Returns the path of its log.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns whether the process has not exited.
    pub fn is_running(&self) -> bool {
        is_alive(self.pid())
    }

    /// Returns an error with the end of the log if the process has exited.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.shell.try_wait()? else { return Ok(()) };
        bail!("{} exited with {status}; the end of its log:\n{}", self.name, self.log_tail(15))
    }

    /// Sends SIGTERM, waits, kills it after the timeout, and returns its exit status.
    pub fn terminate(mut self, timeout: Duration) -> Result<ExitStatus> {
        let _ = kill_process(self.pid, Signal::TERM);
        let end = Instant::now() + timeout;
        while Instant::now() < end {
            if let Some(status) = self.shell.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.shell.stdin.take());
        Ok(self.shell.wait()?)
    }

    /// Returns the last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn wait_for_pid(file: &Path) -> Result<Pid> {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if let Some(pid) = fs::read_to_string(file).ok().filter(|text| text.ends_with('\n')) {
            return pid
                .trim()
                .parse()
                .ok()
                .and_then(Pid::from_raw)
                .with_context(|| format!("no pid in {}", file.display()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    bail!("the shell wrote no pid within 30 s")
}

fn is_alive(pid: i32) -> bool {
    // A zombie counts as dead: its parent is a shell that has exited or is about to reap it.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < end, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn dropping_kills_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = Supervised::start(folder.path(), "sleeper", Command::new("sleep").arg("600")).unwrap();
        let pid = sleeper.pid();
        assert!(sleeper.is_running());
        drop(sleeper);
        assert!(!is_alive(pid));
    }

    #[test]
    fn killing_the_owner_kills_the_process_and_removes_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::create_dir(&work).unwrap();
        let pid_file = work.join("pid");
        // The owner holds the write end of the pipe until it is killed, as a test process does.
        let (reader, writer) = std::io::pipe().unwrap();
        let mut owner = Command::new("sleep").arg("600").stdout(writer).spawn().unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "supervised"])
            .args([&work, &pid_file])
            .args(["sleep", "600"])
            .stdin(reader)
            .spawn()
            .unwrap();
        let pid = wait_for_pid(&pid_file).unwrap().as_raw_nonzero().get();
        assert!(is_alive(pid) && work.exists());
        owner.kill().unwrap();
        owner.wait().unwrap();
        wait_until("killing the process", || !is_alive(pid));
        shell.wait().unwrap();
        wait_until("removing the directory", || !work.exists());
    }

    #[test]
    fn check_reports_a_process_that_exited() {
        let folder = tempfile::tempdir().unwrap();
        let mut failing =
            Supervised::start(folder.path(), "failing", Command::new("sh").args(["-c", "echo no luck; exit 3"]))
                .unwrap();
        wait_until("the exit", || failing.check().is_err());
        assert!(!failing.is_running());
        let message = failing.check().unwrap_err().to_string();
        assert!(message.contains("failing exited with exit status: 3") && message.contains("no luck"), "{message}");
    }
}
