//! The memory of all sessions of a server: one bound over requests, values, syntax trees and prepared statements.
//!
//! Each session has its own bounds (`variables.rs`, the server's limits); multiplied by the allowed number of sessions
//! they would exceed a machine's memory. So memory is claimed before it is used; a claim that does not fit is refused
//! with 701, and the session continues.
//!
//! Invariants
//! - Every claimed byte is given back exactly once, when its [`Claim`] is dropped.
//! - A claim that is refused to grow stays unchanged.
//!
//! Leaves to others: how many bytes something takes (the callers estimate), and SQLite's own memory (`query`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::message::{self, Message};

/// The bytes that sessions hold, and their limit. Clones share one count.
#[derive(Debug, Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    held: AtomicUsize,
    max: usize,
}

impl Memory {
    /// `max`: bytes.
    pub fn new(max: usize) -> Memory {
        Memory {
            inner: Arc::new(Inner {
                held: AtomicUsize::new(0),
                max,
            }),
        }
    }

    /// For a program with only one session.
    pub fn unbounded() -> Memory {
        Memory::new(usize::MAX)
    }

    /// Errors: 701.
    pub fn claim(&self, bytes: usize) -> Result<Claim, Message> {
        let mut claim = Claim {
            memory: Some(self.clone()),
            bytes: 0,
        };
        claim.resize(bytes)?;
        Ok(claim)
    }

    /// Bytes that are claimed.
    pub fn held(&self) -> usize {
        self.inner.held.load(Ordering::Relaxed)
    }
}

/// The right to hold its bytes, until dropped. The default claim belongs to no memory and counts nothing.
#[derive(Debug, Default)]
pub struct Claim {
    memory: Option<Memory>,
    bytes: usize,
}

impl Claim {
    /// Errors: 701; the claim is then unchanged.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Message> {
        let Some(memory) = &self.memory else {
            return Ok(());
        };
        let Inner { held, max } = &*memory.inner;
        match bytes.checked_sub(self.bytes) {
            Some(more) => {
                let fits = |now: usize| now.checked_add(more).filter(|sum| *sum <= *max);
                held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
                    .map_err(|_| message::NO_MEMORY.plain())?;
            }
            None => {
                held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            }
        }
        self.bytes = bytes;
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.inner.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_never_exceed_the_bound_and_are_all_returned() {
        let memory = Memory::new(100);
        let mut first = memory.claim(60).unwrap();
        assert_eq!(memory.claim(41).unwrap_err().number, 701);
        let second = memory.claim(40).unwrap();
        assert_eq!(first.resize(61).unwrap_err().number, 701);
        assert_eq!((first.bytes(), memory.held()), (60, 100));
        drop(second);
        first.resize(100).unwrap();
        first.resize(1).unwrap();
        assert_eq!(memory.held(), 1);
        assert!(first.resize(usize::MAX).is_err());
        drop(first);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn threads_that_claim_at_once_never_hold_more_than_there_is() {
        let memory = Memory::new(10);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let claim = memory.claim(4);
                        assert!(memory.held() <= 10);
                        drop(claim);
                    }
                });
            }
        });
        assert_eq!(memory.held(), 0);
    }
}
