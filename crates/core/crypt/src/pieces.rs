//! The blocks of one file that is encrypted by itself: a segment of WAL in an archive.
//!
//! Its key, its slots and its context are those of a set, with the head of the file in the place of the set header.
//!
//! Invariants
//! - A piece opens only in the place where it was sealed: in this file, under its number.
//! - As with blocks of a set, the key of a piece depends on all of its bytes.
//!
//! Leaves to others: the layout of the file, and the comparison of its bytes without a key (`tags.rs`).

use subtle::ConstantTimeEq;

use crate::gcm::{Salt, Tag, cipher, open, seal};
use crate::roots::{Root, SALT_LEN, TAG_LEN};
use crate::set::SetKeys;
use crate::{Error, expand};

/// Bytes that sealing adds to a piece: its salt before it, its tag after it.
pub const PIECE_MORE: usize = SALT_LEN + TAG_LEN;

const WHAT: &str = "a block of WAL";

impl SetKeys {
    fn piece_key(&self, number: u32, salt: &Salt) -> ring::aead::LessSafeKey {
        let number = number.to_le_bytes();
        cipher(&expand(self.payloads(), &[b"w", &number, salt]))
    }

    /// Encrypts what stands in `piece` between the first [`SALT_LEN`] and the last [`TAG_LEN`] bytes, in place, and fills
    /// these in.
    ///
    /// # Panics
    /// If `piece` is shorter than [`PIECE_MORE`].
    pub fn seal_piece(&self, number: u32, piece: &mut [u8]) {
        let (start, rest) = piece.split_at_mut(SALT_LEN);
        let (message, end) = rest.split_at_mut(rest.len() - TAG_LEN);
        let at = number.to_le_bytes();
        let salt = self.salted(&[b"w", &at, &self.hashed(message)[..]]);
        let aad = [b"w", &at[..], &salt].concat();
        let tag = seal(&self.piece_key(number, &salt), &aad, message);
        start.copy_from_slice(&salt);
        end.copy_from_slice(&tag);
    }

    /// Decrypts a piece in place; returns the message in it.
    ///
    /// Errors: [`Error::Tag`].
    pub fn open_piece<'p>(&self, number: u32, piece: &'p mut [u8]) -> Result<&'p [u8], Error> {
        let (salt, sealed) = piece
            .split_first_chunk_mut::<SALT_LEN>()
            .ok_or(Error::Tag { what: WHAT })?;
        let at = number.to_le_bytes();
        let aad = [b"w", &at[..], salt].concat();
        let len = open(&self.piece_key(number, salt), &aad, sealed, WHAT)?;
        Ok(&sealed[..len])
    }

    /// The MAC over the end of a file of pieces.
    pub fn end_mac(&self, end: &[u8]) -> Root {
        self.mac(&[b"w", end])
    }

    /// Errors: [`Error::Tag`] if the MAC is not that of these bytes.
    pub fn check_end(&self, end: &[u8], mac: &Root) -> Result<(), Error> {
        let what = "the end of a file of WAL";
        match bool::from(self.end_mac(end).ct_eq(mac)) {
            true => Ok(()),
            false => Err(Error::Tag { what }),
        }
    }
}

/// Whether two tags are one, in constant time.
pub fn is_same_tag(one: &Tag, other: &Tag) -> bool {
    bool::from(one.ct_eq(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identities, Identity, NewKey, Recipients};

    fn keys(head: &[u8]) -> (SetKeys, Vec<Vec<u8>>, Identities) {
        let identity = Identity::new_hybrid().unwrap();
        let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
        let key = NewKey::wrapped(&recipients).unwrap();
        let (keys, records) = SetKeys::create(head, &key, [0; 32]).unwrap();
        let lens: Vec<usize> = records.iter().map(Vec::len).collect();
        assert_eq!(key.record_lens().unwrap(), lens);
        (keys, records, Identities::new(vec![identity]))
    }

    fn sealed(keys: &SetKeys, number: u32, message: &[u8]) -> Vec<u8> {
        let mut piece = vec![0; PIECE_MORE + message.len()];
        piece[SALT_LEN..][..message.len()].copy_from_slice(message);
        keys.seal_piece(number, &mut piece);
        piece
    }

    #[test]
    fn a_piece_opens_where_it_was_sealed_and_nowhere_else() {
        let (keys, records, identities) = keys(b"a head of sixteen bytes and more");
        let again =
            SetKeys::open(b"a head of sixteen bytes and more", &records, &identities).unwrap();
        let piece = sealed(&keys, 7, b"a message");
        assert_eq!(
            again.open_piece(7, &mut piece.clone()).unwrap(),
            b"a message"
        );
        assert!(again.open_piece(8, &mut piece.clone()).is_err());
        for at in 0..piece.len() {
            let mut changed = piece.clone();
            changed[at] ^= 1;
            assert!(again.open_piece(7, &mut changed).is_err(), "byte {at}");
        }
        for len in 0..piece.len() {
            assert!(again.open_piece(7, &mut piece[..len].to_vec()).is_err());
        }
        let other = SetKeys::open(b"a head of sixteen bytes and less", &records, &identities);
        assert!(other.is_err(), "another head");
        let mac = keys.end_mac(b"rows");
        again.check_end(b"rows", &mac).unwrap();
        assert!(again.check_end(b"row", &mac).is_err());
    }

    /// Goal: a machine that repeats its random numbers encrypts no two messages under one key.
    #[test]
    fn equal_messages_give_equal_bytes_and_different_ones_different_salts() {
        let (keys, _, _) = keys(b"a head of sixteen bytes and more");
        assert_eq!(sealed(&keys, 1, b"one"), sealed(&keys, 1, b"one"));
        let salts: std::collections::HashSet<Vec<u8>> = [(1, "one"), (1, "two"), (2, "one")]
            .map(|(number, text)| sealed(&keys, number, text.as_bytes())[..SALT_LEN].to_vec())
            .into();
        assert_eq!(salts.len(), 3);
    }
}
