//! The address of an object, as an operator writes it.
//!
//! Invariants
//! - A text that begins like an address is never taken for a file's name, even if this version speaks to no such store.
//! - The scheme is kept in lower case, so that one object at one server of the configuration has one spelling.
//! - An address of a server that the configuration names (`s3+NAME://`) says so in its text: in a history, a message or a
//!   server's `restore_command` it means the server of that name. Which one that is says the configuration of the process
//!   that reads the text.
//! - An address that begins with a server itself (`s3://HOST:PORT/BUCKET/KEY`) is one only together with the key for it. Its
//!   text alone, of a history or a message, is no argument: a command takes it for a bucket of the name HOST:PORT.
//! - Until [`Address::parts`] has checked bucket and key, an address may be malformed.
//!
//! Leaves to others: settings and connections (`settings.rs`, `store.rs`).

use std::fmt;
use std::sync::Arc;

use longshore_io::Storage;
use object_store::path::Path;

use crate::access::Access;
use crate::scheme::{Scheme, begins};
use crate::server_url::ServerUrl;
use crate::settings::Settings;
use crate::{Error, servers};

/// How an address begins that this version does not speak to. It is no file's name either.
const OTHERS: [&str; 2] = ["http://", "https://"];

/// `s3://BUCKET/KEY`, `az://CONTAINER/KEY` or `gs://BUCKET/KEY`; at a server of the configuration `s3+NAME://BUCKET/KEY`.
/// Any text that begins like an address is one; whether it is well formed is said when it is used.
#[derive(Clone)]
pub struct Address {
    text: String,
    /// Of an address that names its server itself.
    given: Option<Arc<Given>>,
    /// The size of a part of an upload, where it is not the usual one.
    part_bytes: Option<u64>,
}

/// An object at the server that its address names, and the key for it.
pub(crate) struct Given {
    pub url: ServerUrl,
    pub key: Path,
    pub access: Arc<Access>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Address({:?})", self.text)
    }
}

/// One text is one object, whatever key it is read with.
impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        self.text == other.text
    }
}

impl Eq for Address {}

impl std::hash::Hash for Address {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Address {
    fn plain(text: String) -> Address {
        Address {
            text,
            given: None,
            part_bytes: None,
        }
    }

    /// The object of this address, which is read and written with this key.
    ///
    /// Errors: [`Error::Address`].
    pub fn given(url: ServerUrl, access: &Arc<Access>) -> Result<Address, Error> {
        let text = url.text();
        let named = match url.ends_at_slash() {
            true => key(""),
            false => key(url.key()),
        };
        let named = named.and_then(|key| fit(url.scheme(), key));
        let key = named.map_err(|why| Error::Address {
            text: without_signature(&text).to_owned(),
            why,
        })?;
        let access = access.clone();
        Ok(Address {
            text,
            given: Some(Arc::new(Given { url, key, access })),
            part_bytes: None,
        })
    }

    /// `None` if `text` is no address of an object.
    pub fn of(text: &str) -> Option<Address> {
        // One object has one spelling: devices are compared by it.
        if let Some((scheme, server, rest)) = Scheme::split(text) {
            return Some(Address::plain(format!(
                "{}{rest}",
                beginning(scheme, server)
            )));
        }
        OTHERS
            .into_iter()
            .find(|prefix| begins(text, prefix))
            .map(|prefix| Address::plain(format!("{prefix}{}", &text[prefix.len()..])))
    }

    /// The same bucket and key at a server of the configuration. An address that names one already stays as it is.
    #[must_use]
    pub fn at_server(&self, name: &str) -> Address {
        match Scheme::split(&self.text) {
            Some((scheme, None, rest)) => {
                Address::plain(format!("{}{rest}", beginning(scheme, Some(name))))
            }
            _ => self.clone(),
        }
    }

    /// The name of the server in the configuration; `None`: the one of the environment.
    pub fn server(&self) -> Option<&str> {
        Scheme::split(&self.text).and_then(|split| split.1)
    }

    /// The same object, which is sent in parts of this size.
    #[must_use]
    pub fn in_parts_of(self, bytes: u64) -> Address {
        Address {
            part_bytes: Some(bytes),
            ..self
        }
    }

