//! Pods that share the machine's network and files, where there can be no namespaces.
//!
//! Every pod has an address on loopback, but ports, `/tmp` and names are common to all. There is no resolver, so the
//! names of Services in commands and variables are replaced by addresses; there are no mounts, so the paths of volumes
//! are replaced by where they really are. What else a program needs to get along with its neighbours is the caller's
//! knowledge: [`SharedHost::adapt`].

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container;

use crate::network::services::{DOMAIN, Table};

/// The first two numbers of pod addresses.
pub(crate) const ADDRESSES: [u8; 2] = [127, 244];

/// How pods run without namespaces of their own.
#[derive(Clone)]
pub struct SharedHost {
    /// Where the API server listens.
    pub api: SocketAddr,
    /// Changes a container so that its ports and files do not collide with those of other pods.
    pub adapt: fn(&mut Container, &HostPod),
}

/// A pod that shares the host with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPod {
    pub ip: Ipv4Addr,
    /// A folder of its own with a short path, for sockets.
    pub folder: PathBuf,
}

impl HostPod {
    /// The pod with an address; `agent_id` keeps the folders of several agents apart.
    pub(crate) fn new(agent_id: &str, ip: Ipv4Addr) -> Self {
        let [.., high, low] = ip.octets();
        Self { ip, folder: temp_dir(agent_id).join(u16::from_be_bytes([high, low]).to_string()) }
    }

    /// Returns a number that no other running pod has.
    pub fn number(&self) -> u16 {
        let [.., high, low] = self.ip.octets();
        u16::from_be_bytes([high, low])
    }
}

/// Returns the parent of the short-path folders of one agent's pods.
pub(crate) fn temp_dir(agent_id: &str) -> PathBuf {
    let short: String = agent_id.chars().take(8).collect();
    Path::new("/tmp").join(format!("manta-{short}"))
}

/// Replaces the names of Services in a container by addresses; a name without one yet is the error.
pub(crate) fn resolve_service_names(container: &mut Container, table: &Table) -> Result<(), String> {
    let mut names: Vec<(&String, Ipv4Addr)> =
        table.names.iter().filter_map(|(name, ips)| Some((name, *ips.first()?))).collect();
    // A name may be the end of another.
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    replace(container, |text| names.iter().fold(text, |text, (name, ip)| text.replace(name.as_str(), &ip.to_string())));
    let suffix = format!(".svc.{DOMAIN}");
    match texts(container).find_map(|text| service_name(text, &suffix)) {
        Some(name) => Err(format!("waiting for an address of the Service {name}")),
        None => Ok(()),
    }
}

/// Returns the first name in a text that ends with `suffix`.
fn service_name<'a>(text: &'a str, suffix: &str) -> Option<&'a str> {
    let at = text.find(suffix)?;
    let start = text[..at].rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))).map_or(0, |i| i + 1);
    Some(&text[start..at + suffix.len()])
}

/// Replaces the paths of volumes in a container by the directories they are in.
pub(crate) fn rewrite_volume_paths(container: &mut Container, mounts: &[(String, PathBuf)]) {
    replace(container, |text| {
        mounts.iter().fold(text, |text, (target, place)| text.replace(target, &place.display().to_string()))
    });
}

fn replace(container: &mut Container, change: impl Fn(String) -> String) {
    let lists = [&mut container.command, &mut container.args];
    for part in lists.into_iter().flatten().flatten() {
        *part = change(std::mem::take(part));
    }
    for value in container.env.iter_mut().flatten().filter_map(|var| var.value.as_mut()) {
        *value = change(std::mem::take(value));
    }
}

fn texts(container: &Container) -> impl Iterator<Item = &String> {
    let lists = [&container.command, &container.args];
    let values = container.env.iter().flatten().filter_map(|var| var.value.as_ref());
    lists.into_iter().flatten().flatten().chain(values)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn container() -> Container {
        serde_json::from_value(json!({
            "name": "c", "command": ["sh", "-c"], "args": ["run --address=a-b.n.svc.cluster.local:6379 /code/app.py"],
            "env": [{"name": "HOST", "value": "b.n.svc.cluster.local"}, {"name": "FROM", "valueFrom": {}}],
        }))
        .unwrap()
    }

    #[test]
    fn service_names_and_volume_paths_are_replaced() {
        let mut table = Table::default();
        for (name, ip) in [("b.n.svc.cluster.local", 3), ("a-b.n.svc.cluster.local", 2)] {
            table.names.insert(name.to_owned(), BTreeSet::from([Ipv4Addr::new(127, 244, 0, ip)]));
        }
        let mut given = container();
        assert_eq!(resolve_service_names(&mut given, &table), Ok(()));
        rewrite_volume_paths(&mut given, &[("/code".to_owned(), "/state/v".into())]);
        assert_eq!(given.args, Some(vec!["run --address=127.244.0.2:6379 /state/v/app.py".to_owned()]));
        assert_eq!(given.env.unwrap()[0].value.as_deref(), Some("127.244.0.3"));
    }

    #[test]
    fn a_service_name_without_an_address_is_an_error() {
        let mut table = Table::default();
        table.names.insert("b.n.svc.cluster.local".to_owned(), BTreeSet::new());
        let why = resolve_service_names(&mut container(), &table).unwrap_err();
        assert_eq!(why, "waiting for an address of the Service a-b.n.svc.cluster.local");
    }

    #[test]
    fn each_pod_has_a_number_and_a_short_folder() {
        let one = HostPod::new("0123456789abcdef", Ipv4Addr::new(127, 244, 1, 2));
        assert_eq!((one.number(), one.folder.to_str()), (258, Some("/tmp/manta-01234567/258")));
    }
}
