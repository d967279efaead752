//! The objects that statements name with URL: which texts are addresses, and which addresses a statement may reach.
//!
//! Invariants
//! - An address is `s3://BUCKET/KEY`, `az://CONTAINER/KEY` or `gs://BUCKET/KEY`, at the process's own server. SQL Server's
//!   own forms begin with the store's host, and a host must never be taken for a bucket: such an address needs a credential
//!   whose name is a prefix of it. Without one it is refused, unless it has the host of the server of S3 that this process
//!   uses. Then `s3://HOST:PORT/BUCKET/KEY` is the object `s3://BUCKET/KEY`.
//! - A credential goes before the process's own settings, and nothing of these counts next to it.
//! - A prefix of allowed objects ends at a slash, and is at one server: neither a name that merely begins the same is below
//!   it, nor the same name at another server.
//! - A refused text is not repeated: it may have a secret in it.
//!
//! Leaves to others: keeping credentials (`server/credentials.rs`), the store, its settings and whether object stores are used at all (`longshore-bucket`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_io::Storage;
use longshore_media::{Access, Address, DeviceSpec, S3Server, ServerUrl};

use super::operand::operand_text;
use crate::message::{self, Message};
use crate::session::Session;
use crate::syntax::{Key, Setting, SettingValue};

/// The message where a statement names an object and only a path works.
pub const NO_PATH: &str = "an object store's address is no path: write URL = 's3://BUCKET/KEY' (or az://, gs://), \
     which names a backup's object; ./NAME is a path of this name";

/// How an address of a store begins, and the variable that names the store's server.
const STORES: [(&str, &str); 3] = [
    ("s3://", "AWS_ENDPOINT_URL"),
    ("az://", "AZURE_STORAGE_ENDPOINT"),
    ("gs://", "GOOGLE_BASE_URL"),
];

/// The options of a statement that say how its objects are reached.
#[derive(Default)]
pub struct UrlOptions {
    /// WITH CREDENTIAL
    credential: Option<String>,
    /// BACKUP_OPTIONS, RESTORE_OPTIONS
    region: Option<String>,
    /// The keys that the statement uses, by their credentials' names: its objects share connections.
    keys: RefCell<BTreeMap<String, Arc<Access>>>,
}

