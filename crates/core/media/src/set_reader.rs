//! A media set opened for reading: which stripes belong together, and the sets they hold.
//!
//! Invariants
//! - All members must agree on media set and generation.
//! - If members disagree because of a crash between the renames that complete a set, finished stripes under temporary
//!   names are used instead.
//!
//! Leaves to others: one stripe (`member.rs`), and the blocks of a set (`stream.rs`).

mod answers;
mod expiry;
mod keys;
mod one_set;
mod part;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use longshore_crypt::Keyring;
use longshore_io::{crc32c, side_by_side};
use uuid::Uuid;

use self::answers::{cancelled, if_it_answers};
use self::one_set::{MediaIdentity, Stranger, agreeing, identity, missing, of_one_set, spell};
use crate::device::{BackupDevice, DeviceClass, FIRST_BYTES, FamilyRead, Folder};
use crate::header::{MediaHeader, SetHeader, SetTrailer};
use crate::manifest::{self, Item};
use crate::member::{Member, Seal, SetPart};
use crate::parity::{Group, Place, RebuiltStripe, RowTable, StripeFault, is_of_medium, trailer_of};
use crate::record::{Container, RecordError};
use crate::stream::{BlockStream, Pick, PickedContent, Reading};
use crate::window::Window;
use crate::{BEGINNING, Error};

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

/// A family of an opened media set, and where its stripe is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripePlace {
    pub family: u16,
    pub is_parity: bool,
    /// Of the devices in the caller's order; `None`: no device was given for it.
    pub device_index: Option<usize>,
    /// The device's name, or the family's number.
    pub name: String,
    /// `None` if its header is lost.
    pub family_uuid: Option<Uuid>,
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
    /// Those of the data families. Where parity stands for one, it is read like the others.
    members: Vec<Member>,
    parity: Option<Protected>,
    /// Parity stripes that wait for their names.
    pending_parity: Vec<usize>,
    /// Families of which no stripe was given, where the media are only described.
    absent: Vec<u16>,
    /// Opens encrypted sets.
    keyring: Arc<Keyring>,
    /// The places of key objects, each once.
    folders: Vec<Folder>,
}

/// The parity of a media set, and its stripes as they are read.
#[derive(Debug)]
struct Protected {
    group: Arc<Group>,
    /// The data stripes as they are read.
    stripes: Vec<Arc<RebuiltStripe>>,
}

impl MediaSet {
    /// Opens the media set on the devices, which may be given in any order. With parity stripes, as many stripes may be
    /// lost or damaged: see [`MediaSet::faults`].
    ///
    /// Errors name the problem: missing, empty, foreign, duplicate or damaged stripes.
    pub fn open(devices: &[Arc<dyn BackupDevice>]) -> Result<MediaSet, Error> {
        Ok(MediaSet::found_on(devices)?.next_to(devices))
    }

    fn found_on(devices: &[Arc<dyn BackupDevice>]) -> Result<MediaSet, Error> {
        let found = all_in_place(devices);
        let doubtful = found.iter().any(|f| f.is_err()) || !agree(&found);
        if let Some(media) = if doubtful {
            rolled_forward(devices)?
        } else {
            None
        } {
            return Ok(media);
        }
        if let Some(error) = cancelled(&found) {
            return Err(error);
        }
        match chosen(&found) {
            Some(wanted) => MediaSet::with_lost(devices, found, wanted),
            None => MediaSet::assemble(found.into_iter().collect::<Result<Vec<_>, _>>()?, &[]),
        }
    }

    /// [`MediaSet::open`], for those who change the media: no stripe may be lost.
    pub(crate) fn open_whole(devices: &[Arc<dyn BackupDevice>]) -> Result<MediaSet, Error> {
        let found = all_in_place(devices);
        let doubtful = found.iter().any(|f| f.is_err()) || !agree(&found);
        if doubtful
            && let Some(media) = rolled_forward(devices)?
            && media.lost() == 0
        {
            return Ok(media);
        }
        let media = MediaSet::assemble(found.into_iter().collect::<Result<Vec<_>, _>>()?, &[])?;
        match media.lost() {
            0 => Ok(media),
            _ => Err(media.families_missing()),
        }
    }

