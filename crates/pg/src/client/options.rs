//! How to reach a server: from a connection string, with the environment's PG variables for what it leaves out.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{Error, text};

/// A text that no message shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A directory with the socket `.s.PGSQL.PORT`.
    Socket { dir: PathBuf, port: u16 },
    /// A name or address. `address` is where to connect when it is not to be looked up; the certificate and the
    /// password file go by the name.
    Tcp {
        name: String,
        address: Option<String>,
        port: u16,
    },
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Socket { dir, port } => write!(f, "{}/.s.PGSQL.{port}", dir.display()),
            Host::Tcp { name, port, .. } => write!(f, "{name}:{port}"),
        }
    }
}

/// Whether a connection is encrypted, and whether the server must prove who it is. For TCP only: sockets of this
/// machine are never encrypted. As libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    /// Encrypted if the server can; nothing is proved.
    Prefer,
    /// Encrypted; proved like [`SslMode::VerifyCa`] where the file of roots exists.
    Require,
    /// The certificate comes from a root that is trusted.
    VerifyCa,
    /// And it names the host.
    VerifyFull,
}

/// Everything needed to open a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Tried in this order; at least one.
    pub hosts: Vec<Host>,
    pub user: String,
    pub password: Option<Secret>,
    pub database: String,
    pub application_name: String,
    /// `options` of the startup message, e.g. `-c work_mem=1MB`.
    pub settings: Option<String>,
    pub connect_timeout: Duration,
    pub ssl_mode: SslMode,
    pub ssl_root_cert: SslRoot,
    /// A certificate of ours and its key.
    pub ssl_identity: Option<(PathBuf, PathBuf)>,
    pub passfile: Option<PathBuf>,
    /// `None` turns probes of a silent TCP peer off.
    pub keepalive: Option<Keepalive>,
}

/// Which roots are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SslRoot {
    /// `~/.postgresql/root.crt` where it exists.
    Usual(Option<PathBuf>),
    File(PathBuf),
    /// The machine's own.
    System,
}

/// When a silent peer is asked whether it still lives, and when it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    pub idle: Duration,
    pub interval: Duration,
    pub count: u32,
}

const PORT: u16 = 5432;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The system's usual two hours are longer than most backups.
const KEEPALIVE: Keepalive = Keepalive {
    idle: Duration::from_secs(60),
    interval: Duration::from_secs(10),
    count: 6,
};
/// Debian's directory; the one that PostgreSQL is built with otherwise is /tmp.
const SOCKET_DIR: &str = "/var/run/postgresql";

