//! The time of an event, whichever way its reporter has written it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

/// Returns when an event was last reported.
pub(crate) fn time(event: &Event) -> Option<Timestamp> {
    let written = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|time| time.0);
    let last = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let micro = last.or(event.event_time.as_ref()).map(|time| time.0);
    written.or(micro).or(event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn events_have_a_time_whichever_way_it_is_written() {
        let check = |mut event: Value, expect: Option<&str>| {
            event["involvedObject"] = json!({"name": "x"});
            let event: Event = serde_json::from_value(event).unwrap();
            assert_eq!(time(&event).map(|time| time.to_string()).as_deref(), expect);
        };
        let event = |more: Value| {
            let mut event = json!({"metadata": {}});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event
        };
        check(event(json!({"lastTimestamp": "2026-01-01T00:00:00Z"})), Some("2026-01-01T00:00:00Z"));
        check(event(json!({"eventTime": "2026-01-01T00:00:00.5Z"})), Some("2026-01-01T00:00:00.5Z"));
        let series = json!({"count": 3, "lastObservedTime": "2026-01-01T00:00:09Z"});
        let repeated = event(json!({"eventTime": "2026-01-01T00:00:00Z", "series": series}));
        check(repeated, Some("2026-01-01T00:00:09Z"));
        check(json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:01Z"}}), Some("2026-01-01T00:00:01Z"));
        check(event(json!({})), None);
    }
}
