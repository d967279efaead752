//! The receiver of a set's contents: what a restore and a verification differ in.

use longshore_media::{Error as MediaError, Item};

use crate::Error;

/// Takes the contents of a set. Called from several threads at once, with the blocks in any order. `contract.rs` checks each
/// sink.
pub trait Sink: Sync {
    /// Whether a block of the set with this index is wanted; other blocks are not decoded.
    fn wants(&self, set: usize, items: &[Item]) -> bool;

    /// Whether [`Sink::block`] writes the bytes to devices and waits for them.
    fn writes(&self) -> bool;

    /// Takes the checked plain bytes of a block of the set with this index.
    fn block(&self, set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error>;

    /// Reports damage: an error ends the run; `Ok` continues with what can still be read.
    fn damage(&self, error: MediaError) -> Result<(), Error>;
}
