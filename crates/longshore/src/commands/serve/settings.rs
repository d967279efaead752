//! The server's settings: options override the configuration; contradictions are refused.
//!
//! Invariants
//! - Certificate and key are named both or not at all.
//! - An address other than loopback needs a certificate, and everything is encrypted there; the status page then needs a
//!   login, too.
//! - Statements get no access to the whole file system because a service happened to start in `/`.
//!
//! Leaves to others: accepting clients (`mod.rs`), the certificate itself (`tls.rs`), and logins (`logins.rs`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::logins::Logins;
use super::tls::CertificateFiles;
use crate::config::allowed_prefixes;
use crate::context::Context;
use crate::options::Serve;
use longshore_terminal::failure::Failure;

/// SQL Server's port, on the loopback address only.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1433);

const SESSIONS: u16 = 256;
const BATCH_LEN_MAX: u64 = 4 << 20;
const MEMORY: u64 = 1 << 30;
const LOGIN_TIME_S: u16 = 15;
const IDLE_TIME_S: u32 = 8 * 3600;

/// The seconds between two answers of the status page, and its limit for the age of a backup: as `check` has it.
const REFRESH_S: u32 = 60;
const MAX_AGE_HOURS: u32 = 26;

/// The settings of the status page.
pub struct PageSettings {
    pub listen: SocketAddr,
    /// Whether clients must encrypt and log in.
    pub is_guarded: bool,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The file of the logins, if they are needed.
    pub logins: Option<PathBuf>,
    pub refresh: Duration,
    /// In hours.
    pub max_age: u32,
}

impl PageSettings {
    /// `None`: no page is wanted.
    pub fn of(options: &Serve, context: &Context) -> Result<Option<PageSettings>, Failure> {
        let configured = &context.config.serve;
        let Some(listen) = options.http.or(configured.http) else {
            return Ok(None);
        };
        let encrypt = options.encrypt || configured.encrypt;
        let is_guarded = encrypt || !listen.ip().is_loopback();
        let (identity, logins) = match is_guarded {
            true => (
                identity(options, context, listen)?,
                Some(logins(options, context)?),
            ),
            false => (None, None),
        };
        let number =
            |option: Option<u32>, key: Option<NonZeroU32>| option.or(key.map(NonZeroU32::get));
        let refresh = number(options.refresh, configured.refresh).unwrap_or(REFRESH_S);
        let max_age = number(options.max_age, configured.max_age).unwrap_or(MAX_AGE_HOURS);
        Ok(Some(PageSettings {
            listen,
            is_guarded,
            identity,
            logins,
            refresh: Duration::from_secs(refresh.into()),
            max_age,
        }))
    }
}

pub struct Settings {
    pub listen: SocketAddr,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether clients must encrypt everything.
    pub encrypt: bool,
    pub logins: PathBuf,
    pub directories: Vec<PathBuf>,
    /// The prefixes below which statements may name objects, without a slash at the end.
    pub buckets: Vec<String>,
    pub backup_directory: PathBuf,
    /// The maximum number of concurrent connections.
    pub sessions: usize,
    /// The maximum number of them that are logged in under the same name.
    pub login_sessions: usize,
    /// The maximum bytes of one request.
    pub batch_bytes_max: usize,
    /// The maximum bytes that all sessions hold together.
    pub memory_bytes: usize,
    /// The time limit from the connection to the end of the login.
    pub login_time: Duration,
    /// The time limit between an answer and the next request.
    pub idle_time: Duration,
}

