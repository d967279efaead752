//! `longshore sql`: T-SQL, with sqlcmd's options.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`sql/` in `commands`).

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args};

const TEACH: &str = "\
Examples:
  longshore sql -Q \"BACKUP DATABASE shop TO DISK = '/mnt/a/shop.bak' WITH COMPRESSION, STATS = 10\"
      a database of the configuration
  longshore sql --database shop=/srv/shop.db -Q \"BACKUP DATABASE shop TO DISK = 'NUL'\"
      without a configuration
  longshore sql -i nightly.sql -v directory=/mnt/a -b
      a script with $(directory) in it; ends at the first error with exit code 1
  longshore sql -W -s , -h -1 -Q \"SELECT name, value_in_use FROM sys.configurations\"
      for other programs
  longshore sql
      statements from standard input, each batch ended by GO

Not for: data. Statements back up and restore databases and query the server's views; for tables use
the database's own programs. docs/tsql.md describes the language.";

/// Runs T-SQL: BACKUP, RESTORE, sp_configure, and queries over the history.
///
/// Scripts for SQL Server's backups work unchanged, with the same messages, views and history tables. The databases are
/// those of the configuration. Settings changed here apply to all commands; those that need a restart apply from the
/// next call on.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH, disable_help_flag = true)]
pub struct Sql {
    /// Run these statements and exit.
    ///
    /// By default statements come from standard input. The shell changes `$` and backquotes in double quotes; put
    /// longer texts into a file and use -i.
    #[arg(short = 'Q', long, value_name = "TEXT")]
    pub query: Option<String>,

    /// Run the statements of a file. Repeatable.
    ///
    /// The files run in the given order in one session, so a USE in the first holds in the second. They are UTF-8, or
    /// UTF-16 with a byte order mark, and at most 64 MiB each. Not together with -Q. By default statements come from
    /// standard input.
    #[arg(short = 'i', long, value_name = "FILE")]
    pub input: Vec<PathBuf>,

    /// Exit at the first error, with exit code 1.
    ///
    /// Without it the exit code does not show whether statements failed, as with sqlcmd. In a script, `:on error exit`
    /// does the same from that line on.
    #[arg(short = 'b', long)]
    pub exit_on_error: bool,

    /// Exit with code 1 if a message had this severity or more.
    ///
    /// By default no message changes the exit code: it is 0 after failed statements, as with sqlcmd. The rest of the
    /// script still runs; -b ends it, at an error of this severity or more. Errors have severity 11 to 25, a syntax error 15. Not for scripts that must stop at
    /// their first error: use -b.
    #[arg(short = 'V', long, value_name = "SEVERITY", value_parser = clap::value_parser!(u8).range(0..=25))]
    pub severity_level: Option<u8>,

