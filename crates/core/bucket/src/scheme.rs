//! The kinds of stores, by the beginning of their addresses.

use std::fmt;

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// S3, and stores that speak its protocol.
    S3,
    /// Azure Blob Storage, where a bucket is a container.
    Azure,
    /// Google Cloud Storage.
    Google,
}

impl Scheme {
    pub const ALL: [Scheme; 3] = [Scheme::S3, Scheme::Azure, Scheme::Google];

    /// How its addresses begin.
    pub const fn prefix(self) -> &'static str {
        match self {
            Scheme::S3 => "s3://",
            Scheme::Azure => "az://",
            Scheme::Google => "gs://",
        }
    }

    /// The kind of the store that a text names, if it begins like an address of one.
    pub fn of(text: &str) -> Option<Scheme> {
        Scheme::split(text).map(|split| split.0)
    }

    /// The kind of the store, the name of a server of the configuration (`s3+NAME://`), and the rest of an address.
    pub fn split(text: &str) -> Option<(Scheme, Option<&str>, &str)> {
        let split = |scheme: Scheme| {
            let (word, _) = scheme.prefix().split_once(':')?;
            let rest = text.get(word.len()..).filter(|_| begins(text, word))?;
            match rest.strip_prefix("://") {
                Some(rest) => Some((scheme, None, rest)),
                None => {
                    let (name, rest) = rest.strip_prefix('+')?.split_once("://")?;
                    (!name.contains('/')).then_some((scheme, Some(name), rest))
                }
            }
        };
        Scheme::ALL.into_iter().find_map(split)
    }

    /// Whether `name` may be a bucket's. Errors: what such a name has.
    pub fn check(self, name: &str) -> Result<(), &'static str> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let (is_sign, why): (fn(char) -> bool, _) = match self {
            Scheme::S3 => (
                |c| c == '.',
                "a bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens",
            ),
            Scheme::Azure => (
                |_| false,
                "a container's name has 3 to 63 lower-case letters, digits and single hyphens",
            ),
            Scheme::Google => (
                |c| c == '.' || c == '_',
                "a bucket's name has 3 to 63 lower-case letters, digits, dots, hyphens and underscores",
            ),
        };
        let ends = ['.', '-', '_'];
        let twice: &[&str] = match self {
            Scheme::Azure => &["--"],
            Scheme::S3 | Scheme::Google => &[".."],
        };
        let is_bucket = (3..=63).contains(&name.len())
            && name.chars().all(|c| is_name(c) || is_sign(c))
            && !twice.iter().any(|two| name.contains(two))
            && !name.starts_with(ends)
            && !name.ends_with(ends);
        is_bucket.then_some(()).ok_or(why)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.prefix())
    }
}

/// Whether a text begins so, in letters of any case.
pub fn begins(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len())
        .is_some_and(|t| t.eq_ignore_ascii_case(prefix))
}
