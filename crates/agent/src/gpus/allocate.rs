//! Which pod holds which GPUs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{Gpu, Vendor};
use crate::pod::is_sidecar;
use crate::scheduler;

/// The GPUs that the node offers, and their holders.
#[derive(Debug, Default)]
pub struct Allocations {
    offered: Vec<Gpu>,
    /// By the pod's UID; every pod that asked has an entry, which may be empty.
    held: BTreeMap<String, Vec<Gpu>>,
}

impl Allocations {
    /// Nothing is held yet.
    pub fn new(offered: Vec<Gpu>) -> Self {
        Self { offered, held: BTreeMap::new() }
    }

    /// Returns the GPUs of one container, reserving those of its whole pod the first time. A pod keeps its GPUs until
    /// [`Self::release`], so that a restarted container finds the same ones.
    pub fn claim(&mut self, pod: &Pod, container: &Container) -> Result<Vec<Gpu>, String> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if !self.held.contains_key(&uid) {
            let taken = self.reserve(pod)?;
            self.held.insert(uid.clone(), taken);
        }
        let pool = self.held.get(&uid).map(Vec::as_slice).unwrap_or_default();
        Ok(Vendor::ALL.iter().flat_map(|vendor| share(pod, container, vendor, pool)).collect())
    }

    /// Returns the GPUs of a pod to the node.
    pub fn release(&mut self, uid: &str) {
        self.held.remove(uid);
    }

    fn reserve(&self, pod: &Pod) -> Result<Vec<Gpu>, String> {
        let wanted = scheduler::requests(pod);
        let mut taken = Vec::new();
        for vendor in Vendor::ALL {
            let count = wanted.get(vendor.resource).map_or(0, |q| usize::try_from(q.value()).unwrap_or(0));
            let of_vendor = self.offered.iter().filter(|gpu| gpu.vendor == vendor);
            let free: Vec<&Gpu> = of_vendor.filter(|gpu| !self.held.values().flatten().any(|g| g == *gpu)).collect();
            if free.len() < count {
                let resource = vendor.resource;
                return Err(format!("the pod requests {count} {resource}, but this node has only {} free", free.len()));
            }
            taken.extend(free.into_iter().take(count).cloned());
        }
        Ok(taken)
    }
}

/// Returns a container's part of its pod's GPUs of one vendor. Sidecars and main containers run at the same time and
/// share nothing; an init container runs before the main containers and uses theirs.
fn share(pod: &Pod, container: &Container, vendor: &Vendor, pool: &[Gpu]) -> Vec<Gpu> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let inits = || spec.init_containers.iter().flatten();
    let sidecars = || inits().filter(|c| is_sidecar(c));
    let count = |c: &Container| amount(c, vendor.resource);
    let is_init = inits().any(|c| c.name == container.name);
    let skipped: usize = if is_init {
        inits().take_while(|c| c.name != container.name).filter(|c| is_sidecar(c)).map(count).sum()
    } else {
        sidecars().chain(spec.containers.iter().take_while(|c| c.name != container.name)).map(count).sum()
    };
    let of_vendor = pool.iter().filter(|gpu| gpu.vendor == vendor);
    of_vendor.skip(skipped).take(count(container)).cloned().collect()
}

fn amount(container: &Container, resource: &str) -> usize {
    let Some(resources) = &container.resources else { return 0 };
    let amounts = scheduler::amounts(resources.limits.as_ref().or(resources.requests.as_ref()));
    amounts.get(resource).map_or(0, |q| usize::try_from(q.value()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::find;
    use super::super::view::tests::{fake_amd, fake_nvidia};
    use super::*;

    fn node() -> Allocations {
        let root = tempfile::tempdir().unwrap();
        fake_nvidia(root.path(), &[0, 1, 2]);
        fake_amd(root.path(), &[(128, "0x1002")]);
        Allocations::new(find(root.path(), ""))
    }

    fn container(name: &str, gpus: u32) -> Value {
        json!({"name": name, "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}})
    }

    fn pod(uid: &str, inits: Value, containers: Value) -> Pod {
        let spec = json!({"initContainers": inits, "containers": containers});
        serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
    }

    fn claim(node: &mut Allocations, pod: &Pod, name: &str) -> Result<Vec<usize>, String> {
        let spec = pod.spec.as_ref().unwrap();
        let container = spec.init_containers.iter().flatten().chain(&spec.containers).find(|c| c.name == name).unwrap();
        node.claim(pod, container).map(|gpus| gpus.iter().map(|g| g.index).collect())
    }

    #[test]
    fn no_two_pods_hold_one_gpu() {
        let mut node = node();
        let (one, two) =
            (pod("1", json!([]), json!([container("c", 2)])), pod("2", json!([]), json!([container("c", 2)])));
        assert_eq!(claim(&mut node, &one, "c"), Ok(vec![0, 1]));
        assert_eq!(claim(&mut node, &one, "c"), Ok(vec![0, 1]), "a restart finds the same");
        let why = claim(&mut node, &two, "c").unwrap_err();
        assert_eq!(why, "the pod requests 2 nvidia.com/gpu, but this node has only 1 free");
        node.release("1");
        assert_eq!(claim(&mut node, &two, "c"), Ok(vec![0, 1]));
    }

    #[test]
    fn containers_that_run_together_share_nothing() {
        let mut node = node();
        let mut sidecar = container("sidecar", 1);
        sidecar["restartPolicy"] = json!("Always");
        let inits = json!([container("first", 3), sidecar, container("second", 2)]);
        let pod = pod("1", inits, json!([container("a", 1), container("b", 1), {"name": "none"}]));
        let expect: [(&str, &[usize]); 6] =
            [("first", &[0, 1, 2]), ("sidecar", &[0]), ("second", &[1, 2]), ("a", &[1]), ("b", &[2]), ("none", &[])];
        for (name, gpus) in expect {
            assert_eq!(claim(&mut node, &pod, name), Ok(gpus.to_vec()), "{name}");
        }
    }

    #[test]
    fn vendors_are_counted_apart() {
        let mut node = node();
        let both = json!({"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}}});
        let pod = pod("1", json!([]), json!([both]));
        let spec = pod.spec.as_ref().unwrap();
        let got: Vec<String> = node.claim(&pod, &spec.containers[0]).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(got, ["nvidia.com/gpu 0 (NVIDIA Fake 0)", "amd.com/gpu 0"]);
    }
}
