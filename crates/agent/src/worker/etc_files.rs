//! The files of `/etc` that the agent writes for a pod.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use crate::network::RESOLVER;
use crate::runtime::beneath::Owner;
use crate::runtime::confinement::Confinement;
use crate::runtime::rootfs::Bind;
use crate::volumes::disk;

/// Writes `/etc/hosts`, `/etc/resolv.conf` and `/etc/hostname` of a pod.
pub(super) fn network(pod: &Pod, ip: &str, hostname: &str, folder: &Path, owner: Owner) -> io::Result<Vec<Bind>> {
    disk::make_dir(folder, 0o755, owner)?;
    let spec = pod.spec.as_ref();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let subdomain = spec.and_then(|s| s.subdomain.as_deref()).filter(|s| !s.is_empty());
    let full = subdomain.map(|s| format!("{hostname}.{s}.{namespace}.svc.cluster.local\t")).unwrap_or_default();
    let mut hosts =
        format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{ip}\t{full}{hostname}\n");
    for alias in spec.iter().flat_map(|s| s.host_aliases.iter().flatten()) {
        hosts.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    let resolver = format!(
        "search {namespace}.svc.cluster.local svc.cluster.local cluster.local\nnameserver {RESOLVER}\noptions ndots:5\n"
    );
    let files = [("hosts", hosts), ("resolv.conf", resolver), ("hostname", format!("{hostname}\n"))];
    let mut binds = Vec::new();
    for (name, text) in files {
        let source = folder.join(name);
        disk::write_file(&source, &text, 0o644, owner)?;
        binds.push(bind(source, Path::new("/etc").join(name), false));
    }
    Ok(binds)
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
