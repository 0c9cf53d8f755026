//! Python environments on disk: finding one for an image, and installing it when it is missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;

use crate::agent::Shared;
use crate::archives;
use crate::cache_lock::CacheLock;
use crate::images::{self, Environment, MachineDisk, Recipe, Resolution};
use crate::installations::ProgressSender;
use crate::runtime::{CommandJob, Spawner, Stdio};

/// How often the progress of an installation is reported to those who watch a pod.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// What happens while an image is provided, in the order of the kubelet's events.
pub(crate) enum Pull {
    Started,
    Progress(Progress),
    /// With the time that it took, if there was anything to do.
    Done(Option<Duration>),
}

/// Returns the environment of an image, installing it if it is missing; the error is a message for the user.
pub(crate) async fn provide(
    shared: &Arc<Shared>,
    image: &str,
    report: &(dyn Fn(Pull) + Sync),
) -> Result<Environment, String> {
    let mut began = None;
    let environment = loop {
        let path = match look(shared, image)? {
            Resolution::Ready(environment) => break environment,
            Resolution::Unknown(why) => return Err(why),
            Resolution::Make { path, .. } | Resolution::Unpack { path, .. } => path,
        };
        if began.is_none() {
            report(Pull::Started);
            began = Some(Instant::now());
        }
        let install = |progress| install(Arc::clone(shared), image.to_owned(), progress);
        let mut installation = shared.installations.join(&path, install);
        let mut last = Instant::now();
        installation
            .finish(|progress| {
                if last.elapsed() >= REPORT_INTERVAL {
                    last = Instant::now();
                    report(Pull::Progress(progress.clone()));
                }
            })
            .await?;
    };
    report(Pull::Done(began.map(|began| began.elapsed())));
    if let Some(path) = environment.path.as_ref().filter(|p| !p.join("bin").is_dir()) {
        return Err(format!("image \"{image}\" is mapped to {}, which is not a Python environment", path.display()));
    }
    let environment = match environment.root.clone() {
        Some(root) => archives::configure(environment, &root)?,
        None => environment,
    };
    if let Some(note) = &environment.note {
        shared.log_once(note);
    }
    if let Some(warning) = &environment.warning {
        shared.warn_once(warning);
    }
    Ok(environment)
}

fn look(shared: &Shared, image: &str) -> Result<Resolution, String> {
    let catalog = shared.config.catalog.current()?;
    Ok(catalog.resolve(image, &MachineDisk(&catalog.folder)))
}

/// Installs what an image stands for, if it is still missing.
async fn install(shared: Arc<Shared>, image: String, progress: ProgressSender) -> Result<(), String> {
    let _turn = shared.installations.turn.lock().await;
    let update = |now: &Progress| {
        (shared.config.progress)(now);
        progress.send(now);
    };
    // What was installed in the meantime may do for this image too.
    match look(&shared, &image)? {
        Resolution::Ready(_) | Resolution::Unknown(_) => Ok(()),
        Resolution::Make { recipe, path, .. } => make(&shared.host, &recipe, &path, &update).await,
        Resolution::Unpack { archive, path, .. } => archives::unpack(&shared, &archive, &path, &update).await,
    }
}

/// How far an installation has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What is installed.
    pub what: String,
    /// Where.
    pub into: PathBuf,
    pub packages: u32,
    pub megabytes: u32,
    pub stage: Stage,
}

/// The part of an installation that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Another process makes the same.
    Waiting,
    Downloading,
    Installing,
    Done,
    Failed,
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} into {}", self.what, self.into.display())?;
        match self.state().as_str() {
            "" => Ok(()),
            state => write!(f, ": {state}"),
        }
    }
}

impl Progress {
    fn new(recipe: &Recipe, path: &Path) -> Self {
        Self {
            what: format!("installing {recipe}"),
            into: path.to_path_buf(),
            packages: 0,
            megabytes: 0,
            stage: Stage::Downloading,
        }
    }

    /// Returns how far it has come, in words; empty at the beginning.
    pub fn state(&self) -> String {
        let Self { packages, megabytes, .. } = self;
        let noun = if *packages == 1 { "package" } else { "packages" };
        match self.stage {
            Stage::Waiting => "waiting for another process that is installing it".to_owned(),
            Stage::Downloading if *packages == 0 => String::new(),
            Stage::Downloading => format!("{packages} {noun}, {megabytes} MB"),
            Stage::Installing => format!("{packages} {noun}, {megabytes} MB, unpacking"),
            Stage::Done => "done".to_owned(),
            Stage::Failed => "failed".to_owned(),
        }
    }

