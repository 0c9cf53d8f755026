//! Counts what the caches hold for one Pod.

#![allow(clippy::unwrap_used, unsafe_code)]

use manta_logic::view::PodView;
use serde_json::{Value, json};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

/// The most bytes that a running worker may take, the view itself included.
const RUNNING_WORKER: usize = 850;

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts the bytes that each thread has requested and not given back.
struct Counting;

// SAFETY: everything is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.set(ALLOCATED.get() - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns a worker as the API server shows it.
fn worker(number: usize) -> Value {
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "observedGeneration": 1, "lastProbeTime": null,
               "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("training-workers-worker-{number:05}"), "namespace": "default",
            "generateName": "training-workers-worker-", "generation": 1, "resourceVersion": format!("{}", 100_000 + number),
            "uid": format!("0f0d4c0e-6a53-4b4e-9d57-{number:012x}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "app.kubernetes.io/created-by": "kuberay-operator", "app.kubernetes.io/name": "kuberay",
                "ray.io/cluster": "training", "ray.io/group": "workers", "ray.io/identifier": "training-worker",
                "ray.io/is-ray-node": "yes", "ray.io/node-type": "worker",
            },
            "annotations": {"ray.io/ft-enabled": "false", "example.com/note": "a text that plans do not read"},
            "ownerReferences": [{
                "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "training",
                "uid": "d9a7c2be-1f0b-4f29-8e0e-4f8d8a4d2f11", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "restartPolicy": "Always", "nodeName": "node-17",
            "containers": [{"name": "ray-worker", "image": "rayproject/ray:2.52.0"}],
            "initContainers": [{"name": "wait-gcs-ready", "image": "rayproject/ray:2.52.0"}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.12.34", "hostIP": "192.168.0.17",
            "conditions": conditions,
            "initContainerStatuses": [{
                "name": "wait-gcs-ready", "restartCount": 0, "ready": true,
                "state": {"terminated": {"exitCode": 0, "reason": "Completed", "containerID": "containerd://0123456789"}},
            }],
            "containerStatuses": [{
                "name": "ray-worker", "restartCount": 0, "ready": true, "started": true,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        },
    })
}

#[test]
fn a_running_worker_takes_few_bytes() {
    const COUNT: usize = 1000;
    let texts: Vec<String> = (0..COUNT).map(|number| worker(number).to_string()).collect();
    let mut cached: Vec<Arc<PodView>> = Vec::with_capacity(COUNT);
    let before = ALLOCATED.get();
    cached.extend(texts.iter().map(|text| Arc::new(serde_json::from_str(text).unwrap())));
    let each = usize::try_from(ALLOCATED.get() - before).unwrap() / COUNT;
    assert!(cached[0].is_running_and_ready());
    assert!(each <= RUNNING_WORKER, "a worker takes {each} bytes, {} of them the view", size_of::<PodView>());
}