    /// The stripes of one identity; parity stands for the others.
    fn with_lost(
        devices: &[Arc<dyn BackupDevice>],
        found: Vec<Result<Member, Error>>,
        wanted: MediaIdentity,
    ) -> Result<MediaSet, Error> {
        let (mut members, mut lost) = (Vec::new(), Vec::new());
        for (i, found) in found.into_iter().enumerate() {
            match found {
                Ok(member) if identity(&member.header) == wanted => members.push(member),
                found => lost.push(LostStripe::of(i, &*devices[i], found, wanted)),
            }
        }
        MediaSet::assemble(members, &lost)
    }

    fn assemble(members: Vec<Member>, lost: &[LostStripe]) -> Result<MediaSet, Error> {
        let members = agreeing(members)?;
        let header = members[0].header.clone();
        let missing = missing(&members, &header);
        let unnamed = lost.iter().filter(|stripe| stripe.read.is_some()).count();
        let allowed = match header.parity_count {
            0 => 0,
            count => usize::from(count) + unnamed,
        };
        if missing.len() > allowed {
            return Err(families_missing(&header, &members, missing));
        }
        match header.parity_count {
            0 => Ok(MediaSet::plain(members, Vec::new())),
            _ => MediaSet::with_parity(members, lost, &header),
        }
    }

    /// Media whose stripes are read as they are.
    fn plain(members: Vec<Member>, absent: Vec<u16>) -> MediaSet {
        MediaSet {
            members,
            parity: None,
            pending_parity: Vec::new(),
            absent,
            keyring: Arc::default(),
            folders: Vec::new(),
        }
    }

    /// A media set with parity stripes, of which enough stripes are there.
    fn with_parity(
        members: Vec<Member>,
        lost: &[LostStripe],
        header: &MediaHeader,
    ) -> Result<MediaSet, Error> {
        let data = usize::from(header.family_count);
        if members.iter().any(|m| m.window_is_kept()) {
            return MediaSet::from_pipe(members, header);
        }
        let (members, strangers, set) = of_one_set(members, data)?;
        let lost_to = |stranger: Stranger| LostStripe {
            device_index: stranger.device_index,
            name: stranger.name,
            why: stranger.why.clone(),
            read: None,
            kept: Some(stranger.why),
        };
        let strangers: Vec<LostStripe> = strangers.into_iter().map(lost_to).collect();
        let lost: Vec<&LostStripe> = lost.iter().chain(&strangers).collect();
        let mut places: Vec<Option<Place>> = (0..header.all_count()).map(|_| None).collect();
        let mut is_pending = vec![false; places.len()];
        let mut pending_parity = Vec::new();
        for member in members {
            let m = usize::from(member.header.family) - 1;
            is_pending[m] = member.pending;
            if member.pending && m >= data {
                pending_parity.extend(member.device_index);
            }
            places[m] = Some(Place {
                device_index: member.device_index,
                name: member.device,
                read: Some(member.read),
                header: Some(member.header),
                kept: None,
            });
        }
        let group = Arc::new(grouped(data, places, &lost, set)?);
        let gone = |place: &&Place| place.read.is_none();
        if group.places.iter().filter(gone).count() > group.parity {
            return Err(Error::FamilyMissing {
                media_set: header.media_set,
                count: header.all_count(),
                given: group.places.iter().filter(|p| !gone(p)).count(),
                found: group
                    .places
                    .iter()
                    .filter(|p| !gone(p))
                    .map(|p| p.name.clone())
                    .collect(),
                missing: (1..=header.all_count())
                    .filter(|f| group.places[usize::from(*f) - 1].read.is_none())
                    .collect(),
            });
        }
        let (mut of_data, mut stripes) = (Vec::new(), Vec::new());
        for (m, place) in group.places.iter().enumerate().take(data) {
            let has_start = place.header.is_some();
            let stripe = Arc::new(RebuiltStripe::new(group.clone(), m, has_start)?);
            stripes.push(stripe.clone());
            let name = place.name.clone();
            let member = Member::rebuilt(name, place.device_index, stripe, is_pending[m])?;
            of_data.push(member);
        }
        let media = MediaSet {
            members: of_data,
            parity: Some(Protected {
                group: group.clone(),
                stripes,
            }),
            pending_parity,
            absent: Vec::new(),
            keyring: Arc::default(),
            folders: Vec::new(),
        };
        // Damage at the ends of a stripe shows here, before anybody reads it.
        let rows = media.rows()?;
        if let Some(Ok(trailer)) = rows.last().map(Row::trailer) {
            group.check_ends(trailer);
        }
        Ok(media)
    }

