//! What a `securityContext` asks for, as the restrictions that the runtime enforces.
//!
//! A local node grants what the container runtimes grant by default, or less. What it cannot grant is refused with the
//! name of the field; nothing is silently granted or silently weakened.

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SeccompProfile, SecurityContext};
use rustix::thread::CapabilitySet;

use crate::runtime::confinement::{Confinement, DEFAULT_CAPABILITIES, Seccomp};
use crate::runtime::user_namespace::IdMap;

/// Capabilities beyond the default set that reach no further than the container itself.
const ADDABLE: CapabilitySet = DEFAULT_CAPABILITIES
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// Why a container's `securityContext` cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "container {container}: securityContext.privileged is not available on a local node, which keeps pods apart \
         from this machine; leave it out, and name the capabilities that are needed in securityContext.capabilities.add"
    )]
    Privileged { container: String },
    #[error(
        "container {container}: securityContext.procMount {value} is not available on a local node; leave it out or \
         use Default"
    )]
    ProcMount { container: String, value: String },
    #[error(
        "container {container}: securityContext.capabilities.add {name} is not available on a local node; leave it \
         out, or run the pod on a cluster that grants it"
    )]
    Capability { container: String, name: String },
    #[error("spec.{field} is not available on a local node, which keeps pods apart from this machine; leave it out")]
    HostNamespace { field: &'static str },
    #[error("container {container}: securityContext.{field} {value} is not an id; use a number from 0 to 2147483647")]
    Id { container: String, field: &'static str, value: i64 },
    #[error(
        "container {container} has securityContext.runAsNonRoot and would run as root; set securityContext.runAsUser \
         to a number above 0"
    )]
    NonRoot { container: String },
    #[error(
        "container {container}: securityContext.seccompProfile.type {value} is not available on a local node, which \
         has no profiles of its own; use RuntimeDefault"
    )]
    Seccomp { container: String, value: String },
}

/// Decides the restrictions of one container; `default` is the user and group of its image.
pub fn confinement(pod: &Pod, container: &Container, default: (u32, u32), ids: IdMap) -> Result<Confinement, Refusal> {
    let spec = pod.spec.as_ref();
    for (field, asked) in [("hostPID", spec.and_then(|s| s.host_pid)), ("hostIPC", spec.and_then(|s| s.host_ipc))] {
        if asked == Some(true) {
            return Err(Refusal::HostNamespace { field });
        }
    }
    let pod = spec.and_then(|spec| spec.security_context.as_ref());
    let own = container.security_context.as_ref();
    let name = || container.name.clone();
    if own.and_then(|c| c.privileged) == Some(true) {
        return Err(Refusal::Privileged { container: name() });
    }
    if let Some(value) = own.and_then(|c| c.proc_mount.clone()).filter(|value| !value.is_empty() && value != "Default")
    {
        return Err(Refusal::ProcMount { container: name(), value });
    }
    let id = |field, value: Option<i64>, default| match value.map(|value| (value, u32::try_from(value))) {
        None => Ok(default),
        Some((_, Ok(id))) if i32::try_from(id).is_ok() => Ok(id),
        Some((value, _)) => Err(Refusal::Id { container: name(), field, value }),
    };
    let uid = id("runAsUser", own.and_then(|c| c.run_as_user).or(pod.and_then(|p| p.run_as_user)), default.0)?;
    let gid = id("runAsGroup", own.and_then(|c| c.run_as_group).or(pod.and_then(|p| p.run_as_group)), default.1)?;
    let non_root = own.and_then(|c| c.run_as_non_root).or(pod.and_then(|p| p.run_as_non_root));
    if non_root == Some(true) && uid == 0 {
        return Err(Refusal::NonRoot { container: name() });
    }
    Ok(Confinement {
        ids,
        uid,
        gid,
        groups: groups(pod).map(|group| id("fsGroup", Some(group), 0)).collect::<Result<_, _>>()?,
        capabilities: capabilities(own, &container.name)?.bits(),
        seccomp: seccomp(own, pod, &container.name)?,
        max_processes: None,
    })
}

fn groups(pod: Option<&PodSecurityContext>) -> impl Iterator<Item = i64> {
    let extra = pod.into_iter().flat_map(|p| p.supplemental_groups.iter().flatten().copied());
    extra.chain(pod.and_then(|p| p.fs_group))
}

fn capabilities(own: Option<&SecurityContext>, container: &str) -> Result<CapabilitySet, Refusal> {
    let Some(asked) = own.and_then(|c| c.capabilities.as_ref()) else { return Ok(DEFAULT_CAPABILITIES) };
    let mut set = DEFAULT_CAPABILITIES;
    for name in asked.drop.iter().flatten() {
        match name.to_uppercase().trim_start_matches("CAP_") {
            "ALL" => set = CapabilitySet::empty(),
            // One that does not exist is not held.
            name => set.remove(CapabilitySet::from_name(name).unwrap_or(CapabilitySet::empty())),
        }
    }
    for name in asked.add.iter().flatten() {
        let found = CapabilitySet::from_name(name.to_uppercase().trim_start_matches("CAP_"));
        match found.filter(|one| ADDABLE.contains(*one)) {
            Some(one) => set.insert(one),
            None => return Err(Refusal::Capability { container: container.to_owned(), name: name.clone() }),
        }
    }
    Ok(set)
}

