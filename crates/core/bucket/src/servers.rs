//! Servers that the configuration names, each with settings of its own.
//!
//! An address carries the name (`s3+NAME://BUCKET/KEY`), and this table of the process has what it stands for.
//!
//! Invariants
//! - A name that the process does not know is an error. It never means the environment's server.
//! - A name means its server for the kind of store of its target alone, and nothing for another kind.
//! - A server that says where it is, or whose credentials count, takes neither address nor region of the environment, nor
//!   of a profile that the environment names.
//! - A server with a profile or a file of credentials takes no credentials of the environment.
//! - A file of credentials that others can read is refused, and one of another user than root and the process's, unless
//!   the process is root's. No message has anything of its content.
//!
//! Leaves to others: which tables of the configuration are servers (`longshore`), and what the values mean
//! (`settings.rs`, `s3.rs`, `azure.rs`, `google.rs`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use longshore_io::Storage;

use crate::environment::{ALLOW_HTTP, PATIENCE, check_endpoint, read_file};
use crate::s3::ADDRESSING_STYLE;
use crate::scheme::Scheme;
use crate::settings::{CA_FILE, Origin, Settings};
use crate::{Error, azure};

/// The keys of the configuration about a server. The environment has the values of those that are not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// The kind of store that it is; `None`: any.
    pub scheme: Option<Scheme>,
    /// Its address: `https://HOST:PORT`.
    pub endpoint: Option<String>,
    /// Of S3.
    pub region: Option<String>,
    /// Of S3: the profile of the AWS files that has the credentials.
    pub profile: Option<String>,
    /// Of Azure.
    pub account: Option<String>,
    /// An AWS file, lines `AZURE_...=VALUE`, or a key file of Google's.
    pub credentials_file: Option<PathBuf>,
    /// Certificates to trust, PEM.
    pub ca_file: Option<PathBuf>,
    pub allow_http: bool,
    /// Seconds for which a request is repeated, 5 to 240.
    pub patience: Option<u64>,
    /// Of S3: where requests have the bucket's name.
    pub addressing_style: Option<String>,
}

/// The variables that the settings read, each with the key of the configuration that gives its value.
const KEYS: [(&str, &str); 11] = [
    ("AWS_ENDPOINT_URL_S3", "`endpoint`"),
    ("AZURE_STORAGE_ENDPOINT", "`endpoint`"),
    ("GOOGLE_BASE_URL", "`endpoint`"),
    ("AWS_REGION", "`region`"),
    ("AWS_PROFILE", "`profile`"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "`account`"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "`credentials_file`"),
    (CA_FILE, "`ca_file`"),
    (ALLOW_HTTP, "`allow_http`"),
    (PATIENCE, "`patience`"),
    (ADDRESSING_STYLE, "`addressing_style`"),
];

/// The servers by their names in the configuration.
static NAMED: Mutex<Option<HashMap<String, Server>>> = Mutex::new(None);

impl Server {
    /// From now on, addresses of this process can name it. A name that is known gets the new meaning for buckets that are
    /// not open yet.
    pub fn name(self, name: &str) {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        named.get_or_insert_default().insert(name.to_owned(), self);
    }

    /// The server of a bucket such as this, `s3://BUCKET`, and of no other kind of store.
    #[must_use]
    pub fn of_kind_of(self, bucket: &str) -> Server {
        Server {
            scheme: Scheme::of(bucket),
            ..self
        }
    }

    /// Whether it is a server of this kind.
    fn is_of(&self, scheme: Scheme) -> bool {
        self.scheme.is_none_or(|own| own == scheme)
    }

    fn named(name: &str) -> Option<Server> {
        let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        named.as_ref()?.get(name).cloned()
    }

    /// Whether the environment's server does not count.
    fn is_elsewhere(&self) -> bool {
        let texts = [&self.endpoint, &self.region, &self.profile, &self.account];
        texts.into_iter().any(Option::is_some) || self.credentials_file.is_some()
    }

