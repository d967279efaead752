//! A media set opened for reading: which stripes belong together, and the sets they hold.
//!
//! Invariants
//! - All members must agree on media set and generation.
//! - If members disagree because of a crash between the renames that complete a set, finished stripes under temporary
//!   names are used instead.
//!
//! Leaves to others: one stripe (`member.rs`), and the blocks of a set (`stream.rs`).

use std::sync::{Arc, PoisonError};

use longshore_crypt::{Keyring, Root};
use longshore_io::{SumKey, crc32c, side_by_side};
use uuid::Uuid;

use crate::Error;
use crate::device::{BackupDevice, DeviceClass};
use crate::header::{MediaHeader, SetHeader, SetTrailer};
use crate::manifest::{self, Item};
use crate::member::{Member, Part, Seal};
use crate::record::{Container, RecordError};
use crate::stream::{BlockStream, Pick, PickedContent};
use crate::window::Window;

/// The most blocks that are read individually by the index; bounds the memory for the list to some megabytes.
pub const PICKS_MAX: usize = 100_000;

/// Stripes of a set in an object store that are opened at the same time.
const OPENED_AT_ONCE: usize = 8;

/// A backup set, as shown by all members together.
#[derive(Debug, Clone)]
pub struct SetSummary {
    pub header: SetHeader,
    /// Present if the set is complete on every family.
    pub trailer: Option<SetTrailer>,
}

/// Where the next set begins on one family.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub end: u64,
    pub last_trailer: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tails {
    pub sets: u32,
    pub ends: Vec<Tail>,
}

/// The stripes of one media set, in family order.
#[derive(Debug)]
pub struct MediaSet {
    members: Vec<Member>,
    /// Opens encrypted sets.
    keyring: Arc<Keyring>,
}

type Identity = (Uuid, u32);

fn identity(header: &MediaHeader) -> Identity {
    (header.media_set, header.generation)
}

fn spell((set, generation): Identity) -> String {
    if generation == 0 {
        set.to_string()
    } else {
        format!("{set} (generation {generation})")
    }
}

impl MediaSet {
    /// Opens the media set on the devices, which may be given in any order.
    ///
    /// Errors name the problem: missing, empty, foreign, duplicate or damaged stripes.
    pub fn open(devices: &[Arc<dyn BackupDevice>]) -> Result<MediaSet, Error> {
        let found = all_in_place(devices);
        let doubtful = found.iter().any(|f| f.is_err()) || !agree(&found);
        if let Some(members) = if doubtful {
            rolled_forward(devices)?
        } else {
            None
        } {
            return MediaSet::assemble(members);
        }
        let members = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        MediaSet::assemble(members)
    }

    fn assemble(mut members: Vec<Member>) -> Result<MediaSet, Error> {
        let Some(first) = members.first() else {
            return Err(Error::DeviceCount { given: 0 });
        };
        let expected = identity(&first.header);
        let kind = |header: &MediaHeader| (header.container, header.compressed, header.encrypted);
        let count = first.header.family_count;
        for member in &members[1..] {
            let found = identity(&member.header);
            if found != expected || member.header.family_count != count {
                return Err(Error::Foreign {
                    device: member.device.clone(),
                    other: first.device.clone(),
                    found: spell(found),
                    expected: spell(expected),
                });
            }
            // The first family's header decides what may be appended to all of them.
            if kind(&member.header) != kind(&first.header) {
                let offset = member.header.container.preamble().len() as u64;
                return Err(member.damaged(offset, RecordError::Field));
            }
        }
        members.sort_by_key(|m| m.header.family);
        if let Some(w) = members
            .windows(2)
            .find(|w| w[0].header.family == w[1].header.family)
        {
            return Err(Error::FamilyTwice {
                first: w[0].device.clone(),
                second: w[1].device.clone(),
                family: w[0].header.family,
            });
        }
        let missing: Vec<u16> = (1..=count)
            .filter(|f| members.iter().all(|m| m.header.family != *f))
            .collect();
        if !missing.is_empty() {
            return Err(Error::FamilyMissing {
                media_set: expected.0,
                count,
                given: members.len(),
                found: members.iter().map(|m| m.device.clone()).collect(),
                missing,
            });
        }
        Ok(MediaSet {
            members,
            keyring: Arc::default(),
        })
    }

