//! `[target.NAME]`: where backups go, and at which server.
//!
//! Invariants
//! - No key holds a secret: it is in a profile, in a file that others cannot read, or in the environment.
//! - The addresses of a target with a server of its own name the target, so none of them ever means another server.
//! - A key of a server is for one kind of store, and the target's buckets are all of that kind.
//!
//! Leaves to others: what the server's values mean (`longshore-bucket`); directories and buckets
//! (`longshore-repository`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use longshore_media::DeviceSpec;
use longshore_media::header::PARITY_MAX;
use longshore_repository::target::DIRECTORIES_MAX;
use longshore_repository::{Places, StoreServer, is_server_name};
use serde::Deserialize;

/// The most places of key objects.
const KEY_PLACES_MAX: usize = 8;

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Each directory takes one stripe.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
    /// Or prefixes in object stores, of which each takes one stripe.
    #[serde(default)]
    pub buckets: Vec<String>,
    /// The retention of all databases here, in place of their own.
    pub retention: Option<String>,
    /// For whom backups here are encrypted, in place of those of `[encryption]`; empty: for nobody.
    pub recipients: Option<Vec<String>>,
    /// Directories, or prefixes in object stores, that take the slots of backups here in place of their media.
    #[serde(default)]
    pub keys: Vec<String>,
    /// How many of the places, the last ones, take parity stripes.
    #[serde(default)]
    pub parity: u16,
    /// How many of the places may fail while a backup is written.
    #[serde(default)]
    pub tolerate: u16,
    /// The server of the buckets, in place of the environment's.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// The profile of the AWS files that has the credentials.
    pub profile: Option<String>,
    /// The storage account of Azure.
    pub account: Option<String>,
    pub credentials_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
    /// Whether the server may be spoken to over plain http.
    #[serde(default)]
    pub allow_http: bool,
    /// Seconds for which a request is repeated.
    pub patience: Option<u64>,
    /// Where requests of S3 have the bucket's name: `path`, `virtual` or `auto`.
    pub addressing_style: Option<String>,
}

impl Target {
    pub const KEYS: &[&str] = &[
        "directories",
        "buckets",
        "retention",
        "recipients",
        "keys",
        "parity",
        "tolerate",
        "endpoint",
        "region",
        "profile",
        "account",
        "credentials_file",
        "ca_file",
        "allow_http",
        "patience",
        "addressing_style",
    ];

    /// Where its stripes go. `name`: the target's own. Errors: an address is none.
    pub fn places(&self, name: &str) -> Result<Places, longshore_repository::Error> {
        if self.buckets.is_empty() {
            return Ok(Places::Directories(self.directories.clone()));
        }
        let places = Places::buckets(&self.buckets)?;
        Ok(match self.server() {
            Some(_) => places.at_server(name),
            None => places,
        })
    }

    /// The target's own server; `None`: it has the environment's.
    pub fn server(&self) -> Option<StoreServer> {
        let server = StoreServer {
            scheme: None,
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            profile: self.profile.clone(),
            account: self.account.clone(),
            credentials_file: self.credentials_file.clone(),
            ca_file: self.ca_file.clone(),
            allow_http: self.allow_http,
            patience: self.patience,
            addressing_style: self.addressing_style.clone(),
        };
        let is_own = server != StoreServer::default();
        is_own.then(|| match self.buckets.first() {
            Some(bucket) => server.of_kind_of(bucket),
            None => server,
        })
    }

