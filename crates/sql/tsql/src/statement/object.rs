//! The objects that statements name with URL: which texts are addresses, and which addresses a statement may reach.
//!
//! Invariants
//! - An address is `s3://BUCKET/KEY`, `az://CONTAINER/KEY` or `gs://BUCKET/KEY`. SQL Server's own forms begin with the
//!   store's host, and a host must never be taken for a bucket: what may be one is refused, unless it is the host of the
//!   server of S3 that this process uses. Then `s3://HOST:PORT/BUCKET/KEY` is the object `s3://BUCKET/KEY`.
//! - A prefix of allowed objects ends at a slash, and is at one server: neither a name that merely begins the same is below
//!   it, nor the same name at another server.
//! - A refused text is not repeated: it may have a secret in it.
//!
//! Leaves to others: the store, its credentials and whether object stores are used at all (`longshore-bucket`).

use longshore_io::Storage;
use longshore_media::{Address, DeviceSpec, S3Server};

use crate::message::{self, Message};
use crate::session::Session;

/// The message where a statement names an object and only a path works.
pub const NO_PATH: &str = "an object store's address is no path: write URL = 's3://BUCKET/KEY' (or az://, gs://), \
     which names a backup's object; ./NAME is a path of this name";

/// How an address of a store begins, and the variable that names the store's server.
const STORES: [(&str, &str); 3] = [
    ("s3://", "AWS_ENDPOINT_URL"),
    ("az://", "AZURE_STORAGE_ENDPOINT"),
    ("gs://", "GOOGLE_BASE_URL"),
];

/// The object of a URL. Errors: what to write instead, and those of [`reach`].
pub fn named(session: &Session, name: &str) -> Result<DeviceSpec, Message> {
    let storage = &*session.server.setup.context.storage;
    let object = match below_own_host(name, || s3_host(storage)) {
        Some(rest) => object(&format!("s3://{rest}")),
        None => object(name),
    };
    let object = object.map_err(|why| message::OWN.with(&[&why]))?;
    reach(session, &object)?;
    Ok(object)
}

fn s3_host(storage: &dyn Storage) -> Option<String> {
    S3Server::of_environment(storage).map(|server| server.host)
}

/// The bucket and the key of an address that begins with the host of the server in use, as SQL Server writes it.
fn below_own_host(name: &str, host: impl Fn() -> Option<String>) -> Option<&str> {
    let (scheme, rest) = name.split_at_checked("s3://".len())?;
    let (first, below) = rest.split_once('/')?;
    let is_host = first.contains(['.', ':']) && scheme.eq_ignore_ascii_case("s3://");
    (is_host && host().is_some_and(|host| host.eq_ignore_ascii_case(first))).then_some(below)
}

/// Checks BACKUP_OPTIONS or RESTORE_OPTIONS, JSON such as `{"s3": {"region": "us-east-1"}}`: the region is that of the process.
///
/// Errors: what is not understood, or differs, and what to do.
pub fn check_region(session: &Session, text: &str) -> Result<(), String> {
    let given = region_of(text)?;
    match S3Server::of_environment(&*session.server.setup.context.storage) {
        Some(own) if own.region.eq_ignore_ascii_case(&given) => Ok(()),
        _ => Err(
            "it names another region than the process has: set AWS_REGION, or leave the option out"
                .to_owned(),
        ),
    }
}

/// The only option that there is.
fn region_of(text: &str) -> Result<String, String> {
    let wrong = || r#"only a region is understood: '{"s3": {"region": "us-east-1"}}'"#.to_owned();
    let options: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let only = |value: &serde_json::Value, name: &str| {
        let members = value.as_object().filter(|members| members.len() == 1)?;
        members.get(name).cloned()
    };
    let region = only(&options, "s3").and_then(|s3| only(&s3, "region"));
    let region = region.as_ref().and_then(|region| region.as_str());
    region.map(str::to_owned).ok_or_else(wrong)
}

