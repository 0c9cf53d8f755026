//! `manta completion`: prints completion scripts for shells.

use crate::output::write_stdout;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print the completion script for a shell
///
/// For bash: source <(manta completion bash). For zsh: manta completion zsh > "${fpath[1]}/_manta". For fish: manta
/// completion fish > ~/.config/fish/completions/manta.fish.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "manta", &mut script);
    write_stdout(|out| out.write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut crate::command(), "manta", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in crate::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