    /// Errors: what is wrong with the target `name`, and where.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let places = self.directories.len() + self.buckets.len();
        if self.parity > PARITY_MAX || (self.parity > 0 && usize::from(self.parity) >= places) {
            return Err(format!(
                "[target.{name}]: `parity` is {} of {places} places; up to {PARITY_MAX} may take parity, and one must be left for data",
                self.parity
            ));
        }
        if self.tolerate > self.parity {
            return Err(format!(
                "[target.{name}]: `tolerate` is {}, and `parity` is {}; no more places may fail than have parity",
                self.tolerate, self.parity
            ));
        }
        if self.server().is_some() {
            self.check_server(name)
                .map_err(|what| format!("[target.{name}]: {what}"))?;
        }
        self.check_keys(name)?;
        match self.buckets.is_empty() {
            true => self.check_directories(name),
            false => self.check_buckets(name),
        }
    }

    fn check_keys(&self, name: &str) -> Result<(), String> {
        if self.keys.len() > KEY_PLACES_MAX {
            return Err(format!(
                "[target.{name}]: `keys` has more than {KEY_PLACES_MAX} places"
            ));
        }
        for (i, place) in self.keys.iter().enumerate() {
            if self.keys[..i].contains(place) {
                return Err(format!("[target.{name}]: `keys` names {place} twice"));
            }
            if let DeviceSpec::File(path) = DeviceSpec::parse(place)
                && path.is_relative()
            {
                return Err(format!("[target.{name}]: `keys`: {place} is not absolute"));
            }
        }
        Ok(())
    }

    fn check_buckets(&self, name: &str) -> Result<(), String> {
        if !self.directories.is_empty() {
            return Err(format!(
                "[target.{name}] has `directories` and `buckets`, which become whole in different ways; make two targets of them, and \
                 name the second in `copies`"
            ));
        }
        if self.buckets.len() > DIRECTORIES_MAX {
            return Err(format!(
                "[target.{name}] needs 1 to {DIRECTORIES_MAX} buckets"
            ));
        }
        self.places(name)
            .map(drop)
            .map_err(|e| format!("[target.{name}]: {e}"))
    }

    fn check_directories(&self, name: &str) -> Result<(), String> {
        if !(1..=DIRECTORIES_MAX).contains(&self.directories.len()) {
            return Err(format!(
                "[target.{name}] needs 1 to {DIRECTORIES_MAX} directories"
            ));
        }
        let mut seen = HashSet::new();
        for dir in &self.directories {
            let shown = dir.display();
            if dir.is_relative() {
                return Err(format!("[target.{name}]: {shown} is not absolute"));
            }
            if !seen.insert(dir) {
                return Err(format!("[target.{name}] names {shown} twice"));
            }
        }
        Ok(())
    }

    /// The keys of a server fit the target's buckets and one another.
    fn check_server(&self, name: &str) -> Result<(), String> {
        if self.buckets.is_empty() {
            return Err(format!(
                "`{}` is for a target with `buckets`",
                self.a_key_of_a_server()
            ));
        }
        if !is_server_name(name) {
            return Err(
                "a target with a server of its own has a name of up to 64 letters, digits, hyphens, underscores and dots: it is \
                 a part of the addresses"
                    .to_owned(),
            );
        }
        if let Some(named) = self.buckets.iter().find(|text| !self.is_plain(text)) {
            return Err(format!(
                "`buckets`: {named} names a server, and the target has keys of one: leave out either"
            ));
        }
        let kind = |text: &String| text.get(..2).unwrap_or_default().to_ascii_lowercase();
        let kinds: HashSet<String> = self.buckets.iter().map(kind).collect();
        if kinds.len() > 1 {
            return Err(
                "`buckets` of a target with a server of its own are of one kind of store: make two targets of them"
                    .to_owned(),
            );
        }
        let is = |wanted: &str| kinds.contains(wanted);
        let of_another = [
            ("region", self.region.is_some() && !is("s3"), "s3://"),
            ("profile", self.profile.is_some() && !is("s3"), "s3://"),
            ("account", self.account.is_some() && !is("az"), "az://"),
            (
                "addressing_style",
                self.addressing_style.is_some() && !is("s3"),
                "s3://",
            ),
        ];
        if let Some((key, _, scheme)) = of_another.into_iter().find(|(_, wrong, _)| *wrong) {
            return Err(format!("`{key}` is for buckets of {scheme}"));
        }
        if is("az")
            && self.account.is_none()
            && (self.endpoint.is_some() || self.credentials_file.is_some())
        {
            return Err("a server of Azure needs an `account`".to_owned());
        }
        for (key, path) in [
            ("credentials_file", &self.credentials_file),
            ("ca_file", &self.ca_file),
        ] {
            if let Some(path) = path.as_deref().filter(|path| Path::is_relative(path)) {
                return Err(format!("`{key}`: {} is not absolute", path.display()));
            }
        }
        Ok(())
    }

    fn is_plain(&self, text: &str) -> bool {
        let scheme = text.split_once("://").map_or(text, |(scheme, _)| scheme);
        !scheme.contains('+')
    }

    fn a_key_of_a_server(&self) -> &'static str {
        let there = [
            ("endpoint", self.endpoint.is_some()),
            ("region", self.region.is_some()),
            ("profile", self.profile.is_some()),
            ("account", self.account.is_some()),
            ("credentials_file", self.credentials_file.is_some()),
            ("ca_file", self.ca_file.is_some()),
            ("patience", self.patience.is_some()),
            ("addressing_style", self.addressing_style.is_some()),
        ];
        let found = there.into_iter().find(|(_, is_there)| *is_there);
        found.map_or("allow_http", |(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Places, String> {
        let target: Target = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        target.check("off-site")?;
        target.places("off-site").map_err(|e| e.to_string())
    }

    #[test]
    fn addresses_at_an_own_server_name_the_target() {
        let texts = |text: &str| match checked(text).unwrap() {
            Places::Buckets(prefixes) => prefixes.iter().map(ToString::to_string).collect(),
            Places::Directories(_) => Vec::new(),
        };
        assert_eq!(texts("buckets = ['s3://abc/p/']"), ["s3://abc/p"]);
        assert_eq!(
            texts("buckets = ['S3://abc/p/', 's3://abd']\nregion = 'eu-west-1'"),
            ["s3+off-site://abc/p", "s3+off-site://abd"]
        );
        assert_eq!(
            texts("buckets = ['az://abc']\naccount = 'vault'\nca_file = '/a'"),
            ["az+off-site://abc"]
        );
        // A target may use the server of another.
        assert_eq!(texts("buckets = ['s3+vault://abc']"), ["s3+vault://abc"]);
    }

    #[test]
    fn keys_of_a_server_fit_the_buckets() {
        for (text, word) in [
            (
                "directories = ['/a']\nregion = 'b'",
                "`region` is for a target with `buckets`",
            ),
            (
                "directories = ['/a']\nallow_http = true",
                "`allow_http` is for",
            ),
            (
                "buckets = ['s3://abc', 'gs://abc']\nendpoint = 'https://h'",
                "one kind of store",
            ),
            (
                "buckets = ['s3+other://abc']\nendpoint = 'https://h'",
                "names a server",
            ),
            (
                "buckets = ['gs://abc']\nprofile = 'b'",
                "`profile` is for buckets of s3://",
            ),
            (
                "buckets = ['s3://abc']\naccount = 'b'",
                "`account` is for buckets of az://",
            ),
            (
                "buckets = ['az://abc']\nendpoint = 'https://h'",
                "needs an `account`",
            ),
            (
                "buckets = ['s3://abc']\ncredentials_file = 'a'",
                "`credentials_file`: a is not absolute",
            ),
            ("buckets = ['s3://abc']\nsecret_key = 'a'", "unknown field"),
        ] {
            let refused = checked(text).map(drop).unwrap_err();
            assert!(refused.contains(word), "{text}: {refused}");
        }
        let target: Target = toml::from_str("buckets = ['s3://abc']\nregion = 'b'").unwrap();
        assert!(
            target
                .check("off site")
                .unwrap_err()
                .contains("its own has a name")
        );
    }
}
