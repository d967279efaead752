//! What encrypted sets have in addition: Roots records, and the checks of a stripe that is read.
//!
//! Invariants
//! - A reader without a key still compares all digests and roots. Only the MAC of a trailer and the tags need one.
//! - A stripe's root is taken of what was read, in the order of the stripe, never of what the stripe says.
//!
//! Leaves to others: what is computed (`longshore-crypt`), the order of records (`stream.rs`, `member.rs`), and how a damaged
//! stripe is reported (`stream.rs`, `member.rs`).

use std::sync::Arc;

use longshore_crypt::{FamilyRoot, IndexKeys, KeyContext, Root, SetKeys};
use uuid::Uuid;

use crate::header::{FAMILIES_MAX, MediaHeader, SetTrailer};
use crate::record::{Fields, RecordError};

/// Bytes of a Roots record's body before the roots.
pub const ROOTS_HEAD_LEN: usize = 60;

/// The roots of all families of a set; the last record before each trailer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    pub set: Uuid,
    pub families: Vec<Root>,
}

impl Roots {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ROOTS_HEAD_LEN + self.families.len() * 32);
        out.extend_from_slice(self.set.as_bytes());
        out.extend_from_slice(&(self.families.len() as u16).to_le_bytes());
        // Kept for a signature: its kind, a counter, and the root of the set that was signed before.
        out.resize(ROOTS_HEAD_LEN, 0);
        self.families.iter().for_each(|r| out.extend_from_slice(r));
        out
    }

    pub fn decode(body: &[u8]) -> Result<Roots, RecordError> {
        let mut f = Fields(body);
        let set = Uuid::from_bytes(f.array()?);
        let count = f.u16()?;
        let signature = f.u8()?;
        match signature {
            0 => f.zeros(ROOTS_HEAD_LEN - 19)?,
            _ => f.bytes(ROOTS_HEAD_LEN - 19).map(drop)?,
        }
        if !(1..=FAMILIES_MAX).contains(&count) {
            return Err(RecordError::Field);
        }
        let families = (0..count).map(|_| f.array());
        let families = families.collect::<Result<Vec<Root>, _>>()?;
        // A later version's signature follows; this one knows none, and takes the set for unsigned.
        if signature == 0 {
            f.end()?;
        }
        Ok(Roots { set, families })
    }
}

/// The checks of one stripe of an encrypted set.
#[derive(Debug)]
pub(crate) struct StripeCheck {
    /// `None` if the stored bytes or the index alone are checked.
    pub keys: Option<Arc<SetKeys>>,
    /// `None` if the stored bytes alone are checked.
    pub index: Option<Arc<IndexKeys>>,
    context: KeyContext,
    commitment: Root,
    pub root: FamilyRoot,
    family_index: usize,
    /// Chunks of the index so far.
    pub chunks: u32,
    roots: Option<Roots>,
}

impl StripeCheck {
    /// `header` and `records`: the bodies of the set header and of the Keys records, as they are on the stripe.
    pub fn new(
        media: &MediaHeader,
        header: &[u8],
        records: &[Vec<u8>],
        keys: Option<Arc<SetKeys>>,
    ) -> StripeCheck {
        let head = records.first().and_then(|body| body.get(40..72));
        StripeCheck {
            commitment: head.and_then(|c| c.try_into().ok()).unwrap_or_default(),
            index: keys.as_ref().map(|keys| keys.index().clone()),
            keys,
            context: KeyContext::of(header, records),
            root: FamilyRoot::new(&media.known()),
            family_index: usize::from(media.family) - 1,
            chunks: 0,
            roots: None,
        }
    }

    /// The same for a reader of the index alone.
    pub fn of_index(
        media: &MediaHeader,
        header: &[u8],
        records: &[Vec<u8>],
        index: Arc<IndexKeys>,
    ) -> StripeCheck {
        StripeCheck {
            index: Some(index),
            ..StripeCheck::new(media, header, records, None)
        }
    }

    /// Number of the family, from 1.
    pub fn family(&self) -> u16 {
        self.family_index as u16 + 1
    }

    pub fn has_roots(&self) -> bool {
        self.roots.is_some()
    }

    pub fn roots(&mut self, body: &[u8]) -> Result<(), RecordError> {
        self.roots = Some(Roots::decode(body)?);
        Ok(())
    }

    fn set_root(&self, trailer: &SetTrailer, families: &[Root]) -> Root {
        self.context
            .set_root(&self.commitment, &trailer.whole(), families)
    }

    /// Compares everything that was read with the trailer; what is wrong, in words.
    pub fn end(&self, trailer: &SetTrailer) -> Result<(), &'static str> {
        let (Some(roots), Some(proof)) = (&self.roots, &trailer.proof) else {
            return Err("it is encrypted and has no roots");
        };
        let own = roots.families.get(self.family_index);
        if roots.set != trailer.set || own != Some(&self.root.clone().finish()) {
            return Err(
                "its blocks or its index are not those that were written: its root differs",
            );
        }
        if self.set_root(trailer, &roots.families) != proof.root {
            return Err("its header, its recipients or its totals were changed: its root differs");
        }
        match &self.index {
            None => Ok(()),
            Some(keys) => keys
                .check_trailer(&trailer.start(), &proof.root, &proof.mac)
                .map_err(|_| "its trailer was not written with its key"),
        }
    }
}
