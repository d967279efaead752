//! A test double of Intel's QATzip library (`libqatzip.so.3`): the same entry points and structures, our own code.
//!
//! The double has no device: it deflates in software, waits as long as a device would work, and misbehaves as a
//! [`script`] says: errors, hangs, lies, corrupt bytes. It shares nothing with the code under test: the member layout,
//! the structures and the rules are written here a second time, from QATzip 1.3.1.
//!
//! | module | what |
//! |---|---|
//! | `exports` | the C entry points |
//! | [`script`] | the faults, and when they happen |
//! | [`members`] | gzip-ext members as QATzip's hardware and software write them, and its reader's rules |
//! | [`stage`] | for tests: a copy of the library with a script, and a machine that has a device |

mod device;
mod exports;
pub mod members;
pub mod script;
pub mod stage;
