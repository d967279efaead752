//! `longshore.toml`: databases, targets and defaults, so that a nightly job needs two words.
//!
//! `docs/configuration.md` describes every key; a test compares the two.
//!
//! Invariants
//! - An unknown key is refused with file and line: a misspelt `retain_days` must not go unnoticed.
//! - The environment overrides single keys (`environment.rs`); the options of a command override both.
//!
//! Leaves to others: variables of the environment (`environment.rs`); the keys of targets (`target.rs`).

mod environment;
mod near;
mod place;
mod retention;
mod target;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};

use longshore_codec::{Algorithm, Level};
use longshore_crypt::without_secrets;
use longshore_io::{Storage, Via};
use longshore_media::header::IDENTITY_MAX;
use longshore_media::{ServerUrl, only_path};
use longshore_repository::Places;
use longshore_repository::retention::Policy;
use longshore_repository::target::unfit_name;
use longshore_wal::{is_in_bucket, location};
use serde::{Deserialize, Deserializer, de};

use self::environment::Form;
use self::place::ConfigPlace;
pub use self::retention::Retention;
use self::retention::check_retention;
pub use self::target::Target;
use crate::options::values;
use longshore_terminal::failure::Failure;
use longshore_terminal::numbers;
use longshore_terminal::text::command_line;

/// The maximum length of a configuration file.
const LEN_MAX: u64 = 1 << 20;

/// The tables that variables of the environment can name.
const FORMS: &[Form] = &[
    Form {
        table: "database",
        named: true,
        keys: Database::KEYS,
    },
    Form {
        table: "target",
        named: true,
        keys: Target::KEYS,
    },
    Form {
        table: "retention",
        named: true,
        keys: Retention::KEYS,
    },
    Form {
        table: "defaults",
        named: false,
        keys: Defaults::KEYS,
    },
    Form {
        table: "serve",
        named: false,
        keys: Serve::KEYS,
    },
    Form {
        table: "encryption",
        named: false,
        keys: Encryption::KEYS,
    },
];

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default)]
    pub database: BTreeMap<String, Database>,
    #[serde(default)]
    pub target: BTreeMap<String, Target>,
    #[serde(default)]
    pub retention: BTreeMap<String, Retention>,
    #[serde(default)]
    pub defaults: Defaults,
    #[serde(default)]
    pub serve: Serve,
    #[serde(default)]
    pub encryption: Encryption,
    #[serde(default)]
    pub catalog: Catalog,
    /// The file that was read; `None`: there is none.
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// The environment variables that took effect.
    #[serde(skip)]
    pub variables: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// `sqlite:FILE`, `files:PATH`, or a server's connection string. Required; may come from the environment.
    #[serde(default)]
    pub url: String,
    /// The target if the command names none.
    pub target: Option<String>,
    /// The rules for what may be removed from the target.
    pub retention: Option<String>,
    /// The targets to which its backups are copied, if not those of the defaults.
    pub copies: Option<Vec<String>>,
    /// How targets identify a database without WAL, on any machine; without this key, by machine and path.
    pub identity: Option<String>,
    #[serde(default, deserialize_with = "algorithm")]
    pub algorithm: Option<Algorithm>,
    #[serde(default, deserialize_with = "level")]
    pub level: Option<Level>,
    /// A file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The environment variable that holds the password.
    pub password_env: Option<String>,
    /// Whether to rely on a SQLite database's locks on any file system.
    #[serde(default)]
    pub trust_locks: bool,
    /// Whether a database without WAL may lose its content: backups of it are then counted as all others.
    #[serde(default)]
    pub may_be_empty: bool,
    /// Whether backups of a server hold its configuration files from outside the data directory; they do without this key.
    pub server_config: Option<bool>,
    /// The WAL archive; a database with this table has one.
    pub wal: Option<Wal>,
}

impl Database {
    pub const KEYS: &[&str] = &[
        "url",
        "target",
        "retention",
        "copies",
        "identity",
        "algorithm",
        "level",
        "password_file",
        "password_env",
        "trust_locks",
        "may_be_empty",
        "server_config",
        "wal.archive",
        "wal.algorithm",
        "wal.level",
        "wal.async",
        "wal.queue_max",
        "wal.prefetch",
        "wal.workers",
        "wal.slot",
        "wal.encrypt",
        "wal.copy_at_once",
        "wal.copy_behind",
        "wal.home_behind",
    ];

    /// Sources of these kinds have no WAL to archive.
    pub fn has_no_log(&self) -> bool {
        self.url.starts_with("sqlite:") || self.url.starts_with("files:")
    }
}

