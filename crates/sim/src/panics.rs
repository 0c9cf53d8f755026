//! Panics. The operator catches those of passes and tokio those of tasks, so that nobody else in a world sees them.

use std::cell::RefCell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

thread_local! {
    /// The first panic on this thread since a world began there. A world has its thread for itself.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Begins to look for panics on this thread.
pub(crate) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            note(info);
            previous(info);
        }));
    });
    FIRST.set(None);
}

/// Returns the first panic since then.
pub(crate) fn violation() -> Option<String> {
    FIRST.with_borrow(Clone::clone)
}

fn note(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("no message");
    let place = info.location().map(|location| format!(", at {location}")).unwrap_or_default();
    FIRST.with_borrow_mut(|first| {
        first.get_or_insert_with(|| format!("a pass or another task panicked: {message}{place}"));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_panic_of_a_task_is_seen() {
        watch();
        assert_eq!(violation(), None);
        for message in ["no such group", "later"] {
            assert!(tokio::spawn(async move { panic!("{message}") }).await.is_err());
        }
        let seen = violation().unwrap();
        assert!(
            seen.starts_with("a pass or another task panicked: no such group, at crates/sim/src/panics.rs:"),
            "{seen}"
        );
        watch();
        assert_eq!(violation(), None, "another world");
    }
}
