//! `serveConfigV2`: YAML in, the body of a request out.

use super::dashboard::{DesiredConfig, Details, ServeConfig};
use crate::go::yaml;
use serde_json::{Map, Value, json};

const TARGET_CAPACITY: &str = "target_capacity";

/// Returns the configuration in a text, as it is to be submitted.
pub(super) fn desired(text: &str, capacity: Option<i32>) -> DesiredConfig {
    let body = yaml::mapping(text, "map[string]interface {}").map(|config| {
        let mut config = config.unwrap_or_default();
        set_capacity(&mut config, capacity);
        config
    });
    // Without applications there is nothing to lose, and sending it again would repeat forever.
    let has_applications = |config: &Map<String, Value>| {
        config.get("applications").and_then(Value::as_array).is_some_and(|apps| !apps.is_empty())
    };
    DesiredConfig {
        resend_when_lost: body.as_ref().is_ok_and(has_applications),
        config: ServeConfig { text: text.to_owned(), capacity },
        body: body.map(Value::Object),
    }
}

/// Returns where the configuration in a text runs proxies, if it says so.
pub(super) fn proxy_location(text: &str) -> Option<String> {
    let location = yaml::value(text).ok()?.get("proxy_location")?.as_str()?.to_owned();
    Some(location)
}

/// Returns what a cluster reports to run, with another capacity, for when its configuration is not known any more.
pub(super) fn deployed(details: &Details, capacity: i32) -> Option<DesiredConfig> {
    let configs: Option<Vec<&Value>> =
        details.applications.values().map(|app| app.deployed_app_config.as_ref()).collect();
    let configs = configs.filter(|configs| !configs.is_empty())?;
    let mut config = Map::from_iter([("applications".to_owned(), json!(configs))]);
    let text = Value::Object(config.clone()).to_string();
    set_capacity(&mut config, Some(capacity));
    Some(DesiredConfig {
        config: ServeConfig { text, capacity: Some(capacity) },
        body: Ok(Value::Object(config)),
        resend_when_lost: false,
    })
}

fn set_capacity(config: &mut Map<String, Value>, capacity: Option<i32>) {
    if let Some(capacity) = capacity {
        config.insert(TARGET_CAPACITY.to_owned(), capacity.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_texts_become_request_bodies() {
        let check = |text: &str, capacity: Option<i32>, expect: Value| {
            assert_eq!(desired(text, capacity).body, Ok(expect), "{text:?}");
        };
        check("", None, json!({}));
        check("applications: []", None, json!({"applications": []}));
        check("{target_capacity: 5, a: yes, b: 1.0}", None, json!({"target_capacity": 5, "a": true, "b": 1}));
        check("target_capacity: 5", Some(90), json!({"target_capacity": 90}));
        assert!(desired("a: [", None).body.unwrap_err().starts_with("error converting YAML to JSON: yaml: line "));
        assert!(desired("just text", None).body.unwrap_err().contains("map[string]interface {}"));
    }

    #[test]
    fn only_configurations_with_applications_can_be_lost() {
        assert!(desired("applications: [{name: a}]", None).resend_when_lost);
        assert!(!desired("applications: []", None).resend_when_lost);
        assert!(!desired("", None).resend_when_lost);
        assert!(!desired("a: [", None).resend_when_lost);
    }

    #[test]
    fn a_cluster_keeps_its_running_applications_after_an_operator_restart() {
        let details = |apps: Value| serde_json::from_value::<Details>(json!({"applications": apps})).unwrap();
        let reported = details(json!({"a": {"deployed_app_config": {"name": "a", "import_path": "a:app"}}}));
        let made = deployed(&reported, 40).unwrap();
        let expect = json!({"applications": [{"name": "a", "import_path": "a:app"}], "target_capacity": 40});
        assert_eq!(made.body, Ok(expect));
        assert_eq!(deployed(&details(json!({"a": {}})), 40), None, "what is unknown is not replaced by a guess");
        assert_eq!(deployed(&details(json!({})), 40), None);
    }
}
