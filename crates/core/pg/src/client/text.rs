//! Connection strings: splits `postgres://` URLs and `key=value` lists into keys and values.
//!
//! Invariants
//! - Keys and values come in the order given. An empty value in a URL is left out; one in a list is kept.
//! - An error text quotes keys, never values: a value may be a password, or the rest of one.
//!
//! Leaves to others: which keys exist and what they mean (`options.rs`), and texts for people (`shown.rs`).
//!
//! Source: PostgreSQL 18 documentation, libpq, "Connection Strings".

/// Whether a text has the form of a connection URL.
pub(super) fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// Keys and values in the order given. Error texts quote keys, never values.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let after = text
        .strip_prefix("postgresql://")
        .or_else(|| text.strip_prefix("postgres://"));
    match after {
        Some(rest) => url(rest),
        None => pairs(text),
    }
}

fn url(rest: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let mut put = |key: &str, value: &str| -> Result<(), String> {
        if !value.is_empty() {
            found.push((key.to_owned(), decode(value)?));
        }
        Ok(())
    };
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = before.split_once('/').unwrap_or((before, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (user, hosts),
        // This is more likely the rest of a password than a database name, so it must not be quoted.
        None if database.contains('@') => {
            return Err("an @ follows the first /: a / in a password is written %2F, an @ in a database's name %40".into());
        }
        None => ("", authority),
    };
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    put("user", user)?;
    put("password", password)?;
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',') {
        let (name, port) = host_and_port(host)?;
        names.push(name);
        ports.push(port);
    }
    put("host", &names.join(","))?;
    if ports.iter().any(|port| !port.is_empty()) {
        put("port", &ports.join(","))?;
    }
    put("dbname", database)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err("a parameter after ? has no =".into());
        };
        put(&decode(key)?, value)?;
    }
    Ok(found)
}

fn host_and_port(host: &str) -> Result<(&str, &str), String> {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, rest)) = rest.split_once(']') else {
            return Err("an IPv6 address lacks its ]".into());
        };
        return match rest.strip_prefix(':') {
            Some(port) => Ok((address, port)),
            None if rest.is_empty() => Ok((address, "")),
            None => Err("something follows the ] of an IPv6 address".into()),
        };
    }
    Ok(host.split_once(':').unwrap_or((host, "")))
}

fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let byte = tail
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(0) | None => return Err("a % is not followed by two hexadecimal digits".into()),
            Some(byte) => bytes.push(byte),
        }
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into())
}

fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok(found);
        }
        let mut key = String::new();
        while let Some(c) = chars.next_if(|c| *c != '=' && !c.is_whitespace()) {
            key.push(c);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next() != Some('=') || key.is_empty() {
            return Err("a key is not followed by =".into());
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let is_quoted = chars.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match chars.peek().copied() {
                Some('\'') if is_quoted => {
                    chars.next();
                    break;
                }
                None if is_quoted => return Err(format!("the quoted value of {key} has no end")),
                None => break,
                Some(c) if !is_quoted && c.is_whitespace() => break,
                Some('\\') => {
                    chars.next();
                    match chars.next() {
                        Some(c) => value.push(c),
                        None => return Err(format!("the value of {key} ends with a backslash")),
                    }
                }
                Some(c) => {
                    chars.next();
                    value.push(c);
                }
            }
        }
        found.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn urls_of_the_manual_are_taken_apart() {
        assert_eq!(of("postgresql://"), []);
        assert_eq!(
            of("postgres://other@localhost/otherdb?connect_timeout=10&application_name=my%20app"),
            owned(&[
                ("user", "other"),
                ("host", "localhost"),
                ("dbname", "otherdb"),
                ("connect_timeout", "10"),
                ("application_name", "my app"),
            ])
        );
        assert_eq!(
            of("postgresql://u:p%40%3a@host1:123,host2/db"),
            owned(&[
                ("user", "u"),
                ("password", "p@:"),
                ("host", "host1,host2"),
                ("port", "123,"),
                ("dbname", "db"),
            ])
        );
        assert_eq!(
            of("postgresql://[2001:db8::1234]:5433/"),
            owned(&[("host", "2001:db8::1234"), ("port", "5433")])
        );
        assert_eq!(
            of("postgres:///db?host=/var/lib/pg&port=1"),
            owned(&[("dbname", "db"), ("host", "/var/lib/pg"), ("port", "1")])
        );
        assert_eq!(
            of("postgres://%2Fvar%2Frun/db"),
            owned(&[("host", "/var/run"), ("dbname", "db")])
        );
    }

    #[test]
    fn pairs_may_be_quoted_and_spaced() {
        assert_eq!(
            of(r"host=localhost  port = 5432 password='a b\'c\\' user=o\'x"),
            owned(&[
                ("host", "localhost"),
                ("port", "5432"),
                ("password", r"a b'c\"),
                ("user", "o'x"),
            ])
        );
        assert_eq!(of("password=''"), owned(&[("password", "")]));
    }

    #[test]
    fn refusals_do_not_repeat_values() {
        for text in [
            "password='secret",
            "password=secret\\",
            "secret",
            "postgres://u:secret%zz@h",
            "postgres://u:1/secret@h",
            "postgres://u:%00secret@h",
            "postgres://[secret",
            "postgres://[::1]secret",
            "postgres://h/?secret",
        ] {
            let reason = parse(text).unwrap_err();
            assert!(!reason.contains("secret"), "{text}: {reason}");
        }
        assert!(parse("postgres://u@h/a@b").is_ok());
    }
}
