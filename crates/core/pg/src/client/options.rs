//! How to reach a server: a connection string, with the PG variables of the environment for what it leaves out.
//!
//! Invariants
//! - Strings, variables and the password file mean what they mean to libpq; a parameter that is not supported is
//!   refused by its name, never ignored.
//! - A password is a [`Secret`], which no message and no debug output shows.
//!
//! Leaves to others: opening the connection (`startup.rs`) and the protocol.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::{Error, text};

/// A text that never appears in messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A directory with the socket `.s.PGSQL.PORT`.
    Socket { dir: PathBuf, port: u16 },
    /// A host name or address. If `address` is set, it is used without a lookup; certificate and password file are
    /// still matched by name.
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

/// Whether a TCP connection is encrypted, and whether the server must prove its identity. Sockets of this machine are
/// never encrypted. Like libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    /// Encrypted if the server supports it; no proof required.
    Prefer,
    /// Encrypted; verified like [`SslMode::VerifyCa`] if the file of roots exists.
    Require,
    /// The certificate must come from a trusted root.
    VerifyCa,
    /// In addition, the certificate must name the host.
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
    /// The client's certificate and its key.
    pub ssl_identity: Option<(PathBuf, PathBuf)>,
    pub passfile: Option<PathBuf>,
    /// `None` disables keepalive probes of a silent TCP peer.
    pub keepalive: Option<Keepalive>,
}

/// Which roots are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SslRoot {
    /// `~/.postgresql/root.crt` if it exists.
    Usual(Option<PathBuf>),
    File(PathBuf),
    /// The roots that the machine trusts.
    System,
}

/// When a silent peer is probed, and when the connection is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    pub idle: Duration,
    pub interval: Duration,
    pub count: u32,
}

const PORT: u16 = 5432;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The system's default of two hours is longer than most backups.
const KEEPALIVE: Keepalive = Keepalive {
    idle: Duration::from_secs(60),
    interval: Duration::from_secs(10),
    count: 6,
};
/// Debian's directory; PostgreSQL's own default is /tmp.
const SOCKET_DIR: &str = "/var/run/postgresql";

/// A key of the connection string, and the environment variable that replaces it.
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

/// Keys whose listed values have no effect here; any other value is refused.
const INERT: &[(&str, &[&str])] = &[
    ("channel_binding", &["disable", "prefer"]),
    ("gssencmode", &["disable", "prefer"]),
    ("sslnegotiation", &["postgres"]),
    ("sslcompression", &["0"]),
    ("target_session_attrs", &["any"]),
    ("load_balance_hosts", &["disable"]),
    ("client_encoding", &["auto", "SQL_ASCII", "UTF8"]),
];

/// All of libpq's keys, including the password of a key file, which this program does not support.
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

    /// The environment, in the form that [`Options::parse`] needs. Errors: one of libpq's variables is not UTF-8;
    /// ignoring it could mean another server or user.
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

    /// Parses a connection string; missing values come from `variable` (the environment). If the role is missing in
    /// both, `login_name` is asked for the passwd name of the effective user, as libpq does.
    pub fn parse(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        login_name: &dyn Fn() -> io::Result<String>,
    ) -> Result<Options, Error> {
        let words = Words::read(text, variable)?;
        let home = variable("HOME").map(PathBuf::from);
        let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
        let user = match words.value("user") {
            Some(user) => user,
            None => login_name().map_err(|e| {
                refused(format!(
                    "it names no role, and {e}; write postgres://ROLE@HOST/DATABASE or user=ROLE, or set PGUSER"
                ))
            })?,
        };
        let ssl_mode = words.ssl_mode()?;
        let ssl_root_cert = match words.value("sslrootcert") {
            None => SslRoot::Usual(in_home(".postgresql/root.crt")),
            Some(word) if word == "system" && ssl_mode != SslMode::VerifyFull => {
                return Err(refused("sslrootcert=system needs sslmode=verify-full"));
            }
            Some(word) if word == "system" => SslRoot::System,
            Some(path) => SslRoot::File(path.into()),
        };
        let ssl_identity = match (words.value("sslcert"), words.value("sslkey")) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            _ => return Err(refused("sslcert and sslkey belong together")),
        };
        let keepalive = words.keepalive()?;
        let [names, addresses, ports] = ["host", "hostaddr", "port"].map(|key| words.value(key));
        Ok(Options {
            hosts: hosts(names, addresses, ports).map_err(refused)?,
            database: words.value("dbname").unwrap_or_else(|| user.clone()),
            user,
            password: words.value("password").map(Secret),
            application_name: words
                .value("application_name")
                .unwrap_or_else(|| "longshore".into()),
            settings: words.value("options"),
            connect_timeout: match words.number("connect_timeout")? {
                None | Some(0) => CONNECT_TIMEOUT,
                Some(n) => seconds(n),
            },
            ssl_mode,
            ssl_root_cert,
            ssl_identity,
            passfile: words
                .value("passfile")
                .map(PathBuf::from)
                .or_else(|| in_home(".pgpass")),
            keepalive,
        })
    }

    /// The connection without its secrets, for messages: `postgres://USER@HOST:PORT/DATABASE`.
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