/// The texts are not repeated: they may have a secret in them.
fn object(name: &str) -> Result<DeviceSpec, String> {
    let spec = DeviceSpec::parse(name);
    let DeviceSpec::Bucket(address) = &spec else {
        return Err(
            "URL names an object, 's3://BUCKET/KEY': write DISK = '...' for a file".to_owned(),
        );
    };
    let checked = || match address.parts() {
        Ok(_) => Ok(spec.clone()),
        Err(error) => Err(format!("{error} (hint: {})", error.hint())),
    };
    if address.server().is_some() {
        return checked();
    }
    let text = address.to_string();
    let found = STORES.iter().find_map(|(scheme, variable)| {
        let rest = text.strip_prefix(scheme)?;
        Some((scheme, variable, rest))
    });
    let Some((scheme, variable, rest)) = found else {
        return Err(instead_of_host(&text));
    };
    let (first, key) = rest.split_once('/').unwrap_or((rest, ""));
    if first.contains([':', '.', '@']) || first == "localhost" {
        let instead = match key.contains('/') {
            true => key,
            false => "BUCKET/KEY",
        };
        return Err(format!(
            "this address begins with a host, or with a bucket that may be taken for one: write URL = \
             '{scheme}{instead}', and name the server with {variable}; buckets with a dot in their name need \
             `longshore backup --to`"
        ));
    }
    checked()
}

/// The message for an address that begins with a host: SQL Server names blobs of Azure so.
fn instead_of_host(text: &str) -> String {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let (host, key) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains(".blob.") && !host.contains('@') {
        // A signature in the address is a secret.
        let is_plain = key.contains('/') && !key.contains(['?', '#']);
        let key = if is_plain { key } else { "CONTAINER/KEY" };
        return format!(
            "an address of Azure begins with the container here: write URL = 'az://{key}', and name the account with \
             AZURE_STORAGE_ACCOUNT_NAME"
        );
    }
    "an address has no host here: write URL = 's3://BUCKET/KEY', and name the server with AWS_ENDPOINT_URL; \
     az://CONTAINER/KEY is one of Azure, gs://BUCKET/KEY one of Google"
        .to_owned()
}

/// Refuses objects that no statement of this server may reach (3201), whether or not they exist.
pub fn reach(session: &Session, object: &DeviceSpec) -> Result<(), Message> {
    let Some(prefixes) = &session.server.setup.buckets else {
        return Ok(());
    };
    // An object whose server is not known is nowhere.
    match is_below(object, prefixes, &*session.server.setup.context.storage) {
        Some(true) => Ok(()),
        _ => Err(refused(object, "5(Access is denied.)")),
    }
}

/// Refuses a backup onto or next to the sets at a target (3201).
pub fn check_kept(session: &Session, object: &DeviceSpec) -> Result<(), Message> {
    let kept = &session.server.setup.kept_buckets;
    match is_below(object, kept, &*session.server.setup.context.storage) {
        Some(true) => Err(refused(object, crate::refusal::IN_USE)),
        _ => Ok(()),
    }
}

fn refused(object: &DeviceSpec, why: &str) -> Message {
    match object {
        DeviceSpec::Bucket(address) => message::CANNOT_OPEN.with(&[address, &why]),
        _ => message::CANNOT_OPEN.with(&[&"URL", &why]),
    }
}

