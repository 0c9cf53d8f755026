//! Improves the messages and places of syntax errors.

use super::suspicious::{TEMPLATE, is_template};
use super::{Finding, Severity};

/// Rewrites a finding of the parser that is about a tab or a template.
pub(crate) fn improve(finding: &mut Finding, text: &str) {
    let Some(at) = finding.line.checked_sub(1) else { return };
    if finding.severity == Severity::Unreadable && finding.message.contains("tab") {
        // The parser reports the line on which the value before the tab begins.
        if let Some(after) = text.lines().skip(at).position(is_indented_by_tab) {
            finding.line += after;
            finding.message = "not YAML: indented with a tab; use spaces".to_owned();
        }
        return;
    }
    let is_broken = matches!(finding.severity, Severity::Unreadable | Severity::Error);
    if is_broken && text.lines().nth(at).is_some_and(is_template) {
        finding.message = format!("{} (the line {TEMPLATE})", finding.message);
    }
}

fn is_indented_by_tab(line: &str) -> bool {
    let indent = line.len() - line.trim_start().len();
    line[..indent].contains('\t') && indent < line.len()
}