/// How the WAL of a PostgreSQL cluster is archived.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wal {
    /// The archive's own directory; `None`: DATABASE/wal at the target.
    pub archive: Option<PathBuf>,
    #[serde(default, deserialize_with = "algorithm")]
    pub algorithm: Option<Algorithm>,
    #[serde(default, deserialize_with = "level")]
    pub level: Option<Level>,
    /// Whether pushes and gets work ahead of the server's calls.
    #[serde(default, rename = "async")]
    pub ahead: bool,
    /// The limit in bytes of segments that pushes take on ahead.
    #[serde(default, deserialize_with = "positive_size")]
    pub queue_max: Option<u64>,
    /// The limit in bytes of segments that gets fetch ahead.
    #[serde(default, deserialize_with = "positive_size")]
    pub prefetch: Option<u64>,
    /// The number of files processed at a time.
    pub workers: Option<NonZeroU8>,
    /// The replication slot that `wal receive` reads from.
    pub slot: Option<String>,
    /// Whether pushes bring the WAL to the database's copies, too, in the background.
    #[serde(default)]
    pub copy_at_once: bool,
    /// Whether WAL is encrypted where backups are; `None`: yes.
    pub encrypt: Option<bool>,
    /// The bytes of WAL that a copy may lack before pushes fail; `None`: any number.
    #[serde(default, deserialize_with = "positive_size")]
    pub copy_behind: Option<u64>,
    /// The bytes of WAL that the database's own archive may lack while a copy has them, before pushes fail; `None`: none.
    #[serde(default, deserialize_with = "positive_size")]
    pub home_behind: Option<u64>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// The target of databases that name none.
    pub target: Option<String>,
    /// The retention of databases that name none.
    pub retention: Option<String>,
    /// The targets of copies of databases that name none.
    pub copies: Option<Vec<String>>,
    #[serde(default, deserialize_with = "algorithm")]
    pub algorithm: Option<Algorithm>,
    #[serde(default, deserialize_with = "level")]
    pub level: Option<Level>,
    pub buffer_count: Option<u32>,
    #[serde(default, deserialize_with = "size")]
    pub max_transfer_size: Option<u64>,
    #[serde(default, deserialize_with = "rate")]
    pub max_rate: Option<u64>,
    #[serde(default, deserialize_with = "percent")]
    pub max_cpu: Option<f64>,
    #[serde(default)]
    pub low_io_priority: bool,
    pub retain_days: Option<u32>,
}

impl Defaults {
    pub const KEYS: &[&str] = &[
        "target",
        "retention",
        "copies",
        "algorithm",
        "level",
        "buffer_count",
        "max_transfer_size",
        "max_rate",
        "max_cpu",
        "low_io_priority",
        "retain_days",
    ];
}

/// How `longshore serve` treats its clients.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    pub listen: Option<SocketAddr>,
    /// A PEM file; requires `key`.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Whether clients must encrypt everything.
    #[serde(default)]
    pub encrypt: bool,
    /// The file of names and hashed passwords.
    pub logins: Option<PathBuf>,
    /// The part of the file system that statements may name.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
    /// The prefixes below which statements may name objects.
    #[serde(default)]
    pub buckets: Vec<String>,
    /// The base of relative device names.
    pub backup_directory: Option<PathBuf>,
    pub sessions: Option<NonZeroU16>,
    /// The maximum number of sessions of one login.
    pub login_sessions: Option<NonZeroU16>,
    #[serde(default, deserialize_with = "positive_size")]
    pub batch_size: Option<u64>,
    /// The maximum bytes that all sessions may hold together.
    #[serde(default, deserialize_with = "positive_size")]
    pub memory: Option<u64>,
    /// In seconds.
    pub login_time: Option<NonZeroU16>,
    pub idle_time: Option<NonZeroU32>,
    /// Where the status page is.
    pub http: Option<SocketAddr>,
    /// The seconds between two answers of the status page.
    pub refresh: Option<NonZeroU32>,
    /// The hours after which the status page calls the newest good backup too old.
    pub max_age: Option<NonZeroU32>,
}

impl Serve {
    pub const KEYS: &[&str] = &[
        "listen",
        "certificate",
        "key",
        "encrypt",
        "logins",
        "directories",
        "buckets",
        "backup_directory",
        "sessions",
        "login_sessions",
        "batch_size",
        "memory",
        "login_time",
        "idle_time",
        "http",
        "refresh",
        "max_age",
    ];
}

/// The recipients of backups, the identities that open backups here, and signatures.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encryption {
    /// For whom backups are encrypted: `age1…`, `age1pq1…`, `@FILE` or `passphrase:FILE`.
    #[serde(default)]
    pub recipients: Vec<String>,
    /// Files that open encrypted backups: of identities, or `passphrase:FILE`.
    #[serde(default)]
    pub identities: Vec<String>,
    /// Whether backups that are not encrypted are refused, when they are made and when they are read.
    #[serde(default)]
    pub require: bool,
    /// Recipients that everything must have that is written here.
    #[serde(default)]
    pub require_recipients: Vec<String>,
    /// The file with the key that signs what is made here.
    pub sign: Option<PathBuf>,
    /// Whose signatures count: `lssigner1…`.
    #[serde(default)]
    pub signers: Vec<String>,
    /// Whether backups that none of them signed are refused, when they are made and when they are read.
    #[serde(default)]
    pub require_signature: bool,
    /// The program that wraps a set's key for `command:ID`, and its arguments.
    #[serde(default)]
    pub wrap_command: Vec<String>,
    /// The program that unwraps it.
    #[serde(default)]
    pub unwrap_command: Vec<String>,
}

impl Encryption {
    pub const KEYS: &[&str] = &[
        "recipients",
        "identities",
        "require",
        "require_recipients",
        "sign",
        "signers",
        "require_signature",
        "wrap_command",
        "unwrap_command",
    ];
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// A file, or `none`.
    pub path: Option<PathBuf>,
}

