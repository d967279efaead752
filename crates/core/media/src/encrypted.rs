//! What encrypted sets have in addition: Roots records with their signatures, and the checks of a stripe that is read.
//!
//! Invariants
//! - A reader without a key still compares all digests and roots, and the signature. Only the MAC of a trailer and the tags
//!   need one.
//! - A stripe's root is taken of what was read, in the order of the stripe, never of what the stripe says.
//!
//! Leaves to others: what is computed (`longshore-crypt`), the order of records (`stream.rs`, `member.rs`), and how a damaged
//! stripe is reported (`stream.rs`, `member.rs`).

use std::sync::Arc;

use longshore_crypt::{
    Error as KeyError, FamilyRoot, IndexKeys, KeyContext, Keyring, Keys, Root, SIGNATURE_KIND,
    SIGNATURE_LEN, SIGNER_LEN, SetKeys, Signature, SignatureState, Signed, Signer, Signers,
    StoredSignature,
};
use uuid::Uuid;

use crate::Error;
use crate::header::{FAMILIES_MAX, INCOMPATIBLE_DETACHED, MediaHeader, SetTrailer};
use crate::record::{Fields, RecordError};

/// Bytes of a Roots record's body before the roots.
pub const ROOTS_HEAD_LEN: usize = 60;
/// Bytes before the signer, after the signature's kind.
const SIGNER_AT: usize = ROOTS_HEAD_LEN - SIGNER_LEN;

/// The roots of all families of a set, and who signed them; the last record before each trailer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    pub set: Uuid,
    pub families: Vec<Root>,
    pub claim: StoredSignature,
}

impl Roots {
    /// Bytes of a record's body.
    pub fn body_len(families: usize, is_signed: bool) -> usize {
        let signature = if is_signed { SIGNATURE_LEN } else { 0 };
        ROOTS_HEAD_LEN + families * 32 + signature
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Roots::body_len(self.families.len(), true));
        out.extend_from_slice(self.set.as_bytes());
        out.extend_from_slice(&(self.families.len() as u16).to_le_bytes());
        let signature = match &self.claim {
            StoredSignature::Ed25519(signature) => Some(signature),
            StoredSignature::None | StoredSignature::Unknown(_) => None,
        };
        out.push(signature.map_or(0, |_| SIGNATURE_KIND));
        out.resize(SIGNER_AT, 0);
        out.extend_from_slice(signature.map_or(&[0; SIGNER_LEN], |s| s.signer.as_bytes()));
        self.families.iter().for_each(|r| out.extend_from_slice(r));
        out.extend_from_slice(signature.map_or(&[][..], |s| &s.bytes));
        out
    }

    pub fn decode(body: &[u8]) -> Result<Roots, RecordError> {
        let mut f = Fields(body);
        let set = Uuid::from_bytes(f.array()?);
        let count = f.u16()?;
        let kind = f.u8()?;
        let mut signer = [0; SIGNER_LEN];
        match kind {
            0 => f.zeros(ROOTS_HEAD_LEN - 19)?,
            SIGNATURE_KIND => {
                f.zeros(SIGNER_AT - 19)?;
                signer = f.array()?;
            }
            _ => f.bytes(ROOTS_HEAD_LEN - 19).map(drop)?,
        }
        if !(1..=FAMILIES_MAX).contains(&count) {
            return Err(RecordError::Field);
        }
        let families = (0..count).map(|_| f.array());
        let families = families.collect::<Result<Vec<Root>, _>>()?;
        let claim = match kind {
            0 => StoredSignature::None,
            SIGNATURE_KIND => StoredSignature::Ed25519(Signature {
                signer: Signer::from_bytes(signer),
                bytes: f.array()?,
            }),
            // A later version's signature follows. Where none is required, the set counts as unsigned.
            kind => StoredSignature::Unknown(kind),
        };
        if !matches!(claim, StoredSignature::Unknown(_)) {
            f.end()?;
        }
        Ok(Roots {
            set,
            families,
            claim,
        })
    }
}

