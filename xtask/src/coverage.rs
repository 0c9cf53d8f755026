//! Measures which lines of `logic` the simulation reaches.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::process::{Outcome, cargo, print_line, run_command};
use crate::workspace;

/// Makes this program a wrapper of rustc that instruments `manta-logic`; cargo passes rustc's command line.
const WRAPPER: &str = "MANTA_COVERAGE_WRAPPER";
/// The crates that are instrumented: the one that is measured, and the program, which writes the counts at its end.
const CRATES: [&str; 2] = ["manta_logic", "manta_sim"];
/// The directory that is measured.
const MEASURED: &str = "crates/logic/src/";

/// How often each line of each file was executed.
type Lines = BTreeMap<String, BTreeMap<u32, u64>>;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run
    #[arg(long, env = "SEEDS", default_value_t = 1_000)]
    seeds: u64,
}

/// Whether cargo started this program as a wrapper of rustc.
pub(crate) fn is_wrapper() -> bool {
    std::env::var_os(WRAPPER).is_some()
}

/// Runs rustc as cargo asks for, with counters in the measured crates.
pub(crate) fn wrap_rustc() -> Result<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let rustc = args.next().context("cargo passed no rustc")?;
    let args: Vec<OsString> = args.collect();
    let measured = args.windows(2).any(|pair| pair[0] == "--crate-name" && CRATES.iter().any(|name| pair[1] == *name));
    let status = Command::new(rustc).args(&args).args(measured.then_some("-Cinstrument-coverage")).status()?;
    Ok(crate::exit_code(status.success()))
}

/// Builds the simulation with counters, runs it, and prints which lines were reached.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let tools = Tools::find()?;
    let mut build = cargo();
    build.args(["build", "--quiet", "--profile", "sim", "--package", "manta-sim"]);
    build.env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?).env(WRAPPER, "1");
    if let Outcome::Failed(why) = run_command(&mut build)? {
        bail!("cannot build the simulation with counters: {why}");
    }
    let program = workspace::target_folder()?.with_file_name("sim").join("manta-sim");
    let folder = tempfile::tempdir()?;
    let (raw, merged) = (folder.path().join("counts.profraw"), folder.path().join("counts.profdata"));
    let mut simulation = Command::new(&program);
    simulation.args(["--seeds", &args.seeds.to_string()]).env("LLVM_PROFILE_FILE", &raw);
    let outcome = run_command(&mut simulation)?;
    if let Outcome::Failed(why) = run_command(tools.profdata().args(["merge", "-o"]).args([&merged, &raw]))? {
        bail!("cannot read the counts: {why}");
    }
    let mut export = tools.cov();
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged).arg(&program);
    let output = export.output().context("cannot run llvm-cov")?;
    if !output.status.success() {
        bail!("llvm-cov failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    print_line(&report(&parse(&String::from_utf8_lossy(&output.stdout))));
    Ok(outcome == Outcome::Passed)
}

/// The tools that read counts; they have to be of the version of the compiler.
struct Tools(PathBuf);

impl Tools {
    /// Finds the tools, and asks rustup for them where they are missing.
    fn find() -> Result<Self> {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().context("cannot run rustc")?;
        let rustlib = Path::new(String::from_utf8(sysroot.stdout)?.trim()).join("lib/rustlib");
        let find = || {
            let hosts = std::fs::read_dir(&rustlib).into_iter().flatten().flatten();
            hosts.map(|host| host.path().join("bin")).find(|folder| folder.join("llvm-cov").exists())
        };
        if find().is_none() {
            run_command(Command::new("rustup").args(["component", "add", "llvm-tools"]))
                .context("cannot run rustup")?;
        }
        find()
            .map(Self)
            .context("there is no llvm-cov for this compiler; install it with: rustup component add llvm-tools")
    }

    fn profdata(&self) -> Command {
        Command::new(self.0.join("llvm-profdata"))
    }

    fn cov(&self) -> Command {
        Command::new(self.0.join("llvm-cov"))
    }
}

/// Parses the counts of the measured files from the lcov format.
fn parse(lcov: &str) -> Lines {
    let mut files = Lines::new();
    let mut current = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            current = path.split_once(MEASURED).map(|(_, file)| file.to_owned());
        } else if let (Some(file), Some(counted)) = (&current, line.strip_prefix("DA:")) {
            let Some((Ok(number), Ok(count))) = counted.split_once(',').map(|(a, b)| (a.parse(), b.parse::<u64>()))
            else {
                continue;
            };
            *files.entry(file.clone()).or_default().entry(number).or_default() += count;
        }
    }
    files
}

/// Returns a table of all files, and the lines that were never reached.
fn report(files: &Lines) -> String {
    let mut text = String::from("| file of logic | lines | reached | never reached |\n| --- | --- | --- | --- |\n");
    let (mut all, mut all_reached) = (0, 0);
    for (file, lines) in files {
        let reached = lines.values().filter(|count| **count > 0).count();
        all += lines.len();
        all_reached += reached;
        text += &format!("| {file} | {} | {} | {} |\n", lines.len(), percent(reached, lines.len()), unreached(lines));
    }
    text + &format!("| all | {all} | {} | |", percent(all_reached, all))
}

fn percent(part: usize, whole: usize) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Returns the ranges of lines that were never reached; a range goes on over lines without code.
fn unreached(lines: &BTreeMap<u32, u64>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let mut extends = false;
    for (number, count) in lines {
        match ranges.last_mut() {
            _ if *count > 0 => {}
            Some(range) if extends => range.1 = *number,
            _ => ranges.push((*number, *number)),
        }
        extends = *count == 0;
    }
    let ranges = ranges.iter().map(|(from, to)| if from == to { from.to_string() } else { format!("{from}–{to}") });
    ranges.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LCOV: &str = "SF:/w/crates/logic/src/job/plan.rs\nFN:1,f\nDA:1,2\nDA:2,0\nDA:4,0\nDA:5,1\nDA:9,0\nend_of_record\n\
                        SF:/w/crates/sim/src/main.rs\nDA:1,0\nend_of_record\n\
                        SF:/w/crates/logic/src/hash.rs\nDA:7,3\nend_of_record\n";

    #[test]
    fn only_measured_files_are_counted() {
        let files = parse(LCOV);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["hash.rs", "job/plan.rs"]);
        assert_eq!(files["job/plan.rs"], BTreeMap::from([(1, 2), (2, 0), (4, 0), (5, 1), (9, 0)]));
    }

    #[test]
    fn a_report_names_what_was_never_reached() {
        assert_eq!(
            report(&parse(LCOV)),
            "| file of logic | lines | reached | never reached |\n\
             | --- | --- | --- | --- |\n\
             | hash.rs | 1 | 100.0 % |  |\n\
             | job/plan.rs | 5 | 40.0 % | 2–4, 9 |\n\
             | all | 6 | 50.0 % | |"
        );
    }
}
