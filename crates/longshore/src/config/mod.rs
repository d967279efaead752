//! `longshore.toml`: databases, targets and defaults, so that a nightly job is two words.
//!
//! A key that is not known is refused with file and line: a misspelt `retain_days` must not go unnoticed.
//! The environment overrides single keys (`environment.rs`), the options of one command override both.
//! `docs/configuration.md` describes every key; a test compares the two.

mod environment;
mod near;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};

use longshore_codec::{Algorithm, Level};
use longshore_io::{Storage, Via};
use longshore_media::header::IDENTITY_MAX;
use longshore_repository::retention::Policy;
use longshore_repository::target::{DIRECTORIES_MAX, unfit_name};
use serde::{Deserialize, Deserializer, de};

use crate::failure::Failure;
use crate::options::values;

/// Longest configuration that is read.
const LEN_MAX: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize)]
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
    pub catalog: Catalog,
    /// The file it came from; `None`: there is none.
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// The environment's variables that had a say.
    #[serde(skip)]
    pub variables: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// `sqlite:FILE`, `files:PATH`, or a server's connection string. Required; may come from the environment.
    #[serde(default)]
    pub url: String,
    /// The target when the command names none.
    pub target: Option<String>,
    /// What may be removed from there.
    pub retention: Option<String>,
    /// What a database without a log is known by at targets, wherever it is; without it, machine and path.
    pub identity: Option<String>,
    #[serde(default, deserialize_with = "algorithm")]
    pub algorithm: Option<Algorithm>,
    #[serde(default, deserialize_with = "level")]
    pub level: Option<Level>,
    /// A file whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The environment variable that holds the password.
    pub password_env: Option<String>,
    /// Whether the locks of a SQLite database are relied on wherever it lies.
    #[serde(default)]
    pub trust_locks: bool,
    /// The archive of its log; with this table the database has one.
    pub wal: Option<Wal>,
}

impl Database {
    pub const KEYS: &[&str] = &[
        "url",
        "target",
        "retention",
        "identity",
        "algorithm",
        "level",
        "password_file",
        "password_env",
        "trust_locks",
        "wal.archive",
        "wal.algorithm",
        "wal.level",
        "wal.async",
        "wal.queue_max",
        "wal.prefetch",
        "wal.workers",
        "wal.slot",
    ];

    /// Sources of these kinds have no log to archive.
    pub fn has_no_log(&self) -> bool {
        self.url.starts_with("sqlite:") || self.url.starts_with("files:")
    }
}

/// How the log of a PostgreSQL cluster is archived.
#[derive(Debug, Default, Deserialize)]
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
    /// Bytes of segments that pushes take on ahead.
    #[serde(default, deserialize_with = "positive_size")]
    pub queue_max: Option<u64>,
    /// Bytes of segments that gets fetch ahead.
    #[serde(default, deserialize_with = "positive_size")]
    pub prefetch: Option<u64>,
    /// Files that are worked on at a time.
    pub workers: Option<NonZeroU8>,
    /// The replication slot that `wal receive` reads from.
    pub slot: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// One stripe goes into each.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
}

impl Target {
    pub const KEYS: &[&str] = &["directories"];
}

/// What a target keeps of a database.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    pub keep_full: Option<u32>,
    pub keep_days: Option<u32>,
    pub keep_wal: Option<u32>,
}

impl Retention {
    pub const KEYS: &[&str] = &["keep_full", "keep_days", "keep_wal"];

