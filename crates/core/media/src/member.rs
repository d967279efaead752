//! One stripe of a media set: its label and the backup sets on it.
//!
//! If the stripe ends with a trailer, the sets are found along the chain of trailers. Otherwise the records are read
//! one after another. After a record that cannot be read, the set's own trailer or that of a later set is searched for,
//! so that one bad byte does not hide later sets, and damage is distinguished from an unfinished end.
//!
//! Invariants
//! - The n-th part has position n: a header or trailer with another position is not accepted.
//! - Bytes after the last sealed part are one more part, unsealed. An unsealed part before another one has lost its
//!   trailer: a crash leaves nothing after the set that it interrupted.
//!
//! Leaves to others: which stripes belong together (`set_reader.rs`), and the blocks of a set (`stream.rs`).

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use uuid::Uuid;

use longshore_crypt::{
    IndexKeys, KeyContext, Keyring, Keys, OpenedSet, Root, SignatureState, Signers,
};

use crate::Error;
use crate::device::{BackupDevice, DeviceClass, FIRST_BYTES, FamilyRead};
use crate::encrypted::{StripeCheck, check_plain, stored_keys};
use crate::header::{BlockHeader, MediaHeader, SETS_MAX, SetHeader, SetTrailer, TRAILER_LEN};
use crate::index::{self, ChunkOwner, Row, StoredChunk};
use crate::record::{Container, HEAD_LEN, MAGIC, PREFIX_MAX, RecordError, RecordKind};
use crate::window::{WINDOW_BYTES, Window};

/// One stripe of an opened media set.
#[derive(Debug)]
pub(crate) struct Member {
    pub device: String,
    pub read: Arc<dyn FamilyRead>,
    pub header: MediaHeader,
    /// Offset of the first set header.
    pub sets_offset: u64,
    /// Index into the devices in the caller's order; `None` for a stripe of which no device is known.
    pub device_index: Option<usize>,
    /// Whether this stripe has not been renamed yet.
    pub pending: bool,
    /// A pipe's read position: a pipe cannot be opened twice.
    pub window: Mutex<Option<Window>>,
    /// Found once: an opened media set stays as it was at the first query.
    parts: OnceLock<Vec<SetPart>>,
}

/// One family's part of a set, as found on the stripe.
#[derive(Debug, Clone)]
pub(crate) struct SetPart {
    /// Offset of the set header, or where it should be.
    pub offset: u64,
    pub header: Result<SetHeader, RecordError>,
    pub seal: Option<Seal>,
    /// Offset of the trailer that was here, in a part without one that another set follows.
    pub lost_trailer: Option<u64>,
}

/// A part that is followed by a set whose position is greater by one or more.
struct Follower {
    /// Offset of the set header that follows, and its position.
    offset: u64,
    position: u32,
    /// Offset of the trailer before that header.
    trailer: u64,
}

/// A trailer after a record that cannot be read.
enum Found {
    Own(Seal),
    Later(Follower),
}

/// A trailer and its offset.
#[derive(Debug, Clone)]
pub(crate) struct Seal {
    pub trailer: SetTrailer,
    pub offset: u64,
    /// Offset after the trailer.
    pub end: u64,
}

impl SetPart {
    fn unsealed(offset: u64, header: Result<SetHeader, RecordError>) -> SetPart {
        SetPart {
            offset,
            header,
            seal: None,
            lost_trailer: None,
        }
    }

    /// Whether this trailer ends this part, and its previous trailer is at `previous`.
    fn fits(&self, trailer: &SetTrailer, position: u32, previous: u64) -> bool {
        trailer.set_offset == self.offset
            && trailer.previous_trailer == previous
            && trailer.position == position
            && self.header.as_ref().map_or(true, |h| h.set == trailer.set)
    }
}

/// How many fixed bytes may differ for a record still to be taken for the trailer, damaged.
const TRAILER_DAMAGE_MAX: usize = 8;
/// How often the sets of a stripe are looked for again because it ends elsewhere.
const ENDS_MAX: usize = 2;
/// Disk sector size: a power cut leaves whole sectors of a write. Larger sectors start at multiples of this too.
const SECTOR: u64 = 512;

/// A record's kind and body, and the offset after it.
type Record = (RecordKind, Vec<u8>, u64);

/// The bodies of a set's header and of its Keys records, and the offset after them.
type SealedStart = (Vec<u8>, Vec<Vec<u8>>, u64);