/// A number or a text; both are parsed like on the command line.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Whole(i64),
    Real(f64),
    Text(String),
}

fn parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = match Word::deserialize(from)? {
        Word::Whole(n) => n.to_string(),
        Word::Real(n) => n.to_string(),
        Word::Text(text) => text,
    };
    parse(&text).map(Some).map_err(de::Error::custom)
}

fn algorithm<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Algorithm>, D::Error> {
    parsed(from, values::algorithm)
}
fn level<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Level>, D::Error> {
    parsed(from, values::level)
}
fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parsed(from, values::size)
}
fn positive_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parsed(from, values::positive_size)
}
fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parsed(from, values::rate)
}
fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    parsed(from, values::percent)
}

impl Config {
    /// Reads the named file, else the first default file that exists, else nothing.
    pub fn load(storage: &dyn Storage, named: Option<&Path>) -> Result<Config, Failure> {
        let candidates = match named {
            Some(path) => vec![path.to_owned()],
            None => usual_paths(),
        };
        let mut found = None;
        for path in candidates {
            match read(storage, &path) {
                Ok(text) => {
                    found = Some((text, path));
                    break;
                }
                Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => {
                    let hint = match named {
                        Some(_) => {
                            "correct --config or LONGSHORE_CONFIG, then run `longshore config check`"
                        }
                        None => {
                            "check whether HOME or XDG_CONFIG_HOME is another user's, or name a file: `longshore config check --config FILE`"
                        }
                    };
                    let what = format!("cannot read the configuration {}", path.display());
                    let failure = Failure::usage(what, hint).because(e);
                    return Err(failure.numbered(numbers::CONFIG_UNREADABLE));
                }
            }
        }
        let (text, path) = found.map_or((String::new(), None), |(t, p)| (t, Some(p)));
        let passwords = password_variables(&text);
        let passwords: Vec<&str> = passwords.iter().map(String::as_str).collect();
        let variables = environment::own(std::env::vars_os(), &passwords, FORMS)
            .map_err(|(name, what)| refusal(None, &format!("the variable {name}"), &what))?;
        Config::parse(&text, path, variables)
    }

