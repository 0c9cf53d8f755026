//! The volumes of a pod: their contents, and where containers mount them.
//!
//! [`plan`] is pure: it turns the volumes of a pod into [`Volume`]s or returns the first error;
//! [`mounts`] turns a container's `volumeMounts` into binds. `disk` writes them out.

pub mod disk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Volume as ApiVolume,
};
use manta_quantity::Quantity;

use crate::downward_api::{self, NodeValues};
use crate::env::{self, ClaimState, Sources};
use crate::guards::{self, Guard};
use crate::names;
use crate::runtime::rootfs;
use crate::tokens::TokenKind;

/// A volume with its sources resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Volume {
    /// A directory that lives as long as the pod.
    Empty,
    /// A file system in memory that lives as long as the pod.
    Memory {
        limit: Option<i64>,
    },
    Files(Vec<File>),
    /// A directory of the host.
    Host {
        path: String,
        kind: String,
    },
    /// A directory that lives as long as its claim; the folder's name is worked out from the claim.
    Claim {
        folder: String,
        read_only: bool,
    },
}

/// One file of a volume, its path relative to the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub contents: Vec<u8>,
    pub mode: u32,
}

/// A resolved `volumeMount` of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub volume: String,
    pub sub_path: Option<String>,
    pub target: String,
    pub read_only: bool,
}

/// Why a pod's volumes cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {cause}")]
    Missing { volume: String, cause: String },
    #[error(
        "volume \"{volume}\" is of type {kind}, which a local node cannot provide; use emptyDir or a PersistentVolumeClaim"
    )]
    Unsupported { volume: String, kind: String },
    #[error("volume \"{volume}\" uses the machine's directory {path}; allow it with --allow-host-path")]
    HostPath { volume: String, path: String },
    #[error("container {container} mounts volume \"{volume}\", which the pod does not have")]
    Unknown { container: String, volume: String },
    #[error("volume \"{volume}\" has a path that leads outside it: {path}")]
    Escapes { volume: String, path: String },
    #[error(
        "container {container} mounts volume \"{volume}\" with volumeMounts[].mountPath {path}; mount it elsewhere than \
         at /, in /proc or in /sys"
    )]
    Reserved { container: String, volume: String, path: String },
}

/// The credentials of a pod for the API server.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    pub ca: String,
    pub tokens: BTreeMap<TokenKind, String>,
}

/// Resolves all volumes of a pod, by name.
pub fn plan(
    pod: &Pod,
    sources: &dyn Sources,
    values: &NodeValues,
    credentials: &Credentials,
    host_paths: bool,
) -> Result<BTreeMap<String, Volume>, VolumeError> {
    let reader = Reader { pod, sources, values, credentials, host_paths };
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.map(|v| Ok((v.name.clone(), reader.read(v)?))).collect()
}

/// Resolves the `volumeMounts` of a container, in the order they must be mounted.
pub fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, Volume>,
    env: &[(String, String)],
) -> Result<Vec<Mount>, VolumeError> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let Some(volume) = volumes.get(&mount.name) else {
            let (container, volume) = (container.name.clone(), mount.name.clone());
            return Err(VolumeError::Unknown { container, volume });
        };
        if !rootfs::is_mountable(Path::new(&mount.mount_path)) {
            let (container, volume) = (container.name.clone(), mount.name.clone());
            return Err(VolumeError::Reserved { container, volume, path: mount.mount_path.clone() });
        }
        let lookup = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let expanded = mount.sub_path_expr.as_deref().map(|expr| env::expand(expr, lookup));
        let sub_path = expanded.or_else(|| mount.sub_path.clone()).filter(|p| !p.is_empty());
        if let Some(path) = sub_path.as_deref().filter(|p| escapes(p)) {
            return Err(VolumeError::Escapes { volume: mount.name.clone(), path: path.to_owned() });
        }
        let written_by_agent = matches!(volume, Volume::Files(_) | Volume::Claim { read_only: true, .. });
        mounts.push(Mount {
            volume: mount.name.clone(),
            sub_path,
            target: mount.mount_path.clone(),
            read_only: mount.read_only == Some(true) || written_by_agent,
        });
    }
    // A mount inside another must come after it.
    mounts.sort_by_key(|m| m.target.split('/').filter(|part| !part.is_empty()).count());
    Ok(mounts)
}

