//! `manta completion`: prints completion scripts for shells.

use crate::output::write_stdout;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print the completion script for a shell
///
/// Completes commands, flags, and the names of what is in the cluster. For bash: source <(manta completion bash). For zsh:
/// manta completion zsh > "${fpath[1]}/_manta". For fish: manta completion fish > ~/.config/fish/completions/manta.fish.
/// kubectl completes kubectl ray if a link to this program called kubectl_complete-ray is in PATH.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let script = script(args.shell);
    write_stdout(|out| out.write_all(script.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the script of a shell: one that asks this program, or where there is none, one that knows commands and flags.
fn script(shell: Shell) -> String {
    match shell {
        Shell::Bash => BASH.to_owned(),
        Shell::Zsh => ZSH.to_owned(),
        Shell::Fish => FISH.to_owned(),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut crate::command(), "manta", &mut script);
            String::from_utf8_lossy(&script).into_owned()
        }
    }
}

const BASH: &str = r#"# bash completion for manta and kubectl-ray
_manta() {
    local line directive=4
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :*) directive=${line#:} ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} == 0 ]] && ! ((directive & 4)); then
        compopt -o default 2>/dev/null
    elif ((directive & 2)); then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _manta manta kubectl-ray
"#;

const ZSH: &str = r#"#compdef manta kubectl-ray
# zsh completion for manta and kubectl-ray
_manta() {
    local line directive=4
    local -a found space
    while IFS= read -r line; do
        case $line in
            :*) directive=${line#:} ;;
            *) found+=("${${line//:/\\:}/$'\t'/:}") ;;
        esac
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        (( directive & 2 )) && space=(-S '')
        _describe manta found $space
    elif (( ! (directive & 4) )); then
        _files
    fi
}
if [[ ${funcstack[1]} == _manta ]]; then
    _manta "$@"
else
    compdef _manta manta kubectl-ray
fi
"#;

const FISH: &str = r#"# fish completion for manta and kubectl-ray
function __manta_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l found ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    set -l candidates (string match -v -r '^:[0-9]+$' -- $found)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else if contains -- ':0' $found
        __fish_complete_path "$current"
    end
end
complete -c manta -f -a '(__manta_complete)'
complete -c kubectl-ray -f -a '(__manta_complete)'
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_has_a_script() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            let asks = matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish);
            assert_eq!(script.contains("__complete"), asks, "{shell}");
            let knows = |command: &clap::Command| script.contains(command.get_name());
            assert!(asks || crate::command().get_subcommands().all(knows), "{shell}");
        }
    }
}
