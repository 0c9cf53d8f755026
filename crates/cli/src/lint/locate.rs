//! Finds the line of a field from its path.

use super::yaml::Node;

/// Returns the line of a field, or of its closest existing parent.
pub(crate) fn locate(root: &Node, path: &str) -> usize {
    find(root, path).0
}

/// Returns the line of a field and its value; without a value, the line is that of its closest existing parent.
pub(crate) fn find<'a>(root: &'a Node, path: &str) -> (usize, Option<&'a Node>) {
    let mut node = root;
    let mut line = root.line;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some((key, key_line, child)) = step_by_key(node, rest.trim_start_matches('.')) {
            rest = &rest[rest.len() - rest.trim_start_matches('.').len() + key..];
            line = key_line;
            node = child;
            continue;
        }
        let Some((length, child_line, child)) = step_in_brackets(node, rest) else { return (line, None) };
        rest = &rest[length..];
        line = child_line;
        node = child;
    }
    (line, Some(node))
}

/// Takes the longest key that the path continues with, because keys may contain dots and brackets.
fn step_by_key<'a>(node: &'a Node, rest: &str) -> Option<(usize, usize, &'a Node)> {
    let continues_with = |key: &str| {
        !key.is_empty() && rest.strip_prefix(key).is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
    };
    node.entries()
        .filter(|entry| continues_with(&entry.key))
        .max_by_key(|entry| entry.key.len())
        .map(|entry| (entry.key.len(), entry.line, entry.value.as_ref()))
}

/// Follows `[3]` into a list, or `[key]` into a map.
fn step_in_brackets<'a>(node: &'a Node, rest: &str) -> Option<(usize, usize, &'a Node)> {
    let inside = rest.strip_prefix('[')?;
    if let Some(entry) = node
        .entries()
        .filter(|entry| inside.strip_prefix(entry.key.as_str()).is_some_and(|after| after.starts_with(']')))
        .max_by_key(|entry| entry.key.len())
    {
        return Some((entry.key.len() + 2, entry.line, &entry.value));
    }
    let (index, _) = inside.split_once(']')?;
    let child = node.items().nth(index.parse().ok()?)?;
    Some((index.len() + 2, child.line, child))
}