/// The Keys records of a set whose header has this body. Both say whether its slots are on the media, and have to agree: a set whose slots
/// were taken away is not one whose keys are detached.
///
/// Errors: those of [`Keys::decode`].
pub fn stored_keys(header: &[u8], records: &[Vec<u8>]) -> Result<Keys, KeyError> {
    let keys = Keys::decode(records)?;
    let bits = header.get(56..64).and_then(|bits| bits.first_chunk());
    let bits = bits.map_or(0, |bits| u64::from_le_bytes(*bits));
    match keys.slots.is_empty() == (bits & INCOMPATIBLE_DETACHED != 0) {
        true => Ok(keys),
        false => Err(KeyError::Malformed {
            what: "their slots are not where the header says",
        }),
    }
}

/// Refuses a set that is not encrypted, and so cannot be signed, where all sets must be.
pub(crate) fn check_plain(keyring: &Keyring, device: &str, position: u32) -> Result<(), Error> {
    let device = device.to_owned();
    if keyring.requires_encryption() {
        return Err(Error::NotEncrypted { device, position });
    }
    match keyring.signers().required() {
        false => Ok(()),
        true => Err(Error::Unsigned {
            device,
            position,
            what: SignatureState::Unsigned,
        }),
    }
}

/// Why a stripe is refused at its end.
#[derive(Debug)]
pub(crate) enum Refused {
    Damaged(&'static str),
    Unsigned(SignatureState),
}

impl Refused {
    pub fn of(self, device: &str, position: u32) -> Error {
        let device = device.to_owned();
        match self {
            Refused::Damaged(what) => Error::SetDamaged {
                device,
                position,
                what: what.into(),
            },
            Refused::Unsigned(what) => Error::Unsigned {
                device,
                position,
                what,
            },
        }
    }
}

/// The checks of one stripe of an encrypted set.
#[derive(Debug)]
pub(crate) struct StripeCheck {
    /// `None` if the stored bytes or the index alone are checked.
    pub keys: Option<Arc<SetKeys>>,
    /// `None` if the stored bytes alone are checked.
    pub index: Option<Arc<IndexKeys>>,
    signers: Arc<Signers>,
    /// The body of the set's header.
    header: Vec<u8>,
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
        signers: &Arc<Signers>,
    ) -> StripeCheck {
        let head = records.first().and_then(|body| body.get(40..72));
        StripeCheck {
            commitment: head.and_then(|c| c.try_into().ok()).unwrap_or_default(),
            index: keys.as_ref().map(|keys| keys.index().clone()),
            keys,
            signers: signers.clone(),
            header: header.to_vec(),
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
        signers: &Arc<Signers>,
    ) -> StripeCheck {
        StripeCheck {
            index: Some(index),
            ..StripeCheck::new(media, header, records, None, signers)
        }
    }

    /// The header and recipients that the set's key was made for.
    pub fn context(&self) -> KeyContext {
        self.context
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

    /// Compares everything that was read with the trailer, and the signature with all of it.
    pub fn end(&self, trailer: &SetTrailer) -> Result<(), Refused> {
        let own = self.roots.as_ref().map(|roots| {
            let own = roots.families.get(self.family_index);
            own == Some(&self.root.clone().finish())
        });
        if own == Some(false) {
            return Err(Refused::Damaged(
                "its blocks or its index are not those that were written: its root differs",
            ));
        }
        let state = self.signature(trailer).map_err(Refused::Damaged)?;
        if let (Some(keys), Some(proof)) = (&self.index, &trailer.proof) {
            keys.check_trailer(&trailer.start(), &proof.root, &proof.mac)
                .map_err(|_| Refused::Damaged("its trailer was not written with its key"))?;
        }
        match self.signers.refuse(&state) {
            false => Ok(()),
            true => Err(Refused::Unsigned(state)),
        }
    }

    /// Whose the set is that has these headers, roots and totals. No block need be read for that; what is wrong, in words.
    pub fn signature(&self, trailer: &SetTrailer) -> Result<SignatureState, &'static str> {
        let (Some(roots), Some(proof)) = (&self.roots, &trailer.proof) else {
            return Err("it is encrypted and has no roots");
        };
        if roots.set != trailer.set {
            return Err("its roots are those of another set");
        }
        if self.set_root(trailer, &roots.families) != proof.root {
            return Err("its header, its recipients or its totals were changed: its root differs");
        }
        let signed = Signed::set(&self.header, &proof.root);
        Ok(self.signers.judge(&signed, &roots.claim))
    }
}
