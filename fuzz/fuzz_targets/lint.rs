//! Any bytes into `manta lint`: no panic, and no line that the input does not have.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use manta_cli::lint::Linter;

thread_local! {
    static LINTER: RefCell<Linter> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.iter().filter(|byte| matches!(**byte, b'\n' | b'\r')).count() + 1;
    let findings = LINTER.with_borrow_mut(|linter| linter.lint("input", bytes));
    assert!(findings.iter().all(|finding| finding.line <= lines));
});
