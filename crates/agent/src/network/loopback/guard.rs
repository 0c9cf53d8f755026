//! Decides who may use a loopback port, and under which names.

use std::collections::BTreeSet;

use http::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use http::uri::Authority;

/// Who may use the loopback ports.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    pub users: Users,
    /// Host names beside those of loopback itself, in lower case.
    pub hosts: BTreeSet<String>,
}

/// The accounts of this machine that may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Users {
    All,
    /// These, and root, from whom nothing can be kept.
    Only(BTreeSet<u32>),
}

impl Default for Users {
    fn default() -> Self {
        Self::Only(BTreeSet::new())
    }
}

impl Users {
    /// Returns the account of this process, the one that called `sudo`, and those that are named: `all`, a name or a
    /// number.
    pub fn allowed(names: &[String], sudo_user: Option<&str>) -> Result<Self, String> {
        let own = rustix::process::getuid();
        let mut users = BTreeSet::from([own.as_raw()]);
        if own.is_root() {
            users.extend(sudo_user.and_then(|user| user.parse::<u32>().ok()));
        }
        for name in names {
            if name == "all" {
                return Ok(Self::All);
            }
            let number = name.parse().ok().or_else(|| Some(nix::unistd::User::from_name(name).ok()??.uid.as_raw()));
            users.insert(number.ok_or_else(|| format!("this machine has no user {name}"))?);
        }
        Ok(Self::Only(users))
    }
}

impl Guard {
    /// Checks the account that connected, if it is known; the error is for its user.
    pub(super) fn check_user(&self, user: Option<u32>) -> Result<(), String> {
        match (&self.users, user) {
            (Users::All, _) | (_, Some(0)) => Ok(()),
            (Users::Only(allowed), Some(user)) if allowed.contains(&user) => Ok(()),
            (Users::Only(_), Some(user)) => Err(format!(
                "user {user} may not use this port; whoever started it can allow that: --allow-user {user}"
            )),
            (Users::Only(_), None) => {
                Err("the account that connected is not known; to serve every account, start with --allow-user all"
                    .to_owned())
            }
        }
    }

    /// Checks the names in a request. A page of another site has that site as its origin, also when its name was made to
    /// resolve to this machine.
    pub fn check_headers(&self, headers: &HeaderMap) -> Result<(), String> {
        let hosts: Vec<&HeaderValue> = headers.get_all(HOST).iter().collect();
        let [host] = hosts[..] else { return Err("the request has no Host header, or several".to_owned()) };
        self.check_name("Host", host.to_str().unwrap_or_default())?;
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let (_, name) = origin.split_once("://").unwrap_or(("", origin));
            self.check_name("Origin", name)?;
        }
        // Images and frames of a page are requested without an origin. Following a link is the user's own doing.
        let is = |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
        let is_embedded = is("sec-fetch-site", "cross-site") && !is("sec-fetch-dest", "document");
        if is_embedded && !headers.contains_key(ORIGIN) {
            return Err("a page of another site may not use this port".to_owned());
        }
        Ok(())
    }

    fn check_name(&self, header: &str, name: &str) -> Result<(), String> {
        if name.parse::<Authority>().is_ok_and(|authority| self.is_allowed(&authority)) {
            return Ok(());
        }
        Err(format!(
            "{header} {name:?} is not a name of this machine's loopback; to allow it, start with --allow-host NAME"
        ))
    }

    fn is_allowed(&self, authority: &Authority) -> bool {
        let host = authority.host().to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let is_loopback = matches!(host, "localhost" | "127.0.0.1" | "[::1]") || host.ends_with(".localhost");
        !authority.as_str().contains('@') && (is_loopback || self.hosts.contains(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn only_names_of_loopback_are_served() {
        let guard = Guard { hosts: BTreeSet::from(["ray.lan".to_owned()]), ..Guard::default() };
        let check = |pairs: &[(&'static str, &str)], expect: bool| {
            assert_eq!(guard.check_headers(&headers(pairs)).is_ok(), expect, "{pairs:?}");
        };
        for name in
            ["localhost", "LOCALHOST:8265", "127.0.0.1:8265", "[::1]:8265", "a.b.localhost", "localhost.:1", "ray.lan"]
        {
            check(&[("host", name)], true);
        }
        for name in [
            "evil.example:8265",
            "localhost.evil.example",
            "evil-localhost",
            "127.0.0.1.nip.io",
            "x@localhost",
            "",
            "a b",
            "lan",
        ] {
            check(&[("host", name)], false);
        }
        check(&[], false);
        check(&[("host", "localhost"), ("host", "localhost")], false);
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let guard = Guard::default();
        let check = |origin: &str, expect: bool| {
            let given = headers(&[("host", "127.0.0.1:8265"), ("origin", origin)]);
            assert_eq!(guard.check_headers(&given).is_ok(), expect, "{origin}");
        };
        check("http://127.0.0.1:8265", true);
        check("http://localhost:3000", true);
        check("https://evil.example", false);
        check("http://evil.example:8265", false);
        check("null", false);
        check("", false);
    }

    #[test]
    fn pages_of_other_sites_embed_nothing() {
        let check = |pairs: &[(&'static str, &str)], expect: bool| {
            let given = [&[("host", "127.0.0.1:8265")], pairs].concat();
            assert_eq!(Guard::default().check_headers(&headers(&given)).is_ok(), expect, "{pairs:?}");
        };
        check(&[("sec-fetch-site", "none"), ("sec-fetch-dest", "document")], true);
        check(&[("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "script")], true);
        for embedded in ["image", "script", "iframe", "empty"] {
            check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", embedded)], false);
        }
        check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document")], true);
        let own_page = ("origin", "http://localhost:3000");
        check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "empty"), own_page], true);
    }

    #[test]
    fn users_are_named_or_numbered() {
        let own = rustix::process::getuid();
        let check = |names: &[&str], sudo_user: Option<&str>, expect: Result<&[u32], &str>| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let expect = expect.map(|users| Users::Only(users.iter().copied().chain([own.as_raw()]).collect()));
            assert_eq!(Users::allowed(&names, sudo_user), expect.map_err(str::to_owned), "{names:?}");
        };
        check(&[], None, Ok(&[]));
        check(&["1234", "root"], None, Ok(&[0, 1234]));
        check(&["no-such-user"], None, Err("this machine has no user no-such-user"));
        // Whoever is not root could set the variable to anything.
        check(&[], Some("1001"), Ok(if own.is_root() { &[1001] } else { &[] }));
        check(&[], Some("nonsense"), Ok(&[]));
        assert_eq!(Users::allowed(&["5".to_owned(), "all".to_owned()], None), Ok(Users::All));
    }

    #[test]
    fn only_the_users_named_and_root_may_connect() {
        let check = |users: Users, user: Option<u32>, expect: bool| {
            let guard = Guard { users: users.clone(), ..Guard::default() };
            assert_eq!(guard.check_user(user).is_ok(), expect, "{users:?} {user:?}");
        };
        let some = || Users::Only(BTreeSet::from([1000]));
        check(some(), Some(1000), true);
        check(some(), Some(0), true);
        check(some(), Some(1001), false);
        check(some(), None, false);
        check(Users::Only(BTreeSet::new()), Some(1000), false);
        check(Users::All, Some(1001), true);
        check(Users::All, None, true);
    }
}
