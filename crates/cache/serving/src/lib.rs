//! What a plugin of nbdkit serves: nbdkit speaks the protocol, this crate passes requests on to the cache.
//!
//! A plugin is [`plugin!`] over a [`World`], and nothing else.
//!
//! Invariants
//! - No panic crosses into nbdkit. A panic in a request is `EIO` for that request; a panic while the plugin starts ends
//!   nbdkit with an error.
//! - Threads start after nbdkit has forked, and end before the plugin is unloaded; that is a clean stop.
//! - Requests come in parallel, over several connections that share one cached backend, so a flush on one covers the
//!   writes of all.
//! - The service manager hears that a start is ready when it has succeeded, and of no other one.
//!
//! Leaves to others: the cache itself (`longshore-blockcache`), settings (`config.rs`), threads (`served.rs`), and the way
//! to the service manager (`manager.rs`).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod config;
mod manager;
mod served;
mod world;

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use longshore_blockcache::CachedBackend;
use nbdkit::{Error, ExtentHandle, ExtentType, Flags, FuaFlags, Result, Server, ThreadModel};
use parking_lot::Mutex;

use config::Config;
use served::Served;
pub use world::{Here, World};

/// The settings that nbdkit has given to the one plugin of this process.
struct PluginSettings {
    config: Config,
    world: Box<dyn World>,
}

static SETTINGS: Mutex<Option<PluginSettings>> = Mutex::new(None);
static SERVED: Mutex<Option<Served>> = Mutex::new(None);
static HELP: OnceLock<String> = OnceLock::new();

/// One connection to a plugin whose files and time are `W`'s.
pub struct Connection<W> {
    cached: Arc<CachedBackend>,
    world: PhantomData<fn() -> W>,
}

fn with_settings<W, T>(work: impl FnOnce(&mut PluginSettings) -> T) -> T
where
    W: World + Default + 'static,
{
    let mut settings = SETTINGS.lock();
    work(settings.get_or_insert_with(|| PluginSettings {
        config: Config::default(),
        world: Box::new(W::default()),
    }))
}

/// Runs a callback of nbdkit. Every callback that can fail, or that asks the world, goes through here: a panic that
/// unwinds into nbdkit's C code would abort the process, and with it the service of all clients.
fn caught<T>(callback: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(callback))
        .unwrap_or_else(|_panic| Err(Error::new(libc::EIO, "a bug in this program")))
}

/// Runs a request and maps its error to an error number for the client.
fn guarded<T>(request: impl FnOnce() -> std::io::Result<T>) -> Result<T> {
    caught(|| {
        request().map_err(|error| {
            let invalid = error.kind() == std::io::ErrorKind::InvalidInput;
            let other = if invalid { libc::EINVAL } else { libc::EIO };
            Error::new(error.raw_os_error().unwrap_or(other), error)
        })
    })
}

fn refused(text: String) -> Error {
    Error::new(libc::EINVAL, text)
}