    /// A pipe has one stripe, which must be all of the data.
    fn from_pipe(members: Vec<Member>, header: &MediaHeader) -> Result<MediaSet, Error> {
        match members.len() == 1 && header.family_count == 1 && !members[0].header.is_parity() {
            true => Ok(MediaSet::plain(members, Vec::new())),
            false => {
                let missing = missing(&members, header);
                Err(families_missing(header, &members, missing))
            }
        }
    }

    /// Parity stripes of the media set.
    pub fn parity_count(&self) -> usize {
        usize::from(self.members[0].header.parity_count)
    }

    /// The faults of the stripes of a media set with parity, as far as they were read. While this is empty, the set
    /// is whole; otherwise it can be restored, and should be repaired.
    pub fn faults(&self) -> Vec<StripeFault> {
        match &self.parity {
            Some(parity) => parity.group.faults(),
            None => Vec::new(),
        }
    }

    /// All families, those of parity last.
    pub fn stripes(&self) -> Vec<StripePlace> {
        let Some(parity) = &self.parity else {
            let of_data = self.members.iter();
            return of_data.map(StripePlace::of).collect();
        };
        let places = parity.group.places.iter().enumerate();
        let stripe = |(m, place): (usize, &Place)| StripePlace {
            family: m as u16 + 1,
            is_parity: m >= self.members.len(),
            device_index: place.device_index,
            name: place.name.clone(),
            family_uuid: match (&place.header, self.members.get(m)) {
                (Some(header), _) => Some(header.family_uuid),
                (None, member) => member.map(|member| member.header.family_uuid),
            },
        };
        places.map(stripe).collect()
    }

    pub(crate) fn group(&self) -> Option<&Arc<Group>> {
        self.parity.as_ref().map(|parity| &parity.group)
    }

    /// A data stripe of media with parity, as it is read.
    pub(crate) fn rebuilt(&self, family_index: usize) -> Option<&RebuiltStripe> {
        let parity = self.parity.as_ref()?;
        parity.stripes.get(family_index).map(|stripe| &**stripe)
    }

    /// Whether stripes wait for their names.
    pub fn is_pending(&self) -> bool {
        !self.pending_parity.is_empty() || self.members.iter().any(|m| m.pending)
    }

    /// How many stripes are lost.
    fn lost(&self) -> usize {
        self.faults().iter().filter(|fault| fault.is_lost).count()
    }

    fn families_missing(&self) -> Error {
        let header = &self.members[0].header;
        let faults = self.faults();
        let lost = faults.iter().filter(|f| f.is_lost).map(|f| f.family);
        families_missing(header, &self.members, lost.collect())
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

    /// The device of a family in the caller's order; `None` for a stripe that is rebuilt and was not given.
    pub fn device_index(&self, family_index: usize) -> Option<usize> {
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
            (Container::Lz4, true) => "MS_XPRESS, LZ4 or PAGES",
        };
        Err(Error::ContainerMix {
            is: kind(header.container, header.compressed),
            asked: kind(container, compressed),
        })
    }

    /// Finishes interrupted renames; returns whether there were any.
    pub(crate) fn roll_forward(&self, devices: &[Arc<dyn BackupDevice>]) -> Result<bool, Error> {
        let mut any = false;
        let pending = self.members.iter().filter(|m| m.pending);
        let pending = pending.filter_map(|m| m.device_index);
        for index in pending.chain(self.pending_parity.iter().copied()) {
            devices[index].complete_pending()?;
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
        let count = self.count()?;
        let wanted = if position == 0 { count } else { position };
        let Some(row) = self.row(wanted)? else {
            return Err(Error::NoSuchSet {
                device: self.device(0).to_owned(),
                position: wanted,
                count,
            });
        };
        let row = &row;
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
        let lost = |(i, part): (usize, &Option<&SetPart>)| Some((i, part.as_ref()?.lost_trailer?));
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

    /// The part of each family at one position: a medium may have 65,536 sets, and each may be asked for. `None`: no family
    /// has one there.
    fn row(&self, position: u32) -> Result<Option<Row<'_>>, Error> {
        let Some(index) = (position as usize).checked_sub(1) else {
            return Ok(None);
        };
        let mut parts = Vec::with_capacity(self.members.len());
        for member in &self.members {
            parts.push(member.parts()?.get(index));
        }
        let is_any = parts.iter().any(Option::is_some);
        Ok(is_any.then_some(Row {
            position,
            parts,
            is_part: !self.absent.is_empty(),
        }))
    }

    /// The positions that any family has.
    fn count(&self) -> Result<u32, Error> {
        let mut count = 0;
        for member in &self.members {
            count = count.max(member.parts()?.len() as u32);
        }
        Ok(count)
    }

    /// The part of each family at each position.
    fn rows(&self) -> Result<Vec<Row<'_>>, Error> {
        let rows = (1..=self.count()?).map(|position| self.row(position));
        rows.filter_map(Result::transpose).collect()
    }

