//! The hash of a cluster spec that upgrades are detected by.
//!
//! What an upgrade need not notice is left out: the upgrade strategy itself, the size of worker
//! groups, tolerations and scheduling gates.

use manta_api::RayClusterSpec;
use sha1::{Digest, Sha1};

/// The hash that a head Pod remembers: 32 characters of base32, extended hex alphabet.
pub fn cluster_hash(spec: &RayClusterSpec) -> String {
    let mut spec = spec.clone();
    spec.upgrade_strategy = None;
    forget_placement(&mut spec.head_group_spec.template);
    spec.head_group_spec.ray_start_params.get_or_insert_default();
    for group in spec.worker_group_specs.iter_mut().flatten() {
        group.replicas = None;
        group.min_replicas = None;
        group.max_replicas = None;
        group.scale_strategy = None;
        group.ray_start_params.get_or_insert_default();
        forget_placement(&mut group.template);
    }
    base32_hex(&Sha1::digest(serde_json::to_vec(&spec).unwrap_or_default()))
}

fn forget_placement(template: &mut k8s_openapi::api::core::v1::PodTemplateSpec) {
    if let Some(pod) = &mut template.spec {
        pod.tolerations = None;
        pod.scheduling_gates = None;
    }
}

fn base32_hex(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let bits: Vec<u8> = bits.collect();
    bits.chunks(5)
        .map(|chunk| chunk.iter().fold(0, |value, bit| value << 1 | bit) << (5 - chunk.len()))
        .map(|value| ALPHABET[usize::from(value)] as char)
        .collect()
}
