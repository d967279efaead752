//! The sources of a shelf that have lost their content, by what their newest backups describe.
//!
//! Invariants
//! - Of a differential no more than [`SMALL_BYTES`] are read, and only of the newest ones, as long as these have no content.
//! - An index that cannot be read, or that no identity opens, shows nothing.
//!
//! Leaves to others: the verdict (`emptied.rs`), and what follows from it (the programs).

use std::sync::Arc;

use longshore_media::{BackupDevice, EntryKind, Item, MediaSet};

use crate::emptied::{self, Filled, Loss, MANY};
use crate::shelf::{BackupEntry, Listing, Shelf};

/// The longest differential whose bytes are counted. A longer one holds content, or an index of much that is based.
const SMALL_BYTES: u64 = 4 << 20;

impl Shelf {
    /// The branches of a listing whose newest backup shows that its source had lost its content.
    pub fn losses(&self, listing: &Listing, now_us: i64) -> Vec<Loss> {
        let facts = listing.facts();
        emptied::losses(&facts, now_us, |i| self.described_bytes(&listing.sets[i]))
    }

    /// The newest backup with content on the branch of a full one that has it: that is the one to bring back.
    pub fn newest_filled(&self, listing: &Listing, full: &Filled, now_us: i64) -> Filled {
        let described = |i: usize| self.described_bytes(&listing.sets[i]);
        let newest = emptied::newest_filled(&listing.facts(), full, now_us, described);
        newest.unwrap_or_else(|| full.clone())
    }

    /// Bytes of all files that a differential describes, holes only in files of which it holds the differences; `None` if they
    /// cannot be counted here.
    fn described_bytes(&self, set: &BackupEntry) -> Option<u64> {
        let complete = set.complete()?;
        if complete.stored_bytes > SMALL_BYTES {
            return Some(MANY);
        }
        let opened: Vec<Arc<dyn BackupDevice>> =
            set.devices.iter().map(|d| d.open(&self.storage)).collect();
        let (mut bytes, mut is_based) = (0_u64, false);
        let counted = MediaSet::open(&opened).and_then(|media| {
            let media = media.with_keyring(&self.keyring);
            media.items(complete.header.position, |item| match item {
                Item::Entry(entry) => {
                    is_based = entry.based;
                    if entry.first && is_based && entry.kind == EntryKind::File {
                        bytes = bytes.saturating_add(entry.len);
                    }
                }
                Item::Extent(extent) if !is_based => {
                    bytes = bytes.saturating_add(extent.len.into());
                }
                _ => {}
            })
        });
        match counted {
            Ok(()) => Some(bytes),
            Err(error) => {
                tracing::debug!(%error, label = %set.label, "the bytes of a differential are not known");
                None
            }
        }
    }
}
