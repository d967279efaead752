//! A double of `libcuda.so.1` and `libnvcomp.so.5` or `.so.6`: the same functions, over this process's memory, for tests.
//!
//! One file plays both parts, under as many names as a test likes; copies of the file are independent, so tests run in
//! parallel. Chunks are really deflated (miniz_oxide). The double is not a GPU and says nothing about a GPU's speed.
//!
//! It is stricter than the real libraries, so that mistakes show:
//! - Work is done as late as the rules of streams and events allow: when a caller waits for it, and only the part that
//!   it waits for. A caller that forgets to wait reads garbage.
//! - New memory is filled with garbage. An address outside every allocation is `CUDA_ERROR_ILLEGAL_ADDRESS`, after
//!   which every call fails, as with the real driver.
//! - Copies require pinned memory; calls require a current context on their thread.
//! - A kernel is run from its PTX text (`ptx.rs`).
//!
//! A script controls its faults: the environment variable `LONGSHORE_DOUBLE_NVCOMP` when the library is first called,
//! or `double_script`. See [`script`].

// The names are the libraries'.
#![allow(non_snake_case)]

mod cuda;
mod nvcomp;
mod ptx;
pub mod script;
pub mod stage;
mod world;