/// Returns the kinds of tokens that a pod's volumes project.
pub fn token_kinds(pod: &Pod) -> BTreeSet<TokenKind> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let sources = volumes.flat_map(|v| v.projected.iter()).flat_map(|p| p.sources.iter().flatten());
    let tokens = sources.filter_map(|s| s.service_account_token.as_ref());
    tokens.map(|t| TokenKind::new(t.audience.as_deref(), t.expiration_seconds)).collect()
}

/// Returns the names of the ConfigMaps and Secrets that a pod refers to.
pub fn references(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let Some(spec) = &pod.spec else { return (maps, secrets) };
    for volume in spec.volumes.iter().flatten() {
        maps.extend(volume.config_map.iter().map(|s| s.name.clone()));
        secrets.extend(volume.secret.iter().filter_map(|s| s.secret_name.clone()));
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            maps.extend(source.config_map.iter().map(|s| s.name.clone()));
            secrets.extend(source.secret.iter().map(|s| s.name.clone()));
        }
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for from in container.env_from.iter().flatten() {
            maps.extend(from.config_map_ref.iter().map(|r| r.name.clone()));
            secrets.extend(from.secret_ref.iter().map(|r| r.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
            maps.extend(source.config_map_key_ref.iter().map(|r| r.name.clone()));
            secrets.extend(source.secret_key_ref.iter().map(|r| r.name.clone()));
        }
    }
    (maps, secrets)
}

struct Reader<'a> {
    pod: &'a Pod,
    sources: &'a dyn Sources,
    values: &'a NodeValues,
    credentials: &'a Credentials,
    host_paths: bool,
}

