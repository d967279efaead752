//! The keys of one set, and everything that is encrypted with them.
//!
//! The set's key and its context give, by HKDF-SHA256, one key for each purpose; from those comes a key for each message.
//! AES-256-GCM encrypts it, always with the nonce 0.
//!
//! Invariants
//! - A message's key depends on its *salt*, and the salt on all bytes of the message and of what it is bound to: a keyed hash
//!   (HighwayHash, whose result is seen by nobody), then HMAC. Two messages with one key are one message.
//! - The salt is a rule for writers. Readers take any.
//!
//! Leaves to others: what a message is (`longshore-media`), and slots (`keys.rs`).

use std::sync::Arc;

use ring::{aead, hkdf, hmac};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::command::set_name;
use crate::gcm::{Salt, Tag, cipher, open, seal};
use crate::hash::HashKey;
use crate::index::{Chunk, IndexKeys, IndexSecret, trailer_mac};
use crate::keys::{Keys, Slot};
use crate::roots::{KeyContext, Root, SALT_LEN, TAG_LEN, block_digest};
use crate::{Error, Identities, Recipients, Secret, expand, hkdf, random};

/// Bytes of a block header that are bound to its manifest and payload: 0 to 31, and 44 to 50.
pub const FIXED_LEN: usize = 39;

/// The keys of one set.
pub struct SetKeys {
    context: KeyContext,
    commitment: Root,
    mac: hmac::Key,
    salt: hmac::Key,
    index: Arc<IndexKeys>,
    payload: hkdf::Prk,
    hash: HashKey,
    /// Of key objects, and of the marks in them.
    object: hmac::Key,
    recipient: hmac::Key,
}

impl std::fmt::Debug for SetKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SetKeys")
    }
}

/// A new key for one set, wrapped for all recipients. Wrapping for a passphrase takes a second and much memory,
/// so it is done before anything waits for the set.
pub struct NewKey {
    secret: Secret,
    slots: Vec<Slot>,
    apart: Option<ApartSlots>,
}

/// The slots of a set whose Keys records have none, and for whom they are.
pub(crate) struct ApartSlots {
    pub recipients: Recipients,
    pub slots: Vec<Slot>,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewKey")
    }
}

impl NewKey {
    /// Errors: [`Error::Random`], [`Error::Recipient`], [`Error::Command`].
    pub fn wrapped(recipients: &Recipients) -> Result<NewKey, Error> {
        let secret = random()?;
        let slots = recipients.wrap(&secret)?;
        Ok(NewKey {
            secret,
            slots,
            apart: None,
        })
    }

    /// The same, for a set whose slots are in a key object alone.
    ///
    /// Errors: those of [`NewKey::wrapped`].
    pub fn detached(recipients: &Recipients) -> Result<NewKey, Error> {
        let NewKey { secret, slots, .. } = NewKey::wrapped(recipients)?;
        Ok(NewKey {
            secret,
            slots: Vec::new(),
            apart: Some(ApartSlots {
                recipients: recipients.clone(),
                slots,
            }),
        })
    }

    /// Whether the Keys records of the set have no slots.
    pub fn is_detached(&self) -> bool {
        self.apart.is_some()
    }

    pub(crate) fn apart(&self) -> Option<&ApartSlots> {
        self.apart.as_ref()
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Bytes of each record's body that will keep this key: no header changes them.
    ///
    /// Errors: [`Error::TooMany`].
    pub fn record_lens(&self) -> Result<Vec<usize>, Error> {
        let keys = Keys {
            parent_root: [0; 32],
            commitment: [0; 32],
            slots: self.slots.clone(),
        };
        Ok(keys.encode()?.iter().map(Vec::len).collect())
    }

    /// The mask over the key of page sums in the header of the set with this identifier.
    pub fn sums_mask(&self, set: &[u8; 16]) -> Secret {
        sums_mask(&self.secret, set)
    }
}

/// The header is part of what all other keys are derived from, so this one is derived without it.
fn sums_mask(secret: &Secret, set: &[u8]) -> Secret {
    hkdf(&secret[..], set, &[b"longshore/1/sums"])
}

/// The salt and the tags of an encrypted block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSeal {
    pub salt: Salt,
    pub manifest_tag: Tag,
    /// Zeros where the block has no plain bytes.
    pub payload_tag: Tag,
}

