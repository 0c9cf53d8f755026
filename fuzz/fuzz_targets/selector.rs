//! Any text as a label selector, a field selector and a quantity: no panic, and canonical quantities stay as they are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manta_apiserver::selector::{map_matches, parse_fields, parse_labels};
use manta_quantity::Quantity;
use serde_json::json;

fuzz_target!(|text: &str| {
    if let Ok(rules) = parse_labels(text) {
        map_matches(&rules, &json!({"app": "a", "size": "5"}));
    }
    let _ = parse_fields(text);
    if let Ok(quantity) = Quantity::parse(text) {
        let canonical = quantity.to_string();
        assert_eq!(Quantity::parse(&canonical).map(|again| again.to_string()), Ok(canonical));
    }
});
