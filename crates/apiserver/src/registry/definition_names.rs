//! The names of custom kinds: a definition is served under those that no other definition of its group has taken.

use serde_json::{Value, json};

/// What a definition gets of the names that it asks for.
#[derive(Debug)]
pub(crate) struct Acceptance {
    /// The names that it is served under; empty texts where it has none yet.
    pub(crate) names: Value,
    /// The reason and message of the first conflict.
    conflict: Option<(&'static str, String)>,
}

impl Acceptance {
    /// Returns whether a definition is served: one that once was stays, under the names that it had.
    pub(crate) fn is_served(&self, definition: &Value) -> bool {
        self.conflict.is_none() || is_established(definition)
    }

    /// Returns the definition as it is served, if that is not as it is written.
    pub(crate) fn renamed(&self, definition: &Value) -> Option<Value> {
        (self.names != definition["spec"]["names"]).then(|| {
            let mut served = definition.clone();
            served["spec"]["names"] = self.names.clone();
            served
        })
    }

    /// Returns the status of a definition that is served if its names allow.
    pub(crate) fn status(&self, definition: &Value, now: &str) -> Value {
        let old = &definition["status"];
        let condition = |kind: &str, value: &str, reason: &str, message: &str| {
            let known = old["conditions"].as_array().into_iter().flatten().find(|known| known["type"] == kind);
            let since = known.filter(|known| known["status"] == value).map(|known| known["lastTransitionTime"].clone());
            json!({"type": kind, "status": value, "reason": reason, "message": message,
                "lastTransitionTime": since.unwrap_or_else(|| now.into())})
        };
        let accepted = match &self.conflict {
            None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
            Some((reason, message)) => condition("NamesAccepted", "False", reason, message),
        };
        let established = match self.is_served(definition) {
            true => condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
            false => condition("Established", "False", "NotAccepted", "not all names are accepted"),
        };
        json!({
            "acceptedNames": self.names,
            "conditions": [accepted, established],
            "storedVersions": old["storedVersions"],
        })
    }
}

/// Returns whether a definition has been served.
pub(crate) fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.clone().any(|one| one["type"] == "Established" && one["status"] == "True")
}

/// Decides the names of all definitions: first those that they have, then in order those that are free.
pub(crate) fn accept(definitions: &[Value]) -> Vec<Acceptance> {
    let mut names: Vec<Value> = definitions.iter().map(|one| one["status"]["acceptedNames"].clone()).collect();
    let mut all = Vec::new();
    for (index, definition) in definitions.iter().enumerate() {
        let group = &definition["spec"]["group"];
        let is_other = |other: &usize| *other != index && definitions[*other]["spec"]["group"] == *group;
        let others: Vec<&Value> = (0..names.len()).filter(is_other).map(|other| &names[other]).collect();
        let acceptance = accept_one(&definition["spec"]["names"], &names[index], &others);
        names[index] = acceptance.names.clone();
        all.push(acceptance);
    }
    all
}

