//! A compact map of strings, shared among equal ones.
//!
//! Caches hold the labels of thousands of Pods. A `BTreeMap` of eight labels takes about a kilobyte, this map a quarter of
//! it, and the Pods of a worker group, whose labels are the same, have one between them. A lookup scans a few dozen bytes.

use crate::recent::Recent;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::sync::Arc;

thread_local! {
    static LAST_READ: Recent<Content> = Recent::default();
}

/// A map of strings that keeps the order of its entries.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TextMap(Option<Arc<Content>>);

/// The content of a map that is not empty.
#[derive(PartialEq, Eq, Hash)]
struct Content {
    /// All keys and values, concatenated.
    text: Box<str>,
    /// The end of each key and each value.
    ends: Box<[u32]>,
}

impl TextMap {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let content = self.0.as_deref()?;
        let mut start = 0;
        for ends in content.ends.chunks_exact(2) {
            let (middle, end) = (ends[0] as usize, ends[1] as usize);
            // Most keys differ in their length already.
            if middle - start == key.len() && content.text.as_bytes()[start..middle] == *key.as_bytes() {
                return Some(&content.text[middle..end]);
            }
            start = end;
        }
        None
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let (text, ends) = self.0.as_deref().map_or(("", &[][..]), |content| (&*content.text, &*content.ends));
        let mut start = 0;
        ends.chunks_exact(2).map(move |ends| {
            let (middle, end) = (ends[0] as usize, ends[1] as usize);
            let entry = (&text[start..middle], &text[middle..end]);
            start = end;
            entry
        })
    }

    /// Reads the entries of a JSON map whose keys are wanted, and skips the others.
    pub fn read<'de, D: Deserializer<'de>>(input: D, wanted: fn(&str) -> bool) -> Result<Self, D::Error> {
        input.deserialize_option(Entries(wanted))
    }
}

impl fmt::Debug for TextMap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Self::read(input, |_| true)
    }
}

/// Reads a map; null is an empty one.
struct Entries(fn(&str) -> bool);

impl<'de> Visitor<'de> for Entries {
    type Value = TextMap;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of strings")
    }

    fn visit_none<E>(self) -> Result<TextMap, E> {
        Ok(TextMap::default())
    }

    fn visit_unit<E>(self) -> Result<TextMap, E> {
        Ok(TextMap::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<TextMap, D::Error> {
        input.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TextMap, A::Error> {
        let (mut text, mut ends) = (String::new(), Vec::new());
        while let Some(start) = map.next_key_seed(Append(&mut text))? {
            if !(self.0)(&text[start..]) {
                text.truncate(start);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let middle = text.len();
            map.next_value_seed(Append(&mut text))?;
            // No API server stores an object of four gigabytes.
            ends.extend([middle as u32, text.len() as u32]);
        }
        if ends.is_empty() {
            return Ok(TextMap::default());
        }
        let content = Content { text: text.into(), ends: ends.into() };
        Ok(TextMap(Some(LAST_READ.with(|recent| recent.share(content)))))
    }
}

/// Appends a string and returns where it begins; null counts as empty.
struct Append<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Append<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<usize, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for Append<'_> {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<usize, E> {
        let start = self.0.len();
        self.0.push_str(text);
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::SLOTS;

    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Holder {
        map: TextMap,
    }

    fn read(text: &str) -> Result<Vec<(String, String)>, serde_json::Error> {
        let holder: Holder = serde_json::from_str(text)?;
        Ok(holder.map.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn maps_keep_keys_and_values() {
        let check = |text: &str, expect: &[(&str, &str)]| {
            let expect: Vec<(String, String)> = expect.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            assert_eq!(read(text).unwrap(), expect, "{text}");
        };
        check("{}", &[]);
        check(r#"{"map": null}"#, &[]);
        check(r#"{"map": {}}"#, &[]);
        check(
            r#"{"map": {"a": "1", "": "", "b\n": "ä\u0000", "c": ""}}"#,
            &[("a", "1"), ("", ""), ("b\n", "ä\0"), ("c", "")],
        );
        assert!(read(r#"{"map": {"a": 1}}"#).is_err());
        assert!(read(r#"{"map": []}"#).is_err());
    }

    #[test]
    fn values_are_found_by_their_keys() {
        let map: TextMap = serde_json::from_str(r#"{"ray.io/a": "1", "ray.io/ab": "2", "1": "x"}"#).unwrap();
        assert_eq!((map.get("ray.io/a"), map.get("ray.io/ab")), (Some("1"), Some("2")));
        assert_eq!((map.get("ray.io"), map.get("x"), map.get("")), (None, None, None));
    }

    #[test]
    fn equal_maps_are_shared() {
        let read = |text: &str| serde_json::from_str::<TextMap>(text).unwrap().0;
        let (one, equal, other) = (read(r#"{"a": "1"}"#), read(r#"{"a": "1"}"#), read(r#"{"a1": ""}"#));
        assert!(Arc::ptr_eq(one.as_ref().unwrap(), equal.as_ref().unwrap()));
        assert!(one != other && read("{}").is_none());
        for number in 0..SLOTS * 8 {
            let text = format!(r#"{{"a": "{number}"}}"#);
            assert_eq!(&*read(&text).unwrap().text, format!("a{number}"), "maps in one slot are told apart");
        }
    }

    #[test]
    fn unwanted_keys_take_no_memory() {
        let mut input = serde_json::Deserializer::from_str(r#"{"a": "1", "b": {"any": [1]}, "c": "3"}"#);
        let map = TextMap::read(&mut input, |key| key != "b").unwrap();
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", "1"), ("c", "3")]);
        assert_eq!(&*map.0.unwrap().text, "a1c3");
    }
}