    /// Whether the environment's credentials do not count.
    fn has_credentials(&self) -> bool {
        self.profile.is_some() || self.credentials_file.is_some()
    }

    /// The value of a variable for this server. `of_file`: those of Azure's file of credentials.
    fn value(
        &self,
        variable: &str,
        of_file: &HashMap<String, String>,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Option<OsString> {
        let text = |value: &Option<String>| value.as_ref().map(OsString::from);
        let file = || {
            let file = self.credentials_file.as_ref().map(|f| f.clone().into());
            file.or_else(|| environment(variable))
        };
        match variable {
            "AWS_ENDPOINT_URL_S3" | "AZURE_STORAGE_ENDPOINT" | "GOOGLE_BASE_URL"
                if self.is_elsewhere() =>
            {
                text(&self.endpoint)
            }
            "AWS_ENDPOINT_URL" | "AWS_DEFAULT_REGION" | "AZURE_STORAGE_SERVICE_ENDPOINT"
                if self.is_elsewhere() =>
            {
                None
            }
            "AWS_REGION" if self.is_elsewhere() => text(&self.region),
            name if name == ADDRESSING_STYLE
                && (self.is_elsewhere() || self.addressing_style.is_some()) =>
            {
                text(&self.addressing_style)
            }
            "AWS_PROFILE" if self.has_credentials() => {
                let name = self.profile.clone();
                Some(name.unwrap_or_else(|| "default".to_owned()).into())
            }
            // One file has the sections of both.
            "AWS_SHARED_CREDENTIALS_FILE" | "AWS_CONFIG_FILE" => file(),
            "GOOGLE_APPLICATION_CREDENTIALS" => file(),
            "AZURE_STORAGE_ACCOUNT_NAME" | "AZURE_STORAGE_ACCOUNT" if self.account.is_some() => {
                text(&self.account)
            }
            name if self.credentials_file.is_some() && azure::CREDENTIALS.contains(&name) => {
                of_file.get(name).map(OsString::from)
            }
            name if name == CA_FILE && self.ca_file.is_some() => {
                self.ca_file.clone().map(OsString::from)
            }
            name if name == ALLOW_HTTP && self.allow_http => Some("1".into()),
            name if name == PATIENCE && self.patience.is_some() => {
                self.patience.map(|seconds| seconds.to_string().into())
            }
            name => environment(name),
        }
    }

    fn settings(
        &self,
        scheme: Scheme,
        storage: &dyn Storage,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, String> {
        let of_file = match &self.credentials_file {
            None => HashMap::new(),
            Some(path) => {
                let text = private(storage, path)?;
                match scheme {
                    Scheme::Azure => variables(&text)?,
                    Scheme::S3 | Scheme::Google => HashMap::new(),
                }
            }
        };
        let get = |name: &str| self.value(name, &of_file, environment);
        let own_place = !self.is_elsewhere() || self.has_credentials();
        Settings::found(scheme, storage, &get, own_place).map_err(|why| {
            KEYS.iter()
                .fold(why, |why, (variable, key)| why.replace(variable, key))
        })
    }
}

/// Whether the settings name this host, with its port, as a server of plain http, and allow that.
pub(crate) fn is_plain_http(host: &str) -> bool {
    let is_host = |endpoint: &str| {
        let of = endpoint.trim_end_matches('/').strip_prefix("http://");
        of.is_some_and(|of| of.eq_ignore_ascii_case(host))
    };
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut servers = named.iter().flat_map(HashMap::values);
    let allows = std::env::var(ALLOW_HTTP).is_ok_and(|value| value == "1");
    servers.any(|server| {
        let is_allowed = allows || server.allow_http;
        is_allowed && server.endpoint.as_deref().is_some_and(is_host)
    }) || allows
        && ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .is_some_and(|endpoint| is_host(&endpoint))
}

/// Where the server of this name is, if the configuration alone says it. So places can be compared where the server's
/// credentials cannot be read.
pub(crate) fn place(scheme: Scheme, name: &str) -> Option<String> {
    let server = Server::named(name).filter(|server| server.is_of(scheme))?;
    let endpoint = server.endpoint.as_deref()?;
    let allows = server.allow_http || std::env::var(ALLOW_HTTP).is_ok_and(|value| value == "1");
    let url = check_endpoint("`endpoint`", endpoint, allows).ok()?;
    Some(url.as_str().to_owned())
}

/// The settings of a bucket at the server of this name.
///
/// Errors: [`Error::NoServer`], [`Error::Settings`].
pub(crate) fn settings(
    scheme: Scheme,
    name: &str,
    bucket: &str,
    storage: &dyn Storage,
) -> Result<Settings, Error> {
    let Some(server) = Server::named(name).filter(|server| server.is_of(scheme)) else {
        return Err(Error::NoServer {
            server: name.to_owned(),
            bucket: bucket.to_owned(),
        });
    };
    match server.settings(scheme, storage, &|name| std::env::var_os(name)) {
        Ok(settings) => Ok(Settings {
            origin: Origin::Named(name.to_owned()),
            ..settings
        }),
        Err(why) => Err(Error::Settings {
            bucket: format!("{bucket} at the target {name}"),
            why,
        }),
    }
}

/// The content of a file of credentials. Errors: it is missing, or others can read it.
fn private(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let missing = || format!("the `credentials_file` {shown} is missing");
    let stat = storage.stat(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => missing(),
        _ => format!("the `credentials_file` {shown} cannot be read: {e}"),
    })?;
    if !is_trusted(stat.uid, rustix::process::geteuid().as_raw()) {
        return Err(format!(
            "the `credentials_file` {shown} belongs to another user, who can exchange it: run `chown $USER {shown}` as root"
        ));
    }
    if stat.mode & 0o077 != 0 {
        return Err(format!(
            "others can read the `credentials_file` {shown} or write to it (mode {:03o}): run `chmod 600 {shown}`",
            stat.mode & 0o777
        ));
    }
    read_file(storage, path)?.ok_or_else(missing)
}

/// Whether a file of this owner is root's or this process's own. Root takes any user's: the configuration that it reads
/// names the file, and a restored server, which is another user, must read the same one.
fn is_trusted(owner: u32, own: u32) -> bool {
    owner == 0 || owner == own || own == 0
}

/// The lines `NAME=VALUE` of Azure's file of credentials. Errors: the number of a line that is none.
fn variables(bytes: &[u8]) -> Result<HashMap<String, String>, String> {
    let wrong = |at: usize| {
        format!(
            "line {} of the `credentials_file` is none of {}=VALUE",
            at + 1,
            azure::CREDENTIALS.join("=VALUE, ")
        )
    };
    let text = std::str::from_utf8(bytes)
        .map_err(|_| "the `credentials_file` is not UTF-8 text".to_owned())?;
    let mut found = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| wrong(at))?;
        if !azure::CREDENTIALS.contains(&name) {
            return Err(wrong(at));
        }
        found.insert(name.to_owned(), value.to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::Style;
    use crate::settings::Provider;
    use crate::source::Source;
    use longshore_io::{Attributes, SimDisk};

    fn disk() -> SimDisk {
        let disk = SimDisk::new(1);
        disk.write_file(
            "/home/.aws/credentials",
            b"[default]\naws_access_key_id = AKDEF\naws_secret_access_key=s1\n\
              [vault]\naws_access_key_id=AKVAULT\naws_secret_access_key=s2\n",
        )
        .unwrap();
        disk.write_file(
            "/home/.aws/config",
            b"[default]\nregion = eu-north-1\nendpoint_url = https://of.default\n\
              [profile vault]\nregion = eu-west-3\nendpoint_url = https://of.vault\n",
        )
        .unwrap();
        disk
    }

    /// The server, the region and the key's identifier, with an environment that has all of its own.
    fn read(server: &Server, disk: &SimDisk) -> Result<(String, String, String), String> {
        let environment = |name: &str| {
            let value = match name {
                "HOME" => "/home",
                "AWS_ENDPOINT_URL" | "AWS_ENDPOINT_URL_S3" => "https://of.environment",
                "AWS_REGION" | "AWS_DEFAULT_REGION" => "eu-of-1",
                "AWS_ACCESS_KEY_ID" => "AKENV",
                "AWS_SECRET_ACCESS_KEY" => "verysecret",
                _ => return None,
            };
            Some(value.into())
        };
        let settings = server.settings(Scheme::S3, disk, &environment)?;
        let Provider::S3(s3) = &settings.provider else {
            return Err("another store's".to_owned());
        };
        let id = match &s3.source {
            Ok(Source::Keys { id, .. }) => id.clone(),
            _ => "others".to_owned(),
        };
        Ok((s3.server(), s3.region().to_owned(), id))
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_server_takes_no_part_of_another_ones_place_or_credentials() {
        let of = |server: Server| {
            let (at, region, id) = read(&server, &disk()).unwrap();
            format!("{at} {region} {id}")
        };
        let none = Server::default();
        assert_eq!(
            of(Server {
                allow_http: true,
                ..none.clone()
            }),
            "https://of.environment eu-of-1 AKENV"
        );
        // Neither the environment's server nor the default profile's.
        assert_eq!(
            of(Server {
                region: text("eu-west-1"),
                ..none.clone()
            }),
            "https://s3.eu-west-1.amazonaws.com eu-west-1 AKENV"
        );
        assert_eq!(
            of(Server {
                endpoint: text("https://minio:9000/"),
                ..none.clone()
            }),
            "https://minio:9000 us-east-1 AKENV"
        );
        assert_eq!(
            of(Server {
                profile: text("vault"),
                ..none.clone()
            }),
            "https://of.vault eu-west-3 AKVAULT"
        );
        assert_eq!(
            of(Server {
                profile: text("vault"),
                endpoint: text("https://MINIO:9000"),
                ..none
            }),
            "https://minio:9000 eu-west-3 AKVAULT"
        );
    }

    #[test]
    fn a_request_is_repeated_as_long_as_the_servers_own_setting_says() {
        let total = |server: Server| {
            let environment = |name: &str| (name == PATIENCE).then(|| "60".into());
            let settings = server.settings(Scheme::S3, &disk(), &environment).unwrap();
            settings.patience.total.as_secs()
        };
        assert_eq!(total(Server::default()), 60);
        let patience = Some(7);
        assert_eq!(
            total(Server {
                patience,
                ..Server::default()
            }),
            7
        );
    }

    #[test]
    fn where_the_bucket_is_named_is_the_servers_own_setting() {
        let style = |server: Server| {
            let environment = |name: &str| (name == ADDRESSING_STYLE).then(|| "virtual".into());
            let settings = server.settings(Scheme::S3, &disk(), &environment).unwrap();
            match settings.provider {
                Provider::S3(s3) => s3.style,
                _ => Style::Auto,
            }
        };
        let none = Server::default();
        let own = Server {
            endpoint: text("https://minio:9000"),
            ..none.clone()
        };
        assert_eq!(style(none.clone()), Style::Virtual);
        assert_eq!(style(own.clone()), Style::Auto);
        let addressing_style = text("path");
        for server in [none, own] {
            let server = Server {
                addressing_style: addressing_style.clone(),
                ..server
            };
            assert_eq!(style(server), Style::Path);
        }
    }

    #[test]
    fn a_file_of_credentials_is_private_and_stands_for_both_aws_files() {
        let disk = disk();
        let bytes = b"[default]\naws_access_key_id = AKFILE\naws_secret_access_key = verysecret\n";
        disk.write_file("/keys", bytes).unwrap();
        let server = Server {
            credentials_file: Some("/keys".into()),
            ..Server::default()
        };
        let mode = |mode| {
            let root = disk.dir(Path::new("/")).unwrap();
            let attributes = Attributes {
                mode: Some(mode),
                ..Attributes::default()
            };
            root.set_attributes(Path::new("keys"), &attributes).unwrap();
        };
        for bad in [0o644, 0o640, 0o604, 0o620] {
            mode(bad);
            let refused = read(&server, &disk).unwrap_err();
            assert!(refused.contains("chmod 600 /keys"), "{refused}");
        }
        mode(0o600);
        let (at, region, id) = read(&server, &disk).unwrap();
        assert_eq!(
            (at.as_str(), region.as_str(), id.as_str()),
            ("https://s3.us-east-1.amazonaws.com", "us-east-1", "AKFILE")
        );
        let missing = Server {
            credentials_file: Some("/none".into()),
            ..Server::default()
        };
        assert!(read(&missing, &disk).unwrap_err().contains("missing"));
    }

    #[test]
    fn a_place_is_known_without_the_credentials() {
        let server = Server {
            endpoint: text("https://MINIO:9000/"),
            credentials_file: Some("/nobody/reads/this".into()),
            ..Server::default()
        };
        server.of_kind_of("s3://abc").name("with-unread-keys");
        let at = |text: &str| crate::Address::of(text).unwrap();
        let object = at("s3+with-unread-keys://abc/k");
        let below = |prefix: &str| object.is_below(&at(prefix), &disk()).unwrap();
        assert!(below("s3+with-unread-keys://abc"));
        assert!(!below("s3+with-unread-keys://abcd"));
        // That the credentials cannot be read is said by whoever asks for the settings.
        assert!(object.origin(&disk()).is_err());
        assert_eq!(place(Scheme::Azure, "with-unread-keys"), None);
        assert_eq!(place(Scheme::S3, "nobody-gave-it"), None);
    }

    #[test]
    fn azures_file_has_variables_and_says_nothing_of_others() {
        let found = variables(b"# of the vault\n\nAZURE_STORAGE_KEY=a=b==\n").unwrap();
        assert_eq!(
            found.get("AZURE_STORAGE_KEY").map(String::as_str),
            Some("a=b==")
        );
        for wrong in [
            &b"verysecret"[..],
            b"\nAZURE_STORAGE_ACCOUNT_NAME=verysecret",
            b"\xff",
        ] {
            let refused = variables(wrong).unwrap_err();
            assert!(!refused.contains("verysecret"), "{refused}");
        }
    }

    #[test]
    fn messages_name_the_keys_of_the_configuration() {
        for (server, word) in [
            (
                Server {
                    endpoint: text("http://minio:9000"),
                    ..Server::default()
                },
                "`endpoint` is plain http, which everyone on the way can read and change; `allow_http`",
            ),
            (
                Server {
                    profile: text("nobody"),
                    ..Server::default()
                },
                "`profile` names the profile",
            ),
            (
                Server {
                    region: text("eu west"),
                    ..Server::default()
                },
                "`region`",
            ),
            (
                Server {
                    patience: Some(241),
                    ..Server::default()
                },
                "`patience` is \"241\", and 5 to 240 seconds are allowed",
            ),
        ] {
            let refused = read(&server, &disk()).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn a_name_that_nobody_gave_is_no_server() {
        let refused = settings(Scheme::S3, "nobody-gave-it", "abc", &disk());
        assert!(matches!(refused, Err(Error::NoServer { .. })));
        // The name of a server of S3 is none of Azure, whose account would be the environment's.
        let server = Server {
            endpoint: text("https://minio:9000"),
            ..Server::default()
        };
        server.of_kind_of("s3://abc").name("of-s3-alone");
        // The environment of this machine may have settings that cannot be used.
        let own = settings(Scheme::S3, "of-s3-alone", "abc", &disk());
        assert!(!matches!(own, Err(Error::NoServer { .. })));
        let refused = settings(Scheme::Azure, "of-s3-alone", "abc", &disk());
        assert!(matches!(refused, Err(Error::NoServer { .. })));
    }

    #[test]
    fn a_file_of_credentials_belongs_to_root_or_to_this_user() {
        assert!(is_trusted(0, 1000) && is_trusted(1000, 1000) && is_trusted(1001, 0));
        assert!(!is_trusted(1001, 1000));
    }
}
