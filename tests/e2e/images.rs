//! One's own images: environments made from files, and a mapping file that changes while local mode runs.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::up::{MANTA, Up, folder};

/// A build backend of its own, so that nothing is downloaded.
const PYPROJECT: &str = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n\
                         [project]\nname = 'greeting'\nversion = '1.0'\n";

/// Writes a wheel with one module, and a line into `builds`.
const BACKEND: &str = r#"
import os, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    open("builds", "a").write("built\n")
    info = "greeting-1.0.dist-info"
    files = {
        "greeting.py": open("greeting.py").read(),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    name = "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"#;

/// Returns what these tests lack on this machine.
pub(crate) fn lacks() -> Option<String> {
    let found = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    (!found.is_ok_and(|output| output.status.success())).then(|| "no python3 with its venv module".to_owned())
}

/// Starts local mode with an empty cache, and with its messages among its output.
fn up(dir: &Arc<tempfile::TempDir>, args: &[&str]) -> Up {
    up_with_state(dir, "state", args)
}

/// Starts one of several local modes that share a cache.
fn up_with_state(dir: &Arc<tempfile::TempDir>, state: &str, args: &[&str]) -> Up {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2>&1", MANTA, "up", "--in-memory", "--port", "0", "--state"]);
    command.arg(dir.path().join(state)).args(args).env("XDG_CACHE_HOME", dir.path().join("cache"));
    Up::spawn(command, Arc::clone(dir))
}

/// Returns a pod that succeeds if the module says this word.
fn pod(name: &str, image: &str, word: &str) -> String {
    let code = format!("import greeting; assert greeting.WORD == '{word}', greeting.WORD");
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{restartPolicy: Never, containers: [\
         {{name: c, image: '{image}', command: [python, -c, \"{code}\"]}}]}}}}\n"
    )
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("written");
}

/// Writes a project, and beside it a requirements file that names it by a relative path.
fn write_project(dir: &Path, word: &str) {
    write(&dir.join("app/pyproject.toml"), PYPROJECT);
    write(&dir.join("app/backend.py"), BACKEND);
    write(&dir.join("app/greeting.py"), &format!("WORD = '{word}'\n"));
    write(&dir.join("requirements.txt"), "./app\n");
}

fn apply(dir: &Path, manifest: &str) {
    let file = dir.join("more.yaml");
    std::fs::write(&file, manifest).expect("a manifest");
    let done = Command::new(MANTA).args(["up", "--state"]).arg(dir.join("state")).arg("-f").arg(&file).output();
    let done = done.expect("manta");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

pub(crate) fn environments_are_made_from_requirements_and_projects() {
    let dir = Arc::new(folder());
    write_project(dir.path(), "hello");
    let manifests = dir.path().join("pods.yaml");
    write(
        &manifests,
        &[pod("a", "corp.example/files:1", "hello"), pod("b", "corp.example/app", "hello")].join("---\n"),
    );
    let path = |name: &str| dir.path().join(name).display().to_string();
    let images = [format!("corp.example/files={}", path("requirements.txt")), format!("app={}", path("app"))];
    let mut up = up(&dir, &["--image", &images[0], "--image", &images[1], "-f", manifests.to_str().expect("a path")]);
    for (source, name) in [("requirements.txt", "default/a "), ("app", "default/b ")] {
        let into = format!("installing {} into {}/manta/envs/image-", path(source), path("cache"));
        up.until_lines_printed(&[&[&into], &[&into, ": done"], &[name, "Succeeded 0/1"]]);
    }
    // Changed code is another environment, never the old one in silence.
    write_project(dir.path(), "goodbye");
    apply(dir.path(), &pod("c", "corp.example/app", "goodbye"));
    up.until_lines_printed(&[&["default/c ", "Succeeded 0/1"]]);
}

pub(crate) fn two_processes_make_an_environment_once() {
    let dir = Arc::new(folder());
    write_project(dir.path(), "hello");
    let path = |name: &str| dir.path().join(name).display().to_string();
    // The installation waits at this pipe until something is written into it.
    let made = Command::new("mkfifo").arg(path("gate.txt")).status().expect("mkfifo");
    assert!(made.success());
    write(&dir.path().join("requirements.txt"), "-r gate.txt\n./app\n");
    let manifest = path("pod.yaml");
    write(manifest.as_ref(), &pod("a", "corp.example/files:1", "hello"));
    let image = format!("corp.example/files={}", path("requirements.txt"));
    let start = |state: &str| up_with_state(&dir, state, &["--image", &image, "-f", &manifest]);
    let mut first = start("first");
    first.until_printed("installing ");
    let mut second = start("second");
    second.until_printed("waiting for another process that is installing it");
    write(&dir.path().join("gate.txt"), "");
    for up in [&mut first, &mut second] {
        up.until_lines_printed(&[&["default/a ", "Succeeded 0/1"]]);
    }
    assert_eq!(std::fs::read_to_string(path("app/builds")).expect("a build"), "built\n");
}

pub(crate) fn the_mapping_file_is_read_while_local_mode_runs() {
    let dir = Arc::new(folder());
    write_project(dir.path(), "hello");
    let (mappings, manifest) = (dir.path().join("images.yaml"), dir.path().join("pod.yaml"));
    write(&mappings, "images: []\n");
    write(&manifest, &pod("a", "corp.example/late:1", "hello"));
    let file = |path: &Path| path.to_str().expect("a path").to_owned();
    let mut up = up(&dir, &["--images", &file(&mappings), "-f", &file(&manifest)]);
    up.until_lines_printed(&[&["default/a ", "ErrImagePull: image \"corp.example/late:1\" has no local environment"]]);
    write(&mappings, "images:\n- image: corp.example/late\n  project: app\n");
    up.until_lines_printed(&[&["default/a ", "Succeeded 0/1"]]);
}
