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
//! - A name in the history that begins with a server is the object that a credential opens, or an error. It is never a
//!   bucket at another server, also where the credential was dropped.
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
    /// BACKUP_OPTIONS or RESTORE_OPTIONS, and the region in it.
    region: Option<(Key, String)>,
    /// The keys that the statement uses, by their credentials' names and the servers: its objects share connections.
    keys: RefCell<BTreeMap<(String, String), Arc<Access>>>,
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
                    let region = region.map_err(|why| refused_option(setting.key, &why))?;
                    options.region = Some((setting.key, region));
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// Checks the options for an object that no credential belongs to, or for devices that are no objects. Errors: 50000.
    pub fn check_without_key(
        &self,
        session: &Session,
        object: Option<&DeviceSpec>,
    ) -> Result<(), Message> {
        if self.credential.is_some() {
            let why = "it is for addresses that name their server, URL = 's3://HOST:PORT/BUCKET/KEY'; leave the option out";
            return Err(refused_option(Key::Credential, why));
        }
        let Some((key, region)) = &self.region else {
            return Ok(());
        };
        let storage = &*session.server.setup.context.storage;
        let own = match object {
            Some(DeviceSpec::Bucket(address)) => address.region(storage).ok(),
            _ => S3Server::of_environment(storage).map(|server| server.region),
        };
        match own {
            Some(own) if own.eq_ignore_ascii_case(region) => Ok(()),
            _ => Err(refused_option(
                *key,
                "it names another region than the process has for this server: set AWS_REGION, or the target's `region`, or leave \
                 the option out",
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
        // A key is made for one kind of store, and for one account.
        let of = (name, format!("{}{}", url.scheme(), url.host()));
        let known = self.keys.borrow().get(&of).cloned();
        let access = match known {
            Some(access) => access,
            None => {
                let region = self.region.as_ref().map(|(_, region)| region.clone());
                let access = Arc::new(key_of(session, &of.0, &url, region)?);
                self.keys.borrow_mut().insert(of, access.clone());
                access
            }
        };
        given_object(url, &access).map(Some)
    }
}

/// The key of a credential for an address. Errors: 15151; it does not fit.
fn key_of(
    session: &Session,
    name: &str,
    url: &ServerUrl,
    region: Option<String>,
) -> Result<Access, Message> {
    let (identity, secret) = session.server.kept.secret_of(name)?;
    let unfit = |why: String| {
        let text = format!(
            "the credential '{name}' does not fit the address: {why}; ALTER CREDENTIAL replaces both"
        );
        message::OWN.with(&[&text])
    };
    let secret = secret.ok_or_else(|| unfit("it has no SECRET".to_owned()))?;
    Access::new(name, (&identity, &secret), url, region).map_err(unfit)
}

fn given_object(url: ServerUrl, access: &Arc<Access>) -> Result<DeviceSpec, Message> {
    let address = Address::given(url, access).map_err(|error| {
        let text = format!("{error} (hint: {})", error.hint());
        message::OWN.with(&[&text])
    })?;
    Ok(DeviceSpec::Bucket(address))
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
            options.check_without_key(session, Some(&object))?;
            object
        }
    };
    reach(session, &object)?;
    Ok(object)
}

/// The object that the history names, at the server that its name begins with; `None`: it begins with none. `given`: the
/// objects of the statement, whose credential and region count at their server, here too.
///
/// Errors: no credential fits, also where the name may be a bucket's: it may be a server's as well.
pub fn recorded<'a>(
    session: &Session,
    name: &str,
    given: impl Iterator<Item = &'a DeviceSpec>,
) -> Result<Option<DeviceSpec>, Message> {
    let url = match ServerUrl::parse(name) {
        None => return Ok(None),
        Some(Ok(url)) => url,
        Some(Err(why)) => {
            let text =
                format!("the history names {name}, which no statement can reach: {why}{DOTTED}");
            return Err(message::OWN.with(&[&text]));
        }
    };
    let keys = given.filter_map(|device| match device {
        DeviceSpec::Bucket(address) => address.with_its_key(),
        _ => None,
    });
    let near: Vec<(&ServerUrl, &Arc<Access>)> =
        keys.filter(|(at, _)| at.has_server_of(&url)).collect();
    let is = |access: &Arc<Access>, credential: Option<&str>| {
        credential.is_some_and(|name| name.eq_ignore_ascii_case(access.name()))
    };
    let fit = fitting(session, &url);
    // The one of WITH CREDENTIAL: no prefix led to it.
    let by_option = near
        .iter()
        .find(|(at, access)| !is(access, fitting(session, at).as_deref()));
    // A prefix of its own goes before the option of a statement about another bucket.
    let by_option = by_option.filter(|(at, _)| fit.is_none() || at.prefix() == url.prefix());
    let by_prefix = near.iter().find(|(_, access)| is(access, fit.as_deref()));
    let access = match (by_option.or(by_prefix), &fit) {
        (Some((_, access)), _) => Arc::clone(access),
        (None, Some(credential)) => {
            let region = near.first().and_then(|(_, access)| access.region());
            let region = region.map(str::to_owned);
            Arc::new(key_of(session, credential, &url, region)?)
        }
        // A bucket with a dot in its name, which a target of the configuration has.
        (None, None) if is_of_target(session, name) => return Ok(None),
        (None, None) => return Err(unopened(name, &url)),
    };
    given_object(url, &access).map(Some)
}