/// Whether an object is below one of these prefixes, such as `s3://BUCKET` or `az://CONTAINER/PREFIX`. `None`: no server is
/// known by the settings.
fn is_below(object: &DeviceSpec, prefixes: &[String], storage: &dyn Storage) -> Option<bool> {
    let DeviceSpec::Bucket(address) = object else {
        return Some(false);
    };
    let below = |prefix: &String| {
        let prefix = Address::of(prefix)?;
        address.is_below(&prefix, storage).ok()
    };
    let found: Vec<bool> = prefixes.iter().filter_map(below).collect();
    match found.is_empty() && !prefixes.is_empty() {
        true => None,
        false => Some(found.contains(&true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_bucket_and_a_key_and_nothing_that_may_be_a_host() {
        for good in [
            "s3://nightly/a.bak",
            "S3://my-bucket/dir/a b.bak",
            "az://nightly/a.bak",
            "gs://nightly/a.bak",
        ] {
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
            ("https://host/c/a.bak", "s3://BUCKET/KEY"),
            (
                "https://account.blob.core.windows.net/c/d/a.bak",
                "'az://c/d/a.bak'",
            ),
            (
                "https://account.blob.core.windows.net/c/a.bak?sig=verysecret",
                "'az://CONTAINER/KEY'",
            ),
            (
                "https://account.blob.core.windows.net/verysecret",
                "AZURE_STORAGE_ACCOUNT_NAME",
            ),
            ("az://c.example/nightly/a.bak", "'az://nightly/a.bak'"),
            ("gs://10.0.0.5/nightly/a.bak", "GOOGLE_BASE_URL"),
            ("az://nightly--x/a.bak", "single hyphens"),
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
    fn sql_servers_form_is_understood_if_it_names_the_server_in_use() {
        let below = |name, host: &str| below_own_host(name, || Some(host.to_owned()));
        let own = below(
            "s3://Minio.example:9000/nightly/a.bak",
            "minio.example:9000",
        );
        assert_eq!(own, Some("nightly/a.bak"));
        assert_eq!(
            below("S3://10.0.0.5/nightly/a.bak", "10.0.0.5"),
            Some("nightly/a.bak")
        );
        for (name, host) in [
            (
                "s3://minio.example:9001/nightly/a.bak",
                "minio.example:9000",
            ),
            ("s3://minio.example/nightly/a.bak", "minio.example:9000"),
            (
                "s3://id@minio.example:9000/nightly/a.bak",
                "minio.example:9000",
            ),
            ("az://minio.example/nightly/a.bak", "minio.example"),
            // Without a dot and a port it is a bucket.
            ("s3://minio/nightly/a.bak", "minio"),
            ("s3://minio.example:9000", "minio.example:9000"),
            ("s3", "s3"),
        ] {
            assert_eq!(below(name, host), None, "{name}");
        }
    }

    #[test]
    fn options_hold_one_region() {
        let region = region_of(r#"{"s3": {"region":"eu-central-1"}}"#);
        assert_eq!(region.unwrap(), "eu-central-1");
        for wrong in [
            "",
            "null",
            "{}",
            r#"{"s3": {}}"#,
            r#"{"s3": {"region": 1}}"#,
            r#"{"s3": {"region": "a", "secret": "verysecret"}}"#,
            r#"{"s3": {"region": "a"}, "az": {}}"#,
        ] {
            let said = region_of(wrong).unwrap_err();
            assert!(
                said.contains("only a region") && !said.contains("verysecret"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_prefix_ends_at_a_slash_and_is_at_one_server() {
        let disk = longshore_io::SimDisk::new(1);
        let below = |name: &str, prefix: &str| {
            is_below(&object(name).unwrap(), &[prefix.to_owned()], &disk)
        };
        assert_eq!(below("s3://nightly/a/b.bak", "s3://nightly/a"), Some(true));
        assert_eq!(below("s3://nightly/b.bak", "s3://nightly"), Some(true));
        assert_eq!(below("s3://nightly/ab.bak", "s3://nightly/a"), Some(false));
        assert_eq!(below("s3://nightly/a", "s3://nightly/a"), Some(false));
        assert_eq!(below("s3://nightly-2/a.bak", "s3://nightly"), Some(false));
        let known = "s3+no-server-has-this-name://nightly/a";
        assert_eq!(below("s3://nightly/a/b.bak", known), None);
        assert_eq!(
            below("s3+no-server-has-this-name://nightly/a/b", "s3://nightly"),
            None
        );
    }
}
