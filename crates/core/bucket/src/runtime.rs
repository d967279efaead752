//! The runtime's two threads, and the answers that callers wait for.
//!
//! Invariants
//! - The first bucket that is opened or asked starts the runtime, and it lives as long as the process: there is one.
//! - A request begins when its [`Ticket`] is made. Dropping the ticket aborts the request, unless it is detached, and
//!   each way of waiting consumes the ticket.
//! - A wait notices the caller's cancel flag within `LOOK`.
//!
//! Leaves to others: the requests themselves and their repetition (`store.rs`, `object_store`).

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;

use crate::Error;

/// Both move bytes only; what they wait for is the network.
const WORKERS: usize = 2;
/// Look-ups of names, and programs that give credentials.
const BLOCKING: usize = 4;
/// The time between two looks at whether the caller was cancelled.
const LOOK: Duration = Duration::from_millis(100);

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// The process's runtime, which the first call starts.
pub fn handle() -> Result<Handle, Error> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.handle().clone());
    }
    // It fails if the process has one already, which then serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let built = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .thread_name("bucket")
        .enable_all()
        .build();
    let built = built.map_err(|source: io::Error| Error::Threads { source })?;
    let handle = built.handle().clone();
    *runtime = Some(built);
    Ok(handle)
}

/// The answer to a request in flight. Dropping it ends the request, unless another part of the room does that.
#[derive(Debug)]
pub struct Ticket<T> {
    answer: Receiver<Result<T, Error>>,
    /// `None`: another ends the request.
    task: Option<AbortHandle>,
    action: &'static str,
    at: String,
}

impl<T: Send + 'static> Ticket<T> {
    pub(crate) fn start(
        (action, at): (&'static str, String),
        request: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<Ticket<T>, Error> {
        let (send, answer) = sync_channel(1);
        let task = handle()?.spawn(async move {
            let result = request.await;
            // Nobody waits for the answer to a request that was dropped.
            let _ = send.send(result);
        });
        Ok(Ticket {
            answer,
            task: Some(task.abort_handle()),
            action,
            at,
        })
    }

    /// The ticket of a request that goes on without it, and what ends the request.
    pub(crate) fn detached(mut self) -> (Ticket<T>, Option<AbortHandle>) {
        let task = self.task.take();
        (self, task)
    }

    /// Waits for the answer. Errors: also [`Error::Cancelled`] once `cancel` is set.
    pub fn wait(self, cancel: &AtomicBool) -> Result<T, Error> {
        loop {
            match self.answer.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) if !cancel.load(Ordering::Relaxed) => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.cancelled()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.broken()),
            }
        }
    }

    /// Waits for the answer; once `cancel` is set, for `grace` more.
    pub fn wait_within(self, cancel: &AtomicBool, grace: Duration) -> Result<T, Error> {
        let mut waited = Duration::ZERO;
        loop {
            match self.answer.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => return Err(self.broken()),
                Err(RecvTimeoutError::Timeout) if !cancel.load(Ordering::Relaxed) => {}
                Err(RecvTimeoutError::Timeout) => {
                    waited += LOOK;
                    if waited > grace {
                        return Err(self.cancelled());
                    }
                }
            }
        }
    }

    /// Waits for the answer for a while.
    pub fn wait_for(self, at_most: Duration) -> Result<T, Error> {
        match self.answer.recv_timeout(at_most) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(self.cancelled()),
            Err(RecvTimeoutError::Disconnected) => Err(self.broken()),
        }
    }

    /// The request ended without an answer: the client of the store cannot work with these settings.
    fn broken(&self) -> Error {
        Error::Settings {
            bucket: self.at.clone(),
            why: "the client of the store ended without an answer, which is an error in Longshore; look at the settings all the same".to_owned(),
        }
    }

    fn cancelled(&self) -> Error {
        Error::Cancelled {
            action: self.action,
            at: self.at.clone(),
        }
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