fn prefixes(texts: &[String]) -> Result<Vec<String>, Failure> {
    allowed_prefixes(texts).map_err(|error| {
        Failure::usage(
            format!("--bucket: {error}"),
            "name a prefix as s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX; at a server of its own as \
             s3://HOST:PORT/BUCKET/PREFIX",
        )
    })
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// Certificate and key. Errors: one without the other, and neither where other machines reach the server.
fn identity(
    options: &Serve,
    context: &Context,
    listen: SocketAddr,
) -> Result<Option<(PathBuf, PathBuf)>, Failure> {
    let configured = &context.config.serve;
    let both = |certificate: &Option<PathBuf>, key: &Option<PathBuf>| {
        Some((certificate.clone()?, key.clone()?))
    };
    if configured.certificate.is_some() != configured.key.is_some() {
        return Err(Failure::usage(
            "[serve]: `certificate` and `key` belong together",
            "name both, or neither",
        ));
    }
    let identity = both(&options.certificate, &options.key)
        .or_else(|| both(&configured.certificate, &configured.key));
    if !listen.ip().is_loopback() && identity.is_none() {
        return Err(Failure::usage(
            format!("{listen} can be reached from other machines, and there is no certificate"),
            "name one with --certificate and --key, or listen on 127.0.0.1",
        ));
    }
    Ok(identity)
}

/// The directory in which statements' relative paths begin.
fn backup_directory(options: &Serve, context: &Context) -> PathBuf {
    match named_backup_directory(options, context) {
        Some(directory) => absolute(directory),
        None => std::env::current_dir().unwrap_or_else(|_| "/".into()),
    }
}

fn named_backup_directory<'a>(options: &'a Serve, context: &'a Context) -> Option<&'a PathBuf> {
    let configured = &context.config.serve;
    let named = options.backup_directory.as_ref();
    named.or(configured.backup_directory.as_ref())
}

/// The directories below which statements may name files. Errors: everything would be below them by accident.
fn directories(
    options: &Serve,
    context: &Context,
    backup_directory: &Path,
) -> Result<Vec<PathBuf>, Failure> {
    let own = [&options.directory, &context.config.serve.directories];
    if let Some(given) = own.into_iter().find(|d| !d.is_empty()) {
        return Ok(given.iter().map(|d| absolute(d)).collect());
    }
    // A service starts in the root directory: statements must not get access to everything by accident.
    if named_backup_directory(options, context).is_none() && backup_directory == Path::new("/") {
        return Err(Failure::usage(
            "clients could name any file: the working directory is /",
            "name the allowed directories with --backup-directory or --directory",
        ));
    }
    let targets = context.config.target.values();
    let targets = targets.flat_map(|t| t.directories.iter().cloned());
    let own = std::iter::once(backup_directory.to_owned());
    Ok(own.chain(targets).collect())
}

/// The file of the logins. Errors: none is named, and there is no catalog whose neighbour it would be.
fn logins(options: &Serve, context: &Context) -> Result<PathBuf, Failure> {
    let named = options.logins.as_ref();
    match (
        named.or(context.config.serve.logins.as_ref()),
        &context.catalog,
    ) {
        (Some(path), _) => Ok(absolute(path)),
        (None, Some(catalog)) => Ok(absolute(catalog).with_file_name("logins")),
        (None, None) => Err(Failure::usage(
            "without a catalog there is no default place for the logins",
            "name a file with --logins",
        )),
    }
}

impl Settings {
    /// Files that the server depends on: no statement may write to them, wherever they are. The catalog protects its
    /// own files, and the configuration is reserved for every kind of session.
    pub fn own_files(&self, context: &Context) -> Vec<PathBuf> {
        let beside = |name: &&str| Some(context.catalog.as_ref()?.with_file_name(name));
        let logs = longshore_tsql::LOG_NAMES.iter().filter_map(beside);
        let pair = self
            .identity
            .clone()
            .map(|(certificate, key)| [certificate, key]);
        let mut files = vec![self.logins.clone(), Logins::lock(&self.logins)];
        files.extend(CertificateFiles::beside(&self.logins).files());
        files.extend(logs);
        files.extend(pair.into_iter().flatten());
        files
    }

    pub fn of(options: &Serve, context: &Context) -> Result<Settings, Failure> {
        let configured = &context.config.serve;
        let listen = options.listen.or(configured.listen).unwrap_or(LISTEN);
        let identity = identity(options, context, listen)?;
        let backup_directory = backup_directory(options, context);
        let directories = directories(options, context, &backup_directory)?;
        let buckets = match options.bucket.is_empty() {
            true => &configured.buckets,
            false => &options.bucket,
        };
        let buckets = prefixes(buckets)?;
        let logins = logins(options, context)?;
        let sessions: usize = configured.sessions.map_or(SESSIONS, |n| n.get()).into();
        // An eighth, and at least one, stays for other logins.
        let others = (sessions / 8).max(1);
        let usual = sessions.saturating_sub(others).max(1);
        let login_sessions = configured.login_sessions.map_or(usual, |n| n.get().into());
        let seconds = |n: u64| Duration::from_secs(n);
        let batch = configured.batch_size.unwrap_or(BATCH_LEN_MAX);
        Ok(Settings {
            encrypt: options.encrypt || configured.encrypt || !listen.ip().is_loopback(),
            listen,
            identity,
            logins,
            directories,
            buckets,
            backup_directory,
            sessions,
            login_sessions,
            batch_bytes_max: usize::try_from(batch).unwrap_or(usize::MAX),
            memory_bytes: usize::try_from(configured.memory.unwrap_or(MEMORY))
                .unwrap_or(usize::MAX),
            login_time: seconds(
                configured
                    .login_time
                    .map_or(LOGIN_TIME_S, |n| n.get())
                    .into(),
            ),
            idle_time: seconds(configured.idle_time.map_or(IDLE_TIME_S, |n| n.get()).into()),
        })
    }
}
