//! `longshore serve`: the endpoint for SQL Server's clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

const TEACH: &str = "\
Examples:
  longshore serve --add-login nightly
      asks for the password, or reads LONGSHORE_LOGIN_PASSWORD or standard input
  longshore serve
      on 127.0.0.1:1433, with a certificate of its own; then: sqlcmd -S 127.0.0.1 -U nightly -C
  longshore serve --listen 10.0.0.5:1433 --certificate /etc/longshore/tls.pem \\
      --key /etc/longshore/tls.key
      for other machines: with a certificate that they can check

Not for: data. Statements back up and restore databases and ask the server's views (docs/serve.md).
For scripts on this machine `longshore sql` needs no server.";

/// Serves T-SQL to SQL Server's clients: sqlcmd, drivers, scheduled scripts.
///
/// Speaks TDS 7.2 to 7.4 with TLS. What `longshore sql` does a client can do, within the directories that statements may
/// name. Every client logs in with a name and a password that --add-login made.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH)]
pub struct Serve {
    /// Where to listen; 127.0.0.1:1433 unless given.
    ///
    /// Elsewhere than on this machine itself it needs --certificate, and clients must encrypt everything. Port 0 takes
    /// any that is free and says which.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,

    /// The certificate that clients see, and what it rests on: PEM.
    ///
    /// Without it, on this machine alone, one is made at each start that nobody vouches for.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,

    /// The certificate's private key: PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,

    /// Refuse clients that encrypt no more than their login.
    #[arg(long)]
    pub encrypt: bool,

    /// The file of logins; `logins` beside the catalog unless given.
    #[arg(long, value_name = "FILE")]
    pub logins: Option<PathBuf>,

    /// A directory that statements may name, with all below it; repeat for more.
    ///
    /// Backups go there and come from there, and RESTORE … WITH MOVE writes there. Without any it is the backup
    /// directory and the directories of the configuration's targets.
    #[arg(long, value_name = "DIR")]
    pub directory: Vec<PathBuf>,

    /// Where relative device names begin; the working directory unless given.
    #[arg(long, value_name = "DIR")]
    pub backup_directory: Option<PathBuf>,

    /// A database beside those of the configuration: a name and what `longshore backup` takes as source.
    #[arg(long, value_name = "NAME=SOURCE")]
    pub database: Vec<String>,

    /// Add a login, or give it another password, and end.
    #[arg(long, value_name = "NAME")]
    pub add_login: Option<String>,

    /// Remove a login and end.
    #[arg(long, value_name = "NAME", conflicts_with = "add_login")]
    pub remove_login: Option<String>,
}
