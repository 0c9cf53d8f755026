//! `kubectl ray delete`: deletes Ray resources after asking.

use crate::connect::ConnectionArgs;
use super::print_error;
use crate::output::{print_line, write_stdout};
use crate::resource::Reference;
use kube::api::DeleteParams;
use std::io::BufRead;
use std::process::ExitCode;

/// Delete Ray clusters, jobs, services or cron jobs
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to delete: the name of a Ray cluster, or TYPE/NAME
    #[arg(required = true, value_name = "CLUSTER | TYPE/NAME")]
    resources: Vec<Reference>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// The user's decision.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Unknown(String),
}

pub(crate) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    if !args.yes {
        match ask(&args.resources)? {
            Answer::Yes => {}
            Answer::No => {
                print_line("Canceled deletion.");
                return Ok(ExitCode::SUCCESS);
            }
            Answer::Unknown(text) => {
                print_line(&format!("Unknown input {text}"));
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    let target = connection.connect().await?;
    let mut code = ExitCode::SUCCESS;
    for reference in &args.resources {
        let deleted = target.ray_api(reference.kind).delete(&reference.name, &DeleteParams::default()).await;
        let error = match deleted {
            Ok(_) => {
                print_line(&format!("Deleted {} {}", reference.kind.type_name(), reference.name));
                continue;
            }
            Err(kube::Error::Api(status)) if status.code == 404 => target.not_found(reference).await,
            Err(error) => target.failed(&format!("cannot delete {reference}"), error),
        };
        // The others are deleted all the same.
        print_error(&error);
        code = ExitCode::FAILURE;
    }
    Ok(code)
}

fn ask(resources: &[Reference]) -> anyhow::Result<Answer> {
    let list: String = resources.iter().map(|reference| format!("\n- {reference}")).collect();
    let question = format!("Are you sure you want to delete the following resources?{list}\n(y/yes/n/no) ");
    write_stdout(|out| out.write_all(question.as_bytes()))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(parse(&line))
}

fn parse(line: &str) -> Answer {
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Answer::Yes,
        // The end of the input is no consent.
        "n" | "no" | "" => Answer::No,
        _ => Answer::Unknown(line.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_deletes() {
        let check = |line: &str, expect: Answer| assert_eq!(parse(line), expect, "{line}");
        check("y\n", Answer::Yes);
        check("YES\n", Answer::Yes);
        check("n\n", Answer::No);
        check("", Answer::No);
        check("maybe\n", Answer::Unknown("maybe".to_owned()));
    }
}
