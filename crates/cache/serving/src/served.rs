//! A cached backend with the threads that it needs: one that makes checkpoints, and the control socket.
//!
//! Invariants
//! - The threads start after nbdkit has forked and have ended when `stop` returns; a stop makes the content durable.
//! - The backend is served even if the cache cannot be used; the log says why.
//!
//! Leaves to others: requests (`lib.rs`), the cache (`blockcache`), and the protocol of the control socket
//! (`blockcache::control`).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use longshore_blockcache::{
    Backend, CHECKPOINT_EVERY, CachedBackend, OpenedBackend, Start, control, open,
};
use longshore_io::{Clock, HostClock, Storage};
use tracing_subscriber::EnvFilter;

use crate::config::ServingPlan;
use crate::manager;

/// How often to check whether a checkpoint is due.
const TICK: Duration = Duration::from_millis(200);

/// The cost of a start without a cache.
const EMPTIED: &str =
    "one that the backend had begins empty, since it does not see what is written meanwhile";

pub struct Served {
    cached: Arc<CachedBackend>,
    keeper: JoinHandle<()>,
    /// Dropping it ends the checkpoint thread.
    ticking: Sender<()>,
    control: Option<Control>,
}

struct Control {
    path: PathBuf,
    /// The socket's identity: another server may have taken its name.
    own: (u64, u64),
    waker: control::Waker,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Served {
    /// Opens, attaches and starts all threads. The backend is served even if the cache cannot be used.
    pub fn start(
        plan: ServingPlan,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
    ) -> Result<Served, String> {
        start_log();
        manager::tell(
            "STATUS=starting; what is cached may be compared with the backend first, for a minute",
        );
        let cache = plan.cache.as_deref();
        let opened = open(&*storage, &plan.backend, cache, plan.settings, clock);
        let OpenedBackend { cached, cache } =
            opened.map_err(|e| format!("{}; {}", text(&e), e.hint()))?;
        tell_of_cache(cache, &cached);
        let cached = Arc::new(cached);
        let (ticking, ticks) = bounded::<()>(0);
        let keeper = keeper(Arc::clone(&cached), ticks)?;
        let control = match plan.control {
            None => None,
            Some(path) => match Control::start(path, &cached, storage, plan.backend) {
                Ok(control) => Some(control),
                Err(error) => {
                    // A server that does not start leaves the cache as it found it.
                    drop(ticking);
                    let _ended = keeper.join();
                    if let Err(error) = cached.stop() {
                        tracing::error!(%error, "the stop was not clean");
                    }
                    return Err(error);
                }
            },
        };
        Ok(Served {
            cached,
            keeper,
            ticking,
            control,
        })
    }

    pub fn cached(&self) -> Arc<CachedBackend> {
        Arc::clone(&self.cached)
    }

    /// A clean stop: cached data is durable and available at the next start.
    pub fn stop(self) {
        drop(self.ticking);
        let _ended = self.keeper.join();
        self.cached.end_soon();
        if let Some(control) = &self.control {
            control.ended.store(true, SeqCst);
            control.waker.wake();
        }
        // Clients of the socket may take their time; the content must not depend on them.
        match self.cached.stop() {
            Ok(()) => tracing::info!("stopped cleanly"),
            Err(error) => tracing::error!(%error, "the stop was not clean"),
        }
        if let Some(control) = self.control {
            let _ended = control.thread.join();
            control::remove_own(&control.path, control.own);
        }
    }
}

impl Control {
    /// Listens at `path` and answers each request in a thread of its own.
    fn start(
        path: PathBuf,
        cached: &Arc<CachedBackend>,
        storage: Arc<dyn Storage>,
        backend: Backend,
    ) -> Result<Control, String> {
        let failed = |e: io::Error| format!("cannot listen at {}: {e}", path.display());
        let listener = control::listen(&path).map_err(failed)?;
        let own = control::identity(&path).map_err(failed)?;
        let waker = control::Waker::of(&listener).map_err(failed)?;
        let ended = Arc::new(AtomicBool::new(false));
        let (flag, cached) = (Arc::clone(&ended), Arc::clone(cached));
        let serve = move || {
            control::serve(&listener, &flag, |request| {
                control::answer(&cached, &*storage, &backend, request)
            });
        };
        let thread = thread::Builder::new().spawn(serve).map_err(no_thread)?;
        Ok(Control {
            path,
            own,
            waker,
            ended,
            thread,
        })
    }
}

/// nbdkit's log is its standard error; another plugin may have set up tracing already.
fn start_log() {
    let filter =
        EnvFilter::try_from_env("LONGSHORE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let _set_already = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(false)
        .try_init();
}

fn tell_of_cache(
    cache: Option<Result<Start, longshore_blockcache::Error>>,
    cached: &CachedBackend,
) {
    match cache {
        None => tracing::info!("serving without a cache; {EMPTIED}"),
        Some(Ok(start)) => {
            let held_bytes = cached.status().held_bytes;
            match start.is_believed() || start == Start::Fresh {
                true => tracing::info!(?start, held_bytes, "the cache is attached"),
                false => tracing::warn!(?start, "the cache is attached and {}", start.why()),
            }
        }
        Some(Err(error)) => {
            tracing::error!(
                error = text(&error),
                hint = error.hint(),
                "serving without a cache; {EMPTIED}"
            );
        }
    }
}

/// Makes the cache's checkpoints until the other end of `ticks` is dropped.
fn keeper(cached: Arc<CachedBackend>, ticks: Receiver<()>) -> Result<JoinHandle<()>, String> {
    let keep = move || {
        let mut last = HostClock.now();
        while ticks.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let due = HostClock.now() - last >= CHECKPOINT_EVERY;
            if let Err(error) = cached.checkpoint(due) {
                tracing::error!(%error, "the backend cannot be synced");
            }
            if due {
                last = HostClock.now();
            }
        }
    };
    thread::Builder::new().spawn(keep).map_err(no_thread)
}

fn no_thread(error: io::Error) -> String {
    format!("cannot start a thread: {error}; raise the limit on threads")
}

fn text(error: &longshore_blockcache::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
