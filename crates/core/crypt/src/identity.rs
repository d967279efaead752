//! Private keys, and the one of them that opens a set.
//!
//! Invariants
//! - No message repeats a line of an identity file.
//! - A passphrase is tried on two slots at most: each try costs what its slot says. So is the key of a program, which is asked
//!   only where nothing else opens the set.
//!
//! Leaves to others: reading the file and who may read it (the programs), and whether a key is right (`set.rs`).

use std::sync::Arc;

use hpke::kem::XWing;
use hpke::{Deserializable, Kem, Serializable};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::command::CommandKey;
use crate::keys::{Slot, SlotKind};
use crate::passphrase::Passphrase;
use crate::recipient::{PASSPHRASES_MAX, Recipient};
use crate::rsa::{CertificateSlot, KeyId, PrivateKey};
use crate::text::Thumbprint;
use crate::{Error, KEY_LEN, Secret, age, random, text};

/// The most slots of one set that a program is asked about for each of its keys.
const COMMANDS_MAX: usize = 2;
const X25519: &str = "age-secret-key-";
const HYBRID: &str = "age-secret-key-pq-";

type HybridIdentity = <XWing as Kem>::PrivateKey;

/// Somebody who can open sets.
#[derive(Clone)]
pub enum Identity {
    /// `AGE-SECRET-KEY-1…`
    X25519(StaticSecret),
    /// `AGE-SECRET-KEY-PQ-1…`
    Hybrid(Box<HybridIdentity>),
    /// The private key of a certificate.
    Certificate(PrivateKey),
    Passphrase(Passphrase),
    /// A key that a program keeps.
    Command(CommandKey),
}

/// Shows whose it is, never the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the identity of {:?}", self.recipient())
    }
}

impl Identity {
    /// A new identity of X25519 and ML-KEM-768.
    pub fn new_hybrid() -> Result<Identity, Error> {
        let seed = random::<32>()?;
        let key = HybridIdentity::from_bytes(&seed[..]);
        // Every 32 bytes are a seed.
        key.map(|key| Identity::Hybrid(Box::new(key)))
            .map_err(|_| Error::Random)
    }

    /// A new identity of X25519 alone, for programs that know no other.
    pub fn new_x25519() -> Result<Identity, Error> {
        Ok(Identity::X25519(StaticSecret::from(*random::<32>()?)))
    }

    /// For whom something must be encrypted so that this identity opens it.
    pub fn recipient(&self) -> Recipient {
        match self {
            Identity::X25519(key) => Recipient::X25519(*PublicKey::from(key).as_bytes()),
            Identity::Hybrid(key) => Recipient::Hybrid(Box::new(XWing::sk_to_pk(key))),
            Identity::Certificate(key) => Recipient::Certificate {
                key: key.public().clone(),
                thumbprint: Thumbprint::default(),
            },
            Identity::Passphrase(p) => Recipient::Passphrase(p.clone()),
            Identity::Command(key) => Recipient::Command(key.clone()),
        }
    }

    /// The line of an identity file; `None` for a passphrase, a private key and a program's key.
    pub fn line(&self) -> Option<Zeroizing<String>> {
        let lower = match self {
            Identity::X25519(key) => text::encode(X25519, key.as_bytes()),
            Identity::Hybrid(key) => text::encode(HYBRID, &Zeroizing::new(key.to_bytes())),
            Identity::Certificate(_) | Identity::Passphrase(_) | Identity::Command(_) => {
                return None;
            }
        };
        let lower = Zeroizing::new(lower);
        Some(Zeroizing::new(lower.to_uppercase()))
    }

    fn parse(line: &str) -> Result<Identity, &'static str> {
        let (prefix, data) = text::decode(line).ok_or("it is no line of an age identity file")?;
        match prefix.as_str() {
            X25519 => {
                let key = <[u8; 32]>::try_from(&data[..]).map_err(|_| "it has not 32 bytes")?;
                Ok(Identity::X25519(StaticSecret::from(key)))
            }
            HYBRID => {
                let key = HybridIdentity::from_bytes(&data).map_err(|_| "it has not 32 bytes")?;
                Ok(Identity::Hybrid(Box::new(key)))
            }
            _ => Err("only AGE-SECRET-KEY-1… and AGE-SECRET-KEY-PQ-1… are known, no plugins"),
        }
    }

    /// The secret of a slot, if it is for this identity, and no program keeps that one's key. It may be a wrong one: the
    /// commitment decides.
    pub fn open(&self, slot: &Slot) -> Option<Zeroizing<[u8; KEY_LEN]>> {
        match (self, SlotKind::from_number(slot.kind)?) {
            (Identity::X25519(key), SlotKind::Age) => age::open_x25519(&slot.bytes, key),
            (Identity::Hybrid(key), SlotKind::Age) => age::open_hybrid(&slot.bytes, key),
            (Identity::Certificate(key), SlotKind::Certificate) => key.open(&slot.bytes),
            (Identity::Passphrase(p), SlotKind::Passphrase) => p.open(&slot.bytes),
            _ => None,
        }
    }
}

/// Finds the private key of this id, for keys that are not read before a set asks for them: those of a server's certificates.
/// Called by any thread, for a set several times at most; it may take a while.
pub type KeyFinder = dyn Fn(&KeyId) -> Option<PrivateKey> + Send + Sync;

