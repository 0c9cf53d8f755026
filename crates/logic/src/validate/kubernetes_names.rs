//! The rules of Kubernetes for names, label keys and label values, with its messages.

/// The maximum lengths of labels and of subdomains.
const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

/// Returns the problems of a DNS-1035 label, such as the name of a Service.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = too_long(text, LABEL_MAX);
    if !is_dns_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        problems.push(explain(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            &["my-name", "abc-123"],
            "[a-z]([-a-z0-9]*[a-z0-9])?",
        ));
    }
    problems
}

/// Returns the problems of a DNS-1123 label, such as the name of a namespace.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut problems = too_long(text, LABEL_MAX);
    if text.contains('.') && is_subdomain(text) {
        problems.push("must not contain dots".to_owned());
    } else if !is_dns_label(text) {
        problems.push(explain(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character",
            &["my-name", "123-abc"],
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        ));
    }
    problems
}

/// Returns the problems of a label key: a name, or a DNS subdomain, a slash and a name.
pub fn label_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            problems.extend(label_prefix(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            name
        }
        _ => {
            let form = label_name_form();
            return vec![format!(
                "a valid label key {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        problems.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_label_name(name) {
        problems.push(format!("name part {}", label_name_form()));
    }
    problems
}

/// Returns the problems of a label value, which may be empty.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_MAX {
        problems.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !value.is_empty() && !is_label_name(value) {
        problems.push(explain(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            &["MyValue", "my_value", "12345"],
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        ));
    }
    problems
}

fn label_prefix(prefix: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if prefix.is_empty() {
        return vec!["must be non-empty".to_owned()];
    }
    if prefix.len() > SUBDOMAIN_MAX {
        problems.push(format!("must be no more than {SUBDOMAIN_MAX} bytes"));
    }
    if !is_subdomain(prefix) {
        problems.push(explain(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &["example.com"],
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        ));
    }
    problems
}

fn label_name_form() -> String {
    explain(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
         character",
        &["MyName", "my.name", "123-abc"],
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    )
}

/// Returns the problem of a DNS label that is too long; other messages count bytes instead of characters.
fn too_long(text: &str, max: usize) -> Vec<String> {
    if text.len() > max { vec![format!("must be no more than {max} characters")] } else { Vec::new() }
}

/// Returns the message with a rule, examples and a regular expression.
fn explain(rule: &str, examples: &[&str], regex: &str) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(|b| alphanumeric(&b) || b == b'-')
        && text.as_bytes().first().is_some_and(alphanumeric)
        && text.as_bytes().last().is_some_and(alphanumeric)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_label_name(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && text.as_bytes().last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DNS1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
         alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
         validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    const DNS1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
         must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation \
         is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
         end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
         and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
         used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

    #[test]
    fn problems_are_those_of_kubernetes() {
        let long = "a".repeat(64);
        let check =
            |find: fn(&str) -> Vec<String>, text: &str, expect: &[&str]| assert_eq!(find(text), expect, "{text:?}");
        check(dns1035_label, "a-1", &[]);
        check(dns1035_label, "1a", &[DNS1035]);
        check(dns1035_label, "a.b", &[DNS1035]);
        check(dns1035_label, "a-", &[DNS1035]);
        check(dns1035_label, "", &[DNS1035]);
        check(dns1035_label, &long, &["must be no more than 63 characters"]);
        check(dns1123_label, "1a", &[]);
        check(dns1123_label, "a.b", &["must not contain dots"]);
        check(dns1123_label, "A", &[DNS1123]);
        check(dns1123_label, "", &[DNS1123]);
        check(dns1123_label, &long, &["must be no more than 63 characters"]);
        check(label_key, "ray.io/Market_type", &[]);
        check(label_key, "", &["name part must be non-empty", NAME_PART]);
        check(label_key, "-a", &[NAME_PART]);
        check(label_key, "/a", &["prefix part must be non-empty"]);
        check(label_key, &long, &["name part must be no more than 63 bytes"]);
        check(label_value, "", &[]);
        check(label_value, "a b", &[VALUE]);
        check(label_value, &long, &["must be no more than 63 bytes"]);
        assert!(label_key("A/b")[0].starts_with("prefix part a lowercase RFC 1123 subdomain must consist of"));
        assert!(label_key("a/b/c")[0].starts_with("a valid label key must consist of"));
    }
}
