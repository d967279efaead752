//! What each command does with its options: lower them to a request, run it, show the report.

mod accelerator;
mod archive;
mod backup;
mod cache;
mod catalog;
mod check;
mod devices;
mod doctor;
mod drill;
mod expire;
mod findings;
mod info;
mod lab;
mod labelled;
mod list;
mod offload;
mod project;
mod restore;
mod serve;
mod shelves;
mod source;
mod sql;
mod verify;
mod wal;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Storage};
use longshore_media::DeviceSpec;
use longshore_pipeline::{House, Limits, Tuning};

use crate::config::{Config, Defaults};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::options::{Command, Global, Moving, WalAction};
use crate::output::Output;

/// What a person types to run the program with these arguments.
fn command_line(args: impl IntoIterator<Item = OsString>) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted = |arg: OsString| match arg.to_string_lossy() {
        plain if !plain.is_empty() && plain.chars().all(is_plain) => plain.into_owned(),
        other => format!("'{}'", other.replace('\'', "'\\''")),
    };
    let args: Vec<_> = args.into_iter().map(quoted).collect();
    format!("longshore {}", args.join(" "))
}

/// What every command works with.
pub struct Context {
    pub output: Output,
    pub config: Config,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    /// `None`: no history is kept.
    pub catalog: Option<PathBuf>,
}

impl Context {
    pub fn new(global: &Global, output: Output) -> Result<Context, Failure> {
        let storage: Arc<dyn Storage> = Arc::new(Host::new());
        let config = Config::load(&*storage, global.config.as_deref())?;
        let catalog = catalog_path(global, &config);
        Ok(Context {
            output,
            config,
            storage,
            clock: Arc::new(HostClock),
            catalog,
        })
    }

    /// From here on Ctrl-C ends a run gently.
    pub fn house(&self) -> House {
        House {
            storage: self.storage.clone(),
            clock: self.clock.clone(),
            catalog: self.catalog.clone(),
            accelerators: Vec::new(),
            cancel: interrupt::cancel_flag(),
        }
    }
}

fn catalog_path(global: &Global, config: &Config) -> Option<PathBuf> {
    // An empty variable of the environment is none.
    let named = global.catalog.as_ref().filter(|named| !named.is_empty());
    let path = named
        .map(PathBuf::from)
        .or_else(|| config.catalog.path.clone())
        .unwrap_or_else(longshore_catalog::default_path);
    (path.as_os_str() != "none").then_some(path)
}

pub fn run(command: &Command, context: &Context) -> Result<Exit, Failure> {
    match command {
        Command::Backup(options) => backup::run(options, context),
        Command::Restore(options) => restore::run(options, context),
        Command::Verify(options) => verify::run(options, context),
        Command::List(options) => list::run(options, context),
        Command::Info(options) => info::run(options, context),
        Command::Check(options) => check::run(options, context),
        Command::Drill(options) => drill::run(options, context),
        Command::Expire(options) => expire::run(options, context),
        Command::Serve(options) => serve::run(options, context),
        Command::Sql(options) => sql::run(options, context),
        Command::History(options) => catalog::history(options, context),
        Command::Catalog(options) => catalog::run(options, context),
        Command::Accelerator(options) => accelerator::run(options, context),
        Command::Doctor(_) => doctor::run(context),
        Command::Config(options) => project::config(options, context),
        Command::Completions(options) => project::completions(options, context),
        Command::Man(options) => project::man(options),
        Command::Lab(options) => lab::run(options, context),
        Command::Cache(options) => cache::run(options, context),
        Command::Wal(options) => wal::run(options, context),
    }
}

/// Whether the command writes a stripe to standard output.
pub fn takes_stdout(command: &Command) -> bool {
    matches!(command, Command::Backup(b) if b.to.contains(&DeviceSpec::Pipe))
}

/// Whether the caller is PostgreSQL's recovery, which takes exit codes up to 125 for the end of the log.
pub fn answers_a_recovery(command: &Command) -> bool {
    matches!(command, Command::Wal(wal) if matches!(wal.action, WalAction::Get(_)))
}

/// Whether the caller is PostgreSQL, which goes by the exit code alone: what is said beside must not hold up its log.
pub fn answers_by_its_exit_code(command: &Command) -> bool {
    let Command::Wal(wal) = command else {
        return false;
    };
    matches!(wal.action, WalAction::Push(_) | WalAction::Get(_))
}

/// The options given, over the configuration's defaults.
fn tuning(moving: &Moving, defaults: &Defaults) -> Tuning {
    let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    Tuning {
        buffer_count: moving
            .buffer_count
            .or(defaults.buffer_count)
            .map(|n| whole(n.into())),
        buffer_bytes: moving
            .max_transfer_size
            .or(defaults.max_transfer_size)
            .map(whole),
    }
}

/// The same where sets are read: of their size in the configuration nothing is said, for the sets have one.
fn reading_tuning(moving: &Moving, defaults: &Defaults) -> Tuning {
    Tuning {
        buffer_bytes: moving.max_transfer_size.and_then(|n| n.try_into().ok()),
        ..tuning(moving, defaults)
    }
}

fn limits(moving: &Moving, defaults: &Defaults) -> Limits {
    Limits {
        rate_bytes_per_s: moving.max_rate.or(defaults.max_rate),
        cpu_percent: moving.max_cpu.or(defaults.max_cpu),
        low_io_priority: moving.low_io_priority || defaults.low_io_priority,
    }
}