    /// Show only messages of this severity or more; informational messages have 0. -1 shows all.
    ///
    /// The default is -1, as in sqlcmd: the messages of BACKUP are its only output. Exit codes do not depend on it.
    #[arg(
        short = 'm',
        long,
        value_name = "SEVERITY",
        default_value_t = -1,
        hide_default_value = true,
        allow_hyphen_values = true,
        value_parser = clap::value_parser!(i8).range(-1..=25)
    )]
    pub message_level: i8,

    /// Write results and messages to this file, replacing it.
    ///
    /// The default is standard output. Messages that -r sends to standard error stay there. If the file cannot be
    /// written to its end, the command fails, so that a cut result is not taken for a whole one. Not together with
    /// --json.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// The server: only `.`, `localhost` or this machine's name, since this program is the server.
    ///
    /// For scripts that were written for sqlcmd with -S. Another name is refused, because the statements would run on
    /// the wrong machine; for another machine's server use sqlcmd. Without this option
    /// statements run on this machine, too.
    #[arg(short = 'S', long, value_name = "NAME", hide_short_help = true)]
    pub server: Option<String>,

    /// Run as the operating system's user, as without this option.
    ///
    /// For scripts that were written for sqlcmd with -E; the option changes nothing. There are no logins here:
    /// `longshore serve` has them.
    #[arg(short = 'E', long, hide_short_help = true)]
    pub trusted: bool,

    /// The initial database; the default is `master`.
    ///
    /// It decides what DB_NAME() answers and where msdb's tables are found without a prefix.
    #[arg(short = 'd', long, value_name = "NAME")]
    pub use_database: Option<String>,

    /// A variable of the script: $(NAME) stands for its value.
    ///
    /// Several may follow. They override the environment's variables; `:setvar` overrides them. A variable without a
    /// value from any of the three ends the script with an error.
    #[arg(short = 'v', long, value_name = "NAME=VALUE", num_args = 1..)]
    pub variable: Vec<String>,

    /// Leave $(NAME) as it is.
    ///
    /// For scripts with `$(` in their own text, which would otherwise be taken for a variable that is not defined.
    #[arg(short = 'x', long)]
    pub no_variables: bool,

    /// Rows between two headers; -1: none, 0: one. For help use `-?`.
    ///
    /// The default is 0, as in sqlcmd; programs that read the rows use -1. -h is sqlcmd's option and no short form of
    /// --help.
    #[arg(
        short = 'h',
        long,
        value_name = "ROWS",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    pub headers: i64,

    /// The separator between columns.
    ///
    /// The default is one blank, as in sqlcmd. With -W and a character that no value contains, other programs can split
    /// the rows.
    #[arg(
        short = 's',
        long,
        value_name = "TEXT",
        default_value = " ",
        hide_default_value = true
    )]
    pub separator: String,

    /// Write values without the blanks that fill their columns.
    ///
    /// For other programs, which split the rows at -s. By default columns are filled up, as in sqlcmd, so that a
    /// person can read them. Not together with -y or -Y, which give columns a width.
    #[arg(short = 'W', long)]
    pub trim: bool,

    /// Cut lines of results after this many characters.
    ///
    /// By default no line is cut, so that paths in the results stay usable.
    #[arg(short = 'w', long, value_name = "WIDTH", value_parser = clap::value_parser!(u16).range(9..))]
    pub width: Option<u16>,

    /// Width of columns that have no fixed width; 0 shows values as they are.
    ///
    /// The default is 256, as in sqlcmd; longer values are cut. 0 neither cuts nor fills up, so columns no longer
    /// stand below each other.
    #[arg(short = 'y', long, value_name = "WIDTH", value_parser = clap::value_parser!(u16).range(0..=8000))]
    pub variable_width: Option<u16>,

    /// Show each line of a script before its results.
    ///
    /// For logs that show what was run next to its result. Lines are shown as they are in the script, before
    /// variables are replaced. Not for output that another program reads.
    #[arg(short = 'e', long)]
    pub echo: bool,

    /// Send messages to standard error: 0 errors only, 1 all.
    ///
    /// By default all messages go to standard output, as with sqlcmd. Use 1 if another program reads the rows.
    #[arg(short = 'r', long, value_name = "0|1", num_args = 0..=1, default_missing_value = "0",
        value_parser = clap::value_parser!(u8).range(0..=1))]
    pub to_stderr: Option<u8>,

    /// Run these statements first, then those from standard input.
    ///
    /// As sqlcmd's -q: the session goes on, at a terminal with a prompt. Without it, and without -Q and -i, all statements
    /// come from standard input. Not for scripts that are to end: use -Q.
    #[arg(
        short = 'q',
        long,
        value_name = "TEXT",
        conflicts_with = "query",
        hide_short_help = true
    )]
    pub initial_query: Option<String>,

    /// End a batch that takes longer than these seconds.
    ///
    /// Its statement ends as by Ctrl-C, so a backup leaves nothing half-valid, and the script goes on with the next batch;
    /// with -b it ends. Without the option a batch may take any time, which is right for backups.
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..=65534),
        hide_short_help = true)]
    pub query_timeout: Option<u16>,

    /// The workstation's name: HOST_NAME(), and `host_name` in the views of sessions.
    ///
    /// By default it is this machine's name. The histories of backups have this machine's name in any case.
    #[arg(short = 'H', long, value_name = "NAME", hide_short_help = true)]
    pub workstation: Option<String>,

    /// The encoding of scripts and results: 65001 (UTF-8), 1252 or 1200 (UTF-16), also `i:N,o:N`.
    ///
    /// By default both are UTF-8, and a script with a byte order mark is read by it. For other encodings convert the script,
    /// for example with iconv: they are refused. A character that the results' encoding lacks becomes `?`.
    #[arg(short = 'f', long, value_name = "CODEPAGE", hide_short_help = true)]
    pub codepage: Option<String>,

    /// Write the file of -o in UTF-16, with a byte order mark.
    ///
    /// For programs that read what sqlcmd -u wrote. Standard output and scripts are as -f says; only `-f o:N` would
    /// say something else of the file, so both are refused together. Without it the file is UTF-8, or what -f says.
    #[arg(short = 'u', long, hide_short_help = true)]
    pub unicode_output: bool,

    /// Replace control characters in values: 1 each by a blank, 2 a run of them by one blank.
    ///
    /// Without a number it is 1. By default values keep their tabs and line breaks, as with sqlcmd; use the option for
    /// output that is read line by line.
    #[arg(short = 'k', long, value_name = "1|2", num_args = 0..=1, default_missing_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=2), hide_short_help = true)]
    pub control_characters: Option<u8>,

    /// Width of columns that have a fixed width.
    ///
    /// By default, and with 0, each has the width of its type. Longer values are cut.
    #[arg(short = 'Y', long, value_name = "WIDTH", value_parser = clap::value_parser!(u16).range(0..=8000),
        hide_short_help = true)]
    pub fixed_width: Option<u16>,

    /// Print how long each batch took; 1: the numbers with colons between them.
    ///
    /// As sqlcmd's -p, for scripts that read its lines. By default nothing is measured. Not for the duration of a backup:
    /// its own message 3014 and the history have it.
    #[arg(short = 'p', long, value_name = "1", num_args = 0..=1, default_missing_value = "0",
        value_parser = clap::value_parser!(u8).range(0..=1), hide_short_help = true)]
    pub statistics: Option<u8>,

    /// No effect: there is no login to wait for. It is the value of $(SQLCMDLOGINTIMEOUT).
    ///
    /// For scripts that were written for sqlcmd with -l. The default is 8, as in sqlcmd.
    #[arg(short = 'l', long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(0..=65534),
        hide_short_help = true)]
    pub login_timeout: Option<u16>,

    /// No effect: there is no network. It is the value of $(SQLCMDPACKETSIZE).
    ///
    /// For scripts that were written for sqlcmd with -a. The default is 4096, as in sqlcmd.
    #[arg(short = 'a', long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(512..=32767),
        hide_short_help = true)]
    pub packet_size: Option<u16>,

    /// No effect: names in quotation marks are always taken for names.
    ///
    /// For scripts that were written for sqlcmd with -I, which without the option takes them for texts.
    #[arg(short = 'I', long, hide_short_help = true)]
    pub quoted_identifiers: bool,

    /// No effect: there is no network to encrypt on.
    ///
    /// For scripts that were written for sqlcmd with -N: alone, or with s (strict), m (mandatory) or o (optional), also in
    /// their older words, true, yes, 1, false, no, 0 and disable. The statements run in this process, with it and without.
    #[arg(short = 'N', long, value_name = "s|m|o", num_args = 0..=1, default_missing_value = "m",
        hide_short_help = true)]
    pub encrypt_connection: Option<String>,

    /// No effect: no server has a certificate here.
    ///
    /// For scripts that were written for sqlcmd with -C. The statements run in this process, with the option and without.
    #[arg(short = 'C', long, hide_short_help = true)]
    pub trust_server_certificate: bool,

    /// No effect: numbers and dates are written as in the language us_english.
    ///
    /// For scripts that were written for sqlcmd with -R, which takes the client's regional settings.
    #[arg(short = 'R', long, hide_short_help = true)]
    pub regional_settings: bool,

    /// Refused: `longshore sql` has no logins, and runs as the operating system's user.
    ///
    /// For the message that says so: leave the option out, or use sqlcmd with `longshore serve`, which has logins. Without
    /// it the user is that of the process.
    #[arg(short = 'U', long, value_name = "NAME", hide_short_help = true)]
    pub user: Option<String>,

    /// Refused, as -U: there is no password to check. It is shown nowhere.
    ///
    /// Others on this machine can see the arguments of a program: give no password on a command line. Without it the user is
    /// that of the process.
    // A refusal of clap's would show a password with a hyphen. -U takes none: with the name left out it would take -P, and the
    // password would be what is shown.
    #[arg(short = 'P', long, value_name = "TEXT", allow_hyphen_values = true, value_parser = unread,
        hide_short_help = true)]
    pub password: Option<Unread>,

    /// Print results and messages only, as without the option: they are the answer.
    ///
    /// It is an option of all commands. Without a short form here: -q is sqlcmd's.
    #[arg(long, conflicts_with = "verbose", hide_short_help = true)]
    pub quiet: bool,

    /// A database not in the configuration: a name, and a source as for `longshore backup`.
    ///
    /// It is known to this call only; the configuration's [database.NAME] is known to all. Without this option
    /// statements can back up the configuration's databases only.
    #[arg(long, value_name = "NAME=SOURCE")]
    pub database: Vec<String>,

    /// Directory for relative device names; the default is the working directory.
    ///
    /// `TO DISK = 'shop.bak'` means shop.bak in this directory. The default is what a person at a shell expects; give
    /// the option in scheduled jobs, which may start anywhere.
    #[arg(long, value_name = "DIR")]
    pub backup_directory: Option<PathBuf>,

    /// Print the plan of backups and restores, as trace flags 3604 and 3213 do.
    ///
    /// For tuning buffers and devices. It is off by default, because scripts compare the output. `DBCC TRACEON (3604,
    /// 3213)` in a script does the same from that line on.
    // No short form: -v belongs to sqlcmd.
    #[arg(long)]
    pub verbose: bool,

    /// Print this help.
    ///
    /// `-?` as in sqlcmd, where -h is for headers.
    #[arg(short = '?', long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// A value that nothing keeps.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

/// Takes any value, for an option that is refused.
fn unread(_: &str) -> Result<Unread, std::convert::Infallible> {
    Ok(Unread)
}

/// A lone `-h` means help in every other command. Here it is sqlcmd's option and lacks its number, so the refusal names
/// the option that helps.
pub fn with_tip_for_help(mut error: clap::Error) -> clap::Error {
    let holds = |kind, wanted: fn(&str) -> bool| matches!(error.get(kind), Some(ContextValue::String(text)) if wanted(text));
    let is_lone = holds(ContextKind::InvalidArg, |arg| arg.contains("--headers"))
        && holds(ContextKind::InvalidValue, str::is_empty);
    if is_lone {
        let tip = "`longshore sql -?` prints the help; -h is sqlcmd's option for headers".into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}
