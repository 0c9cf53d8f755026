//! Two JSON documents, an object and a patch: none of the four kinds of patches panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manta_apiserver::patch::apply::{Writer, apply, track_update};
use manta_apiserver::patch::{json_patch, merge_patch, strategic_merge_patch};
use manta_apiserver::schema::TypeRef;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (Some(Ok(object)), Some(Ok(patch))) = (documents.next(), documents.next()) else { return };
    let Some(pod) = TypeRef::of_kind("", "v1", "Pod") else { return };
    let writer = Writer { manager: "m", api_version: "v1", subresource: "", time: "2024-01-01T00:00:00Z", ignored: &[] };
    let _ = json_patch(object.clone(), &patch);
    let _ = merge_patch(object.clone(), &patch);
    let _ = strategic_merge_patch(object.clone(), &patch, pod);
    if let Ok(applied) = apply(Some(&object), &patch, pod, &writer, true) {
        assert!(apply(Some(&applied), &patch, pod, &writer, false).is_ok(), "applying again finds a conflict");
    }
    let mut new = patch;
    track_update(Some(&object), &mut new, pod, &writer);
});