impl Member {
    pub fn open(
        device: &dyn BackupDevice,
        device_index: usize,
        read: Arc<dyn FamilyRead>,
        pending: bool,
    ) -> Result<Member, Error> {
        // Only a pipe must continue where the label ended.
        let goes_on = device.class() == DeviceClass::Pipe;
        Member::of(device.name(), Some(device_index), read, pending, goes_on)
    }

    /// A stripe that is rebuilt, at least in part.
    pub fn rebuilt(
        name: String,
        device_index: Option<usize>,
        read: Arc<dyn FamilyRead>,
        pending: bool,
    ) -> Result<Member, Error> {
        Member::of(name, device_index, read, pending, false)
    }

    fn of(
        name: String,
        device_index: Option<usize>,
        read: Arc<dyn FamilyRead>,
        pending: bool,
        goes_on: bool,
    ) -> Result<Member, Error> {
        if read.len_bytes()? == Some(0) {
            return Err(Error::Empty { device: name });
        }
        let mut window = Window::new(name.clone(), read.clone(), 0)?;
        if !goes_on {
            window.go_to(0, FIRST_BYTES as u64)?;
        }
        let header = media_header(&mut window)?;
        let sets_offset = window.offset();
        let kept = goes_on.then_some(window);
        Ok(Member {
            device: name,
            read,
            header,
            sets_offset,
            device_index,
            pending,
            window: Mutex::new(kept),
            parts: OnceLock::new(),
        })
    }

    pub fn damaged(&self, offset: u64, what: RecordError) -> Error {
        match what {
            RecordError::Feature(bits) => Error::Newer {
                device: self.device.clone(),
                bits,
            },
            what => Error::Damaged {
                device: self.device.clone(),
                offset,
                what,
            },
        }
    }

    /// The record at `offset`, and the offset after it. One that cannot be read is read once more if the stripe may have
    /// better bytes.
    fn record_at(&self, offset: u64) -> Result<Result<Record, RecordError>, Error> {
        let container = self.header.container;
        let mut found = self.try_record_at(offset)?;
        // As a window does: no more is doubted than the record.
        let mut len = container.prefix_len();
        for _ in 0..2 {
            if found.is_ok() {
                break;
            }
            if self.read.doubt(offset..offset.saturating_add(len as u64))? {
                found = self.try_record_at(offset)?;
            }
            let mut prefix = [0; PREFIX_MAX];
            let got = self.read.read_at(&mut prefix, offset)?;
            let Ok(whole) = container.framed_len_at(&prefix[..got]) else {
                break;
            };
            len = whole;
        }
        Ok(found)
    }

    fn try_record_at(&self, offset: u64) -> Result<Result<Record, RecordError>, Error> {
        let container = self.header.container;
        let mut framed = vec![0; 4096];
        let got = self.read.read_at(&mut framed, offset)?;
        let len = match container.framed_len_at(&framed[..got]) {
            Ok(len) => len,
            Err(what) => return Ok(Err(what)),
        };
        if len > got {
            framed.resize(len, 0);
            if self.read.read_at(&mut framed, offset)? < len {
                return Ok(Err(RecordError::Length));
            }
        }
        Ok(container
            .parse(&framed[..len])
            .map(|(kind, body)| (kind, body.to_vec(), offset + len as u64)))
    }

    fn set_header_at(&self, offset: u64) -> Result<Result<(SetHeader, u64), RecordError>, Error> {
        Ok(self.record_at(offset)?.and_then(|(kind, body, end)| {
            if kind != RecordKind::Set {
                return Err(RecordError::Kind(kind as u8));
            }
            Ok((SetHeader::decode(&body)?, end))
        }))
    }

    /// All sets on this stripe in order of position; only the last can be unsealed.
    pub fn parts(&self) -> Result<&[SetPart], Error> {
        if let Some(parts) = self.parts.get() {
            return Ok(parts);
        }
        let mut rounds = 0;
        loop {
            let Some(len) = self.read.len_bytes()? else {
                return Err(Error::Unsupported {
                    device: self.device.clone(),
                    action: "list its sets",
                });
            };
            let parts = match self.parts_backward(len)? {
                // Nothing is after the label. With parity, that may be a stripe that was cut.
                Some(parts) if parts.is_empty() && self.read.doubt(len..len)? => continue,
                Some(parts) => parts,
                None => self.parts_forward(len)?,
            };
            // A stripe with parity may have found out meanwhile that it ends elsewhere. One that grows does so for as long as
            // a backup is appended.
            if rounds < ENDS_MAX && self.read.len_bytes()? != Some(len) {
                rounds += 1;
                continue;
            }
            return Ok(self.parts.get_or_init(|| parts));
        }
    }

