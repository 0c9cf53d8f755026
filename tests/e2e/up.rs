//! `manta up` as a child process.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long to wait for output; generous, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(180);
pub(crate) const MANTA: &str = env!("CARGO_BIN_EXE_manta");

/// A running `manta up`; stopped when dropped.
pub(crate) struct Up {
    child: Child,
    pub(crate) folder: Arc<TempDir>,
    printed: Arc<Mutex<Vec<String>>>,
}

/// Creates a folder that nobody else can enter, as a state folder must be.
pub(crate) fn folder() -> TempDir {
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().expect("a folder")
}

/// Returns the command with this state directory.
pub(crate) fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(MANTA);
    command.args(["up", "--port", "0", "--state"]).arg(folder).args(args);
    command
}

impl Up {
    pub(crate) fn start(folder: Arc<TempDir>, args: &[&str]) -> Self {
        let command = command(folder.path(), args);
        Self::spawn(command, folder)
    }

    pub(crate) fn spawn(mut command: Command, folder: Arc<TempDir>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("manta up");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let sink = Arc::clone(&printed);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                sink.lock().expect("no panic").push(line);
            }
        });
        Self { child, folder, printed }
    }

    /// Returns the lines that are printed, as they come.
    pub(crate) fn printed(&self) -> Arc<Mutex<Vec<String>>> {
        Arc::clone(&self.printed)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a line with this text was printed, and returns it.
    pub(crate) fn until_printed(&mut self, text: &str) -> String {
        self.until_any_printed(&[text], TIMEOUT)
    }

    pub(crate) fn until_any_printed(&mut self, texts: &[&str], timeout: Duration) -> String {
        wait_with_timeout(timeout, || {
            let ended = self.child.try_wait().expect("a child");
            let printed = self.printed.lock().expect("no panic");
            assert!(ended.is_none(), "manta up ended early: {ended:?}\n{}", printed.join("\n"));
            printed.iter().find(|line| texts.iter().any(|text| line.contains(text))).cloned()
        })
    }

    /// Waits until each of these lines was printed; a line is given by its parts.
    pub(crate) fn until_lines_printed(&mut self, lines: &[&[&str]]) {
        for parts in lines {
            wait_for(|| {
                let ended = self.child.try_wait().expect("a child");
                let printed = self.printed.lock().expect("no panic");
                let text = printed.join("\n");
                assert!(ended.is_none(), "manta up ended early: {ended:?}\n{text}");
                assert!(!text.contains("Failed 0/1"), "a pod failed, before {parts:?}:\n{text}");
                printed.iter().any(|line| parts.iter().all(|part| line.contains(part))).then_some(())
            });
        }
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) -> Arc<TempDir> {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        Arc::clone(&self.folder)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
            let _ = self.child.wait();
        }
    }
}

/// Repeats `ask` until it returns a value.
pub(crate) fn wait_for<T>(ask: impl FnMut() -> Option<T>) -> T {
    wait_with_timeout(TIMEOUT, ask)
}

fn wait_with_timeout<T>(timeout: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + timeout;
    loop {
        if let Some(value) = ask() {
            return value;
        }
        assert!(Instant::now() < end, "timed out after {} s", timeout.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
