//! Executes each command: lowers its options to a request, runs it, shows the report.
//!
//! Invariants
//! - One [`Context`] has what every command works with: output, configuration, catalog, storage, clock.
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
mod devices;
mod doctor;
mod drill;
mod expire;
mod findings;
mod forwarded;
mod info;
mod labelled;
mod list;
mod offload;
mod past;
mod project;
mod restore;
mod serve;
mod shelves;
mod source;
mod sql;
mod verify;
mod wal;

use std::path::PathBuf;
use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Storage};
use longshore_media::DeviceSpec;
use longshore_pipeline::{Limits, RunContext, Tuning};

use crate::config::{Config, Defaults};
use crate::options::{CacheAction, Command, ForwardedArgs, Global, TransferOptions, WalAction};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::interrupt;
use longshore_terminal::output::Output;

/// The state that every command works with.
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

    /// From here on, Ctrl-C ends a run gently.
    pub fn run_context(&self) -> RunContext {
        RunContext {
            storage: self.storage.clone(),
            clock: self.clock.clone(),
            catalog: self.catalog.clone(),
            accelerators: Vec::new(),
            cancel: interrupt::cancel_flag(),
        }
    }
}

fn catalog_path(global: &Global, config: &Config) -> Option<PathBuf> {
    // An empty environment variable counts as unset.
    let named = global.catalog.as_ref().filter(|named| !named.is_empty());
    let path = named
        .map(PathBuf::from)
        .or_else(|| config.catalog.path.clone())
        .unwrap_or_else(longshore_catalog::default_path);
    (path.as_os_str() != "none").then_some(path)
}

pub fn run(command: &Command, context: &Context) -> Result<Exit, Failure> {
    past::begin(command);
    match command {
        Command::Backup(options) => backup::run(options, context),
        Command::Restore(options) => restore::run(options, context),
        Command::Verify(options) => verify::run(options, context),
        Command::List(options) => list::run(options, context),
        Command::Info(options) => info::run(options, context),
        Command::Check(options) => check::run(options, context),
        Command::Drill(options) => drill::run(options, context),
        Command::Expire(options) => expire::run(options, context),
        Command::Copy(options) => copy::run(options, context),
        Command::Serve(options) => serve::run(options, context),
        Command::Sql(options) => sql::run(options, context),
        Command::History(options) => catalog::history(options, context),
        Command::Catalog(options) => catalog::run(options, context),
        Command::Accelerator(options) => accelerator::run(options, context),
        Command::Doctor(_) => doctor::run(context),
        Command::Config(options) => project::config(options, context),
        Command::Completions(options) => project::completions(options, context),
        Command::Man(options) => project::man(options, context),
        Command::Lab(_) => forwarded::run(),
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
        Command::Lab(rest) => Some(rest),
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

/// The given options; the configuration's defaults for the rest.
fn tuning(moving: &TransferOptions, defaults: &Defaults) -> Tuning {
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

/// The same for reading. The configured size of sets is ignored, because existing sets have one.
fn reading_tuning(moving: &TransferOptions, defaults: &Defaults) -> Tuning {
    Tuning {
        buffer_bytes: moving.max_transfer_size.and_then(|n| n.try_into().ok()),
        ..tuning(moving, defaults)
    }
}

/// Limits of a restore: those that were asked for. The configured ones spare a workload during backups, and nobody wants
/// to wait longer for a database that is gone.
fn restore_limits(moving: &TransferOptions) -> Limits {
    limits(moving, &Defaults::default())
}

fn limits(moving: &TransferOptions, defaults: &Defaults) -> Limits {
    Limits {
        rate_bytes_per_s: moving.max_rate.or(defaults.max_rate),
        cpu_percent: moving.max_cpu.or(defaults.max_cpu),
        low_io_priority: moving.low_io_priority || defaults.low_io_priority,
    }
}