impl BlockSeal {
    /// The block's digest, which goes into its family's root.
    pub fn digest(&self, sequence: u64) -> Root {
        block_digest(sequence, &self.salt, &self.manifest_tag, &self.payload_tag)
    }
}

impl SetKeys {
    /// The keys of a new set, and the bodies of the records that keep `key`.
    ///
    /// `header`: the body of the set header, whose identifier no other set has. `parent_root`: the root of the set that it
    /// differs from; zeros if there is none.
    ///
    /// Errors: [`Error::TooMany`].
    pub fn create(
        header: &[u8],
        key: &NewKey,
        parent_root: Root,
    ) -> Result<(SetKeys, Vec<Vec<u8>>), Error> {
        let mut keys = Keys {
            parent_root,
            commitment: [0; 32],
            slots: key.slots.clone(),
        };
        let context = KeyContext::of(header, &keys.encode()?);
        let set = SetKeys::derive(&key.secret, context, header);
        keys.commitment = set.commitment;
        Ok((set, keys.encode()?))
    }

    /// The keys of a set whose header and Keys records have these bodies.
    ///
    /// Errors: [`Error::NoIdentity`] if no identity opens a slot with the key of this very header and these records;
    /// [`Error::Command`] if a program gave no answer, and no other identity opens one; [`Error::Scheme`] and
    /// [`Error::Malformed`].
    pub fn open(
        header: &[u8],
        records: &[impl AsRef<[u8]>],
        identities: &Identities,
    ) -> Result<SetKeys, Error> {
        let set = header.first_chunk().map_or_else(String::new, set_name);
        SetKeys::open_as(&set, header, records, identities)
    }

    /// [`SetKeys::open`], of what programs that keep keys know by the name `set`.
    pub(crate) fn open_as(
        set: &str,
        header: &[u8],
        records: &[impl AsRef<[u8]>],
        identities: &Identities,
    ) -> Result<SetKeys, Error> {
        let secret = SetKeys::secret(set, header, records, identities)?;
        Ok(SetKeys::derive(
            &secret,
            KeyContext::of(header, records),
            header,
        ))
    }

    /// The set key, from a slot of these records.
    ///
    /// Errors: those of [`SetKeys::open`].
    pub(crate) fn secret(
        set: &str,
        header: &[u8],
        records: &[impl AsRef<[u8]>],
        identities: &Identities,
    ) -> Result<Secret, Error> {
        let keys = Keys::decode(records)?;
        let context = KeyContext::of(header, records);
        let is_right =
            |secret: &Secret| SetKeys::derive(secret, context, header).commits_to(&keys.commitment);
        let found = identities.open(&keys.slots, set, is_right)?;
        found.ok_or_else(|| Error::NoIdentity {
            identities: identities.list().len(),
            slots: keys.slots.len(),
            objects: Box::default(),
            certificate: keys.thumbprint(),
            command: keys.command().map(str::to_owned),
        })
    }

