//! What to read, in which order, and how safely: the database adaptors.
//!
//! A [`Source`] holds its snapshot or its walk open from `open` to `finish`. It hands out
//! [`Entry`]s, one stream per volume, and each entry's [`Content`] can be read by many workers at
//! once. A source never writes: a database is left exactly as it was found.
//!
//! Invariants
//! - An entry's path is relative, has only normal components and is unique in its source.
//! - A directory comes before what is in it (on the same volume's stream).
//! - Memory does not grow with the number of entries.

mod door;
mod error;

pub use door::{
    Change, Content, Description, Entry, EntryKind, Source, SourceKind, SourceSummary, Volume,
};
pub use error::Error;
