//! The status page: one file, with a policy that lets a browser run that file's own script and nothing else.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");

/// The page.
pub fn page() -> &'static str {
    PAGE
}

/// The page's content security policy. Its script and its style are allowed by their digests.
pub fn policy() -> Arc<str> {
    let digest = |tag: &str| {
        let digest = Sha256::digest(between(tag));
        format!("'sha256-{}'", STANDARD.encode(digest))
    };
    let (style, script) = (digest("style"), digest("script"));
    format!(
        "default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    .into()
}

/// The text of the page's one element of this name.
fn between(tag: &str) -> &'static str {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let inner = PAGE.split_once(&open).map_or("", |(_, rest)| rest);
    inner.split_once(&close).map_or("", |(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the policy covers all of the page: nothing in it would need `unsafe-inline`, and it asks nobody for anything
    /// but its own data.
    #[test]
    fn the_page_has_one_script_and_one_style_and_nothing_that_a_policy_would_have_to_allow() {
        let page = page();
        for tag in ["script", "style"] {
            assert_eq!(page.matches(&format!("<{tag}")).count(), 1, "{tag}");
            assert!(between(tag).len() > 1000);
        }
        for unsafe_part in [
            " style=",
            " onclick=",
            " onload=",
            " onerror=",
            "javascript:",
            "http://",
            "https://",
            "@import",
            "url(",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ] {
            let found = page
                .replace("http://www.w3.org/2000/svg", "")
                .replace("url(#", "");
            assert!(!found.contains(unsafe_part), "{unsafe_part}");
        }
        assert!(page.contains("<html lang=\"en\">") && page.contains("<noscript>"));
        assert!(page.len() < 64 << 10, "{} bytes", page.len());
    }
}
