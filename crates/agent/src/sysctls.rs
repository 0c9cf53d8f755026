//! The kernel parameters that a pod asks for, set in its own namespaces.
//!
//! Only those are set that the kubelet calls safe: they belong to the pod's namespaces and to nothing else.

use k8s_openapi::api::core::v1::Pod;

/// The parameters that the kubelet allows without being told.
const SAFE: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// A parameter, with dots in its name, and its value.
pub(crate) type Setting = (String, String);

/// Returns the parameters of a pod, or refuses those that are not safe.
pub(crate) fn settings(pod: &Pod) -> Result<Vec<Setting>, String> {
    let spec = pod.spec.as_ref();
    let asked = spec.and_then(|s| s.security_context.as_ref()).and_then(|c| c.sysctls.as_deref()).unwrap_or_default();
    let on_node = spec.and_then(|s| s.host_network) == Some(true);
    asked
        .iter()
        .map(|one| {
            let name = one.name.replace('/', ".");
            let refuse = |why: &str| Err(format!("forbidden sysctl: \"{name}\" {why}"));
            if !SAFE.contains(&&*name) {
                return refuse("is not one of the safe ones that a local node sets; leave it out");
            }
            if on_node && name.starts_with("net.") {
                return refuse("not allowed with host net enabled");
            }
            Ok((name, one.value.clone()))
        })
        .collect()
}

/// Returns the file of a parameter.
pub(crate) fn path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn safe_parameters_are_set_and_others_refused() {
        let check = |name: &str, on_node: bool, expect: Result<&str, &str>| {
            let pod = json!({"spec": {"containers": [], "hostNetwork": on_node,
                "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}});
            let got = settings(&serde_json::from_value(pod).unwrap());
            match (got, expect) {
                (Ok(got), Ok(name)) => assert_eq!(got, [(name.to_owned(), "1".to_owned())]),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (got, _) => panic!("{name}: {got:?}"),
            }
        };
        check("kernel.shm_rmid_forced", false, Ok("kernel.shm_rmid_forced"));
        check("kernel/shm_rmid_forced", true, Ok("kernel.shm_rmid_forced"));
        check("net.ipv4.tcp_syncookies", true, Err("host net"));
        check("kernel.msgmax", false, Err("forbidden sysctl: \"kernel.msgmax\""));
        assert_eq!(path("net.ipv4.tcp_syncookies"), "/proc/sys/net/ipv4/tcp_syncookies");
    }
}