    /// Whether it is a pipe, which is read where its label ended.
    pub fn window_is_kept(&self) -> bool {
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.is_some()
    }

    /// The first set's UUID, if its header or its trailer can be read.
    pub fn set_uuid(&self) -> Option<Uuid> {
        match self.set_header_at(self.sets_offset) {
            Ok(Ok((header, _))) => Some(header.set),
            _ => None,
        }
    }

    /// This stripe's part of the set at a 1-based position.
    pub fn part(&self, position: u32) -> Result<&SetPart, Error> {
        let parts = self.parts()?;
        let index = (position as usize).checked_sub(1);
        index
            .and_then(|i| parts.get(i))
            .ok_or_else(|| Error::NoSuchSet {
                device: self.device.clone(),
                position,
                count: parts.len() as u32,
            })
    }

    /// The parts along the chain of trailers; `None` if they do not account for every byte.
    fn parts_backward(&self, len: u64) -> Result<Option<Vec<SetPart>>, Error> {
        let trailer_len = self.header.container.framed_len(TRAILER_LEN) as u64;
        let mut parts = Vec::new();
        let mut end = len;
        while end > self.sets_offset && parts.len() < SETS_MAX as usize {
            let at = end.saturating_sub(trailer_len);
            if at <= self.sets_offset {
                return Ok(None);
            }
            let trailer = match self.record_at(at)? {
                Ok((RecordKind::Trailer, body, behind)) if behind == end => {
                    SetTrailer::decode(&body)
                }
                _ => return Ok(None),
            };
            let Ok(trailer) = trailer else {
                return Ok(None);
            };
            let offset = trailer.set_offset;
            // Each step must go back, or a hostile chain would never end.
            if offset >= at || offset < self.sets_offset {
                return Ok(None);
            }
            parts.push(SetPart {
                offset,
                header: self.header_of_part(offset)?,
                seal: Some(Seal {
                    trailer,
                    offset: at,
                    end,
                }),
                lost_trailer: None,
            });
            end = offset;
        }
        parts.reverse();
        let mut previous = 0;
        for (i, part) in parts.iter().enumerate() {
            let Some(seal) = &part.seal else {
                return Ok(None);
            };
            if !part.fits(&seal.trailer, i as u32 + 1, previous) || !part.is_at(i as u32 + 1) {
                return Ok(None);
            }
            previous = seal.offset;
        }
        Ok((end == self.sets_offset).then_some(parts))
    }

    fn header_of_part(&self, offset: u64) -> Result<Result<SetHeader, RecordError>, Error> {
        Ok(self.set_header_at(offset)?.map(|(header, _)| header))
    }

    fn parts_forward(&self, len: u64) -> Result<Vec<SetPart>, Error> {
        let mut parts: Vec<SetPart> = Vec::new();
        let mut at = self.sets_offset;
        let mut previous = 0;
        while at < len && parts.len() < SETS_MAX as usize {
            let position = parts.len() as u32 + 1;
            let (part, follower) = self.part_forward(at, len, position, previous)?;
            let next = match (&part.seal, follower) {
                (Some(seal), _) => Some((seal.offset, seal.end, position + 1)),
                (None, Some(next)) => Some((next.trailer, next.offset, next.position)),
                (None, None) => None,
            };
            parts.push(part);
            let Some((trailer, header, next)) = next else {
                break;
            };
            // Nothing but the gap in the positions tells of these.
            for _ in position + 1..next.min(SETS_MAX) {
                let mut gap = SetPart::unsealed(trailer, Err(RecordError::Length));
                gap.lost_trailer = Some(trailer);
                parts.push(gap);
            }
            (previous, at) = (trailer, header);
        }
        Ok(parts)
    }

