//! Errors of keys.
//!
//! Invariants
//! - No message has a secret in it, or a word that may be one.
//!
//! Leaves to others: the operator's next step (`longshore-media`, the programs).

use crate::text::{Thumbprint, hexadecimal};

/// An error of this room.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a key")]
    Random,
    /// A text that should be a recipient is none. `what` never repeats a text that may be an identity.
    #[error("not a recipient: {what}")]
    Recipient { what: &'static str },
    /// A line of an identity file is no identity.
    #[error("line {line} of the identities: {what}")]
    Identity { line: usize, what: &'static str },
    /// A text that should be a signer is none, or there are too many or too few of them.
    #[error("signers: {what}")]
    Signer { what: &'static str },
    /// Recipients that must not be mixed.
    #[error(
        "recipients that withstand a quantum computer (age1pq1…) and others are named together; the weakest decides"
    )]
    Mixed,
    /// More recipients than a set has slots for.
    #[error("{given} recipients; a set has room for {max}")]
    TooMany { given: usize, max: usize },
    /// The set's Keys records contradict each other or the format.
    #[error("the set's key records are damaged: {what}")]
    Malformed { what: &'static str },
    /// Bytes that should be a key object are none.
    #[error("the key object cannot be used: {what}")]
    Object { what: &'static str },
    /// The records are of a construction that this version does not know.
    #[error("the set is encrypted in a way (scheme {scheme}) that this version does not know")]
    Scheme { scheme: u16 },
    /// More passphrases than a reader tries.
    #[error("{given} passphrases; a set has at most {max}")]
    Passphrases { given: usize, max: usize },
    /// No identity opens any slot.
    #[error("{}{objects}", no_identity(*identities, *slots, *certificate, command.as_deref()))]
    NoIdentity {
        identities: usize,
        /// Of the media.
        slots: usize,
        /// The key objects that were looked at; behind a pointer, as errors are handed through many hands.
        objects: Box<ObjectsTold>,
        /// The thumbprint of the first certificate among the recipients.
        certificate: Option<Thumbprint>,
        /// The id of the first key of a program among them.
        command: Option<String>,
    },
    /// The program that has a key gave no answer that can be used.
    #[error("the command for the key {id} failed: {what}")]
    Command { id: String, what: String },
    /// Not a certificate, or one whose key cannot be used.
    #[error("the certificate cannot be used: {what}")]
    Certificate { what: &'static str },
    /// Not a private key that can be used.
    #[error("the private key cannot be used: {what}")]
    PrivateKey { what: &'static str },
    /// The password of a private key's file is wrong, is missing, or there is none.
    #[error("{what}")]
    KeyPassword { what: &'static str },
    /// A tag does not agree: the bytes were changed, or are not what they are taken for.
    #[error("{what} was changed: its tag does not agree")]
    Tag { what: &'static str },
    /// A passphrase that protects nothing.
    #[error("the passphrase has {len} bytes; at least {min} are needed")]
    ShortPassphrase { len: usize, min: usize },
}

/// The key objects that were looked at, in words; empty if there were none.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ObjectsTold(pub(crate) String);

impl std::fmt::Display for ObjectsTold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sets and segments of WAL say so.
fn no_identity(
    identities: usize,
    slots: usize,
    certificate: Option<Thumbprint>,
    command: Option<&str>,
) -> String {
    let mut recipients = match slots {
        1 => "one recipient".to_owned(),
        many => format!("{many} recipients"),
    };
    if let Some(thumbprint) = certificate {
        let thumbprint = hexadecimal(&thumbprint);
        recipients += &match slots {
            1 => format!(", a certificate with the thumbprint {thumbprint}"),
            _ => format!(", one of them a certificate with the thumbprint {thumbprint}"),
        };
    }
    if let Some(id) = command {
        recipients += &match slots {
            1 => format!(", the key {id} of a command"),
            _ => format!(", one of them the key {id} of a command (--identity command:{id})"),
        };
    }
    match (slots, identities) {
        (0, 0) => {
            return "its keys are detached: no slot is on its media, and no identity was given"
                .to_owned();
        }
        (0, _) => return "its keys are detached: no slot is on its media".to_owned(),
        _ => {}
    }
    match identities {
        0 => format!("it is encrypted for {recipients}, and no identity was given"),
        1 => format!("it is encrypted for {recipients}, and not for the identity that was given"),
        many => format!(
            "it is encrypted for {recipients}, and for none of the {many} identities that were given"
        ),
    }
}
