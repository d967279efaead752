//! What `make install` and the packages put on a machine: complete, stripped, usable, and gone again when it is removed.
//!
//! The programs are those of this build, whatever its profile: nothing is compiled here. A whole installation in a clean
//! Debian is `make test-packages`.

#[path = "../common/mod.rs"]
mod common;

mod deb;
mod image;
mod installed;
mod rpm;
mod stage;
