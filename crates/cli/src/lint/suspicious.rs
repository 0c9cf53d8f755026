//! Text that YAML accepts but that is probably unintended: curly quotes and template expressions.

use super::Report;
use super::yaml::Node;

const CURLY: [char; 6] = ['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}', '\u{201a}'];

/// What begins an expression of a Helm template.
const EXPRESSIONS: [&str; 12] =
    [".", "$", "include ", "template ", "tpl ", "toYaml ", "if ", "else", "end", "range ", "with ", "required "];

/// Reports suspicious keys and values of an object.
pub(crate) fn check(root: &Node, report: &mut Report<'_>) {
    visit(root, &mut String::new(), &mut |line, path, problem| report.warning(line, path, problem));
}

/// Passes the suspicious keys and values below a path on, with their lines and paths.
pub(crate) fn visit(node: &Node, path: &mut String, found: &mut dyn FnMut(usize, &str, &str)) {
    let length = path.len();
    for entry in node.entries() {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(&entry.key);
        if let Some(problem) = about(&entry.key, false) {
            found(entry.line, path, &problem);
        }
        visit(&entry.value, path, found);
        path.truncate(length);
    }
    for (index, item) in node.items().enumerate() {
        path.push_str(&format!("[{index}]"));
        visit(item, path, found);
        path.truncate(length);
    }
    // A block of text may be a program, where both are usual.
    let Some(text) = node.as_str().filter(|_| !node.is_block()) else { return };
    if let Some(problem) = about(text, is_command(path)) {
        found(node.line, path, &problem);
    }
}

fn is_command(path: &str) -> bool {
    path.ends_with("entrypoint") || path.contains(".command[") || path.contains(".args[")
}

/// Returns what is suspicious about a text; a shell takes curly quotes anywhere in a command literally.
fn about(text: &str, is_command: bool) -> Option<String> {
    let curly = text.chars().find(|c| CURLY.contains(c));
    let quoted = text.starts_with(CURLY) || text.ends_with(CURLY) || is_command;
    if let Some(curly) = curly.filter(|_| quoted) {
        return Some(format!("contains the curly quote {curly}, which is an ordinary character; use \" or '"));
    }
    is_template(text).then(|| TEMPLATE.to_owned())
}

/// What to do with the template of a manifest.
pub(crate) const TEMPLATE: &str = "contains a template expression; render it first, for example with helm template";

/// Returns whether a text contains an expression of a Helm template.
pub(crate) fn is_template(text: &str) -> bool {
    text.split("{{").skip(1).any(|after| {
        let inside = after.trim_start_matches('-').trim_start();
        after.contains("}}") && EXPRESSIONS.iter().any(|start| inside.starts_with(start))
    })
}
