//! Links in proxied pages: those to the root of the pod lead below the path of the proxy.

/// Attributes that hold links.
const ATTRIBUTES: &[&str] = &["href", "src", "action", "cite", "data", "formaction", "poster"];

/// Puts `prefix` before every link that begins with one slash.
pub(super) fn rewrite_links(page: &str, prefix: &str) -> String {
    let mut out = String::with_capacity(page.len() + 64);
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let (text, tag) = rest.split_at(start);
        out.push_str(text);
        let end = tag.find('>').map_or(tag.len(), |end| end + 1);
        rewrite_tag(&tag[..end], prefix, &mut out);
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}

fn rewrite_tag(tag: &str, prefix: &str, out: &mut String) {
    let mut rest = tag;
    while let Some(equals) = rest.find('=') {
        let (before, after) = rest.split_at(equals + 1);
        out.push_str(before);
        let name = before[..equals].rsplit(char::is_whitespace).next().unwrap_or_default();
        let value = after.trim_start_matches(['"', '\'']);
        let quote = &after[..after.len() - value.len()];
        out.push_str(quote);
        let is_link = ATTRIBUTES.iter().any(|known| known.eq_ignore_ascii_case(name));
        if is_link && quote.len() == 1 && value.starts_with('/') && !value.starts_with("//") {
            out.push_str(prefix);
        }
        // What follows the value is looked at again: it may hold further attributes.
        let end = quote.chars().next().and_then(|quote| value.find(quote)).unwrap_or(0);
        out.push_str(&value[..end]);
        rest = &value[end..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_the_root_lead_below_the_proxy() {
        let check = |page: &str, expect: &str| assert_eq!(rewrite_links(page, "/p/proxy"), expect);
        check(r#"<a href="/x">test</a>"#, r#"<a href="/p/proxy/x">test</a>"#);
        check(r#"<img alt="a=/b" src='/i.png'/>"#, r#"<img alt="a=/b" src='/p/proxy/i.png'/>"#);
        check(r#"<a href="x"><a HREF="//h/x"> href="/text""#, r#"<a href="x"><a HREF="//h/x"> href="/text""#);
        check(r#"<a href="/a" data-src="/b" "#, r#"<a href="/p/proxy/a" data-src="/b" "#);
        check("no markup, 1 < 2 = /x", "no markup, 1 < 2 = /x");
        check("", "");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(page in r#"[<>="'/ hrefé]{0,60}"#) {
            let _ = rewrite_links(&page, "/p");
        }
    }
}
