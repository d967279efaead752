//! Executes each command: lowers its options to a request, runs it, shows the report.
//!
//! Invariants
//! - A command gets all its tools from the one [`Context`].
//! - A command returns its exit code or one failure; nothing below prints an error itself.
//! - Options precede the configuration. Limits of the configuration do not slow a restore.
//!
//! Leaves to others: options (`options`), the forms of output and the exit codes of errors (`terminal`), and the work
//! (the rooms).

mod accelerator;
mod archive;
mod backup;
mod cache;
mod catalog;
mod check;
mod config_page;
mod copy;
mod detached;
mod devices;
mod doctor;
mod drill;
mod elsewhere;
mod emptied;
mod ends;
mod expire;
mod findings;
mod forwarded;
mod info;
mod key;
mod labelled;
mod list;
mod metrics;
mod moving;
mod nearest;
mod offload;
mod past;
mod project;
mod reading;
mod recording;
mod remembered;
mod repair;
mod restore;
mod results;
mod runs;
mod serve;
mod shelves;
mod source;
mod sql;
mod stop;
mod unarchived;
mod unmounted;
mod uploads;
mod verify;
mod wal;

use longshore_media::DeviceSpec;

use crate::context::Context;
use crate::options::{CacheAction, Command, ForwardedArgs, WalAction};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::Output;

pub fn run(command: &Command, context: &Context) -> Result<Exit, Failure> {
    past::begin(command);
    match command {
        Command::Backup(options) => backup::run(options, context),
        Command::Restore(options) => restore::run(options, context),
        Command::Verify(options) => verify::run(options, context),
        Command::List(options) => list::run(options, context),
        Command::Info(options) if options.prometheus => metrics::of_info(options, context),
        Command::Info(options) => info::run(options, context),
        Command::Metrics(options) => metrics::run(options, context),
        Command::Check(options) => check::run(options, context),
        Command::Drill(options) => drill::run(options, context),
        Command::Expire(options) => expire::run(options, context),
        Command::Copy(options) => copy::run(options, context),
        Command::Stop(options) => stop::stop(options, context),
        Command::Start(options) => stop::start(options, context),
        Command::Uploads(options) => uploads::run(options, context),
        Command::Repair(options) => repair::run(options, context),
        Command::Serve(options) => serve::run(options, context),
        Command::Sql(options) => sql::run(options, context),
        Command::History(options) => catalog::history(options, context),
        Command::Catalog(options) => catalog::run(options, context),
        Command::Accelerator(options) => accelerator::run(options, context),
        Command::Doctor(_) => doctor::run(context),
        Command::Config(options) => project::config(options, context),
        Command::Completions(options) => project::completions(options, context),
        Command::Man(options) => project::man(options, context),
        Command::Key(options) => key::run(options, context),
        Command::Lab(_) | Command::Tune(_) => forwarded::run(),
        Command::Cache(options) => cache::run(options, context),
        Command::Wal(options) => wal::run(options, context),
    }
}

/// Answers a request for help about a command that another program has.
pub fn help_elsewhere() -> Exit {
    let answer = forwarded::run();
    answer.unwrap_or_else(|failure| {
        let output = Output {
            json: std::env::args_os().any(|word| word == "--json"),
            quiet: false,
            verbose: false,
            stdout_taken: false,
        };
        output.fail(&failure);
        failure.exit
    })
}

/// The arguments after a command that another program has.
fn passed_on(command: &Command) -> Option<&ForwardedArgs> {
    match command {
        Command::Lab(rest) | Command::Tune(rest) => Some(rest),
        Command::Cache(cache) => match &cache.action {
            CacheAction::Simulate(rest) | CacheAction::Grid(rest) => Some(rest),
            _ => None,
        },
        _ => None,
    }
}

/// Whether what is passed on to another program has `--json`, so that a failure to start it is JSON, too.
pub fn passes_json_on(command: &Command) -> bool {
    passed_on(command).is_some_and(|rest| rest.args.iter().any(|word| word == "--json"))
}

/// Whether the command's own `--quiet` is given: that of `sql`, where -q is sqlcmd's.
pub fn is_quiet(command: &Command) -> bool {
    matches!(command, Command::Sql(sql) if sql.quiet)
}

/// Whether the command writes a stripe to standard output.
pub fn takes_stdout(command: &Command) -> bool {
    matches!(command, Command::Backup(b) if b.to.contains(&DeviceSpec::Pipe))
}

/// Whether the caller is PostgreSQL's recovery, which takes exit codes up to 125 as the end of the WAL.
pub fn answers_a_recovery(command: &Command) -> bool {
    matches!(command, Command::Wal(wal) if matches!(wal.action, WalAction::Get(_)))
}

/// Whether the caller is PostgreSQL, which reads only the exit code: a failure to print must not hold up its WAL.
pub fn answers_by_its_exit_code(command: &Command) -> bool {
    let Command::Wal(wal) = command else {
        return false;
    };
    matches!(wal.action, WalAction::Push(_) | WalAction::Get(_))
}
