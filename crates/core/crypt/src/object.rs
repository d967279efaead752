//! Key objects: the set key of one set for further recipients, in a small file next to its stripes.
//!
//! Invariants
//! - An object is one statement: set, commitment, recipients and slots are under one MAC, whose key the set key alone gives.
//! - Nothing of an object is used before its set and its commitment are those of the set that is opened.
//! - An object is read as it was written, byte for byte; other bytes are refused.
//!
//! Leaves to others: whether a MAC is right, and what is tried in which order (`further.rs`), and where objects are
//! (`longshore-media`).

use crate::Error;
use crate::keys::{SLOTS_MAX, Slot, put_slot, slots_of};
use crate::roots::{Root, digest_of};

/// The most bytes of an object.
pub const OBJECT_MAX: usize = 65_536;
/// The most objects of one set that a reader looks at in one place.
pub const OBJECTS_MAX: usize = 64;
/// The most objects of one set that a reader looks at in all places: those of eight full ones.
pub const FOUND_MAX: usize = 8 * OBJECTS_MAX;
const MAGIC: &[u8; 6] = b"LSKEYS";
const VERSION: u16 = 1;
/// Bytes before the marks.
const HEAD_LEN: usize = 66;
const MARK_LEN: usize = 16;
const MAC_LEN: usize = 32;
/// Bytes of the digest that a name shows.
const ID_LEN: usize = 8;
const BEGIN: &str = "keys-";
const END: &str = ".lsk";

/// The sign by which whoever can open the set knows the recipient of a slot; zeros: there is none.
pub(crate) type RecipientMark = [u8; MARK_LEN];

/// The name of an object: its set, and a digest of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    pub set: [u8; 16],
    id: [u8; ID_LEN],
}

impl ObjectName {
    /// The name of an object of this set with these bytes.
    pub fn of(set: &[u8; 16], bytes: &[u8]) -> ObjectName {
        let mut id = [0; ID_LEN];
        id.copy_from_slice(&digest_of(bytes)[..ID_LEN]);
        ObjectName { set: *set, id }
    }

    /// `None`: a file of this name is no key object.
    pub fn parse(name: &str) -> Option<ObjectName> {
        let middle = name.strip_prefix(BEGIN)?.strip_suffix(END)?;
        let (set, id) = middle.split_once('-')?;
        Some(ObjectName {
            set: digits(set)?,
            id: digits(id)?,
        })
    }

    /// Whether these bytes are those that the name was made for: rot, and a file that was not written whole, show here, without any key.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        ObjectName::of(&self.set, bytes).id == self.id
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        write!(f, "{BEGIN}{}-{}{END}", text(&self.set), text(&self.id))
    }
}

/// The bytes that so many digits in lower case stand for.
fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    let is_digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.as_bytes().iter().all(is_digit) {
        return None;
    }
    for (to, pair) in out.iter_mut().zip(text.as_bytes().chunks(2)) {
        let half = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        *to = u8::try_from(half(0)? << 4 | half(1)?).ok()?;
    }
    Some(out)
}

/// An object, taken apart. Nothing of it is proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyObject {
    pub set: [u8; 16],
    pub commitment: Root,
    /// In microseconds since 1970; for people.
    pub made_us: i64,
    pub(crate) marks: Vec<RecipientMark>,
    /// As many as marks.
    pub slots: Vec<Slot>,
    pub(crate) mac: Root,
}

impl KeyObject {
    /// The bytes that the MAC covers.
    ///
    /// Errors: [`Error::TooMany`] if the slots do not fit.
    pub(crate) fn covered(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(HEAD_LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.set);
        out.extend_from_slice(&self.commitment);
        out.extend_from_slice(&self.made_us.to_le_bytes());
        out.extend_from_slice(&(self.slots.len() as u16).to_le_bytes());
        self.marks
            .iter()
            .for_each(|mark| out.extend_from_slice(mark));
        self.slots.iter().for_each(|slot| put_slot(&mut out, slot));
        let is_whole = self.marks.len() == self.slots.len()
            && (1..=SLOTS_MAX).contains(&self.slots.len())
            && out.len() + MAC_LEN <= OBJECT_MAX
            && self.slots.iter().all(|slot| slot.bytes.len() <= OBJECT_MAX);
        match is_whole {
            true => Ok(out),
            false => Err(Error::TooMany {
                given: self.slots.len(),
                max: SLOTS_MAX,
            }),
        }
    }