    /// The part that begins at `start`: reads its records one by one, or searches for its trailer after damage. If the
    /// trailer is lost, the set that follows is returned too.
    fn part_forward(
        &self,
        start: u64,
        len: u64,
        position: u32,
        previous: u64,
    ) -> Result<(SetPart, Option<Follower>), Error> {
        let mut part = SetPart::unsealed(start, Err(RecordError::Length));
        let mut at = start;
        match self.set_header_at(start)? {
            Ok((header, end)) if header.position == position => {
                part.header = Ok(header);
                at = end;
            }
            Ok(_) => part.header = Err(RecordError::Field),
            Err(what) => part.header = Err(what),
        }
        while part.header.is_ok() && at < len {
            let Ok((kind, body, end)) = self.record_at(at)? else {
                break;
            };
            at = match kind {
                RecordKind::Manifest | RecordKind::Index | RecordKind::Keys | RecordKind::Roots => {
                    end
                }
                RecordKind::Block => match BlockHeader::decode(&body) {
                    Ok((block, _)) => end + u64::from(block.stored_len),
                    Err(_) => break,
                },
                RecordKind::Trailer => {
                    let trailer = SetTrailer::decode(&body).ok();
                    part.seal =
                        trailer
                            .filter(|t| part.fits(t, position, previous))
                            .map(|trailer| Seal {
                                trailer,
                                offset: at,
                                end,
                            });
                    break;
                }
                RecordKind::Media
                | RecordKind::Set
                | RecordKind::Wal
                | RecordKind::WalEnd
                | RecordKind::Parity => break,
            };
        }
        if part.seal.is_some() || at >= len {
            return Ok((part, None));
        }
        let mut follower = self.header_after_trailer(at, position)?;
        if follower.is_none() {
            match self.find_trailer(&part, at..len, position, previous)? {
                Some(Found::Own(seal)) => part.seal = Some(seal),
                Some(Found::Later(next)) => follower = Some(next),
                None => {}
            }
        }
        part.lost_trailer = follower.as_ref().map(|next| next.trailer);
        Ok((part, follower))
    }

    /// The next set, if only the trailer before it cannot be read: all records before `trailer` could.
    fn header_after_trailer(&self, trailer: u64, position: u32) -> Result<Option<Follower>, Error> {
        let offset = trailer + self.header.container.framed_len(TRAILER_LEN) as u64;
        let header = self.set_header_at(offset)?;
        let next = header.is_ok_and(|(header, _)| header.position == position + 1);
        Ok(next.then_some(Follower {
            offset,
            position: position + 1,
            trailer,
        }))
    }

