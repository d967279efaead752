//! PostgreSQL clusters are backed up while they run: every installed major version, through the program, judged by
//! PostgreSQL's own server and tools.

#[path = "../common/mod.rs"]
mod common;

mod archive;
mod bases;
mod branches;
mod chains;
mod clusters;
mod columns;
mod contents;
mod copies;
mod differential;
mod equal;
mod large;
mod live;
mod many;
mod odd;
mod pages;
mod remote;
mod role;
mod session;
mod settings;
mod soak;
mod stage;
mod standby;
mod unlogged;