    fn parse(
        text: &str,
        path: Option<PathBuf>,
        mut variables: Vec<(String, String)>,
    ) -> Result<Config, Failure> {
        let mut config: Config = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start).min(text.len());
            let file = path.as_deref().unwrap_or(Path::new("the configuration"));
            let place = ConfigPlace::at(text, at);
            let shown = format!("{}, {}", file.display(), place.shown());
            let failure = refusal(path.as_deref(), &shown, e.message());
            let failure = match text.parse::<toml::Table>() {
                Ok(_) => failure,
                Err(_) => failure.numbered(numbers::CONFIG_SYNTAX),
            };
            // A key in the wrong table has no value to write there.
            let is_unknown = failure.number == numbers::KEY_UNKNOWN;
            match place.last_word().and_then(place::example) {
                Some(example) if !is_unknown => Failure {
                    hint: format!(
                        "docs/configuration.md describes the keys; write for example {example}, then run `{}`",
                        check_command(path.as_deref())
                    ),
                    ..failure
                },
                _ => failure,
            }
        })?;
        variables.sort();
        let mut table: toml::Table = text.parse().unwrap_or_default();
        for (name, value) in &variables {
            match environment::apply(name, value, &mut table, FORMS) {
                None => {}
                Some(Err(what)) => {
                    return Err(refusal(None, &format!("the variable {name}"), &what));
                }
                Some(Ok(())) => {
                    config = Config::deserialize(table.clone())
                        .map_err(|e| refusal(None, &format!("the variable {name}"), e.message()))?;
                    config.variables.push(name.clone());
                }
            }
        }
        config.path = path;
        config.check(text)?;
        Ok(config)
    }

    /// Checks what the grammar alone cannot.
    fn check(&self, text: &str) -> Result<(), Failure> {
        self.check_tables().map_err(|what| {
            let path = self.path.as_deref().unwrap_or(Path::new("longshore.toml"));
            let place = ConfigPlace::of(text, &what);
            let shown = place.as_ref().map(|place| format!(", {}", place.shown()));
            let example = place.as_ref().and_then(ConfigPlace::last_word);
            let step = match example.and_then(place::example) {
                Some(example) => format!("write for example {example}"),
                None => "correct this table".to_owned(),
            };
            let hint = format!("{step}, then run `{}`", check_command(self.path.as_deref()));
            let shown = shown.unwrap_or_default();
            Failure::usage(format!("{}{shown}: {what}", path.display()), hint)
                .numbered(numbers::CONFIG_TABLES)
        })
    }

    /// `Err`: what is wrong, and where.
    fn check_tables(&self) -> Result<(), String> {
        self.check_paths()?;
        for (name, target) in &self.target {
            target.check(name)?;
            self.check_names(&format!("target.{name}"), None, target.retention.as_deref())?;
        }
        for (name, database) in &self.database {
            self.check_database(name, database)?;
        }
        for (name, retention) in &self.retention {
            check_retention(name, retention)?;
        }
        allowed_prefixes(&self.serve.buckets).map_err(|e| format!("[serve]: `buckets`: {e}"))?;
        let (target, retention) = (&self.defaults.target, &self.defaults.retention);
        self.check_names("defaults", target.as_deref(), retention.as_deref())?;
        let copies = self.defaults.copies.as_deref().unwrap_or_default();
        self.check_copies("defaults", copies, target.as_deref())
    }

    /// No path is the address of an object store.
    fn check_paths(&self) -> Result<(), String> {
        let check = |table: &str, path: &OsStr| {
            let refused = |why| format!("[{table}]: {}: {why}", path.display());
            only_path(path).map(drop).map_err(refused)
        };
        for (name, target) in &self.target {
            let table = format!("target.{name}");
            for path in [&target.credentials_file, &target.ca_file]
                .into_iter()
                .flatten()
            {
                check(&table, path.as_os_str())?;
            }
            for path in &target.directories {
                check(&table, path.as_os_str())
                    .map_err(|why| format!("{why}; prefixes of object stores go into `buckets`"))?;
            }
        }
        for (name, database) in &self.database {
            let table = format!("database.{name}");
            let archive = database.wal.as_ref().and_then(|wal| wal.archive.as_ref());
            if let Some(path) = archive {
                location(path.as_os_str()).map_err(|e| format!("[{table}]: {e}"))?;
            }
            if let Some(path) = &database.password_file {
                check(&table, path.as_os_str())?;
            }
            check(&table, OsStr::new(&database.url))?;
        }
        if let Some(path) = &self.catalog.path {
            check("catalog", path.as_os_str())?;
        }
        if let Some(path) = &self.encryption.sign {
            check("encryption", path.as_os_str())?;
        }
        let encryption = &self.encryption;
        for (key, command) in [
            ("wrap_command", &encryption.wrap_command),
            ("unwrap_command", &encryption.unwrap_command),
        ] {
            if command.first().is_some_and(|word| !word.starts_with('/')) {
                return Err(format!(
                    "[encryption]: `{key}` is a list whose first word is the absolute path of a program; no shell reads it"
                ));
            }
        }
        let serve = &self.serve;
        let one = [
            &serve.certificate,
            &serve.key,
            &serve.logins,
            &serve.backup_directory,
        ];
        for path in one.into_iter().flatten().chain(&serve.directories) {
            check("serve", path.as_os_str())?;
        }
        Ok(())
    }

    /// A table named in `table` must be there.
    fn check_names(
        &self,
        table: &str,
        target: Option<&str>,
        retention: Option<&str>,
    ) -> Result<(), String> {
        if let Some(target) = target.filter(|name| !self.target.contains_key(*name)) {
            return Err(format!(
                "[{table}]: `target`: there is no [target.{target}]"
            ));
        }
        match retention.filter(|name| !self.retention.contains_key(*name)) {
            Some(retention) => Err(format!(
                "[{table}]: `retention`: there is no [retention.{retention}]"
            )),
            None => Ok(()),
        }
    }

    /// Copies go to other targets than the backups themselves, each named once.
    fn check_copies(
        &self,
        table: &str,
        copies: &[String],
        own: Option<&str>,
    ) -> Result<(), String> {
        for (i, copy) in copies.iter().enumerate() {
            let what = if !self.target.contains_key(copy) {
                format!("there is no [target.{copy}]")
            } else if own == Some(copy) {
                format!("{copy} is the target of the backups themselves")
            } else if copies[..i].contains(copy) {
                format!("{copy} is named twice")
            } else {
                continue;
            };
            return Err(format!("[{table}]: `copies`: {what}"));
        }
        Ok(())
    }

    fn check_database(&self, name: &str, database: &Database) -> Result<(), String> {
        let table = format!("database.{name}");
        self.check_names(&table, database.target.as_deref(), None)?;
        if database.url.is_empty() {
            return Err(format!("[{table}] needs a `url`"));
        }
        self.check_names(&table, None, database.retention.as_deref())?;
        // Inherited ones, too: they may name this database's own target.
        self.check_copies(&table, self.copies_of(name), self.target_of(name))?;
        if let Some(identity) = &database.identity {
            check_identity(database, identity)
                .map_err(|what| format!("[{table}]: `identity` {what}"))?;
        }
        if database.password_file.is_some() && database.password_env.is_some() {
            return Err(format!(
                "[{table}]: `password_file` and `password_env` exclude each other"
            ));
        }
        if let Some(what) = unfit_name(name) {
            return Err(format!("[{table}]: {what}"));
        }
        if database.trust_locks && !database.url.starts_with("sqlite:") {
            return Err(format!(
                "[{table}]: `trust_locks` is for a `url` that begins with sqlite:"
            ));
        }
        if database.may_be_empty && !database.has_no_log() {
            return Err(format!(
                "[{table}]: `may_be_empty` is for a `url` that begins with sqlite: or files:"
            ));
        }
        let is_server = !database.url.starts_with("sqlite:") && !database.url.starts_with("files:");
        if database.server_config.is_some() && !is_server {
            return Err(format!(
                "[{table}]: `server_config` is for the `url` of a PostgreSQL server"
            ));
        }
        if let Some(wal) = &database.wal {
            self.check_wal(name, database, wal)
                .map_err(|what| format!("[{table}.wal]: {what}"))?;
        }
        Ok(())
    }

    fn check_wal(&self, name: &str, database: &Database, wal: &Wal) -> Result<(), String> {
        if database.has_no_log() {
            return Err("only PostgreSQL clusters have WAL to archive".into());
        }
        if wal.copy_at_once && self.copies_of(name).is_empty() {
            return Err("`copy_at_once` needs `copies` of the database or the defaults".into());
        }
        if wal.copy_behind.is_some() && !wal.copy_at_once {
            return Err("`copy_behind` needs `copy_at_once = true`".into());
        }
        if wal.home_behind.is_some() && !wal.copy_at_once {
            return Err("`home_behind` needs `copy_at_once = true`".into());
        }
        let Some(archive) = &wal.archive else {
            return match self.target_of(name) {
                Some(_) => Ok(()),
                None => Err("name an `archive`, or a `target` for the database".into()),
            };
        };
        let shown = archive.display();
        if archive.is_relative() && !is_in_bucket(archive) {
            return Err(format!("{shown} is not absolute"));
        }
        let of_another = |(other, d): &(&String, &Database)| {
            let path = d.wal.as_ref().and_then(|wal| wal.archive.as_ref());
            *other != name && path == Some(archive)
        };
        if let Some((other, _)) = self.database.iter().find(of_another) {
            return Err(format!(
                "{shown} is the archive of [database.{other}], too; one cluster, one archive"
            ));
        }
        for (target, t) in &self.target {
            let taken = |dir: &PathBuf| archive == dir || *archive == dir.join(name);
            let prefixes = t.places(target).map(|p| p.texts()).unwrap_or_default();
            let prefixes = prefixes.iter().map(PathBuf::from);
            if t.directories.iter().any(taken) || prefixes.clone().any(|p| taken(&p)) {
                return Err(format!(
                    "{shown} is reserved for the backups of target {target}; name another directory"
                ));
            }
        }
        Ok(())
    }

    /// From now on, addresses of this process can name the servers of targets.
    pub fn name_servers(&self) {
        for (name, target) in &self.target {
            if let Some(server) = target.server() {
                server.name(name);
            }
        }
    }

    /// Whether a process that reads the file without this one's variables has another server of the target, or none.
    pub fn server_needs_variables(&self, target: &str, storage: &dyn Storage) -> bool {
        if self.variables.is_empty() {
            return false;
        }
        let text = self
            .path
            .as_deref()
            .and_then(|path| read(storage, path).ok());
        let alone = text.and_then(|text| toml::from_str::<Config>(&text).ok());
        let server = |config: &Config| config.target.get(target).and_then(Target::server);
        alone.is_none_or(|alone| server(&alone) != server(self))
    }

    /// How a database's WAL is archived, if it is.
    pub fn wal_of(&self, database: &str) -> Option<&Wal> {
        self.database.get(database)?.wal.as_ref()
    }

    /// The target of a database, from its own table or the defaults.
    pub fn target_of(&self, database: &str) -> Option<&str> {
        let own = self.database.get(database).and_then(|d| d.target.as_ref());
        own.or(self.defaults.target.as_ref()).map(String::as_str)
    }

    /// For whom a backup to a target is encrypted, or one that goes to no target.
    pub fn recipients_of(&self, target: Option<&str>) -> &[String] {
        let target = target.and_then(|name| self.target.get(name));
        let own = target.and_then(|target| target.recipients.as_deref());
        own.unwrap_or(&self.encryption.recipients)
    }

    /// The targets to which a database's backups are copied.
    pub fn copies_of(&self, database: &str) -> &[String] {
        let own = self.database.get(database).and_then(|d| d.copies.as_ref());
        let own = own.or(self.defaults.copies.as_ref());
        own.map(Vec::as_slice).unwrap_or_default()
    }

    /// The rules for what may be removed of a database at a target, and the name of their table: the target's own, else the
    /// database's.
    pub fn retention_of(&self, database: &str, target: Option<&str>) -> Option<(&str, Retention)> {
        let target = target.and_then(|name| self.target.get(name));
        let of_target = target.and_then(|t| t.retention.as_ref());
        let of_database = self
            .database
            .get(database)
            .and_then(|d| d.retention.as_ref());
        let name = of_target
            .or(of_database)
            .or(self.defaults.retention.as_ref())?;
        Some((name, *self.retention.get(name)?))
    }

    /// The same rules, as they are applied to the database.
    pub fn policy_of(&self, database: &str, target: Option<&str>) -> Option<Policy> {
        let (_, retention) = self.retention_of(database, target)?;
        Some(Policy {
            counts_emptied: self.may_be_empty(database),
            ..retention.policy()
        })
    }

    /// Whether an empty source is right, by the configuration.
    pub fn may_be_empty(&self, database: &str) -> bool {
        let table = self.database.get(database);
        table.is_some_and(|table| table.may_be_empty)
    }
}

