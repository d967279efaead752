//! The block cache as a plugin of nbdkit: the server speaks the protocol, this crate passes requests on.
//!
//! Threads start after nbdkit has forked, and end before the plugin is unloaded; that is a clean stop. Requests come
//! in parallel, over several connections that share one engine, so a flush on one covers the writes of all.
//!
//! Invariant: no panic crosses into nbdkit; what should never happen is `EIO` for one request.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod config;
mod emulated;
mod served;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use longshore_blockcache::Engine;
use nbdkit::{
    Error, ExtentHandle, ExtentType, Flags, FuaFlags, Result, Server, ThreadModel, plugin,
};
use parking_lot::Mutex;

use config::Config;
use served::Served;

static CONFIG: Mutex<Option<Config>> = Mutex::new(None);
static SERVED: Mutex<Option<Served>> = Mutex::new(None);

/// One connection.
struct Connection {
    engine: Arc<Engine>,
}

/// Runs a request and puts its outcome into nbdkit's words.
fn guarded<T>(request: impl FnOnce() -> std::io::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(request)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let invalid = error.kind() == std::io::ErrorKind::InvalidInput;
            let other = if invalid { libc::EINVAL } else { libc::EIO };
            Err(Error::new(error.raw_os_error().unwrap_or(other), error))
        }
        Err(_panic) => Err(Error::new(libc::EIO, "a mistake in this program")),
    }
}

fn refused(text: String) -> Error {
    Error::new(libc::EINVAL, text)
}

impl Server for Connection {
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
        Some(config::HELP)
    }

    fn magic_config_key() -> Option<&'static str> {
        Some("backend")
    }

    fn config(key: &str, value: &str) -> Result<()> {
        let mut config = CONFIG.lock();
        config
            .get_or_insert_default()
            .set(key, value)
            .map_err(refused)
    }

    fn config_complete() -> Result<()> {
        let config = CONFIG.lock().clone().unwrap_or_default();
        config.plan().map(drop).map_err(refused)
    }

    fn after_fork() -> Result<()> {
        let plan = CONFIG
            .lock()
            .clone()
            .unwrap_or_default()
            .plan()
            .map_err(refused)?;
        let served = Served::start(plan).map_err(refused)?;
        *SERVED.lock() = Some(served);
        Ok(())
    }

    fn unload() {
        let served = SERVED.lock().take();
        if let Some(served) = served {
            // There is nobody left to answer to; what fails is in the log.
            let _ended = catch_unwind(AssertUnwindSafe(|| served.stop()));
        }
    }

    fn thread_model() -> Result<ThreadModel> {
        Ok(ThreadModel::Parallel)
    }

    fn open(_readonly: bool) -> Result<Box<dyn Server>> {
        match SERVED.lock().as_ref() {
            Some(served) => Ok(Box::new(Connection {
                engine: served.engine(),
            })),
            None => Err(Error::new(libc::ESHUTDOWN, "not serving")),
        }
    }

    fn get_size(&self) -> Result<i64> {
        i64::try_from(self.engine.len()).map_err(|e| Error::new(libc::EFBIG, e))
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
        guarded(|| self.engine.read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64, flags: Flags) -> Result<()> {
        guarded(|| self.engine.write(buf, offset, flags.contains(Flags::FUA)))
    }

    fn flush(&self) -> Result<()> {
        guarded(|| self.engine.flush())
    }

    /// What is trimmed reads as zeros, which is more than it must.
    fn trim(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let durable = flags.contains(Flags::FUA);
        guarded(|| self.engine.zero(offset, count.into(), true, durable))
    }

    fn zero(&self, count: u32, offset: u64, flags: Flags) -> Result<()> {
        let (trim, durable) = (flags.contains(Flags::MAY_TRIM), flags.contains(Flags::FUA));
        guarded(|| self.engine.zero(offset, count.into(), trim, durable))
    }

    fn extents(
        &self,
        count: u32,
        offset: u64,
        flags: Flags,
        extents: &mut ExtentHandle,
    ) -> Result<()> {
        let end = offset + u64::from(count);
        let mut at = offset;
        while at < end {
            let data = guarded(|| self.engine.next_data(at))?.unwrap_or(end..end);
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
    }
}

plugin!(Connection {
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
