//! Random values and requests, reproducible from a seed.

use manta_apiserver::clock::Clock;
use serde_json::{Value, json};

/// A source of choices.
pub(crate) struct Dice(Clock);

/// Text that has broken parsers, keys and paths before.
const TEXTS: &[&str] = &[
    "",
    "a",
    "-1",
    "null",
    "a\u{0}b",
    "../../etc",
    "\u{202e}\u{fffd}",
    "é",
    "\"",
    "1e400",
    "0x10",
    "a/b",
    "%00",
    "A_B.",
];

const NUMBERS: &[i64] = &[0, 1, -1, 255, 65_536, i32::MAX as i64, i32::MIN as i64, i64::MAX, i64::MIN];

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(Clock::new(|| jiff::Timestamp::UNIX_EPOCH, seed))
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&self, end: usize) -> usize {
        (self.0.next() % end.max(1) as u64) as usize
    }

    /// Returns true once in `in_how_many` times.
    pub(crate) fn once_in(&self, in_how_many: usize) -> bool {
        self.below(in_how_many) == 0
    }

    pub(crate) fn pick<'a, T>(&self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Returns a value of any type.
    pub(crate) fn value(&self) -> Value {
        match self.below(12) {
            0 => Value::Null,
            1 => json!(self.once_in(2)),
            2 | 3 => json!(self.pick(NUMBERS)),
            4 => json!(-0.0),
            5 => json!(1e308),
            6 | 7 => json!(self.pick(TEXTS)),
            8 => json!("x".repeat(self.below(2000))),
            9 => json!([self.value()]),
            10 => json!({*self.pick(TEXTS): self.value()}),
            // Around the deepest nesting that is stored, which is 120.
            _ => (0..self.below(140)).fold(json!({}), |inner, _| json!({"x": inner})),
        }
    }

    /// Changes a value in one place: replaces, removes or adds something.
    pub(crate) fn mutate(&self, value: &mut Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() && !self.once_in(6) => {
                let key = fields.keys().nth(self.below(fields.len())).cloned().unwrap_or_default();
                match self.below(6) {
                    0 => drop(fields.remove(&key)),
                    1 => drop(fields.insert((*self.pick(TEXTS)).to_owned(), self.value())),
                    _ => {
                        if let Some(inner) = fields.get_mut(&key) {
                            self.mutate(inner);
                        }
                    }
                }
            }
            Value::Array(items) if !items.is_empty() && !self.once_in(6) => {
                let index = self.below(items.len());
                match self.below(5) {
                    0 => drop(items.remove(index)),
                    1 => items.push(items[index].clone()),
                    _ => self.mutate(&mut items[index]),
                }
            }
            other => *other = self.value(),
        }
    }

    /// Returns the text of a value with a few bytes changed: seldom valid JSON, sometimes not even UTF-8.
    pub(crate) fn damage(&self, value: &Value) -> Vec<u8> {
        let mut bytes = value.to_string().into_bytes();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.below(256) as u8),
                2 => bytes.extend_from_within(at..),
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = self.below(256) as u8;
                    }
                }
            }
        }
        bytes
    }
}