    /// Takes note of a line that pip or uv prints; returns whether it says anything new.
    fn read(&mut self, line: &str) -> bool {
        let line = line.trim_start();
        let before = self.clone();
        if line.starts_with("Collecting ") {
            self.packages += 1;
        } else if line.starts_with("Downloading ") || line.starts_with("Using cached ") {
            self.megabytes += size(line).unwrap_or(0);
        } else if let Some(rest) = line.strip_prefix("Resolved ") {
            self.packages = rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(self.packages);
        } else if line.starts_with("Installing collected packages") || line.starts_with("Prepared ") {
            self.stage = Stage::Installing;
        }
        *self != before
    }
}

/// Returns the megabytes that a line ends with in parentheses, as in `x.whl (71.2 MB)` or `x (68.0MiB)`.
fn size(line: &str) -> Option<u32> {
    let text = line.rsplit_once('(')?.1.split_once(')')?.0;
    let at = text.find(|c: char| c.is_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let whole: u32 = number.trim().split('.').next()?.parse().ok()?;
    match unit {
        "MB" | "MiB" => Some(whole),
        "GB" | "GiB" => Some(whole.saturating_mul(1024)),
        _ => None,
    }
}

/// Creates an environment, unless another process has done so; `progress` is called whenever there is some.
pub async fn make(
    host: &Spawner,
    recipe: &Recipe,
    path: &Path,
    progress: &(dyn Fn(&Progress) + Sync),
) -> Result<(), String> {
    let state = std::sync::Mutex::new(Progress::new(recipe, path));
    let update = |change: &dyn Fn(&mut Progress) -> bool| {
        let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if change(&mut state) {
            progress(&state);
        }
    };
    let enter = |stage: Stage| {
        update(&|state| {
            state.stage = stage;
            true
        });
    };
    enter(Stage::Downloading);
    let steps = async {
        let _lock = CacheLock::take(path, || enter(Stage::Waiting)).await?;
        if images::is_complete(path) {
            return Ok(());
        }
        let on_line = |line: &str| {
            update(&|state| {
                // Whoever had the lock may have failed.
                let waited = state.stage == Stage::Waiting;
                if waited {
                    state.stage = Stage::Downloading;
                }
                state.read(line) || waited
            });
        };
        let done = make_steps(host, recipe, path, &on_line).await;
        if done.is_err() {
            // A partial environment must not be mistaken for a complete one.
            let _ = tokio::fs::remove_dir_all(path).await;
        }
        done
    };
    let done = steps.await;
    enter(if done.is_ok() { Stage::Done } else { Stage::Failed });
    done
}

async fn make_steps(
    host: &Spawner,
    recipe: &Recipe,
    path: &Path,
    on_line: &(dyn Fn(&str) + Sync),
) -> Result<(), String> {
    // What an interrupted installation left.
    let _ = tokio::fs::remove_dir_all(path).await;
    let tool = if is_on_path("uv", &std::env::var("PATH").unwrap_or_default()) { Tool::Uv } else { Tool::Pip };
    run(host, tool.create(path), Path::new("/"), on_line).await.map_err(|why| {
        format!("cannot create a Python environment (is python3 with its venv module installed?): {why}")
    })?;
    run(host, tool.install(path, recipe), folder_of(recipe), on_line)
        .await
        .map_err(|why| format!("cannot install {recipe} (is the package registry reachable?): {why}"))?;
    tokio::fs::write(path.join(images::COMPLETE), recipe.to_string()).await.map_err(|e| e.to_string())
}

/// What makes environments: uv where it is installed, because it is many times faster.
#[derive(Clone, Copy)]
enum Tool {
    Uv,
    Pip,
}

impl Tool {
    fn create(self, path: &Path) -> Vec<String> {
        let command: &[&str] = match self {
            // Ray installs packages of a runtime_env with the pip of its environment.
            Self::Uv => &["uv", "venv", "--seed"],
            Self::Pip => &["python3", "-m", "venv", "--clear"],
        };
        words(command, [path.display().to_string()])
    }

    fn install(self, path: &Path, recipe: &Recipe) -> Vec<String> {
        let python = path.join("bin/python").display().to_string();
        let mut command = match self {
            Self::Uv => words(&["uv", "pip", "install", "--python"], [python]),
            Self::Pip => {
                let flags = ["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"];
                words(&[&python], flags.map(str::to_owned))
            }
        };
        match recipe {
            Recipe::Requirement(text) => command.push(text.clone()),
            Recipe::File(file) => command.extend(["-r".to_owned(), file.display().to_string()]),
            Recipe::Project(folder) => command.push(folder.display().to_string()),
        }
        command
    }
}

fn words<const N: usize>(first: &[&str], more: [String; N]) -> Vec<String> {
    first.iter().map(|word| (*word).to_owned()).chain(more).collect()
}

fn is_on_path(program: &str, path: &str) -> bool {
    path.split(':').filter(|folder| folder.starts_with('/')).any(|folder| Path::new(folder).join(program).is_file())
}

/// Returns where a recipe is installed from: the paths that it names are relative to its own folder.
fn folder_of(recipe: &Recipe) -> &Path {
    match recipe {
        Recipe::Requirement(_) => Path::new("/"),
        Recipe::File(file) => file.parent().unwrap_or(Path::new("/")),
        Recipe::Project(folder) => folder,
    }
}

async fn run(host: &Spawner, argv: Vec<String>, cwd: &Path, on_line: &(dyn Fn(&str) + Sync)) -> Result<(), String> {
    let to_text = |e: std::io::Error| e.to_string();
    let (sender, receiver) = pipe::pipe().map_err(to_text)?;
    let stdio = Stdio::output_to(sender.into_blocking_fd().map_err(to_text)?).map_err(to_text)?;
    let job = CommandJob { argv, env: std::env::vars().collect(), cwd: cwd.into() };
    let mut process = host.command(job, stdio).await.map_err(|e| e.to_string())?;
    let mut lines = BufReader::new(receiver).lines();
    let mut last = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::debug!("{line}");
        on_line(&line);
        if !line.trim().is_empty() {
            last = line;
        }
    }
    match process.wait().await.code() {
        0 => Ok(()),
        code => Err(format!("exit code {code}: {last}")),
    }
}

