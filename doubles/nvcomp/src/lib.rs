//! A double of `libcuda.so.1` and `libnvcomp.so.5` or `.so.6`: the same functions, over this process's memory, for tests.
//!
//! One file plays both parts, under as many names as a test likes; copies of the file do not know each other, so
//! tests run side by side. Chunks are really deflated (miniz_oxide). It is no GPU and says nothing about how fast
//! one is.
//!
//! It is stricter than the real ones, so that mistakes show:
//! - Work is done as late as the rules of streams and events allow: when somebody waits for it, and no more of it than
//!   that. Who forgets to wait reads rubbish.
//! - Fresh memory is filled with rubbish. An address outside of any allocation is `CUDA_ERROR_ILLEGAL_ADDRESS`, after
//!   which every call fails, as with the real driver.
//! - Copies want pinned memory; calls want a current context on their thread.
//! - A kernel is run from its PTX text (`ptx.rs`).
//!
//! What it does wrong is told by a script: the environment variable `LONGSHORE_DOUBLE_NVCOMP` when the library is first
//! called, or `double_script`. See [`script`].

#![allow(non_snake_case)]

mod cuda;
mod nvcomp;
mod ptx;
pub mod script;
pub mod stage;
mod world;
