//! Connection strings without their passwords, for messages.
//!
//! Invariants
//! - Only parts that were parsed are shown. If a text may be a connection string but is not valid, its password may be
//!   anywhere, so none of it is shown.
//! - A value is shown only if its key is one of libpq's and its name does not contain "password".
//! - A path, and a text that cannot hold a password, is shown unchanged.
//!
//! Leaves to others: parsing a string in order to connect (`options.rs`), and the list of keys.

use super::options::is_key;
use super::text::is_url;

const MASK: &str = "***";

/// The text to show for a source in the configuration: without the value of any key whose name contains "password",
/// and without anything that cannot be parsed. A path is shown unchanged.
pub fn without_password(text: &str) -> String {
    let is_path = ["sqlite:", "files:", "/", "./", "../"]
        .iter()
        .any(|begin| text.starts_with(begin));
    let word = text.trim();
    if is_path {
        text.to_owned()
    } else if is_url(word) {
        url(word)
    } else if !may_hold_password(word) {
        text.to_owned()
    } else if !word.contains("://") && word.contains('=') {
        pairs(word)
    } else {
        MASK.to_owned()
    }
}

fn may_hold_password(word: &str) -> bool {
    let begin = word.get(.."postgres".len()).unwrap_or("");
    word.contains('=')
        || word.contains("://")
        || word
            .rsplit_once('@')
            .is_some_and(|(login, _)| login.contains(':'))
        || begin.eq_ignore_ascii_case("postgres") && word.contains(':')
}

/// `scheme://user:password@host/database?key=value&...`
fn url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority);
    // The password contains an unescaped / or ?, so it ends after what looks like the host name.
    if path.contains('@') {
        return format!("{scheme}://{MASK}");
    }
    let (place, query) = match path.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (path, None),
    };
    let login = authority.rsplit_once('@');
    let masked = login.and_then(|(login, host)| Some((login.split_once(':')?.0, host)));
    let mut shown = match masked {
        Some((user, host)) => format!("{scheme}://{user}:{MASK}@{host}{place}"),
        None => format!("{scheme}://{authority}{place}"),
    };
    for (i, pair) in query.iter().flat_map(|q| q.split('&')).enumerate() {
        shown.push(if i == 0 { '?' } else { '&' });
        shown += &match pair.split_once('=') {
            Some((key, _)) => shown_pair(key, pair),
            None => MASK.into(),
        };
    }
    shown
}

/// A pair whose key is not libpq's may be a misspelt password key, or the rest of a password.
fn shown_pair(key: &str, pair: &str) -> String {
    match (key.contains("password"), is_key(key)) {
        (false, true) => pair.to_owned(),
        (true, true) => format!("{key}={MASK}"),
        (_, false) => MASK.to_owned(),
    }
}

/// `key = value` pairs as libpq reads them: values may be quoted, and a backslash escapes the next character.
fn pairs(text: &str) -> String {
    let mut shown = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let after = after.trim_start();
        let quoted = after.starts_with('\'');
        let mut escaped = false;
        let end = after
            .char_indices()
            .skip(usize::from(quoted))
            .find(|(_, c)| {
                let ends = !escaped
                    && if quoted {
                        *c == '\''
                    } else {
                        c.is_whitespace()
                    };
                escaped = !escaped && *c == '\\';
                ends
            });
        let end = end.map_or(after.len(), |(at, _)| at + usize::from(quoted));
        let pair = rest[..rest.len() - after.len() + end].trim();
        shown.push(shown_pair(key.trim(), pair));
        rest = &after[end..];
    }
    if !rest.trim().is_empty() {
        shown.push(MASK.into());
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("postgres://u:secret@h/d", "postgres://u:***@h/d"),
            ("postgres://u:a@b@h:5432", "postgres://u:***@h:5432"),
            (" postgres://u:secret@h", "postgres://u:***@h"),
            (
                "postgres://u@h/d?password=x&port=1",
                "postgres://u@h/d?password=***&port=1",
            ),
            ("host=h password='a b' user=u", "host=h password=*** user=u"),
            ("host=h password=x", "host=h password=***"),
            (r"password = 'a\'b' host = h", "password=*** host = h"),
            ("sslpassword=x password=y", "sslpassword=*** password=***"),
            (r"password=a\ b user=u", "password=*** user=u"),
            ("password='a b", "password=***"),
            ("sqlite:/srv/a@b:c.db", "sqlite:/srv/a@b:c.db"),
            ("/srv/a=b://c:d@e", "/srv/a=b://c:d@e"),
            ("postgres:///d?host=/run", "postgres:///d?host=/run"),
            ("app.db", "app.db"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn unparsable_strings_are_not_shown() {
        for text in [
            "postgres://u:sec/ret@h:5432/d",
            "postgres://u:sec?ret@h:5432/d",
            "postgres://h/d?pass%77ord=secret",
            "postgres://h/d?secret",
            "postgres://h/d?pasword=secret",
            "postgres://u@h:1/d?password=x@secret",
            "postgresql//u:secret@h:5432/d",
            "POSTGRES://u:secret@h",
            "postgres:u:secret@h",
            "postgres:secret",
            "mysql://u:secret@h",
            "u:secret@h",
            "host=db pasword=secret",
            "pasword=secret",
            "host=db password=a secret",
            "host=db password=a secret user=u",
            "host=db password=a secret=b user=u",
            "sslpassword=secret host=db",
        ] {
            let shown = without_password(text);
            assert!(!shown.contains("sec") && !shown.contains("ret"), "{shown}");
            assert!(shown.contains(MASK), "{shown}");
        }
    }
}
