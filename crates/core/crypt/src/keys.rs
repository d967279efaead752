//! The Keys records of a set: who can open it, and what proves the key.
//!
//! Invariants
//! - A slot stands whole in one record. Slots of an unknown kind are kept and skipped: the others may open the set.
//! - All records of a set agree in everything but their slots and numbers.
//!
//! Leaves to others: the records' framing and order (`longshore-media`), and what is in a slot (`age.rs`, `rsa.rs`,
//! `passphrase.rs`, `command.rs`).

use crate::command::CommandSlot;
use crate::rsa::CertificateSlot;
use crate::text::{Thumbprint, hexadecimal};
use crate::{Error, KEY_LEN, age};

/// The most slots of one set.
pub const SLOTS_MAX: usize = 32;
/// The construction that this version writes, and the only one that it reads.
const SCHEME: u16 = 1;
/// How the digests of blocks are made: of the tags.
const DIGEST_TAGS: u8 = 1;
/// Bytes of a record's body before its slots.
const HEAD_LEN: usize = 72;
/// The longest body of a record (`docs/format.md`).
const BODY_MAX: usize = 15_900;
/// The most records of one set.
const RECORDS_MAX: usize = 4;

/// The content of a slot. The number is on media and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum SlotKind {
    /// An age v1 file whose plaintext is the set's key.
    Age = 1,
    /// The set's key under the public key of a certificate.
    Certificate = 2,
    Passphrase = 3,
    /// The set's key as a program wrapped it.
    Command = 4,
}

impl SlotKind {
    pub(crate) fn from_number(n: u16) -> Option<SlotKind> {
        let all = [
            SlotKind::Age,
            SlotKind::Certificate,
            SlotKind::Passphrase,
            SlotKind::Command,
        ];
        all.into_iter().find(|kind| *kind as u16 == n)
    }
}

/// The set's key, wrapped for one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// A [`SlotKind`], or a number that this version does not know.
    pub kind: u16,
    pub bytes: Vec<u8>,
}

impl Slot {
    /// Its recipient, as it says, in a few words. A slot of age names nobody.
    pub fn recipient(&self) -> String {
        match SlotKind::from_number(self.kind) {
            Some(SlotKind::Age) => match age::kind_of(&self.bytes) {
                Some(kind) => format!("age ({kind})"),
                None => "age".to_owned(),
            },
            Some(SlotKind::Certificate) => CertificateSlot::of(&self.bytes)
                .map_or("a certificate".to_owned(), |slot| {
                    format!("certificate {}", hexadecimal(&slot.thumbprint))
                }),
            Some(SlotKind::Passphrase) => "a passphrase".to_owned(),
            Some(SlotKind::Command) => CommandSlot::of(&self.bytes)
                .map_or("a command".to_owned(), |slot| {
                    format!("command:{}", slot.key_id)
                }),
            None => format!("a recipient of kind {}", self.kind),
        }
    }
}

/// All Keys records of a set together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The root of the set that this one differs from; zeros if it is no differential, or its parent is not encrypted.
    pub parent_root: [u8; 32],
    /// Derived from the set's key and everything that the key was made for.
    pub commitment: [u8; 32],
    pub slots: Vec<Slot>,
}

impl Keys {
    /// The thumbprint of the first certificate that the set is encrypted for.
    pub fn thumbprint(&self) -> Option<Thumbprint> {
        let of_certificates = self
            .slots
            .iter()
            .filter(|slot| slot.kind == SlotKind::Certificate as u16);
        let mut read = of_certificates.filter_map(|slot| CertificateSlot::of(&slot.bytes));
        read.next().map(|slot| slot.thumbprint)
    }

    /// The id of the first key of a program that the set is encrypted for.
    pub fn command(&self) -> Option<&str> {
        let of_commands = self
            .slots
            .iter()
            .filter(|slot| slot.kind == SlotKind::Command as u16);
        let mut read = of_commands.filter_map(|slot| CommandSlot::of(&slot.bytes));
        read.next().map(|slot| slot.key_id)
    }

    /// The bodies of the records, in order.
    ///
    /// Errors: [`Error::TooMany`] if the slots do not fit.
    pub fn encode(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut groups: Vec<Vec<u8>> = vec![Vec::new()];
        for slot in &self.slots {
            let len = 4 + slot.bytes.len();
            if groups
                .last()
                .is_none_or(|g| HEAD_LEN + g.len() + len > BODY_MAX)
            {
                groups.push(Vec::new());
            }
            if let Some(group) = groups.last_mut() {
                put_slot(group, slot);
            }
        }
        if groups.len() > RECORDS_MAX || self.slots.len() > SLOTS_MAX {
            return Err(Error::TooMany {
                given: self.slots.len(),
                max: SLOTS_MAX,
            });
        }
        let count = groups.len() as u16;
        let body = |(part, group): (usize, Vec<u8>)| {
            let mut body = Vec::with_capacity(HEAD_LEN + group.len());
            body.extend_from_slice(&SCHEME.to_le_bytes());
            body.extend_from_slice(&[DIGEST_TAGS, 0]);
            body.extend_from_slice(&(part as u16).to_le_bytes());
            body.extend_from_slice(&count.to_le_bytes());
            body.extend_from_slice(&self.parent_root);
            body.extend_from_slice(&self.commitment);
            body.extend_from_slice(&group);
            body
        };
        Ok(groups.into_iter().enumerate().map(body).collect())
    }