/// The prefixes below which statements can name objects, without a slash at the end. One may begin with its server, as in a
/// statement: `s3://HOST:PORT/BUCKET/PREFIX`.
///
/// Errors: which one is no address, and why.
pub fn allowed_prefixes(texts: &[String]) -> Result<Vec<String>, String> {
    let one = |text: &String| match ServerUrl::parse(text) {
        Some(Ok(_)) => Ok(vec![text.trim_end_matches('/').to_owned()]),
        Some(Err(why)) => Err(format!("{text} is not an address: {why}")),
        None => Places::buckets(std::slice::from_ref(text))
            .map(|places| places.texts())
            .map_err(|e| e.to_string()),
    };
    let found: Result<Vec<_>, _> = texts.iter().map(one).collect();
    found.map(|found| found.concat())
}

fn check_identity(database: &Database, identity: &str) -> Result<(), String> {
    if !database.has_no_log() {
        return Err(
            "is only for `sqlite:` and `files:`: a cluster is identified by its WAL".into(),
        );
    }
    if identity.trim() != identity || identity.is_empty() {
        return Err("is empty, or begins or ends with a blank".into());
    }
    if identity.chars().any(char::is_control) {
        return Err("holds a control character".into());
    }
    if identity.len() > IDENTITY_MAX {
        return Err(format!("is longer than {IDENTITY_MAX} bytes"));
    }
    Ok(())
}

