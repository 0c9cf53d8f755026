//! What is in a Secret shows nowhere else.

use super::Seen;
use crate::object::{name, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Shorter texts could show by chance.
const SHORTEST: usize = 8;

impl Seen {
    /// Remembers what is in a Secret, and returns what is wrong with any other object that shows it, plainly or encoded.
    pub(super) fn leaked_secret(&mut self, kind: &str, object: &Value, json: &[u8]) -> Option<String> {
        if kind == "Secret" {
            let data = object["data"].as_object().into_iter().flatten();
            self.secrets.extend(data.flat_map(|(_, value)| forms(&text(value))));
            return None;
        }
        if self.secrets.is_empty() {
            return None;
        }
        let json = str::from_utf8(json).unwrap_or_default();
        let leaked = self.secrets.iter().any(|secret| json.contains(secret.as_str()));
        leaked.then(|| format!("{kind} {} shows what is in a Secret", name(object)))
    }
}

/// Returns a value as it is in a Secret, and decoded, as JSON would show it.
fn forms(encoded: &str) -> impl Iterator<Item = String> + use<> {
    let plain = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let shown = Value::from(plain.trim()).to_string();
    [encoded.to_owned(), shown.trim_matches('"').to_owned()].into_iter().filter(|form| form.len() >= SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_secret_holds_is_found_in_each_form() {
        let mut seen = Seen::default();
        let secret = json!({"metadata": {"name": "s"}, "data": {
            "token": STANDARD.encode("correct horse"), "key": STANDARD.encode("two\nlines\n"), "short": STANDARD.encode("true"),
        }});
        assert_eq!(seen.leaked_secret("Secret", &secret, secret.to_string().as_bytes()), None);
        let mut check = |value: &str, leaks: bool| {
            let object = json!({"metadata": {"name": "c"}, "data": {"value": value}});
            let leaked = seen.leaked_secret("ConfigMap", &object, object.to_string().as_bytes());
            assert_eq!(leaked.is_some(), leaks, "{value}");
        };
        check("it is correct horse", true);
        check(&STANDARD.encode("correct horse"), true);
        check("two\nlines", true);
        check("true", false);
        check("incorrect house", false);
    }
}