    /// From here on, encrypted sets are opened with these identities. Without it, none is.
    pub fn with_keyring(self, keyring: &Arc<Keyring>) -> MediaSet {
        MediaSet {
            keyring: keyring.clone(),
            ..self
        }
    }

    /// Reads one stripe's label without the other stripes (LABELONLY).
    pub fn label(device: &dyn BackupDevice) -> Result<MediaHeader, Error> {
        in_place(0, device).map(|m| m.header)
    }

    pub fn family_count(&self) -> usize {
        self.members.len()
    }

    /// The media header of the family with this 0-based index.
    /// The memory that the devices hold themselves while all stripes are read.
    pub fn reading_bytes(&self) -> u64 {
        self.members.iter().map(|m| m.read.reading_bytes()).sum()
    }

    pub(crate) fn member(&self, family_index: usize) -> &Member {
        &self.members[family_index]
    }

    pub fn header(&self, family_index: usize) -> &MediaHeader {
        &self.members[family_index].header
    }

    pub fn device(&self, family_index: usize) -> &str {
        &self.members[family_index].device
    }

    pub fn device_index(&self, family_index: usize) -> usize {
        self.members[family_index].device_index
    }

    pub fn container(&self) -> Container {
        self.members[0].header.container
    }

    /// Bytes of all stripes; `None` for a pipe.
    pub fn stored_bytes(&self) -> Result<Option<u64>, Error> {
        let mut sum = 0;
        for member in &self.members {
            match member.read.len_bytes()? {
                Some(n) => sum += n,
                None => return Ok(None),
            }
        }
        Ok(Some(sum))
    }

    /// Shows whether the stripes are still those that were opened before.
    pub(crate) fn fingerprint(&self) -> Result<(MediaHeader, Vec<Option<u64>>), Error> {
        let lens = self.members.iter().map(|m| m.read.len_bytes());
        Ok((self.header(0).clone(), lens.collect::<Result<Vec<_>, _>>()?))
    }

    pub(crate) fn check_name(&self, expected: &str) -> Result<(), Error> {
        let found = &self.members[0].header.name;
        if expected.is_empty() || expected == found {
            return Ok(());
        }
        Err(Error::MediaName {
            device: self.device(0).into(),
            found: found.clone(),
            expected: expected.into(),
        })
    }

    pub(crate) fn check_kind(
        &self,
        container: Container,
        compressed: bool,
        encrypted: bool,
    ) -> Result<(), Error> {
        let header = &self.members[0].header;
        if header.encrypted != encrypted {
            let device = self.device(0).to_owned();
            return Err(Error::EncryptionMix { device, encrypted });
        }
        if header.container == container && header.compressed == compressed {
            return Ok(());
        }
        let kind = |container, compressed| match (container, compressed) {
            _ if encrypted && compressed => "compressed sets",
            (_, false) => "NONE",
            (Container::Gzip, true) => "QAT_DEFLATE",
            (Container::Zstd, true) => "ZSTD",
            (Container::Lz4, true) => "MS_XPRESS or LZ4",
        };
        Err(Error::ContainerMix {
            is: kind(header.container, header.compressed),
            asked: kind(container, compressed),
        })
    }

    pub(crate) fn check_expiry(&self, now_us: i64) -> Result<(), Error> {
        for set in self.sets()? {
            if let Some(until) = set.header.expires_us.filter(|e| *e > now_us) {
                return Err(Error::NotExpired {
                    device: self.device(0).into(),
                    position: set.header.position,
                    until: format!("{} s after 1970-01-01 UTC", until / 1_000_000),
                });
            }
        }
        Ok(())
    }