/// The variables that hold passwords, as named by the file and the environment: they may have any name.
fn password_variables(text: &str) -> Vec<String> {
    let table: toml::Table = text.parse().unwrap_or_default();
    let databases = table.get("database").and_then(toml::Value::as_table);
    let of_file = databases.into_iter().flatten().filter_map(|(_, database)| {
        let name = database.get("password_env")?.as_str()?;
        Some(name.to_owned())
    });
    let of_environment = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str()?;
        let names_one = name.starts_with("LONGSHORE_DATABASE_") && name.ends_with("_PASSWORD_ENV");
        value.to_str().filter(|_| names_one).map(str::to_owned)
    });
    of_file.chain(of_environment).collect()
}

/// The command that reads the configuration again.
fn check_command(path: Option<&Path>) -> String {
    let words = ["config", "check"].map(OsString::from).into_iter();
    match path.filter(|path| !usual_paths().iter().any(|usual| usual == path)) {
        Some(path) => command_line(words.chain(["--config".into(), path.into()])),
        None => command_line(words),
    }
}

/// The failure for a configuration that cannot be parsed: `path` is the file's, if the mistake is in one.
fn refusal(path: Option<&Path>, place: &str, message: &str) -> Failure {
    let what = without_secrets(&message.replace('\n', "; "));
    let hint = format!(
        "docs/configuration.md describes the keys; correct this one, then run `{}`",
        check_command(path)
    );
    let is_unknown = ["unknown field", "no such variable", "names no key"]
        .iter()
        .any(|words| what.contains(words));
    let ticked: Vec<&str> = what.split('`').skip(1).step_by(2).collect();
    let near = match ticked.split_first() {
        Some((word, known)) if what.contains("unknown field") => {
            near::nearest(word, known.iter().copied())
        }
        _ => None,
    };
    let hint = match near {
        Some(near) => format!("did you mean `{near}`? {hint}"),
        None => hint,
    };
    Failure::usage(format!("{place}: {what}"), hint).numbered(match is_unknown {
        true => numbers::KEY_UNKNOWN,
        false => numbers::KEY_VALUE,
    })
}

fn usual_paths() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|h| h.join(".config")));
    own.into_iter()
        .filter(|p| p.is_absolute())
        .map(|p| p.join("longshore/longshore.toml"))
        .chain([PathBuf::from("/etc/longshore/longshore.toml")])
        .collect()
}