/// A key of the connection string and the variable that stands in for it.
const KEYS: &[(&str, Option<&str>)] = &[
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("port", Some("PGPORT")),
    ("dbname", Some("PGDATABASE")),
    ("user", Some("PGUSER")),
    ("password", Some("PGPASSWORD")),
    ("passfile", Some("PGPASSFILE")),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("application_name", Some("PGAPPNAME")),
    ("options", Some("PGOPTIONS")),
    ("sslmode", Some("PGSSLMODE")),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("sslcert", Some("PGSSLCERT")),
    ("sslkey", Some("PGSSLKEY")),
    ("keepalives", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("keepalives_count", None),
];

/// Keys whose named values change nothing here; with any other value they are refused.
const INERT: &[(&str, &[&str])] = &[
    ("channel_binding", &["disable", "prefer"]),
    ("gssencmode", &["disable", "prefer"]),
    ("sslnegotiation", &["postgres"]),
    ("sslcompression", &["0"]),
    ("target_session_attrs", &["any"]),
    ("load_balance_hosts", &["disable"]),
    ("client_encoding", &["auto", "SQL_ASCII", "UTF8"]),
];

/// libpq's, and the password of a key file, which this program does not take.
pub(super) fn is_key(key: &str) -> bool {
    KEYS.iter().any(|(known, _)| *known == key)
        || INERT.iter().any(|(known, _)| *known == key)
        || key == "sslpassword"
}

impl Options {
    /// Whether a text is meant as a connection string: a URL, or `key=value` pairs that begin with a known key.
    pub fn is_meant(text: &str) -> bool {
        let first = text.split('=').next().map(str::trim);
        text::is_url(text)
            || (text.contains('=') && KEYS.iter().any(|(key, _)| Some(*key) == first))
    }

    /// The environment, as [`Options::parse`] asks for it. Errors: a variable of libpq's is not UTF-8; without it another
    /// server or user would be meant.
    pub fn of_environment() -> Result<impl Fn(&str) -> Option<String>, Error> {
        let names = KEYS.iter().filter_map(|(_, name)| *name);
        for name in names.chain(["HOME"]) {
            if let Err(std::env::VarError::NotUnicode(_)) = std::env::var(name) {
                let reason = format!("the variable {name} is not UTF-8");
                return Err(Error::Options { reason });
            }
        }
        Ok(|name: &str| std::env::var(name).ok())
    }

    /// Reads a connection string; what it leaves out comes from `variable` (the environment) and `user_name`.
    pub fn parse(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        user_name: &str,
    ) -> Result<Options, Error> {
        let refuse = |reason: String| Error::Options { reason };
        let given = text::parse(text).map_err(refuse)?;
        for (key, value) in &given {
            let is_known = KEYS.iter().any(|(known, _)| known == key);
            let is_inert = INERT
                .iter()
                .any(|(known, values)| known == key && values.contains(&value.as_str()));
            if !is_known && !is_inert {
                return Err(refuse(match INERT.iter().any(|(known, _)| known == key) {
                    true => format!("that value of {key} is not supported"),
                    false => format!("there is no parameter {key:?}"),
                }));
            }
        }
        // The last one given counts; an empty value is as if it were not given.
        let value = |key: &str| -> Option<String> {
            let given = given.iter().rev().find(|(k, _)| k == key);
            let stand_in = || {
                let name = KEYS.iter().find(|(k, _)| *k == key)?.1?;
                variable(name)
            };
            given
                .map(|(_, value)| value.clone())
                .or_else(stand_in)
                .filter(|value| !value.is_empty())
        };
        let number = |key: &str| -> Result<Option<u64>, Error> {
            let number = value(key).map(|text| text.trim().parse());
            number
                .transpose()
                .map_err(|_| refuse(format!("{key} is no number")))
        };
        let home = variable("HOME").map(PathBuf::from);
        let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
        let user = value("user").unwrap_or_else(|| user_name.to_owned());
        let ssl_mode = match value("sslmode").as_deref() {
            None | Some("prefer") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("require") => SslMode::Require,
            Some("verify-ca") => SslMode::VerifyCa,
            Some("verify-full") => SslMode::VerifyFull,
            Some(_) => {
                return Err(refuse(
                    "sslmode is disable, prefer, require, verify-ca or verify-full".into(),
                ));
            }
        };
        let ssl_root_cert = match value("sslrootcert") {
            None => SslRoot::Usual(in_home(".postgresql/root.crt")),
            Some(word) if word == "system" && ssl_mode != SslMode::VerifyFull => {
                return Err(refuse(
                    "sslrootcert=system needs sslmode=verify-full".into(),
                ));
            }
            Some(word) if word == "system" => SslRoot::System,
            Some(path) => SslRoot::File(path.into()),
        };
        let ssl_identity = match (value("sslcert"), value("sslkey")) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            _ => {
                return Err(refuse("sslcert and sslkey belong together".into()));
            }
        };
        let seconds = |n: u64| Duration::from_secs(n.min(1 << 31));
        let keepalive = match number("keepalives")? {
            Some(0) => None,
            _ => Some(Keepalive {
                idle: number("keepalives_idle")?
                    .filter(|n| *n > 0)
                    .map_or(KEEPALIVE.idle, seconds),
                interval: number("keepalives_interval")?
                    .filter(|n| *n > 0)
                    .map_or(KEEPALIVE.interval, seconds),
                count: number("keepalives_count")?
                    .filter(|n| *n > 0)
                    .map_or(KEEPALIVE.count, |n| n.min(1000) as u32),
            }),
        };
        Ok(Options {
            hosts: hosts(value("host"), value("hostaddr"), value("port")).map_err(refuse)?,
            database: value("dbname").unwrap_or_else(|| user.clone()),
            user,
            password: value("password").map(Secret),
            application_name: value("application_name").unwrap_or_else(|| "longshore".into()),
            settings: value("options"),
            connect_timeout: match number("connect_timeout")? {
                None | Some(0) => CONNECT_TIMEOUT,
                Some(n) => seconds(n),
            },
            ssl_mode,
            ssl_root_cert,
            ssl_identity,
            passfile: value("passfile")
                .map(PathBuf::from)
                .or_else(|| in_home(".pgpass")),
            keepalive,
        })
    }

    /// The connection without its secrets, for people: `postgres://USER@HOST:PORT/DATABASE`.
    pub fn for_people(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(Host::to_string).collect();
        format!(
            "postgres://{}@{}/{}",
            self.user,
            hosts.join(","),
            self.database
        )
    }
}

