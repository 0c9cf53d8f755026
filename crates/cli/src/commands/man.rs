//! `manta man`: writes man pages.

use crate::output::write_stdout;
use anyhow::Context;
use clap::Command;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the man page of manta, or write one page per command
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write manta.1, one page per command and subcommand, and kubectl-ray.1 to this directory instead of printing manta.1
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let pages = pages()?;
    let Some(dir) = args.dir else {
        write_stdout(|out| pages.iter().take(1).try_for_each(|(_, page)| out.write_all(page)))?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(&dir).with_context(|| format!("cannot create the directory {}", dir.display()))?;
    for (name, page) in pages {
        let path = dir.join(name);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the file names and contents of all pages, the one of `manta` itself first, and that of kubectl's plugin last.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut manta = crate::command();
    manta.build();
    let mut commands = vec![manta];
    add_subcommands(&mut commands, 0);
    commands.push(crate::plugin());
    commands.into_iter().map(page).collect()
}

/// Adds the commands below the last one, and those below them.
fn add_subcommands(commands: &mut Vec<Command>, parent: usize) {
    let below: Vec<Command> = commands[parent].get_subcommands().cloned().collect();
    for command in below.into_iter().filter(|command| command.get_name() != "help" && !command.is_hide_set()) {
        let at = commands.len();
        commands.push(command);
        add_subcommands(commands, at);
    }
}

fn page(command: Command) -> anyhow::Result<(String, Vec<u8>)> {
    // After `build`, the display name of a subcommand is `manta-up`.
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).context("cannot format a man page")?;
    Ok((format!("{name}.1"), page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[0], "manta.1");
        for command in crate::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(names.contains(&format!("manta-{}.1", command.get_name()).as_str()), "{names:?}");
        }
        for nested in ["manta-job-submit.1", "manta-ray-create-cluster.1", "manta-history-serve.1"] {
            assert!(names.contains(&nested), "{names:?}");
        }
        assert_eq!(names.last(), Some(&"kubectl-ray.1"));
        let up = pages.iter().find(|(name, _)| name == "manta-up.1").unwrap();
        let text = String::from_utf8(up.1.clone()).unwrap();
        assert!(text.contains(".TH manta-up 1") && text.contains("\\-\\-in\\-memory"), "{text}");
    }
}
