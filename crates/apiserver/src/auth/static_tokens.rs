//! Static tokens, in the format of kube-apiserver's `--token-auth-file`: `token,user,uid,"group,group"`.

use std::path::Path;

use super::{User, constant_time_eq};

/// Static bearer tokens and their users.
#[derive(Default)]
pub struct StaticTokens(Vec<(String, User)>);

/// Why a static token file was rejected.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read the token file {path}")]
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A line is malformed; the message leaves out its content, which is secret.
    #[error("line {line} of the token file {path} is not token,user,uid[,\"group,group\"]")]
    Malformed {
        /// Which file.
        path: String,
        /// Which line, from 1.
        line: usize,
    },
}

impl StaticTokens {
    /// Reads a static token file.
    pub fn read(path: &Path) -> Result<StaticTokens, TokenFileError> {
        let shown = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|cause| TokenFileError::Unreadable { path: shown.clone(), cause })?;
        parse(&text).map(StaticTokens).map_err(|line| TokenFileError::Malformed { path: shown, line })
    }

    pub(super) fn user_of(&self, token: &str) -> Option<&User> {
        self.0.iter().find(|(known, _)| constant_time_eq(token.as_bytes(), known.as_bytes())).map(|(_, user)| user)
    }
}

/// Parses a token file; the error is the number of the first malformed line.
fn parse(text: &str) -> Result<Vec<(String, User)>, usize> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut fields = line.splitn(4, ',').map(str::trim);
        let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(index + 1);
        };
        if token.is_empty() || name.is_empty() {
            return Err(index + 1);
        }
        let groups = fields.next().unwrap_or("").trim_matches('"').split(',').map(str::trim);
        let mut groups: Vec<String> = groups.filter(|group| !group.is_empty()).map(str::to_owned).collect();
        groups.push("system:authenticated".into());
        found.push((token.to_owned(), User { name: name.into(), uid: uid.into(), groups, ..User::default() }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_files_are_parsed() {
        let user = |name: &str, groups: &[&str]| User {
            name: name.into(),
            uid: "u".into(),
            groups: groups.iter().map(|group| (*group).into()).collect(),
            ..User::default()
        };
        let expect = vec![
            ("t1".to_owned(), user("ann", &["a", "b", "system:authenticated"])),
            ("t2".to_owned(), user("bob", &["system:authenticated"])),
        ];
        assert_eq!(parse("t1,ann,u,\"a,b\"\n\nt2,bob,u\n"), Ok(expect));
        for (text, line) in [("t,a", 1), ("t,a,u\n,b,u", 2), ("t,,u", 1)] {
            assert_eq!(parse(text), Err(line), "{text}");
        }
    }
}