fn refused(reason: impl Into<String>) -> Error {
    let reason = reason.into();
    Error::Options { reason }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n.min(1 << 31))
}

/// The parameters of a connection string, of known keys, and the environment that stands in for them.
struct Words<'a> {
    given: Vec<(String, String)>,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Words<'a> {
    fn read(text: &str, variable: &'a dyn Fn(&str) -> Option<String>) -> Result<Words<'a>, Error> {
        let given = text::parse(text).map_err(refused)?;
        for (key, value) in &given {
            let is_known = KEYS.iter().any(|(known, _)| known == key);
            let inert = INERT.iter().find(|(known, _)| known == key);
            match inert {
                Some((_, values)) if !is_known && !values.contains(&value.as_str()) => {
                    return Err(refused(format!("that value of {key} is not supported")));
                }
                None if !is_known => {
                    return Err(refused(format!("unknown parameter {key:?}")));
                }
                _ => {}
            }
        }
        Ok(Words { given, variable })
    }

    /// The last one given counts; an empty value is as if it were not given.
    fn value(&self, key: &str) -> Option<String> {
        let given = self.given.iter().rev().find(|(k, _)| k == key);
        let stand_in = || {
            let name = KEYS.iter().find(|(k, _)| *k == key)?.1?;
            (self.variable)(name)
        };
        given
            .map(|(_, value)| value.clone())
            .or_else(stand_in)
            .filter(|value| !value.is_empty())
    }

    fn number(&self, key: &str) -> Result<Option<u64>, Error> {
        let number = self.value(key).map(|text| text.trim().parse());
        number
            .transpose()
            .map_err(|_| refused(format!("{key} is not a number")))
    }

    fn ssl_mode(&self) -> Result<SslMode, Error> {
        Ok(match self.value("sslmode").as_deref() {
            None | Some("prefer") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("require") => SslMode::Require,
            Some("verify-ca") => SslMode::VerifyCa,
            Some("verify-full") => SslMode::VerifyFull,
            Some(_) => {
                return Err(refused(
                    "sslmode is disable, prefer, require, verify-ca or verify-full",
                ));
            }
        })
    }

    fn keepalive(&self) -> Result<Option<Keepalive>, Error> {
        if self.number("keepalives")? == Some(0) {
            return Ok(None);
        }
        let positive = |key: &str| Ok::<_, Error>(self.number(key)?.filter(|n| *n > 0));
        Ok(Some(Keepalive {
            idle: positive("keepalives_idle")?.map_or(KEEPALIVE.idle, seconds),
            interval: positive("keepalives_interval")?.map_or(KEEPALIVE.interval, seconds),
            count: positive("keepalives_count")?.map_or(KEEPALIVE.count, |n| n.min(1000) as u32),
        }))
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
        return Err("hostaddr and host have different numbers of entries".into());
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
        Options::parse(text, &variable, &|| Ok("me".to_owned()))
    }

    #[test]
    fn the_users_name_is_looked_up_only_where_no_role_is_named() {
        let parse = |text: &str, pguser: Option<&str>| {
            let variable = |name: &str| pguser.filter(|_| name == "PGUSER").map(str::to_owned);
            let none = || Err(io::Error::other("user number 7 has no name"));
            Options::parse(text, &variable, &none)
        };
        assert_eq!(parse("user=a", None).unwrap().user, "a");
        assert_eq!(parse("postgres://a@/d", None).unwrap().user, "a");
        assert_eq!(parse("dbname=d", Some("b")).unwrap().user, "b");
        for (text, pguser) in [
            ("dbname=d", None),
            ("user=", Some("")),
            ("postgres:///d", None),
        ] {
            let said = parse(text, pguser).unwrap_err().to_string();
            assert!(said.contains("user number 7 has no name"), "{said}");
            assert!(said.contains("PGUSER"), "{said}");
        }
    }

    #[test]
    fn omitted_options_come_from_the_environment_and_then_from_defaults() {
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
    fn parameters_that_cannot_be_honoured_are_refused() {
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
    fn a_connection_string_is_distinguished_from_a_path() {
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
