//! Encryption of a file on its way into the archive, and its signature.
//!
//! A host that archives has public keys alone: it can read nothing that is in the archive already. So that it still finds
//! out whether the archive has a file's very bytes, each block has a tag that only servers of the cluster can make.
//!
//! Invariants
//! - A file has a key of its own, which is in no place but its slots.
//! - Histories are never encrypted: a reader finds out with them which WAL it needs. A file's head has the digest of its own.
//! - A file without tags is written only where an identity opens it, so that it can be compared by reading.
//!
//! Leaves to others: the layout (`object.rs`), reading (`stored.rs`), comparing (`ends.rs`), and the keys themselves
//! (`longshore-crypt`).

use std::path::Path;
use std::sync::Arc;

use longshore_crypt::{
    NewKey, Recipients, Root, SALT_LEN, SetKeys, Signed, SigningKey, TAG_LEN, TAGS_ID_LEN, TagKey,
    digest_of,
};
use longshore_media::Container;
use longshore_media::record::{ENCRYPTED_MAGIC, RecordKind};
use longshore_pg::Timeline;
use longshore_pg::wal::history_lines;

use super::Error;
use super::ends::ArchiveKeys;
use super::object::{
    End, FRAME_LEN, Head, MAC_LEN, PlainMark, Row, SEALED_MORE, SealedHead, WholeMark,
};

/// Where a payload stands before it is encrypted in place.
pub(super) const PAYLOAD_AT: usize = FRAME_LEN + SALT_LEN + 4;

/// The digest of a timeline's history, without remarks that differ from copy to copy.
pub(super) fn history_digest(timeline: Timeline, text: &[u8]) -> Root {
    digest_of(&history_lines(timeline, text))
}

/// One file being encrypted.
pub(super) struct Sealing {
    keys: SetKeys,
    tags: Option<Arc<TagKey>>,
    sign: Option<Arc<SigningKey>>,
    /// The body of the head.
    head: Vec<u8>,
    name: String,
    /// The Keys records, framed.
    pub(super) records: Vec<u8>,
}

impl Sealing {
    /// Makes a key for the file with this head, wraps it, and completes the head. `history`: [`history_digest`], or zeros.
    ///
    /// Errors: `Untagged`, `Keys`.
    pub(super) fn begin(
        recipients: &Recipients,
        keys: &ArchiveKeys,
        (head, history): (&mut Head, Root),
        path: &Path,
    ) -> Result<Sealing, Error> {
        let failed = |source| Error::Keys {
            path: path.to_owned(),
            source,
        };
        let container = Container::of_set(head.algorithm, true);
        let key = NewKey::wrapped(recipients).map_err(failed)?;
        let lens = key.record_lens().map_err(failed)?;
        let keys_len: usize = lens.iter().map(|len| container.framed_len(*len)).sum();
        let sign = keys.keyring.signing_key().cloned();
        head.sealed = Some(SealedHead {
            keys_len: keys_len as u32,
            history,
            signer: sign.as_ref().map(|key| key.signer()),
        });
        let body = head.encode();
        let made = SetKeys::create(&body, &key, [0; 32]);
        let (own, bodies) = made.map_err(failed)?;
        // Any identity would not do: this file must be readable here.
        let is_readable = || keys.keyring.open_once(&body, &bodies).is_ok();
        if keys.tags.is_none() && !is_readable() {
            return Err(Error::Untagged {
                path: path.to_owned(),
            });
        }
        let mut records = Vec::with_capacity(keys_len);
        for body in &bodies {
            container.append(RecordKind::Keys, body, &mut records);
        }
        Ok(Sealing {
            keys: own,
            tags: keys.tags.clone(),
            sign,
            name: head.name.to_string(),
            head: body,
            records,
        })
    }

    /// Encrypts the payload of `len` bytes that stands in `space` at [`PAYLOAD_AT`], and frames it; returns the bytes of all.
    pub(super) fn seal(
        &self,
        number: usize,
        plain_crc: u32,
        space: &mut [u8],
        len: usize,
    ) -> usize {
        let stored = SEALED_MORE + len;
        let (frame, piece) = space[..stored].split_at_mut(FRAME_LEN);
        frame[..4].copy_from_slice(&ENCRYPTED_MAGIC.to_le_bytes());
        frame[4..].copy_from_slice(&(piece.len() as u32).to_le_bytes());
        piece[SALT_LEN..SALT_LEN + 4].copy_from_slice(&plain_crc.to_le_bytes());
        self.keys.seal_piece(number as u32, piece);
        stored
    }

    /// The mark of a block's plain bytes.
    pub(super) fn mark(&self, number: usize, plain: &[u8]) -> PlainMark {
        let tag = self.tags.as_deref();
        PlainMark::Tag(tag.map_or([0; TAG_LEN], |key| {
            key.tag(&self.name, number as u32, plain)
        }))
    }

    /// The end of the file.
    pub(super) fn end(&self, head_crc: u32, rows: Vec<Row>) -> End {
        let tags = self.tags.as_deref().map_or([0; TAGS_ID_LEN], TagKey::id);
        let whole = |mac, signature| WholeMark::Sealed {
            tags,
            mac,
            signature,
        };
        let mut end = End {
            head_crc,
            whole: whole([0; MAC_LEN], None),
            rows,
        };
        let mac = self.keys.end_mac(&end.authenticated());
        end.whole = whole(mac, None);
        let signed = |key: &Arc<SigningKey>| {
            let what = Signed::wal(&self.head, &self.records, &end.signed());
            key.sign(&what).bytes
        };
        end.whole = whole(mac, self.sign.as_ref().map(signed));
        end
    }
}
