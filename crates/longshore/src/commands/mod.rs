//! What each command does with its options: lower them to a request, run it, show the report.

mod backup;
mod devices;
mod lab;
mod list;
mod restore;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Storage};
use longshore_media::DeviceSpec;
use longshore_pipeline::{House, Limits, Tuning};

use crate::config::{Config, Defaults};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::options::{Command, Global, Moving};
use crate::output::Output;

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
            cancel: interrupt::cancel_flag(),
        }
    }
}

fn catalog_path(global: &Global, config: &Config) -> Option<PathBuf> {
    let named = global.catalog.as_ref().map(PathBuf::from);
    let path = named
        .or_else(|| config.catalog.path.clone())
        .or_else(usual_catalog)?;
    (path.as_os_str() != "none").then_some(path)
}

fn usual_catalog() -> Option<PathBuf> {
    // SAFETY: `geteuid` has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Some("/var/lib/longshore/history.db".into());
    }
    let state = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute())
        .or_else(|| std::env::home_dir().map(|h| h.join(".local/state")))?;
    Some(state.join("longshore/history.db"))
}

pub fn run(command: &Command, context: &Context) -> Result<Exit, Failure> {
    match command {
        Command::Backup(options) => backup::run(options, context),
        Command::Restore(options) => restore::run(options, context),
        Command::Verify(options) => verify::run(options, context),
        Command::List(options) => list::run(options, context),
        Command::Lab(options) => lab::run(options, context),
    }
}

/// Whether the command writes a stripe to standard output.
pub fn takes_stdout(command: &Command) -> bool {
    matches!(command, Command::Backup(b) if b.to.contains(&DeviceSpec::Pipe))
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

fn limits(moving: &Moving, defaults: &Defaults) -> Limits {
    Limits {
        rate_bytes_per_s: moving.max_rate.or(defaults.max_rate),
        cpu_percent: moving.max_cpu.or(defaults.max_cpu),
        low_io_priority: moving.low_io_priority || defaults.low_io_priority,
    }
}