    /// The keys that this set key gives, whether it is right or not.
    pub(crate) fn derive(secret: &Secret, context: KeyContext, header: &[u8]) -> SetKeys {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &context.0).extract(&secret[..]);
        let key = |label: &[u8]| expand(&prk, &[b"longshore/1/", label]);
        let prk_of = |label| hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &key(label)[..]);
        let mac_of = |label| hmac::Key::new(hmac::HMAC_SHA256, &key(label)[..]);
        let mac = mac_of(b"mac");
        let sums = sums_mask(secret, header.get(..16).unwrap_or(header));
        SetKeys {
            context,
            commitment: *key(b"commit"),
            salt: mac_of(b"salt"),
            index: Arc::new(IndexKeys::of_set(key(b"meta"), sums, mac.clone())),
            mac,
            payload: prk_of(b"payload"),
            hash: HashKey::new(&key(b"hash")),
            object: mac_of(b"object"),
            recipient: mac_of(b"recipient"),
        }
    }

    /// The keys of the set's index alone.
    pub fn index(&self) -> &Arc<IndexKeys> {
        &self.index
    }

    /// The part of the set's keys that may be kept on a machine that has no identity for it. `root`: the set's.
    pub fn index_secret(&self, root: Root) -> IndexSecret {
        self.index.secret(root)
    }

    /// The root of the set whose trailers have these bytes in common, and whose families have these roots.
    pub fn set_root(&self, whole: &[u8], families: &[Root]) -> Root {
        self.context.set_root(&self.commitment, whole, families)
    }

    /// Whether this is the commitment of these keys, compared in constant time.
    pub fn commits_to(&self, commitment: &Root) -> bool {
        bool::from(self.commitment.ct_eq(commitment))
    }

    /// The header and the records that the key was made for.
    pub fn context(&self) -> &KeyContext {
        &self.context
    }

    pub(crate) fn hashed(&self, bytes: &[u8]) -> Zeroizing<[u8; 32]> {
        self.hash.hash(bytes)
    }

    /// The secret from which the keys of payloads come.
    pub(crate) fn payloads(&self) -> &hkdf::Prk {
        &self.payload
    }

    /// The MAC over the parts, one after the other.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> Root {
        let mut mac = hmac::Context::with_key(&self.mac);
        parts.iter().for_each(|part| mac.update(part));
        let mut out = [0; 32];
        out.copy_from_slice(mac.sign().as_ref());
        out
    }

    /// The MAC of a key object, over all bytes before it.
    pub(crate) fn object_mac(&self, covered: &[u8]) -> Root {
        let mut out = [0; 32];
        out.copy_from_slice(hmac::sign(&self.object, covered).as_ref());
        out
    }

    /// The sign by which whoever has these keys knows the recipient of a slot of a key object.
    pub(crate) fn mark(&self, recipient: &str) -> [u8; 16] {
        let mut out = [0; 16];
        let whole = hmac::sign(&self.recipient, recipient.as_bytes());
        out.copy_from_slice(&whole.as_ref()[..16]);
        out
    }

    pub(crate) fn salted(&self, parts: &[&[u8]]) -> Salt {
        let mut hmac = hmac::Context::with_key(&self.salt);
        parts.iter().for_each(|part| hmac.update(part));
        let mut salt = [0; SALT_LEN];
        salt.copy_from_slice(&hmac.sign().as_ref()[..SALT_LEN]);
        salt
    }

    fn manifest_key(&self, fixed: &[u8; FIXED_LEN], salt: &Salt) -> aead::LessSafeKey {
        cipher(&expand(self.index.meta(), &[b"b", sequence(fixed), salt]))
    }

    fn payload_key(&self, fixed: &[u8; FIXED_LEN], salt: &Salt) -> aead::LessSafeKey {
        cipher(&expand(&self.payload, &[b"p", sequence(fixed), salt]))
    }

    /// Encrypts a block in place. `fixed`: the bytes of its header that are known now. `payload` is empty where the block has
    /// no plain bytes.
    pub fn seal_block(
        &self,
        fixed: &[u8; FIXED_LEN],
        manifest: &mut [u8],
        payload: &mut [u8],
    ) -> BlockSeal {
        let hashes = (self.hashed(manifest), self.hashed(payload));
        let salt = self.salted(&[b"b", fixed, &hashes.0[..], &hashes.1[..]]);
        let aad = [b"m", &fixed[..], &salt].concat();
        let manifest_tag = seal(&self.manifest_key(fixed, &salt), &aad, manifest);
        let payload_tag = match payload.is_empty() {
            true => [0; TAG_LEN],
            false => {
                let aad = payload_aad(fixed, &salt, &manifest_tag);
                seal(&self.payload_key(fixed, &salt), &aad, payload)
            }
        };
        BlockSeal {
            salt,
            manifest_tag,
            payload_tag,
        }
    }

    /// Decrypts a manifest, which has its tag at its end.
    ///
    /// Errors: [`Error::Tag`].
    pub fn open_manifest(
        &self,
        fixed: &[u8; FIXED_LEN],
        salt: &Salt,
        sealed: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let aad = [b"m", &fixed[..], salt].concat();
        let len = open(&self.manifest_key(fixed, salt), &aad, sealed, "a manifest")?;
        sealed.truncate(len);
        Ok(())
    }

    /// Decrypts a payload that is not empty, which has its tag at its end; returns the length of what was encrypted, which
    /// is at the start of `sealed` then.
    ///
    /// Errors: [`Error::Tag`].
    pub fn open_payload(
        &self,
        fixed: &[u8; FIXED_LEN],
        salt: &Salt,
        manifest_tag: &Tag,
        sealed: &mut [u8],
    ) -> Result<usize, Error> {
        let aad = payload_aad(fixed, salt, manifest_tag);
        open(&self.payload_key(fixed, salt), &aad, sealed, "a payload")
    }

    /// Encrypts a compressed chunk of the index: its salt, the bytes, their tag.
    pub fn seal_chunk(&self, at: &Chunk, packed: &[u8]) -> Vec<u8> {
        let aad = at.bytes();
        let salt = self.salted(&[&aad, &self.hashed(packed)[..]]);
        let mut out = [&salt[..], packed].concat();
        let aad = [&aad[..], &salt].concat();
        let tag = seal(&self.index.chunk_key(at, &salt), &aad, &mut out[SALT_LEN..]);
        out.extend_from_slice(&tag);
        out
    }

    /// The MAC of a trailer: over its bytes before the MAC, and the set's root.
    pub fn trailer_mac(&self, start: &[u8], root: &Root) -> Root {
        trailer_mac(&self.mac, start, root)
    }
}