    /// The size of its parts, where it is not the usual one.
    pub fn part_bytes(&self) -> Option<u64> {
        self.part_bytes
    }

    /// The server that the address itself names, with bucket and key, and the key for it.
    pub fn with_its_key(&self) -> Option<(&ServerUrl, &Arc<Access>)> {
        self.given
            .as_deref()
            .map(|given| (&given.url, &given.access))
    }

    /// The region of this address's server, in its settings; empty where there is none.
    ///
    /// Errors: those of [`Address::parts`], [`Error::NoServer`], [`Error::Settings`].
    pub fn region(&self, storage: &dyn Storage) -> Result<String, Error> {
        let (scheme, bucket, _) = self.parts()?;
        let settings = match (self.with_its_key(), self.server()) {
            (Some((url, access)), _) => access.settings(url, storage)?,
            (None, Some(name)) => servers::settings(scheme, name, bucket, storage)?,
            (None, None) => Settings::of_environment(scheme, bucket, storage)?,
        };
        Ok(settings.region().to_owned())
    }

    pub(crate) fn of_server(&self) -> Option<&Given> {
        self.given.as_deref()
    }

    /// Store, bucket and key. Errors: [`Error::Address`].
    pub fn parts(&self) -> Result<(Scheme, &str, Path), Error> {
        if let Some(given) = &self.given {
            return Ok((given.url.scheme(), given.url.bucket(), given.key.clone()));
        }
        let shown = without_signature(&self.text);
        let wrong = |why| Error::Address {
            text: shown.to_owned(),
            why,
        };
        if shown.len() < self.text.len() {
            return Err(wrong(
                "a signature follows the ?, and would be a part of the object's name: give it in the environment or a `credentials_file`",
            ));
        }
        let Some((scheme, server, rest)) = Scheme::split(&self.text) else {
            return Err(wrong("only s3://, az:// and gs:// addresses are supported"));
        };
        if server.is_some_and(|name| !is_server_name(name)) {
            return Err(wrong(
                "a server's name has up to 64 letters, digits, hyphens, underscores and dots",
            ));
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        scheme.check(bucket).map_err(wrong)?;
        let path = self::key(key).and_then(|key| fit(scheme, key));
        Ok((scheme, bucket, path.map_err(wrong)?))
    }
}

/// The text up to the query of an address that somebody signed, as portals give it to be copied.
fn without_signature(text: &str) -> &str {
    const SIGNED: [&str; 4] = ["sig=", "Signature=", "Credential=", "X-Amz-"];
    match text.split_once('?') {
        Some((address, query)) if SIGNED.iter().any(|sign| query.contains(sign)) => address,
        _ => text,
    }
}

/// Errors: this store would give the object another name.
fn fit(scheme: Scheme, key: Path) -> Result<Path, &'static str> {
    let dots = |part: &str| part.ends_with('.');
    match scheme {
        Scheme::Azure if key.as_ref().contains('\\') => {
            Err("Azure takes a backslash for /, so nobody would find the object again")
        }
        Scheme::Azure if key.as_ref().split('/').any(dots) => {
            Err("Azure does not keep a dot at the end of a name's part")
        }
        _ => Ok(key),
    }
}

/// The key of an object. Errors: why it is none.
pub(crate) fn key(key: &str) -> Result<Path, &'static str> {
    if key.is_empty() || key.ends_with('/') {
        return Err("it names no object in the bucket");
    }
    // All of them take 1,024 bytes.
    if key.len() > 1024 || key.chars().any(char::is_control) {
        return Err("a key has at most 1,024 bytes and no control characters");
    }
    match Path::parse(key) {
        // It drops a slash at the start.
        Ok(path) if path.as_ref() == key => Ok(path),
        _ => Err("a key has no empty part, no . and no .. in it"),
    }
}

/// How addresses at a server begin.
pub(crate) fn beginning(scheme: Scheme, server: Option<&str>) -> String {
    match server {
        None => scheme.prefix().to_owned(),
        Some(name) => scheme.prefix().replacen("://", &format!("+{name}://"), 1),
    }
}

