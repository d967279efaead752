//! The objects that statements name with URL: which texts are addresses, and which addresses a statement may reach.
//!
//! Invariants
//! - An address is `s3://BUCKET/KEY`. SQL Server's own form begins with the store's host, and a host must never be
//!   taken for a bucket: what may be one is refused.
//! - A prefix of allowed objects ends at a slash: no name that merely begins the same is below it.
//! - A refused text is not repeated: it may have a secret in it.
//!
//! Leaves to others: the store, its credentials and whether object stores are used at all (`longshore-bucket`).

use longshore_media::DeviceSpec;

use crate::message::{self, Message};
use crate::session::Session;

/// The message where a statement names an object and only a path works.
pub const NO_PATH: &str = "an object store's address is no path: write URL = 's3://BUCKET/KEY', which names a backup's \
     object; ./NAME is a path of this name";

/// The object of a URL. Errors: what to write instead, and those of [`reach`].
pub fn named(session: &Session, name: &str) -> Result<DeviceSpec, Message> {
    let object = object(name).map_err(|why| message::OWN.with(&[&why]))?;
    reach(session, &object)?;
    Ok(object)
}

/// The texts are not repeated: they may have a secret in them.
fn object(name: &str) -> Result<DeviceSpec, String> {
    let spec = DeviceSpec::parse(name);
    let DeviceSpec::Bucket(address) = &spec else {
        return Err(
            "URL names an object, 's3://BUCKET/KEY': write DISK = '...' for a file".to_owned(),
        );
    };
    let text = address.to_string();
    let Some(rest) = text.strip_prefix("s3://") else {
        return Err(
            "this version has no stores but those of S3's protocol: write URL = 's3://BUCKET/KEY', and name the \
             server with AWS_ENDPOINT_URL"
                .to_owned(),
        );
    };
    let (first, key) = rest.split_once('/').unwrap_or((rest, ""));
    if first.contains([':', '.', '@']) || first == "localhost" {
        let instead = match key.contains('/') {
            true => key,
            false => "BUCKET/KEY",
        };
        return Err(format!(
            "this address begins with a host, or with a bucket that may be taken for one: write URL = 's3://{instead}', \
             and name the server with AWS_ENDPOINT_URL; buckets with a dot in their name need `longshore backup --to`"
        ));
    }
    match address.parts() {
        Ok(_) => Ok(spec),
        Err(error) => Err(format!("{error} (hint: {})", error.hint())),
    }
}

/// Refuses objects that no statement of this server may reach (3201), whether or not they exist.
pub fn reach(session: &Session, object: &DeviceSpec) -> Result<(), Message> {
    let Some(prefixes) = &session.server.setup.buckets else {
        return Ok(());
    };
    match is_below(object, prefixes) {
        true => Ok(()),
        false => Err(refused(object, "5(Access is denied.)")),
    }
}

/// Refuses a backup onto or next to the sets at a target (3201).
pub fn check_kept(session: &Session, object: &DeviceSpec) -> Result<(), Message> {
    match is_below(object, &session.server.setup.kept_buckets) {
        true => Err(refused(object, crate::refusal::IN_USE)),
        false => Ok(()),
    }
}

fn refused(object: &DeviceSpec, why: &str) -> Message {
    match object {
        DeviceSpec::Bucket(address) => message::CANNOT_OPEN.with(&[address, &why]),
        _ => message::CANNOT_OPEN.with(&[&"URL", &why]),
    }
}

/// Whether an object is below one of these prefixes, `s3://BUCKET` or `s3://BUCKET/PREFIX`.
fn is_below(object: &DeviceSpec, prefixes: &[String]) -> bool {
    let DeviceSpec::Bucket(address) = object else {
        return false;
    };
    let text = address.to_string();
    let rest = |prefix: &String| text.strip_prefix(prefix.as_str());
    let mut rests = prefixes.iter().filter_map(rest);
    rests.any(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_bucket_and_a_key_and_nothing_that_may_be_a_host() {
        for good in ["s3://nightly/a.bak", "S3://my-bucket/dir/a b.bak"] {
            assert!(matches!(object(good), Ok(DeviceSpec::Bucket(_))), "{good}");
        }
        for (wrong, instead) in [
            (
                "s3://minio:9000/nightly/dir/a.bak",
                "'s3://nightly/dir/a.bak'",
            ),
            ("s3://minio.example/nightly/a.bak", "'s3://nightly/a.bak'"),
            ("s3://localhost/nightly/a.bak", "'s3://nightly/a.bak'"),
            ("s3://10.0.0.5/nightly/a.bak", "'s3://nightly/a.bak'"),
            ("s3://[::1]:9000/nightly/a.bak", "'s3://nightly/a.bak'"),
            ("s3://id:verysecret@nightly/a.bak", "'s3://BUCKET/KEY'"),
            ("s3://my.bucket/a.bak", "--to"),
            ("s3://nightly", "no object"),
            ("s3://nightly/a/../b", "no . and no .."),
            ("s3://Nightly/a.bak", "lower-case"),
            ("https://account.blob/c/a.bak", "s3://BUCKET/KEY"),
            ("gs://nightly/a.bak", "s3://BUCKET/KEY"),
            ("/srv/a.bak", "write DISK"),
            ("file:s3://nightly/a.bak", "write DISK"),
            ("NUL", "write DISK"),
            ("-", "write DISK"),
            ("", "write DISK"),
        ] {
            let said = object(wrong).unwrap_err();
            assert!(said.contains(instead), "{wrong}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn a_prefix_ends_at_a_slash() {
        let below =
            |name: &str, prefix: &str| is_below(&object(name).unwrap(), &[prefix.to_owned()]);
        assert!(below("s3://nightly/a/b.bak", "s3://nightly/a"));
        assert!(below("s3://nightly/b.bak", "s3://nightly"));
        assert!(!below("s3://nightly/ab.bak", "s3://nightly/a"));
        assert!(!below("s3://nightly/a", "s3://nightly/a"));
        assert!(!below("s3://nightly-2/a.bak", "s3://nightly"));
    }
}
