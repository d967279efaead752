//! Public keys, and secrets wrapped for whoever has the other half.
//!
//! Invariants
//! - Recipients that withstand a quantum computer are never mixed with others unknowingly: the weakest decides.
//! - A set has one slot for each recipient.
//!
//! Leaves to others: the bytes of a wrapped secret (`age.rs`, `rsa.rs`, `passphrase.rs`, `command.rs`), and the record of slots
//! (`keys.rs`).

use std::str::FromStr;

use hpke::Deserializable;
use x25519_dalek::{PublicKey, StaticSecret};

use crate::age::HybridKey;
use crate::certificate::Certificate;
use crate::command::{CommandKey, WAL, set_name};
use crate::keys::{SLOTS_MAX, Slot, SlotKind};
use crate::passphrase::Passphrase;
use crate::rsa::CertificateKey;
use crate::text::{Thumbprint, hexadecimal};
use crate::{Error, Secret, age, text};

/// The most passphrases of one set: a reader tries no more, as each costs what its slot asks for.
pub(crate) const PASSPHRASES_MAX: usize = 2;
/// The prefix of an age recipient.
const X25519: &str = "age";
/// The prefix of an age recipient with X25519 and ML-KEM-768.
const HYBRID: &str = "age1pq";

/// Somebody for whom a set's key is wrapped.
#[derive(Clone)]
pub enum Recipient {
    /// An age recipient, `age1…`: X25519.
    X25519([u8; 32]),
    /// An age recipient, `age1pq1…`: X25519 together with ML-KEM-768.
    Hybrid(Box<HybridKey>),
    /// The owner of a certificate's private key. RSA does not withstand a quantum computer.
    Certificate {
        key: CertificateKey,
        /// Zeros where the key came without its certificate.
        thumbprint: Thumbprint,
    },
    /// Everybody who knows a passphrase.
    Passphrase(Passphrase),
    /// The key of a program, for those who may ask for it. Whether that withstands a quantum computer is not known here.
    Command(CommandKey),
}

/// A passphrase is not shown.
impl std::fmt::Debug for Recipient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl FromStr for Recipient {
    type Err = Error;

    /// Reads `age1…` and `age1pq1…`.
    fn from_str(text: &str) -> Result<Recipient, Error> {
        let bad = |what| Error::Recipient { what };
        if text::is_secret(text) {
            return Err(bad(
                "this is an identity, which is secret; name its recipient",
            ));
        }
        let (prefix, data) = text::decode(text).ok_or(bad("an age recipient begins with age1"))?;
        match prefix.as_str() {
            X25519 => {
                let key = <[u8; 32]>::try_from(&data[..]);
                let key = key.map_err(|_| bad("an age1… recipient has 32 bytes"))?;
                // A few keys give one secret to everybody (RFC 7748, section 6.1).
                let any = StaticSecret::from([1; 32]);
                match any.diffie_hellman(&PublicKey::from(key)).was_contributory() {
                    true => Ok(Recipient::X25519(key)),
                    false => Err(bad("this key keeps nothing secret")),
                }
            }
            HYBRID => {
                let key = HybridKey::from_bytes(&data);
                key.map(|key| Recipient::Hybrid(Box::new(key)))
                    .map_err(|_| bad("its ML-KEM-768 or X25519 half is no key"))
            }
            _ => Err(bad("only age1… and age1pq1… are known, no plugins")),
        }
    }
}

impl From<&Certificate> for Recipient {
    fn from(certificate: &Certificate) -> Recipient {
        Recipient::Certificate {
            key: certificate.public().clone(),
            thumbprint: certificate.thumbprint(),
        }
    }
}

impl Recipient {
    /// The text that names it; of a passphrase and of a certificate, that it is one.
    pub fn name(&self) -> String {
        use hpke::Serializable;
        match self {
            Recipient::X25519(key) => text::encode(X25519, key),
            Recipient::Hybrid(key) => text::encode(HYBRID, &key.to_bytes()),
            Recipient::Certificate { key, .. } => {
                format!("a certificate with the key id {}", hexadecimal(&key.id()))
            }
            Recipient::Passphrase(_) => "a passphrase".to_owned(),
            Recipient::Command(key) => format!("command:{}", key.id()),
        }
    }