    pub fn policy(self) -> Policy {
        Policy {
            keep_full: self.keep_full,
            keep_days: self.keep_days,
            keep_wal: self.keep_wal,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// For databases that name none.
    pub target: Option<String>,
    /// For databases that name none.
    pub retention: Option<String>,
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

/// How `longshore serve` meets its clients.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    pub listen: Option<SocketAddr>,
    /// PEM; with `key`.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Whether clients must encrypt all that they say.
    #[serde(default)]
    pub encrypt: bool,
    /// The file of names and hashed passwords.
    pub logins: Option<PathBuf>,
    /// What statements may name of the file system.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
    /// Where relative device names begin.
    pub backup_directory: Option<PathBuf>,
    pub sessions: Option<NonZeroU16>,
    /// Of them, those of one login.
    pub login_sessions: Option<NonZeroU16>,
    #[serde(default, deserialize_with = "positive_size")]
    pub batch_size: Option<u64>,
    /// Bytes that all sessions may hold together.
    #[serde(default, deserialize_with = "positive_size")]
    pub memory: Option<u64>,
    /// Seconds.
    pub login_time: Option<NonZeroU16>,
    pub idle_time: Option<NonZeroU32>,
}

impl Serve {
    pub const KEYS: &[&str] = &[
        "listen",
        "certificate",
        "key",
        "encrypt",
        "logins",
        "directories",
        "backup_directory",
        "sessions",
        "login_sessions",
        "batch_size",
        "memory",
        "login_time",
        "idle_time",
    ];
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// A file, or `none`.
    pub path: Option<PathBuf>,
}

/// A number or a text; both are read as the command line reads them.
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
    /// Reads the file that was named, else the first usual one that exists, else nothing.
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
                        Some(_) => "check --config and LONGSHORE_CONFIG",
                        None => {
                            "is HOME or XDG_CONFIG_HOME another user's? Correct it, or name a file with --config"
                        }
                    };
                    let what = format!("cannot read the configuration {}", path.display());
                    let mut failure = Failure::usage(what, hint);
                    failure.causes.push(e.to_string());
                    return Err(failure);
                }
            }
        }
        let (text, path) = found.map_or((String::new(), None), |(t, p)| (t, Some(p)));
        let passwords = password_variables(&text);
        let passwords: Vec<&str> = passwords.iter().map(String::as_str).collect();
        let variables = environment::own(std::env::vars_os(), &passwords)
            .map_err(|(name, what)| refusal(&format!("the variable {name}"), &what))?;
        Config::parse(&text, path, variables)
    }

    fn parse(
        text: &str,
        path: Option<PathBuf>,
        mut variables: Vec<(String, String)>,
    ) -> Result<Config, Failure> {
        let mut config: Config = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start).min(text.len());
            let line = text.as_bytes()[..at]
                .iter()
                .filter(|b| **b == b'\n')
                .count()
                + 1;
            let place = path.as_deref().unwrap_or(Path::new("the configuration"));
            refusal(&format!("{}, line {line}", place.display()), e.message())
        })?;
        variables.sort();
        let mut table: toml::Table = text.parse().unwrap_or_default();
        for (name, value) in &variables {
            match environment::apply(name, value, &mut table) {
                None => {}
                Some(Err(what)) => return Err(refusal(&format!("the variable {name}"), &what)),
                Some(Ok(())) => {
                    config = Config::deserialize(table.clone())
                        .map_err(|e| refusal(&format!("the variable {name}"), e.message()))?;
                    config.variables.push(name.clone());
                }
            }
        }
        config.path = path;
        config.check()?;
        Ok(config)
    }

    /// What the grammar alone cannot say.
    fn check(&self) -> Result<(), Failure> {
        let wrong = |what: String| {
            let path = self.path.as_deref().unwrap_or(Path::new("longshore.toml"));
            Err(Failure::usage(
                format!("{}: {what}", path.display()),
                "correct the configuration, then run `longshore config check`",
            ))
        };
        for (name, target) in &self.target {
            if !(1..=DIRECTORIES_MAX).contains(&target.directories.len()) {
                return wrong(format!(
                    "[target.{name}] needs 1 to {DIRECTORIES_MAX} directories"
                ));
            }
            let mut seen = HashSet::new();
            for dir in &target.directories {
                if dir.is_relative() {
                    return wrong(format!(
                        "[target.{name}]: {} is not absolute",
                        dir.display()
                    ));
                }
                if !seen.insert(dir) {
                    return wrong(format!("[target.{name}] names {} twice", dir.display()));
                }
            }
        }
        for (name, database) in &self.database {
            if let Some(target) = &database.target
                && !self.target.contains_key(target)
            {
                return wrong(format!("[database.{name}]: there is no [target.{target}]"));
            }
            if database.url.is_empty() {
                return wrong(format!("[database.{name}] needs a `url`"));
            }
            if let Some(retention) = &database.retention
                && !self.retention.contains_key(retention)
            {
                return wrong(format!(
                    "[database.{name}]: there is no [retention.{retention}]"
                ));
            }
            if let Some(identity) = &database.identity
                && let Err(what) = check_identity(database, identity)
            {
                return wrong(format!("[database.{name}]: `identity` {what}"));
            }
            if database.password_file.is_some() && database.password_env.is_some() {
                return wrong(format!(
                    "[database.{name}]: `password_file` and `password_env` exclude each other"
                ));
            }
            if let Some(what) = unfit_name(name) {
                return wrong(format!("[database.{name}]: {what}"));
            }
            if database.trust_locks && !database.url.starts_with("sqlite:") {
                return wrong(format!(
                    "[database.{name}]: `trust_locks` is for a `url` that begins with sqlite:"
                ));
            }
            if let Some(wal) = &database.wal
                && let Err(what) = self.check_wal(name, database, wal)
            {
                return wrong(format!("[database.{name}.wal]: {what}"));
            }
        }
        for (name, retention) in &self.retention {
            let numbers = [retention.keep_full, retention.keep_days, retention.keep_wal];
            if numbers.contains(&Some(0)) {
                return wrong(format!(
                    "[retention.{name}]: 0 would keep nothing; leave the key out to have no such rule"
                ));
            }
            if retention.policy().is_empty() {
                return wrong(format!(
                    "[retention.{name}] needs `keep_full` or `keep_days`: without a rule nothing may go"
                ));
            }
        }
        let defaults = &self.defaults;
        if let Some(target) = defaults.target.as_ref()
            && !self.target.contains_key(target)
        {
            return wrong(format!("[defaults]: there is no [target.{target}]"));
        }
        if let Some(retention) = defaults.retention.as_ref()
            && !self.retention.contains_key(retention)
        {
            return wrong(format!("[defaults]: there is no [retention.{retention}]"));
        }
        Ok(())
    }

    fn check_wal(&self, name: &str, database: &Database, wal: &Wal) -> Result<(), String> {
        if database.has_no_log() {
            return Err("only PostgreSQL clusters have a log to archive".into());
        }
        let Some(archive) = &wal.archive else {
            return match self.target_of(name) {
                Some(_) => Ok(()),
                None => Err("name an `archive`, or a `target` for the database".into()),
            };
        };
        let shown = archive.display();
        if archive.is_relative() {
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
            if t.directories.iter().any(taken) {
                return Err(format!(
                    "{shown} is kept for the backups of target {target}; name a directory of its own"
                ));
            }
        }
        Ok(())
    }

    /// How the log of a database is archived, if it is.
    pub fn wal_of(&self, database: &str) -> Option<&Wal> {
        self.database.get(database)?.wal.as_ref()
    }

    /// The target of a database, from its own table or the defaults.
    pub fn target_of(&self, database: &str) -> Option<&str> {
        let own = self.database.get(database).and_then(|d| d.target.as_ref());
        own.or(self.defaults.target.as_ref()).map(String::as_str)
    }

    /// What may be removed of a database, and the name of that table.
    pub fn retention_of(&self, database: &str) -> Option<(&str, Retention)> {
        let own = self
            .database
            .get(database)
            .and_then(|d| d.retention.as_ref());
        let name = own.or(self.defaults.retention.as_ref())?;
        Some((name, *self.retention.get(name)?))
    }
}