    /// Searches `place`, which ends with the stripe, for the first trailer of this part or of a later set.
    fn find_trailer(
        &self,
        part: &SetPart,
        place: Range<u64>,
        position: u32,
        previous: u64,
    ) -> Result<Option<Found>, Error> {
        let container = self.header.container;
        let prefix = container.prefix_len();
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&[RecordKind::Trailer as u8, 0, 0, 0]);
        head.extend_from_slice(&(TRAILER_LEN as u32).to_le_bytes());
        // One byte more than there is, so that the read at the end of the stripe is short.
        let left = (place.end - place.start).saturating_add(1);
        let mut window = vec![0; left.min(WINDOW_BYTES as u64) as usize];
        let mut start = place.start;
        loop {
            let got = self.read.read_at(&mut window, start)?;
            let mut at = 0;
            while let Some(found) = find(&window[at..got], &head) {
                let offset = (start + (at + found) as u64).checked_sub(prefix as u64);
                at += found + 1;
                let Some(offset) = offset.filter(|o| *o >= place.start) else {
                    continue;
                };
                let Ok((RecordKind::Trailer, body, end)) = self.record_at(offset)? else {
                    continue;
                };
                let Ok(trailer) = SetTrailer::decode(&body) else {
                    continue;
                };
                if part.fits(&trailer, position, previous) {
                    return Ok(Some(Found::Own(Seal {
                        trailer,
                        offset,
                        end,
                    })));
                }
                let later = part.offset + 1..offset;
                if trailer.position > position
                    && later.contains(&trailer.set_offset)
                    && later.contains(&trailer.previous_trailer)
                    && (end == place.end || self.is_header_of(&trailer)?)
                {
                    return Ok(Some(Found::Later(Follower {
                        offset: trailer.set_offset,
                        position: trailer.position,
                        trailer: trailer.previous_trailer,
                    })));
                }
            }
            if got < window.len() {
                return Ok(None);
            }
            // A record head may span two reads.
            start += (got - HEAD_LEN) as u64;
        }
    }

    /// Whether the set header is where this trailer says. A backup of media without compression holds trailers too: they
    /// give offsets in their own stripe.
    fn is_header_of(&self, trailer: &SetTrailer) -> Result<bool, Error> {
        let header = self.set_header_at(trailer.set_offset)?;
        Ok(header.is_ok_and(|(h, _)| h.set == trailer.set && h.position == trailer.position))
    }

    /// The offset of this part's trailer at the end of the stripe, if a few of the trailer's bytes were damaged after
    /// it was written. A crash leaves a different pattern: an incomplete trailer lacks its checksums, and a trailer
    /// whose first sector was not written begins with zeros up to the next sector.
    pub fn damaged_trailer(
        &self,
        part: &SetPart,
        position: u32,
        previous: u64,
    ) -> Result<Option<u64>, Error> {
        let (Some(len), Ok(header)) = (self.read.len_bytes()?, &part.header) else {
            return Ok(None);
        };
        let container = self.header.container;
        let mut found = vec![0; container.framed_len(TRAILER_LEN)];
        let Some(offset) = len.checked_sub(found.len() as u64) else {
            return Ok(None);
        };
        if offset < part.offset || self.read.read_at(&mut found, offset)? < found.len() {
            return Ok(None);
        }
        let known = SetTrailer {
            set: header.set,
            position,
            set_offset: part.offset,
            previous_trailer: previous,
            ..SetTrailer::default()
        };
        let mut expected = Vec::with_capacity(found.len());
        container.append(RecordKind::Trailer, &known.encode(), &mut expected);
        let body = container.prefix_len() + HEAD_LEN;
        // The bytes that do not depend on the set's content: framing and head without the checksum, then set and
        // position, then the two offsets.
        let fixed = [0..body - 4, body..body + 20, body + 32..body + 48];
        let differing = fixed
            .into_iter()
            .flatten()
            .filter(|i| found[*i] != expected[*i])
            .count();
        let in_first = ((SECTOR - offset % SECTOR) as usize).min(found.len());
        let whole = found[..in_first].iter().any(|byte| *byte != 0)
            && found[body - 4..body] != [0; 4]
            && found[body + 108..body + 112] != [0; 4];
        Ok((whole && differing <= TRAILER_DAMAGE_MAX).then_some(offset))
    }

    /// A chunk of the index, and all of its bytes.
    fn chunk(&self, (offset, len): (u64, u32)) -> Result<(StoredChunk, Vec<u8>), Error> {
        if len as usize > index::CHUNK_FRAMED_MAX {
            return Err(self.damaged(offset, RecordError::Length));
        }
        let mut framed = vec![0; len as usize];
        let mut read = || -> Result<Result<StoredChunk, RecordError>, Error> {
            Ok(
                match self.read.read_at(&mut framed, offset)? < framed.len() {
                    true => Err(RecordError::Length),
                    false => index::stored_chunk(self.header.container, &framed),
                },
            )
        };
        let range = offset..offset.saturating_add(u64::from(len));
        let found = match read()? {
            Err(_) if self.read.doubt(range)? => read()?,
            found => found,
        };
        let chunk = found.map_err(|e| self.damaged(offset, e))?;
        Ok((chunk, framed))
    }

    /// The first records of an encrypted set, and the keys that `keyring` has for its index.
    ///
    /// Errors: [`Error::Key`] if it has none; [`Error::Damaged`].
    fn start(&self, part: &SetPart, position: u32, keyring: &Keyring) -> Result<Start, Error> {
        let (header, records, end) = self.sealed_start(part, position)?;
        let key = |source| self.key_error(position, source);
        let keys = keyring.open_index(&header, &records).map_err(key)?;
        let parent_root = Keys::decode(&records).map_err(key)?.parent_root;
        Ok(Start {
            parent_root,
            check: StripeCheck::of_index(
                &self.header,
                &header,
                &records,
                keys.clone(),
                keyring.signers(),
            ),
            keys,
            end,
        })
    }

    fn key_error(&self, position: u32, source: longshore_crypt::Error) -> Error {
        Error::Key {
            device: self.device.clone(),
            position,
            source,
        }
    }

    /// The bodies of the header and of the Keys records of an encrypted set, and where they end.
    fn sealed_start(&self, part: &SetPart, position: u32) -> Result<SealedStart, Error> {
        let record = |offset, kind| match self.record_at(offset)? {
            Ok((found, body, end)) if found == kind => Ok((body, end)),
            Ok((found, ..)) => Err(self.damaged(offset, RecordError::Kind(found as u8))),
            Err(what) => Err(self.damaged(offset, what)),
        };
        let (header, mut end) = record(part.offset, RecordKind::Set)?;
        let mut records = Vec::new();
        let mut count = 1;
        while records.len() < count {
            let (body, next) = record(end, RecordKind::Keys)?;
            if records.is_empty() {
                let key = |source| self.key_error(position, source);
                count = Keys::count(&body).map_err(key)?;
            }
            records.push(body);
            end = next;
        }
        stored_keys(&header, &records).map_err(|source| self.key_error(position, source))?;
        Ok((header, records, end))
    }

    /// The Keys records of an encrypted set: nobody needs a key to read them.
    pub fn keys(&self, part: &SetPart, position: u32) -> Result<Keys, Error> {
        let (_, records, _) = self.sealed_start(part, position)?;
        Keys::decode(&records).map_err(|source| self.key_error(position, source))
    }

    /// An encrypted set whose key is wrapped again.
    pub fn opened(
        &self,
        part: &SetPart,
        position: u32,
        keyring: &Keyring,
    ) -> Result<OpenedSet, Error> {
        let (header, records, _) = self.sealed_start(part, position)?;
        let opened = keyring.open_again(&header, &records);
        opened.map_err(|source| self.key_error(position, source))
    }

    /// The parent's root in the Keys records of an encrypted set.
    pub fn parent_root(
        &self,
        part: &SetPart,
        position: u32,
        keyring: &Keyring,
    ) -> Result<Root, Error> {
        Ok(self.start(part, position, keyring)?.parent_root)
    }

    /// The keys of an encrypted set's index; they have the mask over the key of page sums in its header.
    pub fn index_keys(
        &self,
        part: &SetPart,
        position: u32,
        keyring: &Keyring,
    ) -> Result<Arc<IndexKeys>, Error> {
        Ok(self.start(part, position, keyring)?.keys)
    }

    /// Calls `each` with the rows of a set's index, chunk by chunk, first to last, and with the chunk's offset. Together
    /// the chunks must list as many blocks as the trailer counts, and in an encrypted set give the family's root. Returns what
    /// the key of an encrypted set was made for.
    pub fn chunks(
        &self,
        part: &SetPart,
        seal: &Seal,
        keyring: &Keyring,
        mut each: impl FnMut(u64, Vec<Row>) -> Result<(), Error>,
    ) -> Result<Option<KeyContext>, Error> {
        let position = seal.trailer.position;
        // By the media, not by the set: a set whose header cannot be read is no plain one.
        let is_encrypted = self.header.encrypted;
        if part
            .header
            .as_ref()
            .is_ok_and(|h| h.encrypted != is_encrypted)
        {
            return Err(self.damaged(part.offset, RecordError::Field));
        }
        let mut start = match is_encrypted {
            true => Some(self.start(part, position, keyring)?),
            false => {
                check_plain(keyring, &self.device, position)?;
                None
            }
        };
        let mut places = Vec::new();
        let mut at = (seal.trailer.index_offset, seal.trailer.index_len);
        let mut limit = seal.offset;
        while at != (0, 0) {
            let end = at.0.checked_add(u64::from(at.1));
            // Chunks lie inside their set, each before the next, so no chain is endless.
            if at.1 == 0 || at.0 <= part.offset || end.is_none_or(|end| end > limit) {
                return Err(self.damaged(limit, RecordError::Field));
            }
            places.push(at);
            limit = at.0;
            at = self.chunk(at)?.0.previous;
        }
        let set_damaged = |what: &str| Error::SetDamaged {
            device: self.device.clone(),
            position,
            what: what.into(),
        };
        let (mut blocks, mut end) = (0, start.as_ref().map_or(0, |start| start.end));
        for (number, place) in places.into_iter().rev().enumerate() {
            let (chunk, framed) = self.chunk(place)?;
            let rows = match &mut start {
                None => chunk.rows(),
                Some(start) => start.rows(seal, &chunk, &framed, (number, place.0)),
            };
            let rows = rows.map_err(|e| self.damaged(place.0, e))?;
            blocks += rows.len() as u64;
            end = place.0 + u64::from(place.1);
            each(place.0, rows)?;
        }
        if let Some(start) = &mut start {
            self.read_roots(&mut start.check, end, seal)?;
            let ended = start.check.end(&seal.trailer);
            ended.map_err(|refused| refused.of(&self.device, position))?;
        }
        match blocks == seal.trailer.blocks_here {
            true => Ok(start.map(|start| start.check.context())),
            false => Err(set_damaged("its index does not list all of its blocks")),
        }
    }

    /// Reads the Roots record, which is at this offset, and the last one before the trailer.
    fn read_roots(&self, check: &mut StripeCheck, at: u64, seal: &Seal) -> Result<(), Error> {
        match self.record_at(at)? {
            Ok((RecordKind::Roots, body, next)) if next == seal.offset => {
                check.roots(&body).map_err(|e| self.damaged(at, e))
            }
            Ok(_) => Err(self.damaged(at, RecordError::Field)),
            Err(what) => Err(self.damaged(at, what)),
        }
    }

    /// Whose a complete set is, as its header, its roots and its trailer tell.
    pub fn signature(
        &self,
        part: &SetPart,
        seal: &Seal,
        signers: &Arc<Signers>,
    ) -> Result<SignatureState, Error> {
        if !self.header.encrypted {
            return Ok(SignatureState::Unsigned);
        }
        let trailer = &seal.trailer;
        let (header, records, end) = self.sealed_start(part, trailer.position)?;
        let mut check = StripeCheck::new(&self.header, &header, &records, None, signers);
        let roots_at = match trailer.index_len {
            0 => end,
            len => trailer.index_offset.saturating_add(u64::from(len)),
        };
        self.read_roots(&mut check, roots_at, seal)?;
        check.signature(trailer).map_err(|what| Error::SetDamaged {
            device: self.device.clone(),
            position: trailer.position,
            what: what.into(),
        })
    }
}

