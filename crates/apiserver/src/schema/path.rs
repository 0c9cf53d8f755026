//! Where in an object we are, without allocating until someone must be told.

use std::fmt::Write;

/// A path as a list of steps on the stack, innermost first.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// `spec.labels[app]`: the way field errors name a place, `<nil>` at the root.
    pub(crate) fn show(&self) -> String {
        if matches!(self, Self::Root) {
            return "<nil>".to_owned();
        }
        let mut out = String::new();
        self.write(&mut out, true);
        out
    }

    /// `spec.labels.app`: the way schema errors and strict decoding name a place, empty at the root.
    pub(crate) fn show_dotted(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, false);
        out
    }

    fn write(&self, out: &mut String, bracket_keys: bool) {
        match self {
            Self::Root => {}
            Self::Key(parent, key) if bracket_keys => {
                parent.write(out, bracket_keys);
                let _ = write!(out, "[{key}]");
            }
            Self::Field(parent, name) | Self::Key(parent, name) => {
                parent.write(out, bracket_keys);
                if !matches!(parent, Self::Root) {
                    out.push('.');
                }
                out.push_str(name);
            }
            Self::Index(parent, index) => {
                parent.write(out, bracket_keys);
                let _ = write!(out, "[{index}]");
            }
        }
    }
}