/// Whether a name is below a bucket of a target that the configuration has.
fn is_of_target(session: &Session, name: &str) -> bool {
    let mut kept = session.server.setup.kept_buckets.iter();
    kept.any(|prefix| {
        let rest = name.strip_prefix(prefix.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.starts_with('/'))
    })
}

/// The way to a bucket that may be taken for a server.
const DOTTED: &str = "; for a bucket with a dot in its name use `longshore backup` and `longshore restore`, which take it as one";

/// The message for an address of the history that no credential opens.
fn unopened(name: &str, url: &ServerUrl) -> Message {
    let made_with = match url.prefix().starts_with("s3://") {
        true => "IDENTITY = 'S3 Access Key', SECRET = 'KEYID:SECRETKEY'",
        false => "IDENTITY = 'SHARED ACCESS SIGNATURE', SECRET = 'SIGNATURE'",
    };
    // Neither a port nor https is a part of a bucket's name.
    let dotted = match url.host().contains(':') || !url.prefix().starts_with("s3://") {
        true => "",
        false => DOTTED,
    };
    let text = format!(
        "the history names {name}, and no credential fits this address: run CREATE CREDENTIAL [{}] WITH {made_with}{dotted}",
        url.prefix()
    );
    message::OWN.with(&[&text])
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
    let DeviceSpec::Bucket(address) = object else {
        return Ok(());
    };
    let storage = &*session.server.setup.context.storage;
    for prefix in &session.server.setup.kept_buckets {
        match is_below_plain(address, prefix, storage) {
            Some(true) => return Err(refused(object, crate::refusal::IN_USE)),
            None if has_names_of(address, prefix) => {
                let why = format!(
                    "it may be an object of a target: the settings do not say at which server {prefix} is; run `longshore config \
                     check`"
                );
                return Err(refused(object, &why));
            }
            Some(false) | None => {}
        }
    }
    Ok(())
}

/// Whether bucket and key are below those of the prefix, at whichever servers.
fn has_names_of(address: &Address, prefix: &str) -> bool {
    let any = Address::of(&format!("{prefix}/x"));
    let (Ok(own), Some(Ok(any))) = (address.parts(), any.as_ref().map(Address::parts)) else {
        return false;
    };
    let (key, below): (&str, &str) = (own.2.as_ref(), any.2.as_ref());
    let below = below.strip_suffix('x').unwrap_or(below);
    own.0 == any.0 && own.1 == any.1 && key.starts_with(below)
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
    let below = |prefix: &String| match ServerUrl::parse(prefix) {
        Some(url) => address.is_below_server(&url.ok()?, storage).ok(),
        None => is_below_plain(address, prefix, storage),
    };
    let found: Vec<bool> = prefixes.iter().filter_map(below).collect();
    match found.is_empty() && !prefixes.is_empty() {
        true => None,
        false => Some(found.contains(&true)),
    }
}

/// The same for one prefix that begins with a bucket, also with one that has a dot in its name.
fn is_below_plain(address: &Address, prefix: &str, storage: &dyn Storage) -> Option<bool> {
    let known = Address::of(prefix)?;
    // One server, also where its settings cannot be read: that is said when it is used.
    let text = address.to_string();
    let is_plain = address.with_its_key().is_none();
    let rest = text.strip_prefix(prefix).filter(|_| is_plain);
    match rest.is_some_and(|rest| rest.starts_with('/')) {
        true => Some(true),
        false => address.is_below(&known, storage).ok(),
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
        let disk = longshore_io::Host::new();
        let below = |name: &str, prefix: &str| {
            is_below(&object(name).unwrap(), &[prefix.to_owned()], &disk)
        };
        assert_eq!(below("s3://nightly/a/b.bak", "s3://nightly/a"), Some(true));
        assert_eq!(below("s3://nightly/b.bak", "s3://nightly"), Some(true));
        assert_eq!(below("s3://nightly/ab.bak", "s3://nightly/a"), Some(false));
        assert_eq!(below("s3://nightly/a", "s3://nightly/a"), Some(false));
        assert_eq!(below("s3://nightly-2/a.bak", "s3://nightly"), Some(false));
        // A prefix whose server is not known may be the same one.
        let has_names =
            |name: &str, prefix: &str| has_names_of(&Address::of(name).unwrap(), prefix);
        let unknown = "s3+no-server-has-this-name://nightly/a";
        assert!(has_names("s3://nightly/a/b.bak", unknown));
        assert!(has_names(
            "s3://nightly/b.bak",
            "s3+no-server-has-this-name://nightly"
        ));
        for (name, prefix) in [
            ("s3://nightly/ab.bak", unknown),
            ("s3://nightly-2/a/b.bak", unknown),
            ("az://nightly/a/b.bak", unknown),
        ] {
            assert!(!has_names(name, prefix), "{name}");
        }
        let known = "s3+no-server-has-this-name://nightly/a";
        assert_eq!(below("s3://nightly/a/b.bak", known), None);
        assert_eq!(
            below("s3+no-server-has-this-name://nightly/a/b", "s3://nightly"),
            None
        );
    }
}
