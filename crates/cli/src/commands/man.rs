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
    /// Write manta.1 and one page per command to this directory instead of printing manta.1
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

/// Returns the file names and contents of all pages, the one of `manta` itself first.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut manta = crate::command();
    manta.build();
    let commands = manta.get_subcommands().filter(|command| command.get_name() != "help").cloned();
    let commands: Vec<Command> = commands.collect();
    std::iter::once(manta).chain(commands).map(page).collect()
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
        for command in crate::command().get_subcommands() {
            assert!(names.contains(&format!("manta-{}.1", command.get_name()).as_str()), "{names:?}");
        }
        let up = pages.iter().find(|(name, _)| name == "manta-up.1").unwrap();
        let text = String::from_utf8(up.1.clone()).unwrap();
        assert!(text.contains(".TH manta-up 1") && text.contains("\\-\\-in\\-memory"), "{text}");
    }
}
