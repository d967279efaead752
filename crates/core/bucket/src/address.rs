//! The address of an object, as an operator writes it.
//!
//! Invariants
//! - A text that begins like an address is never taken for a file's name, even if this version speaks to no such store.
//! - The scheme is kept in lower case, so that one object has one spelling.
//! - Until [`Address::parts`] has checked bucket and key, an address may be malformed.
//!
//! Leaves to others: settings and connections (`settings.rs`, `store.rs`).

use std::fmt;

use object_store::path::Path;

use crate::Error;
use crate::scheme::{Scheme, begins};

/// How an address begins that this version does not speak to. It is no file's name either.
const OTHERS: [&str; 2] = ["http://", "https://"];

/// `s3://BUCKET/KEY`, `az://CONTAINER/KEY` or `gs://BUCKET/KEY`. Any text that begins like an address is one; whether it
/// is well formed is said when it is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address(String);

impl Address {
    /// `None` if `text` is no address of an object.
    pub fn of(text: &str) -> Option<Address> {
        // One object has one spelling: devices are compared by it.
        let all = Scheme::ALL.iter().map(|scheme| scheme.prefix());
        all.chain(OTHERS)
            .find(|prefix| begins(text, prefix))
            .map(|prefix| Address(format!("{prefix}{}", &text[prefix.len()..])))
    }

    /// Store, bucket and key. Errors: [`Error::Address`].
    pub fn parts(&self) -> Result<(Scheme, &str, Path), Error> {
        let wrong = |why| Error::Address {
            text: self.0.clone(),
            why,
        };
        let Some(scheme) = Scheme::of(&self.0) else {
            return Err(wrong("only s3://, az:// and gs:// addresses are supported"));
        };
        let rest = &self.0[scheme.prefix().len()..];
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        scheme.check(bucket).map_err(wrong)?;
        if key.is_empty() || key.ends_with('/') {
            return Err(wrong("it names no object in the bucket"));
        }
        // All of them take 1,024 bytes.
        if key.len() > 1024 || key.chars().any(char::is_control) {
            return Err(wrong(
                "a key has at most 1,024 bytes and no control characters",
            ));
        }
        match Path::parse(key) {
            // It drops a slash at the start.
            Ok(path) if path.as_ref() == key => Ok((scheme, bucket, path)),
            _ => Err(wrong("a key has no empty part, no . and no .. in it")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
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
