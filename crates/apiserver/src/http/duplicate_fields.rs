//! Bodies that remember which fields an object had twice: the last of them wins, and the client hears of it.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

/// Parses JSON; returns the value and what strict decoding says about repeated fields.
pub(super) fn parse_json(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let found = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Seed::<String>::new(&Path::Root, &found).deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, found.into_inner()))
}

/// Parses YAML; returns the value and what strict decoding says about repeated fields.
pub(super) fn parse_yaml(text: &str) -> Result<(Value, Vec<String>), serde_saphyr::Error> {
    let error = match serde_saphyr::from_str(text) {
        Ok(value) => return Ok((value, Vec::new())),
        Err(error) => error,
    };
    let found = RefCell::new(Vec::new());
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let value = serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| {
        Seed::<Spanned<String>>::new(&Path::Root, &found).deserialize(reader)
    });
    match (value, found.into_inner()) {
        (Ok(value), found) if !found.is_empty() => Ok((value, found)),
        _ => Err(error),
    }
}

/// The name of a field as a parser reads it.
trait Key<'de>: Deserialize<'de> {
    fn name(&self) -> &str;

    /// Returns what strict decoding says about a second field of this name, at this path.
    fn repeated(&self, path: &Path<'_>) -> String;
}

impl Key<'_> for String {
    fn name(&self) -> &str {
        self
    }

    fn repeated(&self, path: &Path<'_>) -> String {
        format!("duplicate field \"{}\"", path.show())
    }
}

impl Key<'_> for Spanned<String> {
    fn name(&self) -> &str {
        &self.value
    }

    fn repeated(&self, _: &Path<'_>) -> String {
        format!("line {}: key {:?} already set in map", self.referenced.line(), self.value)
    }
}

/// The way to a value; it is only written out when a duplicate is found.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn show(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Field(Path::Root, name) => (*name).to_owned(),
            Path::Field(parent, name) => format!("{}.{name}", parent.show()),
            Path::Index(parent, index) => format!("{}[{index}]", parent.show()),
        }
    }
}

struct Seed<'a, K> {
    path: &'a Path<'a>,
    found: &'a RefCell<Vec<String>>,
    key: PhantomData<K>,
}

impl<'a, K> Seed<'a, K> {
    fn new(path: &'a Path<'a>, found: &'a RefCell<Vec<String>>) -> Seed<'a, K> {
        Seed { path, found, key: PhantomData }
    }
}

impl<'de, K: Key<'de>> DeserializeSeed<'de> for Seed<'_, K> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Key<'de>> Visitor<'de> for Seed<'_, K> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a JSON number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path::Index(self.path, list.len());
            match items.next_element_seed(Seed::<K>::new(&path, self.found))? {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<K>()? {
            let path = Path::Field(self.path, key.name());
            let value = fields.next_value_seed(Seed::<K>::new(&path, self.found))?;
            if map.contains_key(key.name()) {
                self.found.borrow_mut().push(key.repeated(&path));
            }
            map.insert(key.name().to_owned(), value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeated_fields_are_named_and_the_last_wins() {
        let check = |text: &str, value: Value, duplicates: &[&str]| {
            let (parsed, found) = parse_json(text.as_bytes()).expect("valid");
            let expect = duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect::<Vec<_>>();
            assert_eq!((parsed, found), (value, expect));
        };
        check(r#"{"a": 1, "b": [true, null, "x", 1.5, -2]}"#, json!({"a": 1, "b": [true, null, "x", 1.5, -2]}), &[]);
        check(r#"{"a": 1, "a": 2}"#, json!({"a": 2}), &["a"]);
        check(r#"{"s": {"l": [{"n": 1, "n": 2}]}}"#, json!({"s": {"l": [{"n": 2}]}}), &["s.l[0].n"]);
        assert!(parse_json(b"{\"a\": 1} x").is_err());
    }

    #[test]
    fn repeated_keys_of_yaml_are_named_by_their_line() {
        let text = "\na: x\nb:\n- c: 1\n  d: null\n  c: 2\n";
        let (parsed, found) = parse_yaml(text).expect("valid");
        assert_eq!(parsed, json!({"a": "x", "b": [{"c": 2, "d": null}]}));
        assert_eq!(found, ["line 6: key \"c\" already set in map"]);
        assert!(parse_yaml("a: [").is_err());
    }
}
