//! The rules that a spec must keep beyond its schema. One file per kind.