    /// The whole object.
    ///
    /// Errors: those of a list of slots that does not fit.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut out = self.covered()?;
        out.extend_from_slice(&self.mac);
        Ok(out)
    }

    /// Its name.
    ///
    /// Errors: those of [`KeyObject::encode`].
    pub fn name(&self) -> Result<ObjectName, Error> {
        Ok(ObjectName::of(&self.set, &self.encode()?))
    }

    /// Errors: [`Error::Object`].
    pub fn decode(bytes: &[u8]) -> Result<KeyObject, Error> {
        let bad = |what| Error::Object { what };
        if bytes.len() > OBJECT_MAX {
            return Err(bad("it is longer than 64 KiB"));
        }
        let short = bad("it is too short");
        let (covered, mac) = bytes.split_last_chunk::<MAC_LEN>().ok_or(short)?;
        let short = bad("it is too short");
        let (head, rest) = covered.split_first_chunk::<HEAD_LEN>().ok_or(short)?;
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        if head[..6] != MAGIC[..] {
            return Err(bad("it begins like no key object"));
        }
        if u16_at(6) != VERSION {
            return Err(bad("it is of a version that is not known here"));
        }
        let count = usize::from(u16_at(64));
        if !(1..=SLOTS_MAX).contains(&count) {
            return Err(bad("the number of its slots"));
        }
        let short = bad("it is too short");
        let (marks, slots) = rest.split_at_checked(count * MARK_LEN).ok_or(short)?;
        let slots = slots_of(slots).ok_or(bad("its slots"))?;
        if slots.len() != count {
            return Err(bad("the number of its slots"));
        }
        let array = |at: usize| {
            let mut out = [0; 32];
            out.copy_from_slice(&head[at..at + 32]);
            out
        };
        let mut set = [0; 16];
        set.copy_from_slice(&head[8..24]);
        let mut made = [0; 8];
        made.copy_from_slice(&head[56..64]);
        Ok(KeyObject {
            set,
            commitment: array(24),
            made_us: i64::from_le_bytes(made),
            marks: marks.as_chunks::<MARK_LEN>().0.to_vec(),
            slots,
            mac: *mac,
        })
    }

    /// Whether it says that it is of the set with this identifier and this commitment.
    pub fn is_of(&self, set: &[u8; 16], commitment: &Root) -> bool {
        self.set == *set && self.commitment == *commitment
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object() -> impl Strategy<Value = KeyObject> {
        let slot = (any::<u16>(), prop::collection::vec(any::<u8>(), 0..1800));
        let slots = prop::collection::vec((any::<RecipientMark>(), slot), 1..=SLOTS_MAX);
        let ids = (
            any::<[u8; 16]>(),
            any::<Root>(),
            any::<i64>(),
            any::<Root>(),
        );
        (ids, slots).prop_map(|((set, commitment, made_us, mac), slots)| KeyObject {
            set,
            commitment,
            made_us,
            marks: slots.iter().map(|(mark, _)| *mark).collect(),
            slots: slots
                .into_iter()
                .map(|(_, (kind, bytes))| Slot { kind, bytes })
                .collect(),
            mac,
        })
    }

    proptest! {
        #[test]
        fn an_object_says_what_it_was_made_of_and_no_byte_of_it_is_free(
            object in object(), cut in any::<prop::sample::Index>(), bit in 0..8_u32,
        ) {
            let bytes = object.encode().unwrap();
            prop_assert_eq!(KeyObject::decode(&bytes), Ok(object.clone()));
            let at = cut.index(bytes.len());
            // A shorter one is refused, or is another object with another MAC; so is a changed one.
            prop_assert_ne!(KeyObject::decode(&bytes[..at]), Ok(object.clone()));
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            prop_assert_ne!(KeyObject::decode(&changed), Ok(object.clone()));
            let name = ObjectName::of(&object.set, &bytes);
            prop_assert!(name.fits(&bytes) && !name.fits(&changed));
            prop_assert_eq!(ObjectName::parse(&name.to_string()), Some(name));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic_and_written_again_as_they_were(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400), begins in any::<bool>(), count in 0..4_u8,
        ) {
            if begins && bytes.len() > HEAD_LEN {
                bytes[..6].copy_from_slice(MAGIC);
                bytes[6..8].copy_from_slice(&[1, 0]);
                bytes[64..66].copy_from_slice(&[count, 0]);
            }
            if let Ok(object) = KeyObject::decode(&bytes) {
                prop_assert_eq!(object.encode().unwrap(), bytes);
            }
        }
    }

    #[test]
    fn what_is_too_long_or_of_another_form_is_refused() {
        let slot = |len| Slot {
            kind: 1,
            bytes: vec![7; len],
        };
        let of = |slots: Vec<Slot>| KeyObject {
            set: [1; 16],
            commitment: [2; 32],
            made_us: 3,
            marks: vec![[0; MARK_LEN]; slots.len()],
            slots,
            mac: [4; 32],
        };
        assert!(of(vec![]).encode().is_err());
        assert!(of(vec![slot(1); SLOTS_MAX + 1]).encode().is_err());
        assert!(of(vec![slot(60_000), slot(6_000)]).encode().is_err());
        let good = of(vec![slot(9)]).encode().unwrap();
        assert!(KeyObject::decode(&[&good[..], &[0; OBJECT_MAX]].concat()).is_err());
        for (at, value) in [(0, b'l'), (6, 2), (64, 0), (64, 2)] {
            let mut changed = good.clone();
            changed[at] = value;
            assert!(KeyObject::decode(&changed).is_err(), "{at}");
        }
        let name = ObjectName::of(&[0xab; 16], &good).to_string();
        assert!(ObjectName::parse(&name).is_some());
        for other in [
            name.to_uppercase(),
            format!("{name}.longshore-new"),
            name.replace("keys-ab", "keys-aB"),
            name.replace(".lsk", ""),
            name[..name.len() - 5].to_owned() + ".lsk",
            String::new(),
        ] {
            assert!(ObjectName::parse(&other).is_none(), "{other}");
        }
    }
}
