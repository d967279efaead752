//! `longshore.toml`: databases, targets and defaults, so that a nightly job is two words.
//!
//! A key that is not known is refused with file and line: a misspelt `retain_days` must not go unnoticed.
//! The options of one command override what stands here.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use longshore_codec::{Algorithm, Level};
use longshore_io::{Storage, Via};
use serde::{Deserialize, Deserializer, Serialize, de};

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
    pub defaults: Defaults,
    #[serde(default)]
    pub catalog: Catalog,
    /// The file it came from; `None`: there is none.
    #[serde(skip)]
    pub path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// `sqlite:FILE` or `files:PATH`.
    pub url: String,
    /// The target when the command names none.
    pub target: Option<String>,
    #[serde(default, deserialize_with = "algorithm")]
    pub algorithm: Option<Algorithm>,
    #[serde(default, deserialize_with = "level")]
    pub level: Option<Level>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// One stripe goes into each.
    pub directories: Vec<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// A file, or `none`.
    pub path: Option<PathBuf>,
}

/// What `config check` tells.
#[derive(Debug, Serialize)]
pub struct Facts {
    pub path: Option<String>,
    pub databases: Vec<String>,
    pub targets: Vec<String>,
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
        for path in candidates {
            match read(storage, &path) {
                Ok(text) => return Config::parse(&text, &path),
                Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => {
                    let mut failure = Failure::usage(
                        format!("cannot read the configuration {}", path.display()),
                        "check --config and LONGSHORE_CONFIG",
                    );
                    failure.causes.push(e.to_string());
                    return Err(failure);
                }
            }
        }
        Ok(Config::default())
    }

    fn parse(text: &str, path: &Path) -> Result<Config, Failure> {
        let mut config: Config = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start).min(text.len());
            let line = text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
            let what = e.message().replace('\n', "; ");
            Failure::usage(
                format!("{}, line {line}: {what}", path.display()),
                "README lists the keys; `longshore config check` reads the file without doing anything",
            )
        })?;
        config.path = Some(path.to_owned());
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
            if target.directories.is_empty() || target.directories.len() > 64 {
                return wrong(format!("[target.{name}] needs 1 to 64 directories"));
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
            if let Some(what) = bad_name(name) {
                return wrong(format!("[database.{name}]: {what}"));
            }
        }
        Ok(())
    }

    pub fn facts(&self) -> Facts {
        Facts {
            path: self.path.as_ref().map(|p| p.display().to_string()),
            databases: self.database.keys().cloned().collect(),
            targets: self.target.keys().cloned().collect(),
        }
    }
}

/// Why a name cannot be a directory below a target.
pub fn bad_name(name: &str) -> Option<&'static str> {
    match name {
        "" | "." | ".." => Some("this is no name for a directory"),
        _ if name.contains(['/', '\0']) => Some("a name with `/` cannot be a directory"),
        _ if name.len() > 255 => Some("the name is too long for a directory"),
        _ => None,
    }
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
        Config::parse(text, Path::new("longshore.toml"))
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
    fn names_that_lead_nowhere_are_refused() {
        let text = refusal("[database.a]\nurl = \"sqlite:/a\"\ntarget = \"x\"\n");
        assert!(text.contains("no [target.x]"), "{text}");
        assert!(refusal("[target.t]\ndirectories = []\n").contains("1 to 64"));
        assert!(refusal("[target.t]\ndirectories = [\"/a\", \"/a\"]\n").contains("twice"));
        assert!(refusal("[target.t]\ndirectories = [\"a\"]\n").contains("absolute"));
        assert!(refusal("[database.\"../x\"]\nurl = \"sqlite:/a\"\n").contains("directory"));
    }
}
