//! Variables as the settings read them.
//!
//! Invariants
//! - A value that the client of a store could not work with is refused by the variable's name; the value itself is
//!   never repeated, because it may be a secret.
//! - An empty variable counts as none.
//! - An address of a server has no user, password, query or fragment: it would be lost, or be a secret in each message.
//! - A store's endpoint of plain http needs [`ALLOW_HTTP`].
//!
//! Leaves to others: which variable means what, and which of several goes first (`settings.rs`, `credentials.rs`,
//! `network.rs`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use longshore_io::{SmallFile, Storage};
use reqwest::Url;

/// The variable that allows plain http.
pub const ALLOW_HTTP: &str = "LONGSHORE_ALLOW_HTTP";
/// The variable for how many seconds a request is repeated.
pub const PATIENCE: &str = "LONGSHORE_STORE_PATIENCE";

/// A file's content is not larger than this.
const FILE_MAX: usize = 1 << 20;

/// The characters that a value may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Printable ASCII without spaces: keys, tokens, role names, addresses.
    Signs,
    /// Letters, digits, hyphens and underscores: a region becomes a part of a host's name.
    Word,
    /// Anything without control characters, and without spaces at its ends.
    Text,
}

/// The environment. An empty variable counts as none.
pub struct Environment<'a>(pub &'a dyn Fn(&str) -> Option<OsString>);

impl Environment<'_> {
    fn raw(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// The value. Errors: the variable's name, and what is allowed.
    pub fn get(&self, name: &str, form: Form) -> Result<Option<String>, String> {
        let Some(value) = self.raw(name) else {
            return Ok(None);
        };
        match value.into_string() {
            Ok(value) => check(name, &value, form).map(|()| Some(value)),
            Err(_) => Err(format!("{name} is not UTF-8 text")),
        }
    }

    /// The first of several variables that is set.
    pub fn first(&self, names: &[&str], form: Form) -> Result<Option<(String, String)>, String> {
        for name in names {
            if let Some(value) = self.get(name, form)? {
                return Ok(Some(((*name).to_owned(), value)));
            }
        }
        Ok(None)
    }

    /// The address of a store's server, from the first of several variables that is set. Errors: as [`check_endpoint`].
    pub fn endpoint(&self, names: &[&str], allow_http: bool) -> Result<Option<String>, String> {
        let Some((name, value)) = self.first(names, Form::Signs)? else {
            return Ok(None);
        };
        let url = check_endpoint(&name, &value, allow_http)?;
        Ok(Some(url.to_string()))
    }

    /// A path, which need not be UTF-8.
    pub fn path(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let Some(value) = self.raw(name) else {
            return Ok(None);
        };
        if let Some(text) = value.to_str() {
            check(name, text, Form::Text)?;
        }
        Ok(Some(value.into()))
    }

    pub fn home(&self, below: &str) -> Option<PathBuf> {
        let home = PathBuf::from(self.raw("HOME")?);
        home.is_absolute().then(|| home.join(below))
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }
}

