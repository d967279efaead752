//! `longshore serve`: the endpoint for SQL Server's clients, and the status page.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`serve/settings.rs` in `commands`).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

const TEACH: &str = "\
Examples:
  longshore serve --add-login nightly
      asks for the password, or reads LONGSHORE_LOGIN_PASSWORD or standard input
  longshore serve
      on 127.0.0.1:1433, with a self-signed certificate; then: sqlcmd -S 127.0.0.1 -U nightly -C
  longshore serve --listen 10.0.0.5:1433 --certificate /etc/longshore/tls.pem \\
      --key /etc/longshore/tls.key
      for other machines: with a certificate that they can check
  longshore serve --http
      the status page alone, at http://127.0.0.1:7433/

Not for: data. Statements back up and restore databases and query the server's views
(docs/serve.md).
For scripts on this machine `longshore sql` needs no server.";

/// Serves T-SQL to SQL Server's clients, and a status page with metrics.
///
/// Speaks TDS 7.2 to 7.4 with TLS. A client can do the same as `longshore sql`, within the directories that statements
/// may name. Every client logs in with a name and a password that --add-login made.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH)]
pub struct Serve {
    /// The address to listen on; the default is 127.0.0.1:1433.
    ///
    /// Loopback is the default because no other machine can reach it; 1433 is the port at which SQL Server's clients
    /// look. An address other than loopback needs --certificate, and clients must encrypt everything. With port 0 the
    /// server takes a free port and prints it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,

    /// The server's certificate and its chain: PEM.
    ///
    /// Without it, and only on loopback, the server makes a self-signed certificate at each start.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,

    /// The certificate's private key: PEM.
    ///
    /// The file must be readable for the server's user and should be for nobody else: anyone with the key can pretend
    /// to be the server. The default is the configuration's [serve], else on loopback a key that the server makes
    /// itself.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,

    /// Refuse clients that encrypt only their login.
    ///
    /// By default, and only on loopback, clients may send statements unencrypted after their login, since these do
    /// not leave the machine. On other addresses everything is encrypted anyway. Do not use it if a client can
    /// encrypt only its login.
    #[arg(long)]
    pub encrypt: bool,

    /// The file of logins; the default is `logins` next to the catalog.
    ///
    /// It has names and password hashes; only its owner can read it, and statements cannot write to it. Next to the
    /// catalog is the default because that directory belongs to the service's user. Give a file if no catalog is
    /// kept.
    #[arg(long, value_name = "FILE")]
    pub logins: Option<PathBuf>,

    /// A directory that statements may name, with everything below it. Repeatable.
    ///
    /// Statements write and read backups there, and RESTORE … WITH MOVE writes there. The default is the backup
    /// directory and the directories of the configuration's targets.
    #[arg(long, value_name = "DIR")]
    pub directory: Vec<PathBuf>,

    /// A prefix in a bucket, s3://BUCKET/PREFIX, below which statements may name objects. Repeatable.
    ///
    /// Without it, statements name no objects (URL = 's3://...'): they would use the server's credentials. Prefixes of
    /// az://CONTAINER and gs://BUCKET are taken, too.
    #[arg(long, value_name = "s3://BUCKET/PREFIX")]
    pub bucket: Vec<String>,

    /// Directory for relative device names; the default is the working directory.
    ///
    /// `TO DISK = 'shop.bak'` means shop.bak in this directory. The default is [serve] in the configuration, else the
    /// working directory. Give it in a service's unit: a service usually starts in `/`, and the server refuses to
    /// start where clients could name any file.
    #[arg(long, value_name = "DIR")]
    pub backup_directory: Option<PathBuf>,

    /// A database not in the configuration: a name, and a source as for `longshore backup`.
    ///
    /// Only this server knows it. For a database that is always there use [database.NAME] in the configuration, which
    /// all commands know. Without this option clients can back up the configuration's databases only.
    #[arg(long, value_name = "NAME=SOURCE")]
    pub database: Vec<String>,

    /// Serve the status page and Prometheus metrics at this address, alone unless --listen is given.
    ///
    /// The page (/) shows databases, the time that can be recovered, what `check` finds, runs and history; /metrics has
    /// the metrics, /status.json the page's data. Without an address it is 127.0.0.1:7433. On loopback every user of the
    /// machine can read it; an address other than loopback needs --certificate and a login (--add-login), as does loopback
    /// with --encrypt. Without this option there is no page unless the configuration names `http`; it is then served
    /// together with statements.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:7433")]
    pub http: Option<SocketAddr>,

    /// Seconds for which the status page shows an answer before it asks the targets again.
    ///
    /// The default is 60. Targets are asked only while somebody looks, and never for more than a tenth of the time. Give a
    /// higher number where each request to an object store costs money.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub refresh: Option<u32>,

    /// Hours after which the status page calls the newest good backup too old.
    ///
    /// The default is 26, as for `longshore check`. Give the interval of your schedule and the length of its longest run.
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_age: Option<u32>,

    /// Add a login, or change its password, and exit.
    ///
    /// The password comes from LONGSHORE_LOGIN_PASSWORD, from the terminal or from standard input, never from an
    /// argument, which other users could see. A running server accepts it at once. To remove a login use
    /// --remove-login. Without these two options the server starts, if it has a login.
    #[arg(long, value_name = "NAME")]
    pub add_login: Option<String>,

    /// Remove a login and exit.
    ///
    /// A running server refuses the login at once, and ends its sessions within seconds. Not for a new password:
    /// --add-login replaces the old one. Without these two options the server starts, if it has a login.
    #[arg(long, value_name = "NAME", conflicts_with = "add_login")]
    pub remove_login: Option<String>,
}