impl Reader<'_> {
    fn read(&self, volume: &ApiVolume) -> Result<Volume, VolumeError> {
        let name = &volume.name;
        if let Some(empty) = &volume.empty_dir {
            let limit = empty.size_limit.as_ref().map(|q| Quantity::parse_or_zero(&q.0).value()).filter(|n| *n > 0);
            let in_memory = empty.medium.as_deref().is_some_and(|m| m == "Memory" || m.starts_with("HugePages"));
            return Ok(if in_memory { Volume::Memory { limit } } else { Volume::Empty });
        }
        if let Some(s) = &volume.config_map {
            let data = self.sources.config_map(&s.name);
            return self.files(name, "configmap", &s.name, data, s.items.as_deref(), s.default_mode, s.optional);
        }
        if let Some(s) = &volume.secret {
            let secret = s.secret_name.clone().unwrap_or_default();
            let data = self.sources.secret(&secret);
            return self.files(name, "secret", &secret, data, s.items.as_deref(), s.default_mode, s.optional);
        }
        if let Some(s) = &volume.downward_api {
            return Ok(Volume::Files(self.downward(name, s.items.iter().flatten(), s.default_mode)?));
        }
        if let Some(s) = &volume.projected {
            return self.projected(name, s);
        }
        if let Some(s) = &volume.host_path {
            if !self.host_paths {
                return Err(VolumeError::HostPath { volume: name.clone(), path: s.path.clone() });
            }
            return Ok(Volume::Host { path: s.path.clone(), kind: s.type_.clone().unwrap_or_default() });
        }
        if let Some(s) = &volume.persistent_volume_claim {
            let folder = self.claim_folder(name, &s.claim_name)?;
            return Ok(Volume::Claim { folder, read_only: s.read_only == Some(true) });
        }
        if volume.ephemeral.is_some() {
            // A generic ephemeral volume lives and dies with its pod.
            return Ok(Volume::Empty);
        }
        let kind = serde_json::to_value(volume)
            .ok()
            .and_then(|v| v.as_object().and_then(|o| o.keys().find(|k| *k != "name").cloned()));
        // A volume without a source is an emptyDir, as the API server defaults it.
        match kind {
            None => Ok(Volume::Empty),
            Some(kind) => Err(VolumeError::Unsupported { volume: name.clone(), kind }),
        }
    }

    /// Works out the folder of a claim from the claim itself; nothing that a client can edit names a path.
    fn claim_folder(&self, volume: &str, claim: &str) -> Result<String, VolumeError> {
        if !guards::is_on(Guard::ClaimLookup) {
            return Ok(claim.to_owned());
        }
        let missing = |cause: String| VolumeError::Missing { volume: volume.to_owned(), cause };
        if !names::is_subdomain(claim) {
            let way_out = "name a PersistentVolumeClaim of the pod's namespace, or use a hostPath volume";
            return Err(missing(format!("persistentVolumeClaim.claimName {claim:?} is not a name; {way_out}")));
        }
        match self.sources.claim(claim) {
            None => Err(missing(format!("persistentvolumeclaim \"{claim}\" not found"))),
            Some(ClaimState::Bound { uid }) if names::is_subdomain(&uid) => {
                let namespace = self.pod.metadata.namespace.as_deref().unwrap_or("default");
                Ok(format!("{namespace}-{claim}-{uid}"))
            }
            Some(ClaimState::Foreign { volume }) => Err(missing(format!(
                "persistentvolumeclaim \"{claim}\" is bound to volume \"{volume}\", which this node did not provision; \
                 leave out spec.volumeName of the claim"
            ))),
            Some(_) => Err(missing(format!("persistentvolumeclaim \"{claim}\" is not bound yet"))),
        }
    }

    fn projected(&self, name: &str, projected: &ProjectedVolumeSource) -> Result<Volume, VolumeError> {
        let mode = projected.default_mode;
        let mut files = Vec::new();
        for source in projected.sources.iter().flatten() {
            if let Some(s) = &source.config_map {
                // The agent knows the cluster CA, whether or not a controller has published it.
                let data = self.sources.config_map(&s.name).or_else(|| {
                    let ca = || BTreeMap::from([("ca.crt".to_owned(), self.credentials.ca.clone().into_bytes())]);
                    (s.name == "kube-root-ca.crt").then(ca)
                });
                let part = self.files(name, "configmap", &s.name, data, s.items.as_deref(), mode, s.optional)?;
                files.extend(files_of(part));
            }
            if let Some(s) = &source.secret {
                let data = self.sources.secret(&s.name);
                let part = self.files(name, "secret", &s.name, data, s.items.as_deref(), mode, s.optional)?;
                files.extend(files_of(part));
            }
            if let Some(s) = &source.downward_api {
                files.extend(self.downward(name, s.items.iter().flatten(), mode)?);
            }
            if let Some(s) = &source.service_account_token {
                let kind = TokenKind::new(s.audience.as_deref(), s.expiration_seconds);
                let token = self.credentials.tokens.get(&kind).cloned().ok_or_else(|| VolumeError::Missing {
                    volume: name.to_owned(),
                    cause: "no token for the service account".to_owned(),
                })?;
                files.push(self.file(name, &s.path, token.into_bytes(), None, mode)?);
            }
        }
        Ok(Volume::Files(files))
    }

    #[expect(clippy::too_many_arguments, reason = "one call per kind of source, all fields of the API")]
    fn files(
        &self,
        volume: &str,
        kind: &str,
        name: &str,
        data: Option<BTreeMap<String, Vec<u8>>>,
        items: Option<&[KeyToPath]>,
        mode: Option<i32>,
        optional: Option<bool>,
    ) -> Result<Volume, VolumeError> {
        let optional = optional == Some(true);
        let missing = |cause: String| VolumeError::Missing { volume: volume.to_owned(), cause };
        let Some(data) = data else {
            return if optional {
                Ok(Volume::Files(vec![]))
            } else {
                Err(missing(format!("{kind} \"{name}\" not found")))
            };
        };
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            let all = data.into_iter().map(|(key, contents)| self.file(volume, &key, contents, None, mode));
            return all.collect::<Result<_, _>>().map(Volume::Files);
        };
        let mut files = Vec::new();
        for item in items {
            match data.get(&item.key) {
                Some(contents) => files.push(self.file(volume, &item.path, contents.clone(), item.mode, mode)?),
                None if optional => {}
                None => return Err(missing(format!("references non-existent {kind} key: {}", item.key))),
            }
        }
        Ok(Volume::Files(files))
    }

    fn downward<'a>(
        &self,
        volume: &str,
        items: impl Iterator<Item = &'a DownwardAPIVolumeFile>,
        mode: Option<i32>,
    ) -> Result<Vec<File>, VolumeError> {
        let mut files = Vec::new();
        for item in items {
            let value = if let Some(field) = &item.field_ref {
                downward_api::field(self.pod, self.values, &field.field_path)
            } else if let Some(selector) = &item.resource_field_ref {
                let container = self
                    .pod
                    .spec
                    .iter()
                    .flat_map(|s| &s.containers)
                    .find(|c| Some(&c.name) == selector.container_name.as_ref());
                container.and_then(|c| downward_api::resource(c, self.values, selector))
            } else {
                None
            };
            let Some(value) = value else {
                let cause = format!("nothing to put into the downward API file {}", item.path);
                return Err(VolumeError::Missing { volume: volume.to_owned(), cause });
            };
            files.push(self.file(volume, &item.path, value.into_bytes(), item.mode, mode)?);
        }
        Ok(files)
    }

    fn file(
        &self,
        volume: &str,
        path: &str,
        contents: Vec<u8>,
        own: Option<i32>,
        default: Option<i32>,
    ) -> Result<File, VolumeError> {
        if escapes(path) {
            return Err(VolumeError::Escapes { volume: volume.to_owned(), path: path.to_owned() });
        }
        let mode = own.or(default).and_then(|m| u32::try_from(m).ok()).unwrap_or(0o644) & 0o777;
        Ok(File { path: path.to_owned(), contents, mode })
    }
}