fn sequence(fixed: &[u8; FIXED_LEN]) -> &[u8] {
    &fixed[16..24]
}

fn payload_aad(fixed: &[u8; FIXED_LEN], salt: &Salt, manifest_tag: &Tag) -> Vec<u8> {
    [b"p", &fixed[..], salt, manifest_tag].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    /// The product in GCM's field: the first bit of a block is the coefficient of 1.
    fn times(a: u128, b: u128) -> u128 {
        let (mut product, mut shifted) = (0, b);
        for bit in (0..128).rev() {
            if a >> bit & 1 == 1 {
                product ^= shifted;
            }
            let carry = shifted & 1;
            shifted = (shifted >> 1) ^ (carry * (0xe1 << 120));
        }
        product
    }

    /// The secret factor of GCM's tags under a key. Tags of two messages that differ in one bit differ by its square; squaring 127 times
    /// more gives it.
    fn factor(key: &aead::LessSafeKey) -> u128 {
        let tag = |aad: u128| u128::from_be_bytes(seal(key, &aad.to_be_bytes(), &mut []));
        let square = tag(1 << 127) ^ tag(0);
        (0..127).fold(square, |power, _| times(power, power))
    }

    /// Goal: the page says rightly that whoever has a set's key can change a block and keep its tag. Digest, root and
    /// signature are of salts and tags (docs/format.md), so none of them holds against the holder of an identity.
    #[test]
    fn whoever_has_the_key_changes_a_block_and_keeps_its_tag() {
        let identity = Identity::new_x25519().unwrap();
        let recipients = Recipients::new(vec![identity.recipient()], false).unwrap();
        let new = NewKey::wrapped(&recipients).unwrap();
        let (keys, _) = SetKeys::create(&[7; 300], &new, [0; 32]).unwrap();
        let fixed = [3; FIXED_LEN];
        let plain = *b"the balance is 00000001 dollars, and nobody may change this here";
        let (mut manifest, mut payload) = (b"manifest".to_vec(), plain.to_vec());
        let block = keys.seal_block(&fixed, &mut manifest, &mut payload);
        let mut sealed = [&payload[..], &block.payload_tag].concat();
        let mut whole = sealed.clone();
        let opened =
            |sealed: &mut [u8]| keys.open_payload(&fixed, &block.salt, &block.manifest_tag, sealed);
        let len = opened(&mut whole).unwrap();
        assert_eq!(whole[..len], plain);

        // The forger changes one block of the cipher as he likes, and the next one so that the sum stays.
        let wanted = u128::from_be_bytes(*b"the balance is 9");
        let had = u128::from_be_bytes(*b"the balance is 0");
        let change = wanted ^ had;
        let next = times(change, factor(&keys.payload_key(&fixed, &block.salt)));
        for (at, change) in [(0, change), (16, next)] {
            for (byte, bits) in sealed[at..at + 16].iter_mut().zip(change.to_be_bytes()) {
                *byte ^= bits;
            }
        }
        let len = opened(&mut sealed.clone()).expect("the tag still agrees");
        let mut forged = sealed;
        opened(&mut forged).unwrap();
        assert_eq!(&forged[..16], b"the balance is 9");
        assert_eq!(forged[32..len], plain[32..]);
        // Without the factor no such change passes.
        let mut guessed = [&payload[..], &block.payload_tag].concat();
        guessed[15] ^= 9;
        guessed[31] ^= 9;
        assert!(opened(&mut guessed).is_err());
    }
}