/// The identities that are at hand; there may be none.
#[derive(Clone, Default)]
pub struct Identities {
    list: Vec<Identity>,
    finder: Option<Arc<KeyFinder>>,
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

impl Identities {
    pub fn new(list: Vec<Identity>) -> Identities {
        Identities { list, finder: None }
    }

    /// The same, and the keys that `finder` finds.
    pub fn with_finder(self, finder: Arc<KeyFinder>) -> Identities {
        Identities {
            finder: Some(finder),
            ..self
        }
    }

    /// Reads an identity file as age writes it: one identity a line, empty lines and those that begin with `#` mean nothing.
    ///
    /// Errors: [`Error::Identity`] for the first other line, and for a file without identities.
    pub fn parse(file: &str) -> Result<Identities, Error> {
        let mut list = Vec::new();
        for (n, line) in file.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bad = |what| Error::Identity { line: n + 1, what };
            list.push(Identity::parse(line).map_err(bad)?);
        }
        match list.is_empty() {
            true => Err(Error::Identity {
                line: 1,
                what: "the file has no identity",
            }),
            false => Ok(Identities::new(list)),
        }
    }

    /// Adds those of another file.
    pub fn add(&mut self, more: Identities) {
        self.list.extend(more.list);
    }

    pub fn list(&self) -> &[Identity] {
        &self.list
    }

    /// The first secret that `is_right` accepts, of any slot and any identity. Those of programs come last: a program may take
    /// its time.
    ///
    /// Errors: [`Error::Command`] of the last program that failed, if nothing else opens a slot.
    pub(crate) fn open(
        &self,
        slots: &[Slot],
        set: &str,
        is_right: impl Fn(&Secret) -> bool,
    ) -> Result<Option<Secret>, Error> {
        match self.open_here(slots, &is_right) {
            Some(secret) => Ok(Some(secret)),
            None => self.ask(slots, set, is_right),
        }
    }

    /// The same of programs alone.
    ///
    /// Errors: [`Error::Command`], if none opens a slot and one failed.
    pub(crate) fn ask(
        &self,
        slots: &[Slot],
        set: &str,
        is_right: impl Fn(&Secret) -> bool,
    ) -> Result<Option<Secret>, Error> {
        let mut failed = None;
        for identity in &self.list {
            let Identity::Command(key) = identity else {
                continue;
            };
            let is_theirs =
                |slot: &&Slot| slot.kind == SlotKind::Command as u16 && key.fits(&slot.bytes);
            for slot in slots.iter().filter(is_theirs).take(COMMANDS_MAX) {
                match key.open(&slot.bytes, set) {
                    Ok(secret) if is_right(&secret) => return Ok(Some(secret)),
                    Ok(_) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Whether a program would be asked about this slot.
    pub(crate) fn would_ask(&self, slot: &Slot) -> bool {
        let fits = |identity: &Identity| match identity {
            Identity::Command(key) => {
                slot.kind == SlotKind::Command as u16 && key.fits(&slot.bytes)
            }
            _ => false,
        };
        self.list.iter().any(fits)
    }

    /// The first secret that `is_right` accepts, and for which no program is asked.
    pub(crate) fn open_here(
        &self,
        slots: &[Slot],
        is_right: impl Fn(&Secret) -> bool,
    ) -> Option<Secret> {
        for identity in &self.list {
            let tried = match identity {
                Identity::Passphrase(_) => PASSPHRASES_MAX,
                _ => usize::MAX,
            };
            let theirs = slots.iter().filter(|slot| slot.fits(identity));
            let opened = theirs.take(tried).filter_map(|slot| identity.open(slot));
            if let Some(secret) = opened.into_iter().find(|secret| is_right(secret)) {
                return Some(secret);
            }
        }
        let finder = self.finder.as_ref()?;
        let of_certificates = slots
            .iter()
            .filter(|slot| slot.kind == SlotKind::Certificate as u16);
        let opened = of_certificates.filter_map(|slot| {
            let key = finder(&CertificateSlot::of(&slot.bytes)?.key_id)?;
            key.open(&slot.bytes)
        });
        opened.into_iter().find(|secret| is_right(secret))
    }
}

impl Slot {
    fn fits(&self, identity: &Identity) -> bool {
        let kind = match identity {
            Identity::Passphrase(_) => SlotKind::Passphrase,
            Identity::Certificate(_) => SlotKind::Certificate,
            Identity::X25519(_) | Identity::Hybrid(_) => SlotKind::Age,
            Identity::Command(_) => SlotKind::Command,
        };
        self.kind == kind as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each slot of a passphrase on media costs what it says, so a reader tries two, however many are there.
    #[test]
    fn two_slots_of_a_passphrase_are_tried_and_no_more() {
        let secret = random::<KEY_LEN>().unwrap();
        let (right, wrong) = (
            Passphrase::cheap("the right one"),
            Passphrase::cheap("another one"),
        );
        let slot = |of: &Passphrase| Slot {
            kind: SlotKind::Passphrase as u16,
            bytes: of.wrap(&secret).unwrap(),
        };
        let identities = Identities::new(vec![Identity::Passphrase(right.clone())]);
        let opened = |slots: &[Slot]| {
            let found = identities.open(slots, "a set", |found| *found == secret);
            found.unwrap().is_some()
        };
        assert!(opened(&[slot(&wrong), slot(&right)]));
        assert!(!opened(&[slot(&wrong), slot(&wrong), slot(&right)]));
    }
}