    /// The number of records that a set has, from the body of its first.
    ///
    /// Errors: [`Error::Scheme`], [`Error::Malformed`].
    pub fn count(first: &[u8]) -> Result<usize, Error> {
        let head = Head::of(first)?;
        match usize::from(head.count) {
            n @ 1..=RECORDS_MAX if head.part == 0 => Ok(n),
            _ => Err(malformed("their number")),
        }
    }

    /// Errors: [`Error::Scheme`], [`Error::Malformed`].
    pub fn decode(bodies: &[impl AsRef<[u8]>]) -> Result<Keys, Error> {
        let first = bodies.first().ok_or(malformed("there is none"))?.as_ref();
        let head = Head::of(first)?;
        let mut slots = Vec::new();
        for (part, body) in bodies.iter().enumerate() {
            let body = body.as_ref();
            let expected = Head {
                part: part as u16,
                count: bodies.len() as u16,
                ..head
            };
            if Head::of(body)? != expected {
                return Err(malformed("they do not agree"));
            }
            slots.extend(slots_of(&body[HEAD_LEN..]).ok_or(malformed("a slot"))?);
            if slots.len() > SLOTS_MAX {
                return Err(malformed("their slots"));
            }
        }
        Ok(Keys {
            parent_root: head.parent_root,
            commitment: head.commitment,
            slots,
        })
    }
}

/// Adds a slot as it is stored.
pub(crate) fn put_slot(out: &mut Vec<u8>, slot: &Slot) {
    out.extend_from_slice(&slot.kind.to_le_bytes());
    out.extend_from_slice(&(slot.bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(&slot.bytes);
}

/// The slots that are stored one after the other, to the end; `None`: the last one is not whole.
pub(crate) fn slots_of(mut rest: &[u8]) -> Option<Vec<Slot>> {
    let mut slots = Vec::new();
    while !rest.is_empty() {
        let (start, later) = rest.split_at_checked(4)?;
        let kind = u16::from_le_bytes([start[0], start[1]]);
        let len = usize::from(u16::from_le_bytes([start[2], start[3]]));
        let (bytes, later) = later.split_at_checked(len)?;
        slots.push(Slot {
            kind,
            bytes: bytes.to_vec(),
        });
        rest = later;
    }
    Some(slots)
}

/// The fields that all records share, and their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    part: u16,
    count: u16,
    parent_root: [u8; 32],
    commitment: [u8; KEY_LEN],
}

impl Head {
    fn of(body: &[u8]) -> Result<Head, Error> {
        let head: &[u8; HEAD_LEN] = body.first_chunk().ok_or(malformed("one is too short"))?;
        let n = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        if n(0) != SCHEME || head[2] != DIGEST_TAGS {
            return Err(Error::Scheme { scheme: n(0) });
        }
        if head[3] != 0 {
            return Err(malformed("a reserved byte"));
        }
        let array = |at: usize| {
            let mut out = [0; 32];
            out.copy_from_slice(&head[at..at + 32]);
            out
        };
        Ok(Head {
            part: n(4),
            count: n(6),
            parent_root: array(8),
            commitment: array(40),
        })
    }
}

fn malformed(what: &'static str) -> Error {
    Error::Malformed { what }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Keys> {
        let slot = (any::<u16>(), prop::collection::vec(any::<u8>(), 0..1800));
        let slots = prop::collection::vec(slot, 0..=SLOTS_MAX);
        (any::<[u8; 32]>(), any::<[u8; 32]>(), slots).prop_map(
            |(parent_root, commitment, slots)| {
                let slots = slots.into_iter();
                Keys {
                    parent_root,
                    commitment,
                    slots: slots.map(|(kind, bytes)| Slot { kind, bytes }).collect(),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn records_say_what_they_were_made_of_and_fit_their_frame(keys in keys()) {
            let bodies = keys.encode().unwrap();
            prop_assert!(bodies.iter().all(|b| b.len() <= BODY_MAX));
            prop_assert_eq!(Keys::count(&bodies[0]), Ok(bodies.len()));
            prop_assert_eq!(Keys::decode(&bodies), Ok(keys));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
            scheme in any::<bool>(),
        ) {
            let mut bodies = bodies;
            if scheme {
                for body in bodies.iter_mut().filter(|b| b.len() > 4) {
                    body[..4].copy_from_slice(&[1, 0, 1, 0]);
                }
            }
            let _ = Keys::decode(&bodies);
            let _ = bodies.first().map(|b| Keys::count(b));
        }
    }

    #[test]
    fn records_that_are_swapped_missing_or_of_two_sets_are_refused() {
        let slot = |n: u8| Slot {
            kind: 1,
            bytes: vec![n; 9_000],
        };
        let mut keys = Keys {
            parent_root: [1; 32],
            commitment: [2; 32],
            slots: vec![slot(1), slot(2), slot(3)],
        };
        let bodies = keys.encode().unwrap();
        assert_eq!(bodies.len(), 3);
        let swapped = [&bodies[1], &bodies[0], &bodies[2]];
        assert!(Keys::decode(&swapped).is_err());
        assert!(Keys::decode(&bodies[..2]).is_err());
        assert!(Keys::decode(&[] as &[Vec<u8>]).is_err());
        keys.commitment = [3; 32];
        let other = keys.encode().unwrap();
        assert!(Keys::decode(&[&bodies[0], &other[1], &bodies[2]]).is_err());
    }
}