impl UrlOptions {
    /// Errors: an option is not understood.
    pub fn of(session: &Session, settings: &[Setting]) -> Result<UrlOptions, Message> {
        let mut options = UrlOptions::default();
        for setting in settings {
            let SettingValue::Operand(operand) = &setting.value else {
                continue;
            };
            match setting.key {
                Key::Credential => options.credential = Some(operand_text(session, operand)?),
                Key::BackupOptions | Key::RestoreOptions => {
                    let region = region_of(&operand_text(session, operand)?);
                    options.region = Some(region.map_err(|why| refused_option(setting.key, &why))?);
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// Checks the options for devices that no credential belongs to. Errors: 50000.
    pub fn check_without_key(&self, session: &Session) -> Result<(), Message> {
        if self.credential.is_some() {
            let why = "it is for addresses that name their server, URL = 's3://HOST:PORT/BUCKET/KEY'; leave the option out";
            return Err(refused_option(Key::Credential, why));
        }
        let Some(region) = &self.region else {
            return Ok(());
        };
        match S3Server::of_environment(&*session.server.setup.context.storage) {
            Some(own) if own.region.eq_ignore_ascii_case(region) => Ok(()),
            _ => Err(refused_option(
                Key::BackupOptions,
                "it names another region than the process has: set AWS_REGION, or leave the option out",
            )),
        }
    }

    /// The object, with the key of the credential that the statement names, or of the one whose name is the longest prefix of
    /// the address; `None`: there is none.
    fn with_key(&self, session: &Session, url: ServerUrl) -> Result<Option<DeviceSpec>, Message> {
        let name = match &self.credential {
            Some(name) => Some(name.clone()),
            None => fitting(session, &url),
        };
        let Some(name) = name else {
            return Ok(None);
        };
        let known = self.keys.borrow().get(&name).cloned();
        let access = match known {
            Some(access) => access,
            None => {
                let access = Arc::new(self.access(session, &name, &url)?);
                self.keys.borrow_mut().insert(name, access.clone());
                access
            }
        };
        let address = Address::given(url, &access);
        let address = address.map_err(|error| {
            let text = format!("{error} (hint: {})", error.hint());
            message::OWN.with(&[&text])
        })?;
        Ok(Some(DeviceSpec::Bucket(address)))
    }

    fn access(&self, session: &Session, name: &str, url: &ServerUrl) -> Result<Access, Message> {
        let (identity, secret) = session.server.kept.secret_of(name)?;
        let unfit = |why: String| {
            let text = format!(
                "the credential '{name}' does not fit the address: {why}; ALTER CREDENTIAL replaces both"
            );
            message::OWN.with(&[&text])
        };
        let secret = secret.ok_or_else(|| unfit("it has no SECRET".to_owned()))?;
        Access::new(name, (&identity, &secret), url, self.region.clone()).map_err(unfit)
    }
}

/// The name of the credential for this address: a prefix of it, and of several the longest one.
fn fitting(session: &Session, url: &ServerUrl) -> Option<String> {
    let all = session.server.kept.credentials().into_iter();
    let fit = all.filter_map(|credential| {
        let prefix = ServerUrl::parse(&credential.name)?.ok()?;
        url.is_in(&prefix)
            .then(|| (prefix.key_len(), credential.name))
    });
    fit.max_by(|a, b| a.0.cmp(&b.0)).map(|(_, name)| name)
}

fn refused_option(key: Key, why: &str) -> Message {
    let text = format!("{key} is refused: {why}");
    message::OWN.with(&[&text])
}

/// The object of a URL. Errors: what to write instead, and those of [`reach`].
pub fn named(session: &Session, name: &str, options: &UrlOptions) -> Result<DeviceSpec, Message> {
    let storage = &*session.server.setup.context.storage;
    let own = |why: String| message::OWN.with(&[&why]);
    let given = match ServerUrl::parse(name) {
        Some(Ok(url)) => options.with_key(session, url)?,
        // The plain form is looked at below, which says what to write.
        Some(Err(_)) | None => None,
    };
    let object = match given {
        Some(object) => object,
        None => {
            let object = match below_own_host(name, || s3_host(storage)) {
                Some(rest) => object(&format!("s3://{rest}")),
                None => object(name),
            };
            let object = object.map_err(own)?;
            options.check_without_key(session)?;
            object
        }
    };
    reach(session, &object)?;
    Ok(object)
}

/// The object that the history names. `None`: its server is not known, and no credential fits it.
pub fn recorded(session: &Session, name: &str) -> Option<DeviceSpec> {
    let url = ServerUrl::parse(name)?.ok()?;
    UrlOptions::default().with_key(session, url).ok().flatten()
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
            "this address begins with a host, or with a bucket that may be taken for one, and no credential fits it: make one \
             with CREATE CREDENTIAL, or write URL = '{scheme}{instead}', and name the server with {variable}; buckets with a \
             dot in their name need `longshore backup --to`"
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
            "no credential fits this address: make one with CREATE CREDENTIAL, or write URL = 'az://{key}', and name the account \
             with AZURE_STORAGE_ACCOUNT_NAME"
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
    let text = address.to_string();
    let below = |prefix: &String| match ServerUrl::parse(prefix) {
        Some(url) => address.is_below_server(&url.ok()?, storage).ok(),
        None => {
            let known = Address::of(prefix)?;
            // One server, also where its settings cannot be read: that is said when it is used.
            let rest = text.strip_prefix(prefix.as_str());
            match rest.is_some_and(|rest| rest.starts_with('/')) {
                true => Some(true),
                false => address.is_below(&known, storage).ok(),
            }
        }
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