/// Errors: what of the value is not allowed, without the value. `name` is the variable, or the key of a profile.
pub fn check(name: &str, value: &str, form: Form) -> Result<(), String> {
    if value.chars().any(char::is_control) {
        return Err(format!(
            "{name} has a line end or a control character in it"
        ));
    }
    if value.trim() != value {
        return Err(format!("{name} begins or ends with a space"));
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match form {
        Form::Signs if !value.chars().all(|c| c.is_ascii_graphic()) => Err(format!(
            "{name} may have printable ASCII characters only, and no spaces"
        )),
        Form::Word if value.len() > 64 || !value.chars().all(is_word) => Err(format!(
            "{name} may have 64 letters, digits, hyphens and underscores, and nothing else"
        )),
        _ => Ok(()),
    }
}

/// The address of a server: a scheme of `schemes`, a host, perhaps a port and a path, and nothing else: what else it has
/// would be lost, or would be a secret in each message.
pub fn server(name: &str, value: &str, schemes: &[&str]) -> Result<Url, String> {
    check(name, value, Form::Signs)?;
    let Some((scheme, rest)) = value.split_once("://") else {
        return Err(format!("{name} does not begin with {}://", schemes[0]));
    };
    if !schemes.contains(&scheme) {
        return Err(format!("{name} does not begin with {}://", schemes[0]));
    }
    if rest.contains('@') {
        return Err(format!("{name} must not hold a user's name or a password"));
    }
    if rest.contains(['?', '#', '\\']) {
        return Err(format!(
            "{name} must be a scheme, a host, a port and a path, without a query or a fragment"
        ));
    }
    let host = rest.split('/').next().unwrap_or_default();
    match Url::parse(value) {
        Ok(url)
            if !host.is_empty()
                && url.has_host()
                && url.port() != Some(0)
                && !host.ends_with(':') =>
        {
            Ok(url)
        }
        _ => Err(format!(
            "{name} is not an address: {}://HOST:PORT is one, with a port from 1 to 65535",
            schemes[0]
        )),
    }
}

/// A store's endpoint. Errors: also plain http where it is not allowed.
pub fn check_endpoint(name: &str, endpoint: &str, allow_http: bool) -> Result<Url, String> {
    let url = server(name, endpoint, &["https", "http"])?;
    match url.scheme() {
        "http" if !allow_http => Err(format!(
            "{name} is plain http, which everyone on the way can read and change; {ALLOW_HTTP}=1 allows it"
        )),
        _ => Ok(url),
    }
}

/// The file's content; `None` if there is no such file.
pub fn read_file(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>, String> {
    let failed = |e: std::io::Error| format!("{} cannot be read: {e}", path.display());
    let Some(name) = path.file_name() else {
        return Err(format!("{} is no file", path.display()));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match storage.dir(parent) {
        Ok(dir) => SmallFile::new(dir, name, FILE_MAX).read().map_err(failed),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_value_is_refused_by_name_and_never_repeated() {
        let refused = |value: &[u8], form| {
            let get = |_: &str| Some(OsString::from_vec(value.to_vec()));
            Environment(&get).get("NAME", form).unwrap_err()
        };
        for (value, form, word) in [
            (&b"verysecret\n"[..], Form::Text, "line end"),
            (b" verysecret", Form::Text, "space"),
            (b"very\x07secret", Form::Signs, "control"),
            (b"very secret", Form::Signs, "ASCII"),
            ("verys\u{e9}cret".as_bytes(), Form::Signs, "ASCII"),
            (b"verysecret\xff", Form::Text, "UTF-8"),
            (b"verysecret.example", Form::Word, "hyphens"),
        ] {
            let why = refused(value, form);
            assert!(why.starts_with("NAME ") && why.contains(word), "{why}");
            assert!(!why.contains("secret"), "{why}");
        }
        let get = |_: &str| Some(OsString::from_vec(b"/a\xff".to_vec()));
        assert!(Environment(&get).path("NAME").unwrap().is_some());
        assert!(
            Environment(&|_| Some("".into()))
                .get("NAME", Form::Word)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_server_is_a_scheme_a_host_a_port_and_a_path() {
        for good in [
            "https://h",
            "https://h:1/",
            "https://[::1]:9000/a/b",
            "https://minio_1.example:65535",
        ] {
            server("NAME", good, &["https"]).unwrap();
        }
        for odd in [
            "h:1",
            "https:/h",
            "https://",
            "https:///a",
            "https://:1",
            "https://h:",
            "https://h:0",
            "https://h:65536",
            "https://h:x",
            "https://h:-1",
            "https://user:verysecret@h",
            "https://h?verysecret",
            "https://h#verysecret",
            "https://h\\verysecret",
            "https://h h",
            "https://h\n",
            "https://[::1",
            "http://h",
            "ftp://h",
        ] {
            let why = server("NAME", odd, &["https"]).unwrap_err();
            assert!(
                why.starts_with("NAME ") && !why.contains("secret"),
                "{odd}: {why}"
            );
        }
    }
}