/// Returns the folders of an environment: its own, and its base interpreter's.
pub(crate) fn folders(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_path_buf()];
    // Scripts refer to the real path of the folder, which may be behind a link.
    all.extend(std::fs::canonicalize(path).ok().filter(|real| real != path));
    let config = std::fs::read_to_string(path.join("pyvenv.cfg")).unwrap_or_default();
    let home = config.lines().find_map(|line| line.strip_prefix("home")?.trim_start().strip_prefix('='));
    let bins = home
        .map(|h| PathBuf::from(h.trim()))
        .into_iter()
        .chain(std::fs::canonicalize(path.join("bin/python3")).ok().and_then(|p| p.parent().map(Path::to_path_buf)));
    for bin in bins {
        // The standard library lies beside `bin`.
        let Some(prefix) = bin.parent().filter(|p| !p.starts_with("/usr") && *p != Path::new("/")) else { continue };
        if !all.iter().any(|known| prefix.starts_with(known)) {
            all.push(prefix.to_path_buf());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_pip_and_uv() {
        let check = |lines: &[&str], expect: &str| {
            let mut progress = Progress::new(&Recipe::Requirement("x".into()), Path::new("/e"));
            for line in lines {
                progress.read(line);
            }
            assert_eq!(progress.to_string(), format!("installing x into /e{expect}"));
        };
        check(&[], "");
        let pip =
            ["Collecting ray", "  Downloading ray-2.whl (71.9 MB)", "Collecting a", "  Using cached a.whl (12 kB)"];
        check(&pip, ": 2 packages, 71 MB");
        check(&["Collecting a", "Installing collected packages: a"], ": 1 package, 0 MB, unpacking");
        check(
            &["Resolved 60 packages in 1s", "Downloading ray (68.0MiB)", "Prepared 60 packages"],
            ": 60 packages, 68 MB, unpacking",
        );
        check(&["Downloading (", "Resolved x", "Downloading é(1.5 MB"], "");
    }

    #[test]
    fn environments_are_made_with_uv_or_pip() {
        let file = Recipe::File("/code/requirements.txt".into());
        let install = |tool: Tool, recipe: &Recipe| tool.install(Path::new("/e"), recipe).join(" ");
        assert_eq!(install(Tool::Uv, &file), "uv pip install --python /e/bin/python -r /code/requirements.txt");
        let project = Recipe::Project("/code".into());
        let expect = "/e/bin/python -m pip install --disable-pip-version-check --progress-bar off /code";
        assert_eq!(install(Tool::Pip, &project), expect);
        assert_eq!(Tool::Uv.create(Path::new("/e")).join(" "), "uv venv --seed /e");
    }

    #[test]
    fn an_environment_includes_its_base_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let check = |home: &str, expect: &[&str]| {
            std::fs::write(dir.path().join("pyvenv.cfg"), format!("home = {home}\nversion = 3.11\n")).unwrap();
            let real = dir.path().canonicalize().unwrap();
            let more: Vec<String> = folders(&real)[1..].iter().map(|p| p.display().to_string()).collect();
            assert_eq!(more, expect);
        };
        check("/home/me/.pyenv/versions/3.11.7/bin", &["/home/me/.pyenv/versions/3.11.7"]);
        check("/usr/bin", &[]);
        check("/usr/local/bin", &[]);
    }
}
