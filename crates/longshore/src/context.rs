//! The tools of every command: output, configuration, catalog, storage and clock.

use std::path::PathBuf;
use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Machine, Storage};
use longshore_pipeline::RunContext;
use longshore_terminal::failure::Failure;
use longshore_terminal::interrupt;
use longshore_terminal::output::Output;

use crate::config::Config;
use crate::key_command;
use crate::options::Global;

/// The state that every command works with.
#[derive(Clone)]
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
        config.name_servers();
        if let Some(text) = key_command::changeable(&config) {
            // No exit code changes by it: PostgreSQL keeps WAL that a push with another one than 0 was told of.
            output.note(&text);
        }
        let catalog = catalog_path(global, &config);
        Ok(Context {
            output,
            config,
            storage,
            clock: Arc::new(HostClock),
            catalog,
        })
    }

    pub fn machine(&self) -> Machine {
        Machine {
            storage: self.storage.clone(),
            clock: self.clock.clone(),
        }
    }

    /// From here on, Ctrl-C ends a run gently.
    pub fn run_context(&self) -> RunContext {
        RunContext {
            keyring: Default::default(),
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
