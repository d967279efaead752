//! The state of a disk as all that is open on it shares it, and the way of every call to it.
//!
//! Leaves to others: which call fails (`fault.rs`), and the state itself (`state.rs`).

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::fault::{Call, Interference, Op};
use super::state::{Power, State, errno};

/// Clones are the same disk.
#[derive(Clone)]
pub(super) struct SharedState {
    state: Arc<Mutex<State>>,
}

impl SharedState {
    pub(super) fn new(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Performs one call: faults, counting, the cut, and then `body` with the state of the power and the most bytes it
    /// may transfer.
    pub(super) fn call<T>(
        &self,
        op: Op,
        path: &Path,
        bytes: Option<Range<u64>>,
        body: impl FnOnce(&mut State, Power, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        if state.power_is_off {
            return Err(errno(libc::EIO));
        }
        let step = state.steps;
        let verdict = state.judge(&Call {
            op,
            path,
            bytes,
            step,
        });
        if !verdict.delay.is_zero() || !verdict.meanwhile.is_empty() {
            drop(state);
            verdict.meanwhile.iter().for_each(Interference::run);
            std::thread::sleep(verdict.delay);
            state = self.state.lock();
        }
        let power = state.begin(op, path)?;
        let effect = if verdict.forgotten {
            Power::Going
        } else {
            power
        };
        let done = match verdict.errno {
            Some(number) => Err(errno(number)),
            None => body(&mut state, effect, verdict.len_max.unwrap_or(u64::MAX)),
        };
        // Released first: dropping what the call opened locks the disk.
        drop(state);
        match power {
            Power::On => done,
            Power::Going => Err(errno(libc::EIO)),
        }
    }
}