    /// Finishes interrupted renames; returns whether there were any.
    pub(crate) fn roll_forward(&self, devices: &[Arc<dyn BackupDevice>]) -> Result<bool, Error> {
        let mut any = false;
        for member in self.members.iter().filter(|m| m.pending) {
            devices[member.device_index].complete_pending()?;
            any = true;
        }
        Ok(any)
    }

    /// All backup sets in order of position, as shown by all families together. Sets without a readable header on any
    /// family are left out: see [`MediaSet::unreadable`].
    pub fn sets(&self) -> Result<Vec<SetSummary>, Error> {
        let rows = self.rows()?;
        Ok(rows
            .iter()
            .filter_map(|row| {
                let header = row.header(self).ok()?.clone();
                let trailer = row.trailer().ok().cloned();
                Some(SetSummary { header, trailer })
            })
            .collect())
    }

    /// Positions that should hold a backup set but cannot be read: damage ([`Error::Damaged`], [`Error::Newer`]), or
    /// an unfinished set that a crash left ([`Error::Incomplete`]), or one that lost its trailer
    /// ([`Error::TrailerDamaged`]).
    pub fn unreadable(&self) -> Result<Vec<Error>, Error> {
        let rows = self.rows()?;
        Ok(rows.iter().filter_map(|r| r.header(self).err()).collect())
    }

    /// The complete set at a 1-based position; 0 means the last position.
    pub fn set(&self, position: u32) -> Result<SetSummary, Error> {
        let rows = self.rows()?;
        let count = rows.len() as u32;
        let wanted = if position == 0 { count } else { position };
        let Some(row) = rows.iter().find(|r| r.position == wanted) else {
            return Err(Error::NoSuchSet {
                device: self.device(0).to_owned(),
                position: wanted,
                count,
            });
        };
        let header = row.header(self)?.clone();
        match row.trailer() {
            Ok(trailer) => Ok(SetSummary {
                header,
                trailer: Some(trailer.clone()),
            }),
            Err(family_index) => Err(self.unsealed(row, family_index)),
        }
    }

    /// Why a set is not complete whose trailer is missing on the stripe with this index: damage, where a later set shows
    /// that the trailer was there.
    fn unsealed(&self, row: &Row, family_index: usize) -> Error {
        let lost = |(i, part): (usize, &Option<&Part>)| Some((i, part.as_ref()?.lost_trailer?));
        match row.parts.iter().enumerate().find_map(lost) {
            Some((i, offset)) => Error::TrailerDamaged {
                device: self.device(i).to_owned(),
                offset,
                position: row.position,
            },
            None => self.incomplete(family_index, row.position),
        }
    }

    fn incomplete(&self, family_index: usize, position: u32) -> Error {
        Error::Incomplete {
            device: self.device(family_index).to_owned(),
            position,
        }
    }