fn accept_one(wanted: &Value, had: &Value, others: &[&Value]) -> Acceptance {
    let is_taken = |name: &Value, keys: [&str; 2]| {
        let lists = |other: &Value| other["shortNames"].as_array().is_some_and(|list| list.contains(name));
        let resource = keys[0] == "plural";
        others.iter().any(|other| keys.iter().any(|key| other[*key] == *name) || (resource && lists(other)))
    };
    let mut names = if had.is_object() { had.clone() } else { json!({}) };
    let mut conflict = None;
    let mut take = |key: &str, free: Result<(), Value>, reason: &'static str| match free {
        Ok(()) => match &wanted[key] {
            Value::Null => drop(names.as_object_mut().map(|names| names.remove(key))),
            value => names[key] = value.clone(),
        },
        Err(name) => conflict = Some((reason, format!("{name} is already in use"))),
    };
    const RESOURCES: [&str; 2] = ["plural", "singular"];
    const KINDS: [&str; 2] = ["kind", "listKind"];
    for (key, keys, reason) in [
        ("plural", RESOURCES, "PluralConflict"),
        ("singular", RESOURCES, "SingularConflict"),
        ("shortNames", RESOURCES, "ShortNamesConflict"),
        ("kind", KINDS, "KindConflict"),
        ("listKind", KINDS, "ListKindConflict"),
    ] {
        let list = wanted[key].as_array();
        let asked = list.map_or_else(|| vec![&wanted[key]], |list| list.iter().collect());
        // What it has is its own, whoever else asks for it.
        let is_own = |name: &Value| had[key] == *name || had[key].as_array().is_some_and(|list| list.contains(name));
        let taken = asked.into_iter().find(|name| !name.is_null() && !is_own(name) && is_taken(name, keys));
        take(key, taken.map_or(Ok(()), |name| Err(name.clone())), reason);
    }
    take("categories", Ok(()), "");
    Acceptance { names, conflict }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &str) -> Value {
        json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {"group": "example.com", "names":
            {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List"),
                "shortNames": [short]}}})
    }

    fn served(definition: &Value, status: Value) -> Value {
        let mut definition = definition.clone();
        definition["status"] = status;
        definition
    }

    #[test]
    fn a_name_belongs_to_the_first_that_had_it() {
        let check = |first: Value, second: Value, expect: Option<(&str, &str)>| {
            let status = accept(std::slice::from_ref(&first))[0].status(&first, "t");
            assert_eq!(status["conditions"][1]["status"], "True");
            // The newcomer is listed first, as its name sorts before.
            let both = [second, served(&first, status.clone())];
            let accepted = accept(&both);
            assert_eq!(accepted[1].status(&both[1], "u"), status, "the first stays as it is");
            let conditions = accepted[0].status(&both[0], "t")["conditions"].take();
            let got = (conditions[0]["status"] == "False")
                .then(|| (conditions[0]["reason"].as_str().unwrap(), conditions[0]["message"].as_str().unwrap()));
            assert_eq!(got, expect);
            assert_eq!(conditions[1]["status"] == "True", expect.is_none(), "{conditions}");
            assert_eq!(accepted[0].is_served(&both[0]), expect.is_none());
        };
        let first = || definition("things", "Thing", "th");
        check(first(), definition("others", "Other", "ot"), None);
        check(
            first(),
            definition("others", "Thing", "ot"),
            Some(("ListKindConflict", r#""ThingList" is already in use"#)),
        );
        check(
            first(),
            definition("others", "ThingList", "ot"),
            Some(("KindConflict", r#""ThingList" is already in use"#)),
        );
        check(first(), definition("others", "Other", "th"), Some(("ShortNamesConflict", r#""th" is already in use"#)));
        check(
            first(),
            definition("others", "Other", "things"),
            Some(("ShortNamesConflict", r#""things" is already in use"#)),
        );
        let mut elsewhere = definition("others", "Thing", "th");
        elsewhere["spec"]["group"] = json!("example.org");
        check(first(), elsewhere, None);
    }

    #[test]
    fn a_served_definition_keeps_the_names_it_had() {
        let (first, second) = (definition("things", "Thing", "th"), definition("others", "Other", "ot"));
        let both = [first, second];
        let mut both: Vec<Value> = accept(&both)
            .iter()
            .zip(&both)
            .map(|(one, definition)| served(definition, one.status(definition, "t")))
            .collect();
        both[1]["spec"]["names"]["shortNames"] = json!(["th"]);
        let accepted = accept(&both);
        assert!(accepted[1].is_served(&both[1]));
        let renamed = accepted[1].renamed(&both[1]).expect("other names than it asks for");
        assert_eq!(renamed["spec"]["names"]["shortNames"], json!(["ot"]));
        assert!(accepted[0].renamed(&both[0]).is_none());
    }
}
