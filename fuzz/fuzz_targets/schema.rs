//! Two JSON documents, a schema and an object: compiling, pruning, defaulting and validating never panic, and pruning
//! leaves nothing unknown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manta_apiserver::schema::StructuralSchema;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (Some(Ok(schema)), Some(Ok(mut object))) = (documents.next(), documents.next()) else { return };
    let Ok(schema) = StructuralSchema::compile(&schema) else { return };
    let before = object.clone();
    schema.prune(&mut object);
    assert!(schema.unknown_fields(&object).is_empty());
    schema.default(&mut object);
    schema.validate(&object, Some(&before));
});
