//! A test double of Intel's QATzip library (`libqatzip.so.3`): the same entry points and structures, our own code.
//!
//! Behind them stands no device but a deflate in software, which waits where a device would work and misbehaves
//! as a [`script`] tells: errors, hangs, lies, corrupt bytes. It knows nothing of the code that it tests: the
//! member layout, the structures and the rules are written down here once more, from QATzip 1.3.1.
//!
//! | module | what |
//! |---|---|
//! | `exports` | the C entry points |
//! | [`script`] | what goes wrong, and when |
//! | [`members`] | gzip-ext members as QATzip's hardware and software write them, and its reader's rules |
//! | [`stage`] | for tests: a copy of the library with a script, and a machine that has a device |

mod device;
mod exports;
pub mod members;
pub mod script;
pub mod stage;
