//! A secret wrapped by a passphrase: argon2id, then AES-256-GCM.
//!
//! Invariants
//! - The cost that a slot asks for is compared with limits before memory is taken or time is spent.
//! - A guess is compared with a stored check, in constant time, before anything is decrypted: a slot that opens for several
//!   passphrases cannot be made.
//!
//! Leaves to others: where a passphrase comes from (the programs).

use argon2::{Algorithm, Argon2, Params, Version};
use ring::aead;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::{Error, KEY_LEN, Secret, random};

/// The shortest passphrase that is taken, in bytes.
const LEN_MIN: usize = 12;
const SALT_LEN: usize = 16;
const CHECK_LEN: usize = 32;
const SEALED_LEN: usize = KEY_LEN + 16;
/// Three numbers of 4 bytes, salt, check, and the wrapped secret.
const SLOT_LEN: usize = 12 + SALT_LEN + CHECK_LEN + SEALED_LEN;
/// The most that a slot may ask for: 512 MiB, 6 passes, 16 lanes.
const COST_MAX: Cost = Cost {
    memory_kib: 512 << 10,
    passes: 6,
    lanes: 16,
};

/// The cost of one guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl Cost {
    fn is_sane(self) -> bool {
        self.memory_kib <= COST_MAX.memory_kib
            && self.passes <= COST_MAX.passes
            && self.lanes <= COST_MAX.lanes
    }
}

/// A passphrase, and what a guess at it will cost.
#[derive(Clone)]
pub struct Passphrase {
    text: Zeroizing<Vec<u8>>,
    cost: Cost,
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase")
    }
}

impl Passphrase {
    /// Bytes of a wrapped secret.
    pub const SLOT_LEN: usize = SLOT_LEN;

    /// A guess takes 256 MiB and three passes, about a second.
    pub fn new(text: Zeroizing<Vec<u8>>) -> Passphrase {
        let cost = Cost {
            memory_kib: 256 << 10,
            passes: 3,
            lanes: 4,
        };
        Passphrase { text, cost }
    }

    /// Errors: [`Error::ShortPassphrase`] below 12 bytes, which nothing new is encrypted with.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.text.len() < LEN_MIN {
            true => Err(Error::ShortPassphrase {
                len: self.text.len(),
                min: LEN_MIN,
            }),
            false => Ok(()),
        }
    }

    /// The key and the check of this passphrase; `None` if the cost is none that argon2 knows.
    fn derive(&self, cost: Cost, salt: &[u8]) -> Option<Zeroizing<[u8; KEY_LEN + CHECK_LEN]>> {
        let mut out = Zeroizing::new([0; KEY_LEN + CHECK_LEN]);
        let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(out.len())).ok()?;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let filled = argon2.hash_password_into(&self.text, salt, &mut out[..]);
        filled.ok().map(|()| out)
    }

    /// The secret as only this passphrase opens it: [`Passphrase::SLOT_LEN`] bytes.
    ///
    /// Errors: [`Error::Random`].
    pub fn wrap(&self, secret: &Zeroizing<[u8; KEY_LEN]>) -> Result<Vec<u8>, Error> {
        let salt = random::<SALT_LEN>()?;
        let derived = self.derive(self.cost, &salt[..]).ok_or(Error::Random)?;
        let (key, check) = derived.split_at(KEY_LEN);
        let mut out = Vec::with_capacity(SLOT_LEN);
        for n in [self.cost.memory_kib, self.cost.passes, self.cost.lanes] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&salt[..]);
        out.extend_from_slice(check);
        let mut sealed = secret.to_vec();
        cipher(key)
            .seal_in_place_append_tag(nonce(), aead::Aad::from(&out[..]), &mut sealed)
            .expect("a message of 32 bytes is not too long");
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// `None`: it is another passphrase, or the bytes were changed.
    pub fn open(&self, slot: &[u8]) -> Option<Zeroizing<[u8; KEY_LEN]>> {
        let slot: &[u8; SLOT_LEN] = slot.try_into().ok()?;
        let (head, sealed) = slot.split_at(SLOT_LEN - SEALED_LEN);
        let n =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let cost = Cost {
            memory_kib: n(0),
            passes: n(4),
            lanes: n(8),
        };
        let (salt, check) = head[12..].split_at(SALT_LEN);
        let derived = cost.is_sane().then(|| self.derive(cost, salt))??;
        let (key, found) = derived.split_at(KEY_LEN);
        bool::from(found.ct_eq(check)).then_some(())?;
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let plain = cipher(key).open_in_place(nonce(), aead::Aad::from(head), &mut bytes);
        let mut secret = Secret::default();
        secret.copy_from_slice(plain.ok()?);
        Some(secret)
    }
}

fn cipher(key: &[u8]) -> aead::LessSafeKey {
    let key = aead::UnboundKey::new(&aead::AES_256_GCM, key);
    aead::LessSafeKey::new(key.expect("the key has 32 bytes"))
}

/// Each key encrypts one secret: its salt is random, and a repeated salt wraps under a key that few can test.
fn nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; 12])
}

#[cfg(test)]
impl Passphrase {
    /// One whose slots cost next to nothing.
    pub(crate) fn cheap(text: &str) -> Passphrase {
        let mut passphrase = Passphrase::new(Zeroizing::new(text.into()));
        passphrase.cost = Cost {
            memory_kib: 64,
            passes: 1,
            lanes: 2,
        };
        passphrase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cheap(text: &str) -> Passphrase {
        Passphrase::cheap(text)
    }

    #[test]
    fn a_slot_opens_for_its_passphrase_and_for_no_other_byte_of_it() {
        let secret = random::<32>().unwrap();
        let right = cheap("correct horse battery");
        let slot = right.wrap(&secret).unwrap();
        assert_eq!(right.open(&slot).as_ref(), Some(&secret));
        assert_eq!(cheap("correct horse batterz").open(&slot), None);
        for at in 0..slot.len() {
            // A changed cost may ask for gigabytes; its limits have a test of their own.
            if at < 12 {
                continue;
            }
            let mut changed = slot.clone();
            changed[at] ^= 1;
            assert_eq!(right.open(&changed), None, "byte {at}");
        }
        assert_eq!(right.open(&slot[1..]), None);
    }

    #[test]
    fn a_slot_that_asks_for_too_much_is_refused_before_it_costs_anything() {
        let right = cheap("correct horse battery");
        let slot = right.wrap(&random::<32>().unwrap()).unwrap();
        for (at, value) in [
            (0, (512 << 10) + 1_u32),
            (4, 7),
            (8, 17),
            (0, u32::MAX),
            (4, u32::MAX),
        ] {
            let mut greedy = slot.clone();
            greedy[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let begun = std::time::Instant::now();
            assert_eq!(right.open(&greedy), None);
            assert!(begun.elapsed().as_millis() < 500, "{at} {value}");
        }
        let short = Passphrase::new(Zeroizing::new(b"too short".to_vec()));
        assert!(short.check().is_err());
    }
}
