//! The operators that are measured side by side.

use std::str::FromStr;

use crate::operator::OperatorArgs;

/// The name of this workspace's operator, and the command that stands for it.
const OURS: &str = "ours";

/// An operator to measure.
#[derive(Debug, Clone)]
pub(super) struct Contender {
    /// The heading of its column.
    pub(super) name: String,
    pub(super) operator: OperatorArgs,
}

impl FromStr for Contender {
    type Err = String;

    /// Parses `NAME=COMMAND`; `ours`, as a name alone or as a command, is this workspace's operator.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, command) = text.trim().split_once('=').unwrap_or((OURS, text.trim()));
        let operator = match command.trim() {
            OURS => OperatorArgs::ours(),
            command if command.is_empty() || !text.contains('=') => {
                return Err(format!("{text:?} is neither {OURS} nor NAME=COMMAND"));
            }
            command => OperatorArgs::with_command(command.to_owned()),
        };
        Ok(Self { name: name.trim().to_owned(), operator })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<(&str, bool)>) {
        let parsed = text.parse::<Contender>().ok();
        let found = parsed.as_ref().map(|contender| (contender.name.as_str(), contender.operator.is_ours()));
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn operators_are_named_commands() {
        check("ours", Some(("ours", true)));
        check(" now=ours ", Some(("now", true)));
        check("kuberay=/bin/manager --kubeconfig={kubeconfig}", Some(("kuberay", false)));
        check("/bin/manager", None);
        check("kuberay=", None);
        check("", None);
    }
}