fn hosts(
    names: Option<String>,
    addresses: Option<String>,
    ports: Option<String>,
) -> Result<Vec<Host>, String> {
    let addresses = addresses.unwrap_or_default();
    let names = names.unwrap_or_else(|| addresses.clone());
    let names: Vec<&str> = names.split(',').collect();
    let addresses: Vec<&str> = addresses.split(',').collect();
    if addresses != [""] && addresses.len() != names.len() {
        return Err("hostaddr has not as many addresses as host has names".into());
    }
    let ports = ports.unwrap_or_default();
    let ports: Vec<&str> = ports.split(',').collect();
    if ports.len() != 1 && ports.len() != names.len() {
        return Err(format!(
            "{} ports are given for {} hosts",
            ports.len(),
            names.len()
        ));
    }
    let mut hosts = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let port = match ports.get(i).unwrap_or(&ports[0]).trim() {
            "" => PORT,
            text => text
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or("a port is a number from 1 to 65535")?,
        };
        let socket = |dir: &str| Host::Socket {
            dir: dir.into(),
            port,
        };
        match *name {
            "" => hosts.extend([socket(SOCKET_DIR), socket("/tmp")]),
            dir if dir.starts_with('/') => hosts.push(socket(dir)),
            name => hosts.push(Host::Tcp {
                name: name.to_owned(),
                address: addresses
                    .get(i)
                    .filter(|address| !address.is_empty())
                    .map(|address| (*address).to_owned()),
                port,
            }),
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, env: &[(&str, &str)]) -> Result<Options, Error> {
        let variable = |name: &str| {
            let found = env.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| (*v).to_owned())
        };
        Options::parse(text, &variable, "me")
    }

    #[test]
    fn what_is_not_given_comes_from_the_environment_and_then_from_defaults() {
        let options = parse("", &[]).unwrap();
        assert_eq!(options.user, "me");
        assert_eq!(options.database, "me");
        assert_eq!(options.hosts.len(), 2);
        assert_eq!(options.ssl_mode, SslMode::Prefer);
        let env = [
            ("PGHOST", "/run/pg"),
            ("PGPORT", "6000"),
            ("PGUSER", "u"),
            ("PGDATABASE", "d"),
            ("PGPASSWORD", "secret"),
            ("HOME", "/home/u"),
        ];
        let options = parse("dbname=x", &env).unwrap();
        let socket = Host::Socket {
            dir: "/run/pg".into(),
            port: 6000,
        };
        assert_eq!(options.hosts, [socket]);
        assert_eq!(
            (options.user.as_str(), options.database.as_str()),
            ("u", "x")
        );
        assert_eq!(options.passfile, Some("/home/u/.pgpass".into()));
        assert!(!format!("{options:?}").contains("secret"));
        assert!(!options.for_people().contains("secret"));
    }

    #[test]
    fn hosts_and_ports_go_together() {
        let at = |name: &str, address: Option<&str>, port| Host::Tcp {
            name: name.into(),
            address: address.map(str::to_owned),
            port,
        };
        let tcp = |name, port| at(name, None, port);
        let hosts = |text| parse(text, &[]).unwrap().hosts;
        assert_eq!(hosts("host=a,b port=1"), [tcp("a", 1), tcp("b", 1)]);
        assert_eq!(hosts("postgres://a:1,b"), [tcp("a", 1), tcp("b", 5432)]);
        assert_eq!(hosts("host=a hostaddr=::1"), [at("a", Some("::1"), 5432)]);
        assert_eq!(hosts("hostaddr=::1"), [at("::1", Some("::1"), 5432)]);
        assert!(parse("host=a,b,c port=1,2", &[]).is_err());
        assert!(parse("host=a,b hostaddr=::1", &[]).is_err());
        for port in ["0", "65536", "x", "-1"] {
            assert!(
                parse(&format!("host=a port={port}"), &[]).is_err(),
                "{port}"
            );
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for text in [
            "sslmode=allow",
            "channel_binding=require",
            "target_session_attrs=primary",
            "no_such_key=1",
            "sslrootcert=system sslmode=require",
            "sslcert=a",
            "connect_timeout=x",
        ] {
            let refused = parse(text, &[]);
            assert!(matches!(refused, Err(Error::Options { .. })), "{text}");
        }
        assert!(parse("channel_binding=prefer gssencmode=disable", &[]).is_ok());
    }

    #[test]
    fn a_connection_string_is_told_from_a_path() {
        for text in [
            "postgres://",
            "postgresql://h/d",
            "host=/tmp port=1",
            "dbname = x",
        ] {
            assert!(Options::is_meant(text), "{text}");
        }
        for text in ["a=b.db", "app.db", "./postgres:/x", "sqlite:x"] {
            assert!(!Options::is_meant(text), "{text}");
        }
    }
}
