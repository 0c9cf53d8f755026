//! Completes command lines: commands, flags, their values, and the names of what is in the cluster.
//!
//! `manta __complete WORDS…` prints the candidates for the last word, one per line with a description after a tab, and a
//! last line `:N` with directives in bits. That is the protocol of Go's cobra, so kubectl asks the same way through
//! `kubectl_complete-ray`. The scripts of `manta completion` ask, too.

mod names;

use crate::connect::ConnectionArgs;
use crate::output::write_stdout;
use clap::{Arg, ArgAction, Command, FromArgMatches};
use std::process::ExitCode;
use std::time::Duration;

/// Do not add a blank after the candidate.
const NO_SPACE: u8 = 2;
/// Do not offer files where there are no candidates.
const NO_FILES: u8 = 4;
/// How long the cluster may take: whoever presses the tab key waits for it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Something that only a cluster or the kubeconfig can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Clusters,
    Jobs,
    Services,
    CronJobs,
    /// Clusters by name, or everything as TYPE/NAME.
    Resources,
    Groups,
    Nodes,
    Contexts,
    KubeconfigClusters,
    KubeconfigUsers,
    Namespaces,
}

/// The candidates for a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Candidates {
    /// Words with descriptions.
    Words(Vec<(String, String)>),
    Names(Names),
    Files,
    Nothing,
}

/// What is known of a command line.
struct Line<'c> {
    command: &'c Command,
    /// The names of the commands, without the first.
    path: Vec<&'c str>,
    /// The values of flags so far, by id.
    values: Vec<(String, String)>,
    /// The flag whose value comes next.
    pending: Option<&'c Arg>,
    /// How many words are no flags.
    positionals: usize,
    /// Whether `--` has come.
    is_over: bool,
}

/// Prints the candidates for the last word of a command line.
pub(crate) fn run(mut command: Command, words: &[String]) -> ExitCode {
    command.build();
    let (line, last) = match words.split_last() {
        Some((last, before)) => (read(&command, before), last.as_str()),
        None => (read(&command, &[]), ""),
    };
    let (prefix, word, candidates) = candidates(&line, last);
    let mut directive = NO_FILES;
    let found = match candidates {
        Candidates::Words(words) => words,
        Candidates::Files => {
            directive = 0;
            Vec::new()
        }
        Candidates::Nothing => Vec::new(),
        Candidates::Names(names) => look_up(&line, names, word),
    };
    let found: Vec<_> = found.into_iter().filter(|(candidate, _)| candidate.starts_with(word)).collect();
    if !found.is_empty() && found.iter().all(|(candidate, _)| candidate.ends_with('/')) {
        directive |= NO_SPACE;
    }
    // A closed stdout is not worth an error.
    let _ = write_stdout(|out| {
        for (candidate, about) in &found {
            let about = about.lines().next().unwrap_or_default();
            let separator = if about.is_empty() { "" } else { "\t" };
            writeln!(out, "{prefix}{candidate}{separator}{about}")?;
        }
        writeln!(out, ":{directive}")
    });
    ExitCode::SUCCESS
}

/// Asks the cluster for names; without an answer there are no candidates.
fn look_up(line: &Line<'_>, names: Names, word: &str) -> Vec<(String, String)> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let Some(connection) = connection(line) else { return Vec::new() };
    let query = names::Query {
        names,
        word,
        cluster: value(line, "ray_cluster").or_else(|| value(line, "cluster")),
        all_namespaces: value(line, "all_namespaces").is_some(),
    };
    let found = runtime.block_on(async { tokio::time::timeout(TIMEOUT, query.find(&connection)).await });
    runtime.shutdown_background();
    let found = found.ok().and_then(Result::ok).unwrap_or_default();
    found.into_iter().map(|name| (name, String::new())).collect()
}

/// Returns the connection flags of the command line.
fn connection(line: &Line<'_>) -> Option<ConnectionArgs> {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        connection: ConnectionArgs,
    }
    let command = <Flags as clap::CommandFactory>::command();
    let mut words = vec!["manta".to_owned()];
    for (id, value) in &line.values {
        let Some(long) = command.get_arguments().find(|arg| arg.get_id() == id.as_str()).and_then(Arg::get_long) else {
            continue;
        };
        words.push(format!("--{long}"));
        words.extend(Some(value.clone()).filter(|value| !value.is_empty()));
    }
    let matches = command.try_get_matches_from(words).ok()?;
    Some(Flags::from_arg_matches(&matches).ok()?.connection)
}

fn value<'l>(line: &'l Line<'_>, id: &str) -> Option<&'l str> {
    line.values.iter().find(|(known, _)| known == id).map(|(_, value)| value.as_str())
}

/// Reads the words before the one to complete.
fn read<'c>(command: &'c Command, words: &[String]) -> Line<'c> {
    let mut line =
        Line { command, path: Vec::new(), values: Vec::new(), pending: None, positionals: 0, is_over: false };
    for word in words {
        line.take(word);
    }
    line
}

