//! `longshore serve`: the endpoint for SQL Server's clients.

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

Not for: data. Statements back up and restore databases and query the server's views
(docs/serve.md).
For scripts on this machine `longshore sql` needs no server.";

/// Serves T-SQL to SQL Server's clients: sqlcmd, drivers, scheduled scripts.
///
/// Speaks TDS 7.2 to 7.4 with TLS. A client can do the same as `longshore sql`, within the directories that statements
/// may name. Every client logs in with a name and a password that --add-login made.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH)]
pub struct Serve {
    /// The address to listen on; the default is 127.0.0.1:1433.
    ///
    /// An address other than loopback needs --certificate, and clients must encrypt everything. With port 0 the server
    /// takes a free port and prints it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,

    /// The server's certificate and its chain: PEM.
    ///
    /// Without it, and only on loopback, the server makes a self-signed certificate at each start.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,

    /// The certificate's private key: PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,

    /// Refuse clients that encrypt only their login.
    #[arg(long)]
    pub encrypt: bool,

    /// The file of logins; the default is `logins` next to the catalog.
    #[arg(long, value_name = "FILE")]
    pub logins: Option<PathBuf>,

    /// A directory that statements may name, with everything below it. Repeatable.
    ///
    /// Statements write and read backups there, and RESTORE … WITH MOVE writes there. The default is the backup
    /// directory and the directories of the configuration's targets.
    #[arg(long, value_name = "DIR")]
    pub directory: Vec<PathBuf>,

    /// Directory for relative device names; the default is the working directory.
    #[arg(long, value_name = "DIR")]
    pub backup_directory: Option<PathBuf>,

    /// A database not in the configuration: a name, and a source as for `longshore backup`.
    #[arg(long, value_name = "NAME=SOURCE")]
    pub database: Vec<String>,

    /// Add a login, or change its password, and exit.
    #[arg(long, value_name = "NAME")]
    pub add_login: Option<String>,

    /// Remove a login and exit.
    #[arg(long, value_name = "NAME", conflicts_with = "add_login")]
    pub remove_login: Option<String>,
}