    /// Where an appended set begins: after the last complete one.
    pub(crate) fn tails(&self) -> Result<Tails, Error> {
        self.check_whole()?;
        let rows = self.rows()?;
        let complete = rows.iter().take_while(|r| r.trailer().is_ok()).count();
        // A crash leaves at most one unfinished set, at the very end. More than that is damage, and truncating it
        // would destroy data that might still be saved.
        if rows.len() > complete + 1 {
            let family_index = rows[complete].trailer().err().unwrap_or(0);
            return Err(self.unsealed(&rows[complete], family_index));
        }
        if let Some(row) = rows.get(complete) {
            self.check_one_set(row)?;
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

    /// Refuses to treat as unfinished, and so to truncate, what is whole with other stripes: of media that were copied, or begun
    /// with mirrors, and then written at both places. A crash leaves no such thing: all stripes hold a set's blocks before
    /// the first has its trailer.
    fn check_one_set(&self, row: &Row) -> Result<(), Error> {
        let finished = |(i, part): (usize, &Option<&SetPart>)| {
            let part = part.filter(|part| part.seal.is_some())?;
            Some((i, part.header.as_ref().ok()?.set))
        };
        let finished: Vec<_> = row.parts.iter().enumerate().filter_map(finished).collect();
        let Some((_, first)) = finished.first().copied() else {
            return Ok(());
        };
        let held_by = |set: Uuid| {
            let held = finished.iter().filter(|(_, held)| *held == set);
            held.map(|(i, _)| self.device(*i).to_owned()).collect()
        };
        if let Some((_, second)) = finished.iter().find(|(_, set)| *set != first) {
            return Err(Error::WrittenApart {
                first: held_by(first),
                first_set: first,
                second: held_by(*second),
                second_set: *second,
            });
        }
        match row.parts.iter().position(Option::is_none) {
            Some(family_index) => Err(self.incomplete(family_index, row.position)),
            None => Ok(()),
        }
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
        self.blocks(family_index, position, Reading::Contents(&self.keyring))
    }

    /// The same without any key: manifests and payloads of an encrypted set stay closed. Its stored checksums and its roots
    /// are compared all the same, and so is its signature.
    pub fn stored_stream(&self, family_index: usize, position: u32) -> Result<BlockStream, Error> {
        self.blocks(family_index, position, Reading::Stored(&self.keyring))
    }

    fn blocks(
        &self,
        family_index: usize,
        position: u32,
        reading: Reading<'_>,
    ) -> Result<BlockStream, Error> {
        self.check_whole()?;
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
            BlockStream::begin(window, &member.header, position, reading),
            position,
        )?;
        // A pipe shows its end only when it is read.
        let part = match member.read.len_bytes()? {
            Some(_) => Some(member.part(position)?),
            None => None,
        };
        let seal = part.and_then(|part| part.seal.as_ref());
        // Before any block is read, where it can be told; what is read is compared at the end.
        if let (Some(part), Some(seal), Reading::Stored(keys) | Reading::Contents(keys)) =
            (part, seal, reading)
            && keys.signers().required()
            && let Ok(what) = member.signature(part, seal, keys.signers())
            && keys.signers().refuse(&what)
        {
            return Err(Error::Unsigned {
                device: member.device.clone(),
                position,
                what,
            });
        }
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
        let context = member.chunks(part, seal, &self.keyring, |offset, rows| {
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
        let picked = stream.pick((picks, context), seal.trailer.clone());
        picked.map(Some)
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

    fn sealed<'a>(
        &self,
        member: &'a Member,
        position: u32,
    ) -> Result<(&'a SetPart, &'a Seal), Error> {
        let part = self.or_lost(member.part(position), position)?;
        let seal = part.seal.as_ref().ok_or_else(|| Error::Incomplete {
            device: member.device.clone(),
            position,
        })?;
        Ok((part, seal))
    }

    /// Calls `each` with every manifest item of a complete set, family by family, using the index alone; of media with
    /// absent families, with those of the others.
    pub fn items(&self, position: u32, mut each: impl FnMut(Item)) -> Result<(), Error> {
        // The index of a parity stripe names rows.
        for member in self.members.iter().filter(|m| !m.header.is_parity()) {
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
    parts: Vec<Option<&'a SetPart>>,
    /// Whether families are absent, so that the sums over all of them say nothing.
    is_part: bool,
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
        let sums = |t: &&SetTrailer| {
            self.is_part || (blocks == t.blocks_total && stored == t.stored_bytes_total)
        };
        first.filter(sums).ok_or(0)
    }
}

impl StripePlace {
    fn of(member: &Member) -> StripePlace {
        StripePlace {
            family: member.header.family,
            is_parity: member.header.is_parity(),
            device_index: member.device_index,
            name: member.device.clone(),
            family_uuid: Some(member.header.family_uuid),
        }
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
    match Member::open(device, device_index, read.clone(), false) {
        Err(Error::Io {
            device,
            offset,
            source,
            ..
        }) if is_of_medium(&source) && has_rest(&*read) => Err(Error::Io {
            action: BEGINNING,
            device,
            offset,
            source,
        }),
        found => found,
    }
}

/// Whether a stripe gives bytes behind those that are read first: a disk that is gone gives none.
fn has_rest(read: &dyn FamilyRead) -> bool {
    read.read_at(&mut [0], FIRST_BYTES as u64)
        .is_ok_and(|got| got > 0)
}

/// The media set whose completion was interrupted. Each device has its stripe in place or pending, at least one is
/// pending, and all end with a complete set. With parity, as many devices may have neither.
fn rolled_forward(devices: &[Arc<dyn BackupDevice>]) -> Result<Option<MediaSet>, Error> {
    let mut pending = Vec::new();
    for (i, device) in devices.iter().enumerate() {
        let read = if_it_answers(device.open_pending())?.flatten();
        pending.push(read.and_then(|r| Member::open(&**device, i, r, true).ok()));
    }
    let mut wanted: Vec<MediaIdentity> = Vec::new();
    for member in pending.iter().flatten() {
        let id = identity(&member.header);
        if !wanted.contains(&id) {
            wanted.push(id);
        }
    }
    for wanted in wanted {
        if let Some(media) = rolled_forward_to(wanted, devices, &mut pending)? {
            return Ok(Some(media));
        }
    }
    Ok(None)
}

fn rolled_forward_to(
    wanted: MediaIdentity,
    devices: &[Arc<dyn BackupDevice>],
    pending: &mut [Option<Member>],
) -> Result<Option<MediaSet>, Error> {
    let is_wanted = |m: &Member| identity(&m.header) == wanted;
    let (mut members, mut lost) = (Vec::new(), Vec::new());
    let (mut renamed, mut occupied) = (false, false);
    for (i, device) in devices.iter().enumerate() {
        // Of a device that does not answer nobody knows.
        occupied |= if_it_answers(device.open())?.is_none_or(|read| read.is_some());
        let found = in_place(i, &**device);
        let here = match found {
            Ok(member) if is_wanted(&member) => Ok(member),
            found => Err(found),
        };
        renamed |= here.is_ok();
        match here {
            Ok(member) => members.push(member),
            Err(found) => match pending[i].take_if(|m| is_wanted(m) && is_ended(m)) {
                Some(member) => members.push(member),
                None => lost.push(LostStripe::of(i, &**device, found, wanted)),
            },
        }
    }
    // If no stripe was renamed, the set was never reported as complete. Existing stripes, even an incomplete
    // collection of them, are not silently replaced by it.
    let has_pending = members.iter().any(|m| m.pending);
    let may_lose = members.first().map_or(0, |m| m.header.parity_count);
    if (occupied && !renamed) || !has_pending || lost.len() > usize::from(may_lose) {
        return Ok(None);
    }
    let Ok(media) = MediaSet::assemble(members, &lost) else {
        return Ok(None);
    };
    let complete = media
        .sets()
        .is_ok_and(|s| s.last().is_some_and(|s| s.trailer.is_some()));
    Ok(complete.then_some(media))
}

/// Whether a stripe that waits for its name was written to its end. With parity, one that was not stands in nobody's way: a
/// killed repair left it, and the stripe that it was to replace may have more.
fn is_ended(pending: &Member) -> bool {
    if pending.header.parity_count == 0 {
        return true;
    }
    match pending.header.is_parity() {
        true => trailer_of(&*pending.read).is_some(),
        false => {
            let parts = pending.parts();
            parts.is_ok_and(|parts| parts.last().is_some_and(|part| part.seal.is_some()))
        }
    }
}

/// A device that does not have a stripe of the media set that is read.
struct LostStripe {
    device_index: usize,
    name: String,
    why: String,
    /// The stripe, if only its header cannot be read: it may be one of the set's.
    read: Option<Arc<dyn FamilyRead>>,
    /// Why nobody may replace what is there.
    kept: Option<String>,
}

impl LostStripe {
    fn of(
        device_index: usize,
        device: &dyn BackupDevice,
        found: Result<Member, Error>,
        wanted: MediaIdentity,
    ) -> LostStripe {
        let name = device.name();
        let lost = |why: String, kept| LostStripe {
            device_index,
            name: name.clone(),
            why,
            read: None,
            kept,
        };
        match found {
            Ok(member) => {
                let own = identity(&member.header);
                let why = format!(
                    "it belongs to media set {}, not to {}",
                    spell(own),
                    spell(wanted)
                );
                // An older stripe of the same media set is what a repair is to replace. A newer one may be all that is left of
                // a newer backup.
                let is_older = own.0 == wanted.0 && own.1 < wanted.1;
                let kept = (!is_older).then(|| why.clone());
                lost(why, kept)
            }
            // A bad sector below the header says as little of the rest as a damaged header does.
            Err(error) if is_without_start(&error) => LostStripe {
                read: device.open().ok().flatten(),
                ..lost(error.to_string(), Some(error.to_string()))
            },
            Err(error @ (Error::Missing { .. } | Error::Empty { .. })) => {
                lost(error.to_string(), None)
            }
            Err(error) => lost(error.to_string(), Some(error.to_string())),
        }
    }
}

/// The media set whose lost stripes its parity stripes may stand for: the only one with parity, or else the only one of
/// which there are enough stripes. Of several generations of one media set it is the newest: its stripes got their names when it
/// was complete, and the others are those of devices that were away then. A generation keeps the number of stripes of the one
/// before; one that is otherwise is somebody's who can write one device, and it must not outvote all others.
fn chosen(found: &[Result<Member, Error>]) -> Option<MediaIdentity> {
    let mut ids: Vec<MediaIdentity> = Vec::new();
    for member in found.iter().flatten() {
        let id = identity(&member.header);
        if member.header.parity_count > 0 && !ids.contains(&id) {
            ids.push(id);
        }
    }
    if let [only] = ids[..] {
        return Some(only);
    }
    // Their headers cannot be read, and they may be of any media set.
    let is_unnamed = |f: &&Result<Member, Error>| f.as_ref().is_err_and(is_without_start);
    let unnamed = found.iter().filter(is_unnamed).count();
    let is_enough = |id: &MediaIdentity| {
        let members = found.iter().flatten();
        let members: Vec<_> = members.filter(|m| identity(&m.header) == *id).collect();
        let families: BTreeSet<u16> = members.iter().map(|m| m.header.family).collect();
        let needed = members.iter().map(|m| m.header.family_count).max();
        families.len() + unnamed >= usize::from(needed.unwrap_or(u16::MAX))
    };
    let enough: Vec<MediaIdentity> = ids.into_iter().filter(is_enough).collect();
    let newest = enough
        .iter()
        .copied()
        .max_by_key(|(_, generation)| *generation)?;
    let shape = |id: &MediaIdentity| {
        let of_id = |m: &&Member| identity(&m.header) == *id;
        let header = found.iter().flatten().find(of_id).map(|m| &m.header);
        header.map(|h| (h.family_count, h.parity_count, h.encrypted))
    };
    let is_alike = |id: &MediaIdentity| id.0 == newest.0 && shape(id) == shape(&newest);
    enough.iter().all(is_alike).then_some(newest)
}

/// Whether only the beginning of a stripe could not be read, so that the rest may be one of a media set's.
fn is_without_start(error: &Error) -> bool {
    matches!(
        error,
        Error::NotMedia { .. }
            | Error::Io {
                action: BEGINNING,
                ..
            }
    )
}

fn families_missing(header: &MediaHeader, members: &[Member], missing: Vec<u16>) -> Error {
    Error::FamilyMissing {
        media_set: header.media_set,
        count: header.all_count(),
        given: members.len(),
        found: members.iter().map(|m| m.device.clone()).collect(),
        missing,
    }
}

/// Finds out which family each stripe without a readable header is, and notes what is lost.
fn grouped(
    data: usize,
    mut places: Vec<Option<Place>>,
    lost: &[&LostStripe],
    set: Option<Uuid>,
) -> Result<Group, Error> {
    let mut left: Vec<&LostStripe> = lost.to_vec();
    let mut table = None;
    if left.iter().any(|stripe| stripe.read.is_some()) {
        let of_parity = places[data..].iter().flatten();
        let of_parity = of_parity.filter_map(|place| place.read.as_deref());
        let unknown = left.iter().filter_map(|stripe| stripe.read.as_deref());
        let reads: Vec<&dyn FamilyRead> = of_parity.chain(unknown).collect();
        table = RowTable::load(&reads, (data, places.len() - data), set);
    }
    for (m, slot) in places.iter_mut().enumerate() {
        let (None, Some(table)) = (&slot, &table) else {
            continue;
        };
        for i in 0..left.len() {
            let Some(read) = &left[i].read else { continue };
            if Group::is_member(table, m, &**read)? {
                let stripe = left.remove(i);
                *slot = Some(Place {
                    device_index: Some(stripe.device_index),
                    name: stripe.name.clone(),
                    read: stripe.read.clone(),
                    header: None,
                    kept: None,
                });
                break;
            }
        }
    }
    let damaged: Vec<usize> = (0..places.len())
        .filter(|m| places[*m].as_ref().is_some_and(|p| p.header.is_none()))
        .collect();
    let mut gone = Vec::new();
    // Devices in the order of their families tell which one is lost; so does the last one that is left.
    let in_order = places.iter().enumerate().all(|(m, place)| {
        let index = place.as_ref().and_then(|place| place.device_index);
        index.is_none_or(|index| index == m)
    });
    let count = places.len();
    let absent = places.iter().filter(|place| place.is_none()).count();
    // A lost stripe is one of the devices at most: who names one more has named something else.
    if let Some(known) = places
        .iter()
        .flatten()
        .next()
        .filter(|_| left.len() > absent)
    {
        return Err(Error::FamilyCount {
            device: known.name.clone(),
            found: count as u16,
            expected: count - absent + left.len(),
        });
    }
    let whole: Vec<Place> = places
        .into_iter()
        .enumerate()
        .map(|(m, place)| {
            place.unwrap_or_else(|| {
                let of_order = left.iter().find(|s| in_order && s.device_index == m);
                let only = left.first().filter(|_| absent == 1 && left.len() == 1);
                let stripe = of_order.or(only);
                let unnamed = || format!("family {} of {count}", m + 1);
                let why = stripe.map_or_else(
                    || "no device was given for it".to_owned(),
                    |s| s.why.clone(),
                );
                gone.push((m, why));
                Place {
                    device_index: stripe.map(|s| s.device_index),
                    name: stripe.map_or_else(unnamed, |s| s.name.clone()),
                    read: None,
                    header: None,
                    kept: stripe.and_then(|s| s.kept.clone()),
                }
            })
        })
        .collect();
    let group = Group::new(data, whole, set).with_table(table);
    for m in damaged {
        group.note(m, "its header cannot be read");
    }
    for (m, why) in gone {
        group.note_lost(m, why);
    }
    Ok(group)
}
