//! The locks of the desk: those of the standard library here, loom's in the test of its interleavings.

pub use std::sync::{Condvar, Mutex, MutexGuard};