    /// The text of which a key object has a mark; `None`: of a passphrase none must be kept, as it could be guessed at.
    pub(crate) fn marked(&self) -> Option<String> {
        match self {
            Recipient::Passphrase(_) => None,
            Recipient::Certificate { key, .. } => {
                let id = hexadecimal(&key.id()).to_lowercase();
                Some(format!("certificate:{}", id.trim_start_matches("0x")))
            }
            Recipient::X25519(_) | Recipient::Hybrid(_) | Recipient::Command(_) => {
                Some(self.name())
            }
        }
    }

    /// Whether a quantum computer opens what is for it.
    pub(crate) fn is_weak(&self) -> bool {
        matches!(self, Recipient::X25519(_) | Recipient::Certificate { .. })
    }

    /// The thumbprint of a certificate.
    pub fn thumbprint(&self) -> Option<Thumbprint> {
        match self {
            Recipient::Certificate { thumbprint, .. } => Some(*thumbprint),
            _ => None,
        }
    }

    fn wrap(&self, secret: &Secret, set: &str) -> Result<Slot, Error> {
        let (kind, bytes) = match self {
            Recipient::X25519(key) => (SlotKind::Age, age::for_x25519(secret, key)?),
            Recipient::Hybrid(key) => (SlotKind::Age, age::for_hybrid(secret, key)?),
            Recipient::Certificate { key, thumbprint } => {
                (SlotKind::Certificate, key.wrap(secret, thumbprint)?)
            }
            Recipient::Passphrase(p) => (SlotKind::Passphrase, p.wrap(secret)?),
            Recipient::Command(key) => (SlotKind::Command, key.wrap(secret, set)?),
        };
        Ok(Slot {
            kind: kind as u16,
            bytes,
        })
    }
}

/// Everybody for whom a set is encrypted: one to [`SLOTS_MAX`].
#[derive(Debug, Clone)]
pub struct Recipients {
    list: Vec<Recipient>,
    /// The name of what is encrypted, for programs that keep keys.
    set: String,
}

impl Recipients {
    /// Errors: [`Error::TooMany`] for none or too many; [`Error::Passphrases`]; [`Error::ShortPassphrase`]; [`Error::Mixed`], unless `mixed` allows it.
    pub fn new(list: Vec<Recipient>, mixed: bool) -> Result<Recipients, Error> {
        if list.is_empty() || list.len() > SLOTS_MAX {
            return Err(Error::TooMany {
                given: list.len(),
                max: SLOTS_MAX,
            });
        }
        let passphrases = list
            .iter()
            .filter(|r| matches!(r, Recipient::Passphrase(_)));
        let given = passphrases.count();
        if given > PASSPHRASES_MAX {
            let max = PASSPHRASES_MAX;
            return Err(Error::Passphrases { given, max });
        }
        for recipient in &list {
            if let Recipient::Passphrase(passphrase) = recipient {
                passphrase.check()?;
            }
        }
        let is = |f: fn(&Recipient) -> bool| list.iter().any(f);
        let weak = is(Recipient::is_weak);
        if weak && is(|r| matches!(r, Recipient::Hybrid(_))) && !mixed {
            return Err(Error::Mixed);
        }
        Ok(Recipients {
            list,
            set: WAL.to_owned(),
        })
    }

    /// The same, for the set with this identifier. Without it, programs that keep keys are told that it is WAL.
    pub fn for_set(&self, set: &[u8; 16]) -> Recipients {
        Recipients {
            list: self.list.clone(),
            set: set_name(set),
        }
    }

    /// The recipients, in the order of the slots.
    pub fn list(&self) -> &[Recipient] {
        &self.list
    }

    /// Whether this recipient is among them, however its key came here. Passphrases are not compared.
    pub fn includes(&self, one: &Recipient) -> bool {
        let text = one.marked();
        text.is_some() && self.list.iter().any(|own| own.marked() == text)
    }

    /// The thumbprint of the first certificate among them.
    pub fn thumbprint(&self) -> Option<Thumbprint> {
        self.list.iter().find_map(Recipient::thumbprint)
    }

    /// Whether all of them withstand a quantum computer, as far as is known.
    pub fn are_hybrid(&self) -> bool {
        let mut all = self.list.iter();
        all.all(|recipient| matches!(recipient, Recipient::Hybrid(_) | Recipient::Passphrase(_)))
    }

    pub(crate) fn wrap(&self, secret: &Secret) -> Result<Vec<Slot>, Error> {
        self.list
            .iter()
            .map(|r| r.wrap(secret, &self.set))
            .collect()
    }
}