fn check_identity(database: &Database, identity: &str) -> Result<(), String> {
    if !database.has_no_log() {
        return Err("is for `sqlite:` and `files:` alone: a cluster is known by its log".into());
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

/// The variables that hold passwords, as far as file and environment name them: they may have any name.
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

/// A configuration that cannot be read as one.
fn refusal(place: &str, message: &str) -> Failure {
    let what = message.replace('\n', "; ");
    let hint = "docs/configuration.md describes the keys; `longshore config check` reads it without doing anything";
    let ticked: Vec<&str> = what.split('`').skip(1).step_by(2).collect();
    let near = match ticked.split_first() {
        Some((word, known)) if what.contains("unknown field") => {
            near::nearest(word, known.iter().copied())
        }
        _ => None,
    };
    let hint = match near {
        Some(near) => format!("did you mean `{near}`? {hint}"),
        None => hint.to_owned(),
    };
    Failure::usage(format!("{place}: {what}"), hint)
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
        let (name, retention) = config.retention_of("sales").unwrap();
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
        assert!(
            failure
                .hint
                .unwrap()
                .starts_with("did you mean `keep_full`?")
        );
        let failure = parse("[databse.a]\nurl = \"x\"\n").unwrap_err();
        assert!(
            failure
                .hint
                .unwrap()
                .starts_with("did you mean `database`?")
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_file_and_line() {
        let text = refusal("[defaults]\nretain_days = 7\nretian_days = 9\n");
        assert!(text.starts_with("longshore.toml, line 3: "), "{text}");
        assert!(text.contains("retian_days"), "{text}");
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line_and_the_reason() {
        let text = refusal("\n[defaults]\nmax_cpu = 0\n");
        assert!(text.starts_with("longshore.toml, line 3: "), "{text}");
        assert!(text.contains("percentage"), "{text}");
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
            ("postgres://h", "archiv = \"/a\"", "", "`archive`"),
            (
                "postgres://h",
                "archive = \"/t/a\"",
                "[target.t]\ndirectories = [\"/t\"]",
                "kept for the backups",
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
            ("postgres://h", "a", "known by its log"),
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
}