fn files_of(volume: Volume) -> Vec<File> {
    match volume {
        Volume::Files(files) => files,
        _ => Vec::new(),
    }
}

fn escapes(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..") || path.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    struct Fixed;

    impl Sources for Fixed {
        fn config_map(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
            (name == "cm").then(|| BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())]))
        }
        fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
            (name == "sec").then(|| BTreeMap::from([("s".to_owned(), b"3".to_vec())]))
        }
        fn claim(&self, name: &str) -> Option<ClaimState> {
            match name {
                "c" => Some(ClaimState::Bound { uid: "u-1".into() }),
                "pending" => Some(ClaimState::Pending),
                "foreign" => Some(ClaimState::Foreign { volume: "pv".into() }),
                _ => None,
            }
        }
    }

    /// One volume, and what it becomes: files as `path=contents mode`.
    fn check(volume: Value, expect: Result<&str, &str>) {
        let mut volume = volume;
        volume["name"] = json!("v");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"x": "y"}},
            "spec": {"containers": [], "volumes": [volume]},
        }))
        .unwrap();
        let tokens = BTreeMap::from([(TokenKind::default(), "tok".to_owned())]);
        let credentials = Credentials { ca: "CA".into(), tokens };
        let got = plan(&pod, &Fixed, &NodeValues::default(), &credentials, false).map(|mut all| {
            match all.remove("v").unwrap() {
                Volume::Files(files) => {
                    let one = |f: File| format!("{}={} {:o}", f.path, String::from_utf8(f.contents).unwrap(), f.mode);
                    files.into_iter().map(one).collect::<Vec<_>>().join(", ")
                }
                other => format!("{other:?}"),
            }
        });
        assert_eq!(got.as_deref().map_err(ToString::to_string), expect.map_err(str::to_owned));
    }

    #[test]
    fn every_kind_of_volume_is_resolved() {
        check(json!({}), Ok("Empty"));
        check(json!({"emptyDir": {}}), Ok("Empty"));
        check(json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Ki"}}), Ok("Memory { limit: Some(1024) }"));
        check(json!({"configMap": {"name": "cm"}}), Ok("a=1 644, b=2 644"));
        check(
            json!({"configMap": {"name": "cm", "defaultMode": 256, "items": [{"key": "a", "path": "d/x"}]}}),
            Ok("d/x=1 400"),
        );
        check(
            json!({"secret": {"secretName": "sec", "items": [{"key": "s", "path": "t", "mode": 384}]}}),
            Ok("t=3 600"),
        );
        check(json!({"secret": {"secretName": "none", "optional": true}}), Ok(""));
        check(
            json!({"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
            Ok("l=x=\"y\" 644"),
        );
        let token = json!({"projected": {"sources": [
            {"serviceAccountToken": {"path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]}});
        check(token, Ok("token=tok 644, ca.crt=CA 644, namespace=n 644"));
        check(
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
            Ok("Claim { folder: \"n-c-u-1\", read_only: false }"),
        );
    }

    #[test]
    fn volumes_that_cannot_be_set_up_are_errors() {
        check(
            json!({"configMap": {"name": "no"}}),
            Err("MountVolume.SetUp failed for volume \"v\" : configmap \"no\" not found"),
        );
        check(
            json!({"hostPath": {"path": "/x"}}),
            Err("volume \"v\" uses the machine's directory /x; allow it with --allow-host-path"),
        );
        check(
            json!({"nfs": {"server": "s", "path": "/"}}),
            Err(
                "volume \"v\" is of type nfs, which a local node cannot provide; use emptyDir or a PersistentVolumeClaim",
            ),
        );
        check(
            json!({"configMap": {"name": "cm", "items": [{"key": "a", "path": "../x"}]}}),
            Err("volume \"v\" has a path that leads outside it: ../x"),
        );
    }

    #[test]
    fn claims_must_exist_and_be_bound() {
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        let check = |name: &str, why: &str| {
            let volume = json!({"name": "v", "persistentVolumeClaim": claim(name)["persistentVolumeClaim"]});
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "volumes": [volume]}})).unwrap();
            let got = plan(&pod, &Fixed, &NodeValues::default(), &Credentials::default(), true).unwrap_err();
            assert!(got.to_string().contains(why), "{got}");
        };
        for path in ["/home/victim", "../../x", "..", "a/b", "", "A"] {
            check(path, "is not a name");
        }
        check("none", "persistentvolumeclaim \"none\" not found");
        check("pending", "is not bound yet");
        check("foreign", "which this node did not provision");
    }

    #[test]
    fn mounts_come_outermost_first() {
        let volumes = BTreeMap::from([("v".to_owned(), Volume::Empty), ("f".to_owned(), Volume::Files(vec![]))]);
        let container = |mounts: Value| -> Container {
            serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap()
        };
        let deep = container(json!([
            {"name": "f", "mountPath": "/a/b/c"}, {"name": "v", "mountPath": "/a", "subPathExpr": "$(X)"},
        ]));
        let env = [("X".to_owned(), "sub".to_owned())];
        let got = mounts(&deep, &volumes, &env).unwrap();
        let short: Vec<_> = got.iter().map(|m| (&*m.target, m.sub_path.as_deref(), m.read_only)).collect();
        assert_eq!(short, [("/a", Some("sub"), false), ("/a/b/c", None, true)]);
        for path in ["/proc/self/root/x", "/a/../proc", "/sys/fs/cgroup", "/", "//", "/a/.."] {
            let reserved = container(json!([{"name": "v", "mountPath": path}]));
            assert!(matches!(mounts(&reserved, &volumes, &[]), Err(VolumeError::Reserved { .. })), "{path}");
        }
        let unknown = container(json!([{"name": "z", "mountPath": "/a"}]));
        assert!(matches!(mounts(&unknown, &volumes, &[]), Err(VolumeError::Unknown { .. })));
    }
}
