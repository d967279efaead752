//! What a cluster does while it is read, moment by moment, and what a server may say.
//!
//! Real servers judge backups in `crates/longshore/tests/postgres_backup`; what they do at one instant in a million is
//! played here: the server is a script on a socket, its data directory is made by hand, and files change
//! between two calls of the system by a hook in the storage.

mod changing;
mod cluster;
mod double;
mod hooked;
mod hostile;
mod log;
mod pages;
mod standby;
