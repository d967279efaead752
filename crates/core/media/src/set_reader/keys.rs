//! Keys of a set, as its records tell them.
//!
//! Leaves to others: the records themselves (`member.rs`), and opening a set (`longshore-crypt`).

use longshore_crypt::{Keys, Root, SignatureState, Thumbprint};
use longshore_io::SumKey;

use super::MediaSet;
use crate::Error;

impl MediaSet {
    /// The root of the set that an encrypted differential set was compared with, as its records say; zeros if that set is
    /// not encrypted. `None` for a set that is not encrypted itself.
    ///
    /// Errors: [`Error::Key`], and those of reading.
    pub fn parent_root(&self, position: u32) -> Result<Option<Root>, Error> {
        let member = &self.members[0];
        let part = self.or_lost(member.part(position), position)?;
        match part.header.as_ref().is_ok_and(|header| header.encrypted) {
            true => Ok(Some(member.parent_root(part, position, &self.keyring)?)),
            false => Ok(None),
        }
    }

    /// Whose a complete set is, as its headers, roots and trailers tell: no block is read for that. A stripe whose signature
    /// a trusted signer made speaks for all, as each stripe names the roots of all.
    ///
    /// Errors: those of reading, of a set without any stripe that can be judged.
    pub fn signature(&self, position: u32) -> Result<SignatureState, Error> {
        let signers = self.keyring.signers();
        let mut found: Option<Result<SignatureState, Error>> = None;
        for member in &self.members {
            let judged = self
                .sealed(member, position)
                .and_then(|(part, seal)| member.signature(part, seal, signers));
            match (&found, &judged) {
                (_, Ok(SignatureState::Trusted(_))) => return judged,
                (None, _) | (Some(Err(_)), Ok(_)) => found = Some(judged),
                _ => {}
            }
        }
        // A media set has at least one member.
        found.unwrap_or(Ok(SignatureState::Unsigned))
    }

    /// How many recipients can open the set, as its records say; 0 if it is not encrypted. Errors: those of reading.
    pub fn recipients(&self, position: u32) -> Result<usize, Error> {
        Ok(self.keys(position)?.map_or(0, |keys| keys.slots.len()))
    }

    /// The thumbprint of the first certificate that the set is for, as its records say. Errors: the same.
    pub fn thumbprint(&self, position: u32) -> Result<Option<Thumbprint>, Error> {
        Ok(self.keys(position)?.and_then(|keys| keys.thumbprint()))
    }

    fn keys(&self, position: u32) -> Result<Option<Keys>, Error> {
        let part = self.or_lost(self.members[0].part(position), position)?;
        let header = part.header.as_ref().ok().filter(|header| header.encrypted);
        header
            .map(|_| self.members[0].keys(part, position))
            .transpose()
    }

    /// The key of the set's page sums, which an encrypted set hides in its header.
    ///
    /// Errors: [`Error::Key`], and those of reading.
    pub fn sum_key(&self, position: u32) -> Result<Option<SumKey>, Error> {
        let member = &self.members[0];
        let part = self.or_lost(member.part(position), position)?;
        let header = part.header.as_ref().ok();
        match header.and_then(|header| Some((header.sum_key?, header.encrypted))) {
            Some((key, true)) => {
                let keys = member.index_keys(part, position, &self.keyring)?;
                Ok(Some(key.masked(keys.sums_mask())))
            }
            key => Ok(key.map(|(key, _)| key)),
        }
    }
}