fn seccomp(
    own: Option<&SecurityContext>,
    pod: Option<&PodSecurityContext>,
    container: &str,
) -> Result<Seccomp, Refusal> {
    let profile: Option<&SeccompProfile> =
        own.and_then(|c| c.seccomp_profile.as_ref()).or(pod.and_then(|p| p.seccomp_profile.as_ref()));
    match profile.map(|profile| profile.type_.as_str()) {
        None | Some("RuntimeDefault") => Ok(Seccomp::RuntimeDefault),
        Some("Unconfined") => Ok(Seccomp::Unconfined),
        Some(other) => Err(Refusal::Seccomp { container: container.to_owned(), value: other.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn decide(pod: Value, own: Value) -> Result<Confinement, String> {
        let container: Container = serde_json::from_value(json!({"name": "c", "securityContext": own})).unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "securityContext": pod}})).unwrap();
        confinement(&pod, &container, (0, 0), IdMap::Single).map_err(|e| e.to_string())
    }

    #[test]
    fn a_container_gets_the_runtimes_defaults() {
        let got = decide(json!({}), json!({})).unwrap();
        assert_eq!((got.uid, got.gid, got.groups, got.seccomp), (0, 0, vec![], Seccomp::RuntimeDefault));
        assert_eq!(got.capabilities, 0x0000_0000_a804_25fb, "the set that containerd grants");
    }

    #[test]
    fn ids_come_from_the_container_then_from_the_pod() {
        let pod = json!({"runAsUser": 1000, "runAsGroup": 100, "fsGroup": 7, "supplementalGroups": [8]});
        let got = decide(pod.clone(), json!({"runAsUser": 5})).unwrap();
        assert_eq!((got.uid, got.gid, got.groups), (5, 100, vec![8, 7]));
        assert_eq!(decide(pod, json!({"runAsNonRoot": true})).unwrap().uid, 1000);
        assert_eq!(decide(json!({"runAsUser": 2_147_483_647}), json!({})).unwrap().uid, 2_147_483_647);
    }

    #[test]
    fn the_user_of_the_image_is_the_default() {
        let container: Container = serde_json::from_value(json!({"name": "c"})).unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [],
            "securityContext": {"runAsGroup": 5, "runAsNonRoot": true}}}))
        .unwrap();
        let got = confinement(&pod, &container, (1000, 100), IdMap::Single).unwrap();
        assert_eq!((got.uid, got.gid), (1000, 5));
    }

    #[test]
    fn capabilities_are_dropped_and_added() {
        let set = |own: Value| CapabilitySet::from_bits_retain(decide(json!({}), own).unwrap().capabilities);
        assert_eq!(set(json!({"capabilities": {"drop": ["ALL"]}})), CapabilitySet::empty());
        let one = json!({"capabilities": {"drop": ["all"], "add": ["NET_BIND_SERVICE", "CAP_SYS_PTRACE"]}});
        assert_eq!(set(one), CapabilitySet::NET_BIND_SERVICE | CapabilitySet::SYS_PTRACE);
        let less = set(json!({"capabilities": {"drop": ["MKNOD", "NO_SUCH"]}}));
        assert_eq!(less, DEFAULT_CAPABILITIES.difference(CapabilitySet::MKNOD));
    }

    #[test]
    fn what_cannot_be_granted_is_refused_by_field() {
        let check = |pod: Value, own: Value, field: &str| {
            let why = decide(pod, own).unwrap_err();
            assert!(why.contains(field) && why.contains("container c"), "{why}");
        };
        check(json!({}), json!({"privileged": true}), "securityContext.privileged");
        check(json!({}), json!({"procMount": "Unmasked"}), "securityContext.procMount");
        for name in ["SYS_ADMIN", "ALL", "NET_ADMIN", "SYS_MODULE", "BPF", "nonsense"] {
            check(json!({}), json!({"capabilities": {"add": [name]}}), "securityContext.capabilities.add");
        }
        check(json!({}), json!({"runAsNonRoot": true}), "securityContext.runAsUser");
        check(json!({"runAsNonRoot": true, "runAsUser": 0}), json!({}), "securityContext.runAsNonRoot");
        for id in [-1, i64::MAX, i64::MIN, 4_294_967_296] {
            check(json!({"runAsUser": id}), json!({}), "securityContext.runAsUser");
            check(json!({"fsGroup": id}), json!({}), "securityContext.fsGroup");
        }
        let local = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}});
        check(json!({}), local, "securityContext.seccompProfile");
    }
}
