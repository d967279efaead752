//! The facts about a file that its blocks need not be read for, and what can be compared by them.
//!
//! Invariants
//! - An answer is never guessed: where marks cannot be compared, only a reader of the blocks knows.
//!
//! Leaves to others: reading blocks (`stored.rs`), and making marks (`sealed.rs`).

use std::sync::Arc;

use longshore_crypt::{Keyring, TAGS_ID_LEN, TagKey, is_same_tag};

use super::object::{End, Head, PlainMark, WholeMark};

/// The facts about a file that its blocks need not be read for.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) head: Head,
    pub(super) end: End,
}

impl Ends {
    /// The number of the last block that is not all zeros; 0 if all are, or if nobody here knows.
    pub(super) fn last_written(&self, keys: &ArchiveKeys) -> usize {
        let zeros = vec![0; self.head.block_bytes as usize];
        let is_written = |number: &usize| {
            let zeros = &zeros[..self.head.block_len(*number)];
            keys.is_block(self, *number, zeros) == Some(false)
        };
        (0..self.end.rows.len()).rev().find(is_written).unwrap_or(0)
    }
}

/// The keys of those who use an archive; there may be none.
#[derive(Debug, Clone, Default)]
pub(super) struct ArchiveKeys {
    pub(super) keyring: Arc<Keyring>,
    pub(super) tags: Option<Arc<TagKey>>,
}

impl ArchiveKeys {
    /// Whether these are the plain bytes of a block. `None`: only who can read the block knows.
    pub(super) fn is_block(&self, ends: &Ends, number: usize, plain: &[u8]) -> Option<bool> {
        match ends.end.rows.get(number)?.plain {
            PlainMark::Crc(crc) => Some(longshore_io::crc32c(plain) == crc),
            PlainMark::Tag(tag) => {
                let key = self.tags.as_deref().filter(|key| ends.has_tags_of(key))?;
                let own = key.tag(&ends.head.name.to_string(), number as u32, plain);
                Some(is_same_tag(&own, &tag))
            }
        }
    }

    /// Whether blocks of this file can be compared without reading them.
    pub(super) fn compares(&self, ends: &Ends) -> bool {
        let own = self.tags.as_deref();
        ends.head.sealed.is_none() || own.is_some_and(|key| ends.has_tags_of(key))
    }
}

impl Ends {
    pub(super) fn has_tags_of(&self, key: &TagKey) -> bool {
        self.has_tags_of_id(&key.id())
    }

    /// Like [`Ends::has_tags_of`], where no more is known of the key.
    pub(super) fn has_tags_of_id(&self, key: &[u8; TAGS_ID_LEN]) -> bool {
        matches!(&self.end.whole, WholeMark::Sealed { tags, .. } if tags == key)
    }

    /// Whether both files have tags of one key.
    pub(super) fn has_tags_as(&self, other: &Ends) -> bool {
        let id = |ends: &Ends| match ends.end.whole {
            WholeMark::Sealed { tags, .. } if tags != [0; TAGS_ID_LEN] => Some(tags),
            _ => None,
        };
        id(self).is_some() && id(self) == id(other)
    }
}