fn read(storage: &dyn Storage, path: &Path) -> std::io::Result<String> {
    let real = storage.canonical(path)?;
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(std::io::ErrorKind::IsADirectory.into());
    };
    let file = storage
        .dir(parent)?
        .open(Path::new(name), longshore_io::OpenHow::Read)?;
    let len = file.stat()?.len;
    if len > LEN_MAX {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; len as usize];
    let got = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    bytes.truncate(got);
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Failure> {
        Config::parse(text, Some("longshore.toml".into()), Vec::new())
    }

    fn with(text: &str, variables: &[(&str, &str)]) -> Result<Config, Failure> {
        let own = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
        let variables = variables.iter().map(own).collect();
        Config::parse(text, Some("longshore.toml".into()), variables)
    }

    fn refusal(text: &str) -> String {
        parse(text).expect_err("this should be refused").text
    }

    #[test]
    fn a_server_of_the_variables_is_not_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("longshore.toml");
        let text = "[target.far]\nbuckets = ['s3://abc']\nendpoint = 'https://of.file'\n";
        std::fs::write(&path, text).unwrap();
        let needs = |name: &str, value: &str| {
            let variables = vec![(name.to_owned(), value.to_owned())];
            let config = Config::parse(text, Some(path.clone()), variables).unwrap();
            config.server_needs_variables("far", &longshore_io::Host::new())
        };
        assert!(needs("LONGSHORE_TARGET_FAR_ENDPOINT", "https://other"));
        assert!(needs("LONGSHORE_TARGET_FAR_REGION", "eu-west-1"));
        assert!(!needs("LONGSHORE_TARGET_FAR_ENDPOINT", "https://of.file"));
        assert!(!needs("LONGSHORE_TARGET_FAR_PARITY", "0"));
    }

    #[test]
    fn everything_that_is_documented_is_read() {
        let config = parse(
            r#"
            [database.sales]
            url = "sqlite:/srv/sales.db"
            target = "nightly"
            level = 3
            retention = "month"
            password_file = "/etc/longshore/sales.secret"
            [retention.month]
            keep_full = 4
            keep_days = 30
            keep_wal = 2
            [target.nightly]
            directories = ["/mnt/a", "/mnt/b"]
            [defaults]
            algorithm = "zstd"
            level = "MEDIUM"
            buffer_count = 24
            max_transfer_size = "512K"
            max_rate = "200M"
            max_cpu = 25
            low_io_priority = true
            retain_days = 7
            [catalog]
            path = "/var/lib/longshore/history.db"
            "#,
        )
        .unwrap();
        assert_eq!(config.database["sales"].level, Some(Level::Number(3)));
        assert_eq!(config.target["nightly"].directories.len(), 2);
        assert_eq!(config.defaults.algorithm, Some(Algorithm::Zstd));
        assert_eq!(config.defaults.max_transfer_size, Some(512 << 10));
        assert_eq!(config.defaults.max_cpu, Some(25.0));
        let (name, retention) = config.retention_of("sales", None).unwrap();
        assert_eq!((name, retention.keep_days), ("month", Some(30)));
        assert_eq!(config.target_of("sales"), Some("nightly"));
        assert_eq!(config.target_of("other"), None);
    }

    #[test]
    fn the_environment_overrides_single_keys_and_is_checked_like_the_file() {
        let file = "[database.a]\nurl = \"sqlite:/a\"\n";
        let config = with(file, &[("LONGSHORE_DATABASE_A_LEVEL", "5")]).unwrap();
        assert_eq!(config.database["a"].level, Some(Level::Number(5)));
        assert_eq!(config.database["a"].url, "sqlite:/a");
        assert_eq!(config.variables, ["LONGSHORE_DATABASE_A_LEVEL"]);
        let config = with("", &[("LONGSHORE_DATABASE_B_URL", "files:/b")]).unwrap();
        assert_eq!(config.database["b"].url, "files:/b");
        for (name, value, says) in [
            ("LONGSHORE_DEFAULTS_MAX_CPU", "0", "percentage"),
            (
                "LONGSHORE_DATABASE_A_TARGET",
                "nowhere",
                "no [target.nowhere]",
            ),
            ("LONGSHORE_DATABASE_A_TAGRET", "x", "`target`"),
        ] {
            let text = with(file, &[(name, value)]).unwrap_err().text;
            assert!(text.contains(says), "{name}: {text}");
        }
    }

    #[test]
    fn a_misspelt_key_gets_the_one_that_was_meant() {
        let failure = parse("[retention.a]\nkeep_ful = 3\n").unwrap_err();
        assert!(failure.hint.starts_with("did you mean `keep_full`?"));
        let failure = parse("[databse.a]\nurl = \"x\"\n").unwrap_err();
        assert!(failure.hint.starts_with("did you mean `database`?"));
    }

    #[test]
    fn an_unknown_key_is_refused_with_file_and_line() {
        let text = refusal("[defaults]\nretain_days = 7\nretian_days = 9\n");
        let place = "longshore.toml, line 3, column 1: `defaults.retian_days`: ";
        assert!(text.starts_with(place), "{text}");
        assert!(text.contains("retian_days"), "{text}");
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line_and_the_reason() {
        let text = refusal("\n[defaults]\nmax_cpu = 0\n");
        let place = "longshore.toml, line 3, column 11: `defaults.max_cpu`: ";
        assert!(text.starts_with(place), "{text}");
        assert!(text.contains("percentage"), "{text}");
        let failure = parse("[defaults]\nmax_rate = \"fast\"\n").unwrap_err();
        let place = "longshore.toml, line 2, column 12: `defaults.max_rate`: unknown unit";
        assert!(failure.text.starts_with(place), "{}", failure.text);
        let hint = failure.hint;
        assert!(hint.contains("max_rate = \"200M\", then run `"), "{hint}");
        // Checks of several keys name the place, too.
        let failure = parse("[target.t]\ndirectories = [\"a\"]\n[retention.r]\nkeep_full = 0\n");
        let failure = failure.unwrap_err();
        assert!(
            failure
                .text
                .starts_with("longshore.toml, line 1, column 1: [target.t]")
        );
        assert!(
            failure
                .hint
                .ends_with("`longshore config check --config longshore.toml`")
        );
        assert!(refusal("[defaults]\nalgorithm = \"RAR\"\n").contains("QAT_DEFLATE"));
    }

    #[test]
    fn a_log_that_cannot_be_archived_as_it_says_is_refused() {
        let config = parse(
            r#"
            [database.main]
            url = "postgres:///?host=/run"
            [database.main.wal]
            archive = "/mnt/log/main"
            async = true
            queue_max = "64M"
            workers = 3
            "#,
        )
        .unwrap();
        let wal = config.wal_of("main").unwrap();
        assert_eq!((wal.ahead, wal.queue_max), (true, Some(64 << 20)));
        for (url, wal, more, says) in [
            ("sqlite:/a", "", "", "only PostgreSQL"),
            ("postgres://h", "", "", "name an `archive`"),
            ("postgres://h", "archive = \"a\"", "", "absolute"),
            ("postgres://h", "queue_max = 0", "", "0"),
            ("postgres://h", "workers = 0", "", "nonzero"),
            ("postgres://h", "copy_at_once = true", "", "needs `copies`"),
            (
                "postgres://h",
                "copy_behind = \"1G\"",
                "",
                "needs `copy_at_once",
            ),
            ("postgres://h", "archiv = \"/a\"", "", "`archive`"),
            (
                "postgres://h",
                "archive = \"/t/a\"",
                "[target.t]\ndirectories = [\"/t\"]",
                "reserved for the backups",
            ),
            (
                "postgres://h",
                "archive = \"/l\"",
                "[database.b]\nurl = \"postgres://i\"\n[database.b.wal]\narchive = \"/l\"",
                "one cluster, one archive",
            ),
        ] {
            let text = format!("[database.a]\nurl = \"{url}\"\n[database.a.wal]\n{wal}\n{more}\n");
            let said = refusal(&text);
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    #[test]
    fn names_that_lead_nowhere_are_refused() {
        let text = refusal("[database.a]\nurl = \"sqlite:/a\"\ntarget = \"x\"\n");
        assert!(text.contains("no [target.x]"), "{text}");
        assert!(refusal("[target.t]\ndirectories = []\n").contains("1 to 64"));
        assert!(refusal("[target.t]\ndirectories = [\"/a\", \"/a\"]\n").contains("twice"));
        assert!(refusal("[target.t]\ndirectories = [\"a\"]\n").contains("absolute"));
        let text = refusal("[database.a]\nurl = \"sqlite:/a\"\nretention = \"x\"\n");
        assert!(text.contains("no [retention.x]"), "{text}");
        assert!(refusal("[retention.r]\nkeep_wal = 2\n").contains("keep_full"));
        assert!(refusal("[retention.r]\nkeep_full = 0\n").contains("nothing"));
        for (url, identity, says) in [
            ("sqlite:/a", "", "empty"),
            ("sqlite:/a", " a", "blank"),
            ("sqlite:/a", "a\\u0007", "control"),
            ("postgres://h", "a", "identified by its WAL"),
        ] {
            let said = refusal(&format!(
                "[database.a]\nurl = \"{url}\"\nidentity = \"{identity}\"\n"
            ));
            assert!(said.contains(says), "{said}");
        }
        assert!(refusal("[database.a]\nlevel = 3\n").contains("url"));
        assert!(refusal("[defaults]\ntarget = \"t\"\n").contains("no [target.t]"));
        assert!(refusal("[database.\"../x\"]\nurl = \"sqlite:/a\"\n").contains("directory"));
    }

    #[test]
    fn no_setting_that_is_a_path_takes_the_address_of_an_object_store() {
        let database = "[database.d]\nurl = \"postgres://h\"\n";
        let of_buckets = "[target.t]\nbuckets = [\"s3://abc\"]";
        let settings = [
            ("[target.t]", "directories", true),
            (of_buckets, "credentials_file", false),
            (of_buckets, "ca_file", false),
            (database, "password_file", false),
            (&format!("{database}[database.d.wal]"), "archive", false),
            ("[serve]", "certificate", false),
            ("[serve]", "key", false),
            ("[serve]", "logins", false),
            ("[serve]", "directories", true),
            ("[serve]", "backup_directory", false),
            ("[encryption]", "sign", false),
            ("[catalog]", "path", false),
        ];
        for (table, key, is_list) in settings {
            for address in ["s3://abc/k", "S3://abc/k", "az://abc/k", "https://b/k"] {
                // A WAL archive can be in a store that is spoken to.
                let is_archive = key == "archive";
                if is_archive && !address.starts_with("https:") {
                    continue;
                }
                let value = match is_list {
                    true => format!("[\"{address}\"]"),
                    false => format!("\"{address}\""),
                };
                let said = refusal(&format!("{table}\n{key} = {value}\n"));
                let why = match is_archive {
                    true => "only s3://, az:// and gs:// addresses are supported",
                    false => "only a path works here",
                };
                assert!(said.contains(why), "{key}: {said}");
                assert!(said.contains(address), "{key}: {said}");
            }
        }
        let said = refusal("[target.t]\ndirectories = [\"s3://abc/k\"]\n");
        assert!(said.contains("`buckets`"), "{said}");
        let said = refusal("[database.d]\nurl = \"s3://abc/k\"\n");
        assert!(said.contains("only a path works here"), "{said}");
        // Each key of the file that is a path stands above.
        let own = include_str!("mod.rs").lines();
        let fields = own
            .chain(include_str!("target.rs").lines())
            .filter_map(|line| {
                let (name, kind) = line.strip_prefix("    pub ")?.split_once(": ")?;
                (kind.ends_with("PathBuf>,") && !kind.starts_with('&')).then_some(name)
            });
        // `Config::path` is the file itself.
        let fields: Vec<_> = fields.skip(1).collect();
        let named: Vec<_> = settings.iter().map(|s| s.1).collect();
        for field in &fields {
            assert!(named.contains(field), "{field} has no row");
        }
        assert_eq!(fields.len(), named.len(), "{fields:?}");
    }
}