impl<'c> Line<'c> {
    fn take(&mut self, word: &str) {
        // Bash splits at an equals sign.
        if word == "=" && self.pending.is_some() {
            return;
        }
        if let Some(arg) = self.pending.take() {
            self.values.push((arg.get_id().to_string(), word.to_owned()));
        } else if self.is_over || word == "--" {
            self.is_over = true;
        } else if let Some(flag) = word.strip_prefix("--") {
            let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            if let Some(arg) = self.long(name) {
                self.take_flag(arg, value);
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            self.take_letters(letters);
        } else if let Some(found) = self.command.find_subcommand(word) {
            self.path.push(found.get_name());
            (self.command, self.positionals) = (found, 0);
        } else {
            let arg = self.positional();
            self.values.extend(arg.map(|arg| (arg.get_id().to_string(), word.to_owned())));
            self.positionals += 1;
        }
    }

    /// Takes short flags: `-A`, `-nNAME`, `-n NAME`.
    fn take_letters(&mut self, letters: &str) {
        for (at, letter) in letters.char_indices() {
            let known = self.command.get_arguments().find(|arg| arg.get_short() == Some(letter));
            let Some(arg) = known else { return };
            let rest = &letters[at + letter.len_utf8()..];
            if takes_value(arg) {
                self.take_flag(arg, Some(rest.trim_start_matches('=')).filter(|rest| !rest.is_empty()));
                return;
            }
            self.take_flag(arg, None);
        }
    }

    fn take_flag(&mut self, arg: &'c Arg, value: Option<&str>) {
        match value {
            None if takes_value(arg) => self.pending = Some(arg),
            value => self.values.push((arg.get_id().to_string(), value.unwrap_or_default().to_owned())),
        }
    }

    fn long(&self, name: &str) -> Option<&'c Arg> {
        self.command.get_arguments().find(|arg| arg.get_long() == Some(name))
    }

    /// Returns the argument that the next word would be, if it is no flag.
    fn positional(&self) -> Option<&'c Arg> {
        let mut all = self.command.get_positionals().filter(|arg| !arg.is_last_set());
        let last = self.command.get_positionals().filter(|arg| !arg.is_last_set()).last();
        let takes_many = last.filter(|arg| arg.get_num_args().is_some_and(|count| count.max_values() > 1));
        all.nth(self.positionals).or(takes_many)
    }
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Returns the candidates for a word, the part of it that stays, and the part to complete.
fn candidates<'w>(line: &Line<'_>, word: &'w str) -> (&'w str, &'w str, Candidates) {
    if let Some(arg) = line.pending {
        let word = word.strip_prefix('=').unwrap_or(word);
        return ("", word, values_of(line, arg));
    }
    if line.is_over {
        return ("", word, Candidates::Files);
    }
    if let Some((flag, value)) = word.strip_prefix("--").and_then(|flag| flag.split_once('=')) {
        let known = line.long(flag).filter(|arg| takes_value(arg));
        let found = known.map_or(Candidates::Nothing, |arg| values_of(line, arg));
        return (&word[..word.len() - value.len()], value, found);
    }
    if word.starts_with('-') {
        return ("", word, Candidates::Words(flags(line.command)));
    }
    let commands: Vec<(String, String)> = line
        .command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| (command.get_name().to_owned(), about(command.get_about())))
        .collect();
    if !commands.is_empty() && line.positionals == 0 {
        return ("", word, Candidates::Words(commands));
    }
    ("", word, line.positional().map_or(Candidates::Nothing, |arg| values_of(line, arg)))
}

fn flags(command: &Command) -> Vec<(String, String)> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(|arg| Some((format!("--{}", arg.get_long()?), about(arg.get_help())))).collect()
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn values_of(line: &Line<'_>, arg: &Arg) -> Candidates {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return Candidates::Words(shown.map(|value| (value.get_name().to_owned(), about(value.get_help()))).collect());
    }
    if let Some(names) = names_of(line, arg) {
        return Candidates::Names(names);
    }
    let placeholder = arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
    match placeholder {
        Some("FILE" | "DIR" | "PATH") => Candidates::Files,
        _ => Candidates::Nothing,
    }
}

/// Returns the names that an argument takes.
fn names_of(line: &Line<'_>, arg: &Arg) -> Option<Names> {
    let names = match (arg.get_id().as_str(), line.path.as_slice()) {
        ("namespace", _) => Names::Namespaces,
        ("context", _) => Names::Contexts,
        ("kubeconfig-cluster", _) => Names::KubeconfigClusters,
        ("kubeconfig-user", _) => Names::KubeconfigUsers,
        ("ray_cluster", _) => Names::Clusters,
        ("worker_group", _) => Names::Groups,
        ("resource" | "resources", _) => Names::Resources,
        ("cluster", [.., "scale", "cluster"] | [.., "get", "token"]) => Names::Clusters,
        ("name", [.., "get", "cluster"]) => Names::Clusters,
        ("name", [.., "get", "workergroup"]) => Names::Groups,
        ("name", [.., "get", "node"]) => Names::Nodes,
        ("name", [.., "get", "job"] | [.., "job", "logs" | "stop"]) => Names::Jobs,
        ("name", [.., "get", "service"]) => Names::Services,
        ("name", [.., "get", "cronjob"]) => Names::CronJobs,
        _ => return None,
    };
    Some(names)
}

#[cfg(test)]
mod tests;