impl<W: World + Default + 'static> Server for Connection<W> {
    fn name() -> &'static str {
        "longshore"
    }

    fn longname() -> Option<&'static str> {
        Some("Longshore's device-aware block cache")
    }

    fn version() -> Option<&'static str> {
        Some(env!("CARGO_PKG_VERSION"))
    }

    fn config_help() -> Option<&'static str> {
        // A panic leaves the plugin without a help text.
        let help = caught(|| {
            let help = HELP.get_or_init(|| match W::help() {
                "" => config::HELP.to_owned(),
                more => format!("{}\n{more}", config::HELP),
            });
            Ok(help.as_str())
        });
        help.ok()
    }

    fn magic_config_key() -> Option<&'static str> {
        Some("backend")
    }

    fn config(key: &str, value: &str) -> Result<()> {
        caught(|| {
            with_settings::<W, _>(|settings| match settings.world.set(key, value)? {
                true => Ok(()),
                false => settings.config.set(key, value),
            })
            .map_err(refused)
        })
    }

    fn config_complete() -> Result<()> {
        caught(|| {
            with_settings::<W, _>(|settings| settings.config.plan().map(drop)).map_err(refused)
        })
    }

    fn after_fork() -> Result<()> {
        caught(|| {
            outlive_file_limits();
            let served = with_settings::<W, _>(|settings| {
                let plan = settings.config.plan()?;
                let cache = plan.cache.as_deref();
                let (storage, clock) = settings.world.open(cache, &plan.backend.path);
                Served::start(plan, storage, clock)
            });
            *SERVED.lock() = Some(served.map_err(refused)?);
            // nbdkit listens already, and takes its clients when this returns.
            manager::tell("READY=1\nSTATUS=serving");
            Ok(())
        })
    }

    fn unload() {
        let served = SERVED.lock().take();
        if let Some(served) = served {
            // There is nobody left to answer to; what fails is in the log.
            let _ended = catch_unwind(AssertUnwindSafe(|| {
                served.stop();
                with_settings::<W, _>(|settings| settings.world.ended());
            }));
        }
    }

    fn thread_model() -> Result<ThreadModel> {
        Ok(ThreadModel::Parallel)
    }

    fn open(_readonly: bool) -> Result<Box<dyn Server>> {
        caught(|| match SERVED.lock().as_ref() {
            Some(served) => Ok(Box::new(Connection::<W> {
                cached: served.cached(),
                world: PhantomData,
            }) as Box<dyn Server>),
            None => Err(Error::new(libc::ESHUTDOWN, "not serving")),
        })
    }

    fn get_size(&self) -> Result<i64> {
        caught(|| i64::try_from(self.cached.len()).map_err(|e| Error::new(libc::EFBIG, e)))
    }

    fn can_write(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_flush(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_fua(&self) -> Result<FuaFlags> {
        Ok(FuaFlags::Native)
    }

    fn can_multi_conn(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_trim(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_zero(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_extents(&self) -> Result<bool> {
        Ok(true)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        guarded(|| self.cached.read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64, flags: Flags) -> Result<()> {
        guarded(|| self.cached.write(buf, offset, flags.contains(Flags::FUA)))
    }

    fn flush(&self) -> Result<()> {
        guarded(|| self.cached.flush())
    }

    /// Trimmed bytes read as zeros. NBD does not demand that; it keeps the cache and the backend equal.
    fn trim(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let durable = flags.contains(Flags::FUA);
        guarded(|| self.cached.zero(offset, count.into(), true, durable))
    }

    fn zero(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let (trim, durable) = (flags.contains(Flags::MAY_TRIM), flags.contains(Flags::FUA));
        guarded(|| self.cached.zero(offset, count.into(), trim, durable))
    }

    fn extents(
        &self,
        count: u32,
        offset: u64,
        flags: Flags,
        extents: &mut ExtentHandle,
    ) -> Result<()> {
        caught(|| {
            let end = offset.saturating_add(u64::from(count));
            let mut at = offset;
            while at < end {
                let data = guarded(|| self.cached.next_data(at))?.unwrap_or(end..end);
                let (start, stop) = (data.start.clamp(at, end), data.end.clamp(at, end));
                if at < start {
                    extents.add(at, start - at, ExtentType::HoleZero)?;
                }
                if start < stop {
                    extents.add(start, stop - start, ExtentType::Allocated)?;
                }
                if flags.contains(Flags::REQ_ONE) {
                    break;
                }
                at = stop.max(start);
            }
            Ok(())
        })
    }
}

/// A file that reaches its size limit (`ulimit -f`, `LimitFSIZE`) is treated as a full disk: the write fails, the cache
/// is given up or the client gets the error. By default the signal ends the server. A handler that was set before, or
/// an ignored signal, stays.
fn outlive_file_limits() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: all zeros are a valid `sigaction`, and both structures outlive the calls. The kernel demands a handler
    // that does only what signals allow, with the signature of its flags: this one does nothing, and without SA_SIGINFO
    // it takes one number.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut before);
        if before.sa_sigaction == libc::SIG_DFL {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut());
        }
    }
}

/// Makes a library the plugin of nbdkit that serves from a [`World`].
#[macro_export]
macro_rules! plugin {
    ($world:path) => {
        type Served = $crate::Connection<$world>;

        nbdkit::plugin!(Served {
            config,
            config_complete,
            config_help,
            after_fork,
            unload,
            thread_model,
            can_write,
            can_flush,
            can_fua,
            can_multi_conn,
            can_trim,
            can_zero,
            can_extents,
            write_at,
            flush,
            trim,
            zero,
            extents
        });
    };
}