/// Whether a target of this name can have a server of its own: its name is a part of addresses.
pub fn is_server_name(name: &str) -> bool {
    let is_sign = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len()) && name.chars().all(is_sign)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bucket_and_a_key() {
        let address = Address::of("s3://my-bucket/nightly/a b+ü.bak").unwrap();
        let (scheme, bucket, key) = address.parts().unwrap();
        assert_eq!((bucket, key.as_ref()), ("my-bucket", "nightly/a b+ü.bak"));
        assert_eq!(scheme, Scheme::S3);
        for (text, scheme) in [
            ("AZ://abc/k", Scheme::Azure),
            ("gs://a_b.c/k", Scheme::Google),
        ] {
            assert_eq!(Address::of(text).unwrap().parts().unwrap().0, scheme);
        }
        assert_eq!(Address::of("S3://abc/k"), Address::of("s3://abc/k"));
        assert_ne!(Address::of("s3://abc/K"), Address::of("s3://abc/k"));
    }

    #[test]
    fn a_name_that_the_store_would_change_and_a_signed_address_are_refused() {
        let refused = |text: &str| {
            let refused = Address::of(text).unwrap().parts().unwrap_err();
            refused.to_string()
        };
        for text in ["az://abc/a\\b", "az://abc/a./b", "az://abc/b."] {
            assert!(refused(text).contains("Azure"), "{text}");
            assert!(
                Address::of(&text.replace("az:", "s3:"))
                    .unwrap()
                    .parts()
                    .is_ok()
            );
        }
        for text in [
            "az://abc/x.bak?sv=1&sig=SECRET",
            "s3://abc/x.bak?X-Amz-Signature=SECRET",
            "https://account.blob.core.windows.net/abc/x.bak?sig=SECRET",
        ] {
            let refused = refused(text);
            assert!(
                !refused.contains("SECRET") && refused.contains("x.bak"),
                "{refused}"
            );
        }
        assert!(Address::of("s3://abc/what?.bak").unwrap().parts().is_ok());
    }

    #[test]
    fn an_address_can_name_a_server_of_the_configuration() {
        let named = Address::of("S3+Off-site://my-bucket/a").unwrap();
        assert_eq!(named.to_string(), "s3+Off-site://my-bucket/a");
        let (scheme, bucket, key) = named.parts().unwrap();
        assert_eq!(
            (scheme, bucket, key.as_ref()),
            (Scheme::S3, "my-bucket", "a")
        );
        assert_eq!(named.server(), Some("Off-site"));
        let plain = Address::of("s3://my-bucket/a").unwrap();
        assert_eq!(plain.server(), None);
        assert_eq!(plain.at_server("Off-site"), named);
        assert_eq!(named.at_server("other"), named);
        for wrong in [
            "s3+://abc/k",
            "az+a b://abc/k",
            "gs+a@b://abc/k",
            "s3+ü://abc/k",
        ] {
            assert!(Address::of(wrong).unwrap().parts().is_err(), "{wrong}");
        }
        assert_eq!(Address::of("s3+a/b://abc/k"), None);
        assert_eq!(Address::of("s3+abc"), None);
    }

    #[test]
    fn a_path_is_no_address_and_a_wrong_address_is_no_path() {
        for path in [
            "",
            "s3",
            "s3:/x",
            "/s3://a",
            "x/s3://abc/k",
            "file:s3://abc/k",
            "ü3://",
        ] {
            assert_eq!(Address::of(path), None, "{path}");
        }
        for wrong in [
            "s3://",
            "s3://abc",
            "s3://abc/",
            "s3://abc/dir/",
            "s3:///key",
            "s3://Abc/key",
            "s3://ab/key",
            "s3://a_bc/key",
            "s3://abc//key",
            "s3://abc/a/../b",
            "s3://user:secret@abc/key",
            "s3://abc/a\nb",
            "az://a.bc/key",
            "az://a--bc/key",
            "gs://a_/key",
            "gs://abc/",
            "https://abc/key",
        ] {
            let address = Address::of(wrong).unwrap();
            assert!(
                matches!(address.parts(), Err(Error::Address { .. })),
                "{wrong}"
            );
        }
    }
}
