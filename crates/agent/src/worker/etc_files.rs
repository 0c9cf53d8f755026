//! The files of `/etc` that the agent writes for a pod.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::network::RESOLVER;
use crate::network::services::DOMAIN;
use crate::runtime::beneath::Owner;
use crate::runtime::confinement::Confinement;
use crate::runtime::rootfs::Bind;
use crate::volumes::disk;

/// Writes `/etc/hosts`, `/etc/resolv.conf` and `/etc/hostname` of a pod.
pub(super) fn network(pod: &Pod, ip: &str, hostname: &str, folder: &Path, owner: Owner) -> io::Result<Vec<Bind>> {
    disk::make_dir(folder, 0o755, owner)?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let files = [
        ("hosts", hosts(pod.spec.as_ref(), namespace, ip, hostname)),
        ("resolv.conf", resolver(pod.spec.as_ref(), namespace)),
        ("hostname", format!("{hostname}\n")),
    ];
    let mut binds = Vec::new();
    for (name, text) in files {
        let source = folder.join(name);
        disk::write_file(&source, &text, 0o644, owner)?;
        binds.push(bind(source, Path::new("/etc").join(name), false));
    }
    Ok(binds)
}

/// Returns the contents of `/etc/hosts`, with the kubelet's first line.
fn hosts(spec: Option<&PodSpec>, namespace: &str, ip: &str, hostname: &str) -> String {
    let subdomain = spec.and_then(|s| s.subdomain.as_deref()).filter(|s| !s.is_empty());
    let full = subdomain.map(|s| format!("{hostname}.{s}.{namespace}.svc.{DOMAIN}\t")).unwrap_or_default();
    let note = if spec.and_then(|s| s.host_network) == Some(true) { " (host network)" } else { "" };
    let mut hosts = format!(
        "# Kubernetes-managed hosts file{note}.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         {ip}\t{full}{hostname}\n"
    );
    for alias in spec.iter().flat_map(|s| s.host_aliases.iter().flatten()) {
        hosts.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    hosts
}

/// Returns the contents of `/etc/resolv.conf`, which follow from `dnsPolicy` and `dnsConfig`.
fn resolver(spec: Option<&PodSpec>, namespace: &str) -> String {
    let policy = spec.and_then(|s| s.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let on_node = spec.and_then(|s| s.host_network) == Some(true);
    let (mut servers, mut searches, mut options) = match policy {
        "None" => (Vec::new(), Vec::new(), Vec::new()),
        "Default" => (vec![RESOLVER.to_string()], Vec::new(), Vec::new()),
        "ClusterFirst" if on_node => (vec![RESOLVER.to_string()], Vec::new(), Vec::new()),
        _ => (
            vec![RESOLVER.to_string()],
            vec![format!("{namespace}.svc.{DOMAIN}"), format!("svc.{DOMAIN}"), DOMAIN.to_owned()],
            vec![("ndots".to_owned(), Some("5".to_owned()))],
        ),
    };
    if let Some(config) = spec.and_then(|s| s.dns_config.as_ref()) {
        servers.extend(config.nameservers.iter().flatten().cloned());
        searches.extend(config.searches.iter().flatten().cloned());
        for option in config.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            options.retain(|(known, _)| *known != name);
            options.push((name, option.value.clone()));
        }
    }
    let mut text = String::new();
    if !searches.is_empty() {
        text.push_str(&format!("search {}\n", searches.join(" ")));
    }
    for server in servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    if !options.is_empty() {
        let shown = options.into_iter().map(|(name, value)| value.map_or(name.clone(), |v| format!("{name}:{v}")));
        text.push_str(&format!("options {}\n", shown.collect::<Vec<_>>().join(" ")));
    }
    text
}

/// Writes a profile that adds the environment to the search path of login shells.
pub(super) fn login_path(environment: &Path, folder: &Path, owner: Owner) -> io::Result<Bind> {
    let source = folder.join("profile.sh");
    let quoted = environment.join("bin").display().to_string().replace('\'', "'\\''");
    disk::write_file(&source, &format!("export PATH='{quoted}':\"$PATH\"\n"), 0o644, owner)?;
    Ok(bind(source, "/etc/profile.d/manta.sh".into(), true))
}

/// Writes the container's own `/etc/passwd` and `/etc/group`.
pub(super) fn accounts(confinement: &Confinement, home: &Path, folder: &Path, owner: Owner) -> io::Result<[Bind; 2]> {
    let (uid, gid) = (confinement.uid, confinement.gid);
    let mut users =
        format!("root:x:0:0:root:{}:/bin/bash\n", if uid == 0 { home } else { Path::new("/root") }.display());
    let mut groups = "root:x:0:\n".to_owned();
    if uid != 0 && uid != 65534 {
        users.push_str(&format!("user:x:{uid}:{gid}:user:{}:/bin/bash\n", home.display()));
    }
    if gid != 0 && gid != 65534 {
        groups.push_str(&format!("user:x:{gid}:\n"));
    }
    users.push_str("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    groups.push_str("nogroup:x:65534:\n");
    let (passwd, group) = (folder.join("passwd"), folder.join("group"));
    disk::write_file(&passwd, &users, 0o644, owner)?;
    disk::write_file(&group, &groups, 0o644, owner)?;
    Ok([bind(passwd, "/etc/passwd".into(), false), bind(group, "/etc/group".into(), false)])
}

/// Returns the mount of a whole file or directory.
pub(super) fn bind(source: PathBuf, target: PathBuf, read_only: bool) -> Bind {
    Bind { source, sub_path: None, target, read_only }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: Value) -> PodSpec {
        let mut spec = json!({"containers": []});
        spec.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn the_resolver_follows_policy_and_config() {
        let check = |given: Value, expect: &str| assert_eq!(resolver(Some(&spec(given)), "n"), expect);
        let cluster = "search n.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\n";
        check(json!({}), &format!("{cluster}options ndots:5\n"));
        check(json!({"dnsPolicy": "Default"}), "nameserver 10.96.0.10\n");
        check(json!({"hostNetwork": true}), "nameserver 10.96.0.10\n");
        check(
            json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
            &format!("{cluster}options ndots:5\n"),
        );
        let own = json!({"nameservers": ["1.1.1.1"], "searches": ["a.b"], "options": [{"name": "ndots", "value": "2"}, {"name": "debug"}]});
        check(
            json!({"dnsPolicy": "None", "dnsConfig": own}),
            "search a.b\nnameserver 1.1.1.1\noptions ndots:2 debug\n",
        );
        check(
            json!({"dnsConfig": own}),
            "search n.svc.cluster.local svc.cluster.local cluster.local a.b\nnameserver 10.96.0.10\n\
             nameserver 1.1.1.1\noptions ndots:2 debug\n",
        );
    }

    #[test]
    fn hosts_name_the_pod_and_its_aliases() {
        let given = spec(json!({"subdomain": "s", "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]}));
        let text = hosts(Some(&given), "n", "10.244.0.2", "h");
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{text}");
        assert!(text.ends_with("10.244.0.2\th.s.n.svc.cluster.local\th\n1.2.3.4\ta\tb\n"), "{text}");
        let node = hosts(Some(&spec(json!({"hostNetwork": true}))), "n", "10.244.0.1", "manta");
        assert!(node.starts_with("# Kubernetes-managed hosts file (host network).\n"), "{node}");
    }
}
