//! The forms that Go gives to values: durations, quoted strings, JSON.