    /// The part of each family at each position.
    fn rows(&self) -> Result<Vec<Row<'_>>, Error> {
        let mut parts = Vec::with_capacity(self.members.len());
        for member in &self.members {
            parts.push(member.parts()?.iter());
        }
        let mut rows = Vec::new();
        loop {
            let row: Vec<_> = parts.iter_mut().map(Iterator::next).collect();
            if row.iter().all(Option::is_none) {
                return Ok(rows);
            }
            rows.push(Row {
                position: rows.len() as u32 + 1,
                parts: row,
            });
        }
    }

    /// Where an appended set begins: after the last complete one.
    pub(crate) fn tails(&self) -> Result<Tails, Error> {
        let rows = self.rows()?;
        let complete = rows.iter().take_while(|r| r.trailer().is_ok()).count();
        // A crash leaves at most one unfinished set, at the very end. More than that is damage, and truncating it
        // would destroy data that might still be saved.
        if rows.len() > complete + 1 {
            let family_index = rows[complete].trailer().err().unwrap_or(0);
            return Err(self.unsealed(&rows[complete], family_index));
        }
        if let Some(row) = rows.get(complete) {
            self.check_unfinished(row, complete.checked_sub(1).map(|i| &rows[i]))?;
        }
        let last = complete.checked_sub(1).map(|i| &rows[i]);
        let tail = |(i, member): (usize, &Member)| {
            let seal = last.and_then(|row| row.parts[i]?.seal.as_ref());
            Tail {
                end: seal.map_or(member.sets_offset, |s| s.end),
                last_trailer: seal.map_or(0, |s| s.offset),
            }
        };
        Ok(Tails {
            sets: complete as u32,
            ends: self.members.iter().enumerate().map(tail).collect(),
        })
    }

    /// Refuses to treat as unfinished, and so to truncate, a set whose trailers were all written before one of them
    /// was damaged: its content may still be complete.
    fn check_unfinished(&self, row: &Row, before: Option<&Row>) -> Result<(), Error> {
        for (i, member) in self.members.iter().enumerate() {
            let Some(part) = row.parts[i].filter(|part| part.seal.is_none()) else {
                continue;
            };
            let seal = before.and_then(|row| row.parts[i]?.seal.as_ref());
            let previous = seal.map_or(0, |s| s.offset);
            if let Some(offset) = member.damaged_trailer(part, row.position, previous)? {
                return Err(Error::TrailerDamaged {
                    device: member.device.clone(),
                    offset,
                    position: row.position,
                });
            }
        }
        Ok(())
    }

    /// The blocks of one family of the set at `position` (1-based).
    pub fn stream(&self, family_index: usize, position: u32) -> Result<BlockStream, Error> {
        let member = &self.members[family_index];
        let kept = member
            .window
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let window = match kept {
            Some(window) => window,
            None => {
                let offset = self.or_lost(member.part(position), position)?.offset;
                Window::new(member.device.clone(), member.read.clone(), offset)?
            }
        };
        let stream = self.or_lost(
            BlockStream::begin(window, &member.header, position, Some(&self.keyring)),
            position,
        )?;
        // A pipe shows its end only when it is read.
        let seal = match member.read.len_bytes()? {
            Some(_) => member.part(position)?.seal.as_ref(),
            None => None,
        };
        Ok(match seal {
            Some(seal) => stream.expect(&seal.trailer, seal.offset),
            None => stream,
        })
    }

    /// Like [`MediaSet::stream`], but reads only the blocks with wanted items; the index tells where they are. `None`
    /// if there are more than [`PICKS_MAX`].
    ///
    /// Errors: as for [`MediaSet::items`].
    pub fn stream_of(
        &self,
        family_index: usize,
        position: u32,
        wants: &dyn Fn(&[Item]) -> bool,
    ) -> Result<Option<BlockStream>, Error> {
        let member = &self.members[family_index];
        let (part, seal) = self.sealed(member, position)?;
        let mut picks = Vec::new();
        let attributes = part.header.as_ref().is_ok_and(|header| header.attributes);
        member.chunks(part, seal, &self.keyring, |offset, rows| {
            for row in rows {
                let items = manifest::decode_with(attributes, &row.manifest, row.plain_len)
                    .map_err(|e| member.damaged(offset, e))?;
                if wants(&items) && picks.len() <= PICKS_MAX {
                    picks.push(Pick {
                        sequence: row.sequence,
                        offset: row.offset,
                        len_bytes: row.len,
                        content: match row.digest {
                            Some(digest) => PickedContent::Digest(digest),
                            None => PickedContent::Manifest(crc32c(&row.manifest)),
                        },
                    });
                }
            }
            Ok(())
        })?;
        if picks.len() > PICKS_MAX {
            return Ok(None);
        }
        let stream = self.stream(family_index, position)?;
        Ok(Some(stream.pick(picks, seal.trailer.clone())))
    }

    /// The root of the set that an encrypted differential set was compared with, as its records say; zeros if that set is
    /// not encrypted. `None` for a set that is not encrypted itself.
    ///
    /// Errors: [`Error::Key`], and those of reading.
    pub fn parent_root(&self, position: u32) -> Result<Option<Root>, Error> {
        let member = &self.members[0];
        let part = self.or_lost(member.part(position), position)?;
        match part.header.as_ref().is_ok_and(|header| header.encrypted) {
            true => Ok(Some(member.parent_root(part, position, &self.keyring)?)),
            false => Ok(None),
        }
    }

    /// The key of the set's page sums, which an encrypted set hides in its header.
    ///
    /// Errors: [`Error::Key`], and those of reading.
    pub fn sum_key(&self, position: u32) -> Result<Option<SumKey>, Error> {
        let member = &self.members[0];
        let part = self.or_lost(member.part(position), position)?;
        let header = part.header.as_ref().ok();
        match header.and_then(|header| Some((header.sum_key?, header.encrypted))) {
            Some((key, true)) => {
                let mask = member.sums_mask(part, position, &self.keyring)?;
                Ok(Some(key.masked(&mask)))
            }
            key => Ok(key.map(|(key, _)| key)),
        }
    }

    /// A stripe without a set that other stripes have has lost it, or never got it.
    fn or_lost<T>(&self, found: Result<T, Error>, position: u32) -> Result<T, Error> {
        let has = |other: &Member| {
            other
                .parts()
                .is_ok_and(|all| all.len() >= position as usize)
        };
        match found {
            Err(Error::NoSuchSet { device, .. }) if self.members.iter().any(has) => {
                Err(Error::Incomplete { device, position })
            }
            found => found,
        }
    }

    fn sealed<'a>(&self, member: &'a Member, position: u32) -> Result<(&'a Part, &'a Seal), Error> {
        let part = self.or_lost(member.part(position), position)?;
        let seal = part.seal.as_ref().ok_or_else(|| Error::Incomplete {
            device: member.device.clone(),
            position,
        })?;
        Ok((part, seal))
    }

    /// Calls `each` with every manifest item of a complete set, family by family, using the index alone.
    pub fn items(&self, position: u32, mut each: impl FnMut(Item)) -> Result<(), Error> {
        for member in &self.members {
            let (part, seal) = self.sealed(member, position)?;
            let attributes = part.header.as_ref().is_ok_and(|header| header.attributes);
            member.chunks(part, seal, &self.keyring, |offset, rows| {
                for row in rows {
                    manifest::decode_with(attributes, &row.manifest, row.plain_len)
                        .map_err(|e| member.damaged(offset, e))?
                        .into_iter()
                        .for_each(&mut each);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// One position of a media set: each family's part, in family order.
struct Row<'a> {
    position: u32,
    parts: Vec<Option<&'a Part>>,
}

impl<'a> Row<'a> {
    /// The set's header, from the first family where it can be read.
    ///
    /// Errors: damage, a newer version's header, [`Error::Incomplete`] if a crash may be the cause, or
    /// [`Error::TrailerDamaged`] if it cannot.
    fn header(&self, media: &MediaSet) -> Result<&'a SetHeader, Error> {
        let mut error = None;
        for (part, member) in self.parts.iter().zip(&media.members) {
            match part.map(|p| (p.offset, &p.header)) {
                Some((_, Ok(header))) => return Ok(header),
                Some((offset, Err(what))) if error.is_none() => {
                    error = Some((member, offset, *what))
                }
                _ => {}
            }
        }
        Err(match (error, self.trailer()) {
            (Some((member, offset, what @ RecordError::Feature(_))), _) => {
                member.damaged(offset, what)
            }
            (Some((member, offset, what)), Ok(_)) => member.damaged(offset, what),
            (None, Ok(_)) => media.incomplete(0, self.position),
            (_, Err(family_index)) => media.unsealed(self, family_index),
        })
    }

    /// The first family's trailer if the set is complete. Otherwise the index of the first family whose trailer is
    /// missing or contradicts the others.
    fn trailer(&self) -> Result<&'a SetTrailer, usize> {
        let mut first: Option<&SetTrailer> = None;
        let mut header: Option<&SetHeader> = None;
        let (mut blocks, mut stored) = (0u64, 0u64);
        for (i, part) in self.parts.iter().enumerate() {
            let part = part.ok_or(i)?;
            let seal = part.seal.as_ref().ok_or(i)?;
            if let Ok(found) = &part.header
                && *header.get_or_insert(found) != found
            {
                return Err(i);
            }
            if !seal.trailer.agrees_with(first.get_or_insert(&seal.trailer)) {
                return Err(i);
            }
            blocks = blocks.saturating_add(seal.trailer.blocks_here);
            stored = stored.saturating_add(seal.offset - part.offset);
        }
        let sums = |t: &&SetTrailer| blocks == t.blocks_total && stored == t.stored_bytes_total;
        first.filter(sums).ok_or(0)
    }
}

fn agree(found: &[Result<Member, Error>]) -> bool {
    let mut ids = found.iter().flatten().map(|m| identity(&m.header));
    let first = ids.next();
    ids.all(|id| Some(id) == first)
}

/// The stripes under the devices' own names. Those in an object store are waited for at once.
fn all_in_place(devices: &[Arc<dyn BackupDevice>]) -> Vec<Result<Member, Error>> {
    let are_far = devices.iter().all(|d| d.class() == DeviceClass::Bucket);
    let at_once = if are_far { OPENED_AT_ONCE } else { 1 };
    let opened = |i: usize| in_place(i, &*devices[i]);
    let mut members = Vec::new();
    for start in (0..devices.len()).step_by(at_once) {
        let count = at_once.min(devices.len() - start);
        // A system that refuses threads lets them be opened in turn.
        match (count > 1).then(|| side_by_side(count, |n| opened(start + n))) {
            Some(Ok(found)) => members.extend(found),
            _ => members.extend((start..start + count).map(opened)),
        }
    }
    members
}

/// The stripe under the device's own name.
fn in_place(device_index: usize, device: &dyn BackupDevice) -> Result<Member, Error> {
    let read = device.open()?.ok_or_else(|| Error::Missing {
        device: device.name(),
    })?;
    Member::open(device, device_index, read, false)
}

/// The members of a set whose completion was interrupted. Each device has its stripe in place or pending, at least one
/// is pending, and all end with a complete set.
fn rolled_forward(devices: &[Arc<dyn BackupDevice>]) -> Result<Option<Vec<Member>>, Error> {
    let mut pending = Vec::new();
    for (i, device) in devices.iter().enumerate() {
        let read = device.open_pending()?;
        pending.push(read.and_then(|r| Member::open(&**device, i, r, true).ok()));
    }
    let mut wanted: Vec<Identity> = Vec::new();
    for member in pending.iter().flatten() {
        let id = identity(&member.header);
        if !wanted.contains(&id) {
            wanted.push(id);
        }
    }
    for wanted in wanted {
        if let Some(members) = rolled_forward_to(wanted, devices, &mut pending)? {
            return Ok(Some(members));
        }
    }
    Ok(None)
}

fn rolled_forward_to(
    wanted: Identity,
    devices: &[Arc<dyn BackupDevice>],
    pending: &mut [Option<Member>],
) -> Result<Option<Vec<Member>>, Error> {
    let is_wanted = |m: &Member| identity(&m.header) == wanted;
    let (mut members, mut renamed, mut occupied) = (Vec::new(), false, false);
    for (i, device) in devices.iter().enumerate() {
        occupied |= device.open()?.is_some();
        let here = in_place(i, &**device).ok().filter(is_wanted);
        renamed |= here.is_some();
        match here.or_else(|| pending[i].take_if(|m| is_wanted(m))) {
            Some(member) => members.push(member),
            None => return Ok(None),
        }
    }
    // If no stripe was renamed, the set was never reported as complete. Existing stripes, even an incomplete
    // collection of them, are not silently replaced by it.
    if occupied && !renamed {
        return Ok(None);
    }
    let Ok(media) = MediaSet::assemble(members) else {
        return Ok(None);
    };
    let complete = media
        .sets()
        .is_ok_and(|s| s.last().is_some_and(|s| s.trailer.is_some()));
    Ok(complete.then_some(media.members))
}