/// The start of an encrypted set on one stripe.
struct Start {
    check: StripeCheck,
    keys: Arc<IndexKeys>,
    parent_root: Root,
    /// Offset after the last Keys record.
    end: u64,
}

impl Start {
    /// The rows of a chunk with this number at this offset, whose digests go into the family's root.
    fn rows(
        &mut self,
        seal: &Seal,
        chunk: &StoredChunk,
        framed: &[u8],
        (number, offset): (usize, u64),
    ) -> Result<Vec<Row>, RecordError> {
        let owner = ChunkOwner {
            set: *seal.trailer.set.as_bytes(),
            family: self.check.family(),
        };
        let rows = chunk.decrypted(&self.keys, owner, (number as u32, offset))?;
        for digest in rows.iter().filter_map(|row| row.digest.as_ref()) {
            self.check.root.block(digest);
        }
        self.check.root.chunk(framed);
        Ok(rows)
    }
}

impl SetPart {
    fn is_at(&self, position: u32) -> bool {
        self.header
            .as_ref()
            .map_or(true, |h| h.position == position)
    }
}

/// The first offset of `what` in `bytes`.
/// Reads the first record of a stripe; `window` is at its beginning, and afterwards at its first set.
///
/// Errors: [`Error::NotMedia`], [`Error::Newer`], and those of reading.
pub(crate) fn media_header(window: &mut Window) -> Result<MediaHeader, Error> {
    let name = window.device().to_owned();
    let not_media = |offset, what| match what {
        RecordError::Feature(bits) => Error::Newer {
            device: name.clone(),
            bits,
        },
        what => Error::NotMedia {
            device: name.clone(),
            offset,
            what,
        },
    };
    let mut start = [0; PREFIX_MAX];
    let got = window.peek(&mut start)?;
    let container =
        Container::detect(&start[..got]).ok_or_else(|| not_media(0, RecordError::Framing))?;
    let preamble = container.preamble().len();
    window.read(&mut start[..preamble])?;
    let mut framed = Vec::new();
    let header = match window.record(container, &mut framed) {
        Ok(Some((RecordKind::Media, body))) => MediaHeader::decode(body),
        Ok(Some((kind, _))) => Err(RecordError::Kind(kind as u8)),
        Ok(None) => Err(RecordError::Length),
        Err(Error::Damaged { what, .. }) => Err(what),
        Err(e) => return Err(e),
    };
    let header = header.map_err(|e| not_media(preamble as u64, e))?;
    if header.container != container {
        return Err(not_media(preamble as u64, RecordError::Field));
    }
    Ok(header)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|b| *b == what[0])?;
        match bytes[at..].starts_with(what) {
            true => return Some(at),
            false => at += 1,
        }
    }
}
