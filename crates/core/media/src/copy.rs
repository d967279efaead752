//! Copies a complete set to other devices, byte for byte: nothing is decoded, and every checksum is compared on the way.
//!
//! A stripe is read as [`BlockStream`] reads it, from its first byte to its trailer, and the bytes that were read are the
//! bytes that are written: nothing reaches the copy that was not checked, and nothing is read twice. Of media with parity
//! stripes, the copy is whole even if the source lacks stripes: what is lost or damaged is rebuilt on the way.
//!
//! An interrupted copy leaves its stripes for the next one: the beginning of a file that is whole by its own checksums is not
//! read from the source again, and parts that a store has are not sent again. Parity stripes are written again.
//!
//! Invariants
//! - Remains are read by the same reader, and compared with the same trailer, as if they came from the source. Where they do
//!   not agree, all of the stripe is copied.
//! - A copy is valid only if every stripe was read without an error. Trailers are written last, when the data of all
//!   stripes is durable, as in a backup.
//! - The source's stripes are read through the handles that were opened and compared with each other at first.
//! - An existing stripe under a destination's name stays until all stripes of the copy are durable.
//!
//! Leaves to others: which sets are copied and where to (`repository`), and decoding (`pipeline`, which verifies).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_io::{Via, crc32c, side_by_side};
use uuid::Uuid;

use crate::Error;
use crate::device::STAGING_BYTES;
use crate::device::{
    BackupDevice, FamilyRead, FamilyWrite, NamedStripe, Remains, Settle, Stripe, complete_all,
};
use crate::header::{MediaHeader, SetHeader, SetTrailer, payload_max};
use crate::member::{Member, media_header};
use crate::parity::{self, ParityStripe, StripeFault};
use crate::set_reader::{MediaSet, SetSummary};
use crate::stream::{BlockStream, Reading};
use crate::window::{WINDOW_BYTES, Window};

/// Called after each read of a stripe with the number of its bytes, by several threads at once. It may wait, to hold a
/// rate; an error ends the copy.
pub type Moved<'a> = &'a (dyn Fn(u64) -> Result<(), Error> + Sync);

/// Called once the source's stripes are known, before their bytes are read, with the bound of the memory that the copy takes.
pub type Planned<'a> = &'a (dyn Fn(u64) + Sync);

/// The set that was copied.
#[derive(Debug, Clone)]
pub struct CopiedSet {
    pub header: SetHeader,
    pub trailer: SetTrailer,
    /// Bytes of all stripes.
    pub bytes: u64,
    /// Bytes of files that an interrupted copy had left.
    pub kept_bytes: u64,
    /// Stripes of the source that were rebuilt for the copy, which is whole.
    pub faults: Vec<StripeFault>,
}

/// A copy whose stripes are durable and have no name yet. Dropping it leaves nothing.
#[must_use = "the stripes have no name yet"]
pub struct ReadyCopy {
    set: CopiedSet,
    stripes: Vec<NamedStripe>,
}

impl ReadyCopy {
    /// Gives the stripes their names.
    ///
    /// Errors: those of the devices. If some stripes have their names by then, the next reader takes the others as they are,
    /// where the device can complete them later.
    pub fn complete(mut self) -> Result<CopiedSet, Error> {
        for (_, write) in &mut self.stripes {
            write.keep();
        }
        complete_all(self.stripes, &mut || {})?;
        Ok(self.set)
    }
}

/// Bytes of the source that the trailer and what follows it may have at most; more is refused, since it is held in memory.
const TAIL_MAX: u64 = 1 << 20;

/// Copies the only set on `from`, in any order, to `to`, where device N takes family N + 1. The copy is no set before
/// [`ReadyCopy::complete`].
///
/// Errors: those of [`MediaSet::open`]; [`Error::DeviceCount`] unless there is one device for each family;
/// [`Error::NoSuchSet`] unless `from` holds exactly one set; [`Error::Incomplete`]; [`Error::Damaged`],
/// [`Error::BlockDamaged`] and [`Error::SetDamaged`] for what the checksums show; those of the devices and of `moved`.
pub fn copy_set(
    from: &[Arc<dyn BackupDevice>],
    to: &[Arc<dyn BackupDevice>],
    moved: Moved<'_>,
) -> Result<ReadyCopy, Error> {
    copy_set_planned(from, to, &|_| {}, moved)
}

/// [`copy_set`], which tells the memory that it takes.
pub fn copy_set_planned(
    from: &[Arc<dyn BackupDevice>],
    to: &[Arc<dyn BackupDevice>],
    planned: Planned<'_>,
    moved: Moved<'_>,
) -> Result<ReadyCopy, Error> {
    let media = MediaSet::open(from)?;
    let set = only_set(&media)?;
    if to.len() != media.family_count() + media.parity_count() {
        return Err(Error::DeviceCount { given: to.len() });
    }
    let trailer = set.trailer.ok_or_else(|| Error::Incomplete {
        device: media.device(0).to_owned(),
        position: set.header.position,
    })?;
    let parts = Parts {
        media: &media,
        header: &set.header,
        trailer: &trailer,
        resumes: true,
    };
    planned(memory_bytes(&media, &set.header, to)?);
    let all: Vec<usize> = (0..to.len()).collect();
    let (stripes, kept_bytes) = parts.write((&all, to), moved)?;
    let bytes = stripes.iter().map(|(_, write)| write.offset()).sum();
    Ok(ReadyCopy {
        set: CopiedSet {
            header: set.header,
            trailer,
            bytes,
            kept_bytes,
            faults: media.faults(),
        },
        stripes,
    })
}

/// The memory of the program itself, and of its threads.
const BASE_BYTES: u64 = 24 << 20;

/// The memory that a copy takes at most: each stripe is read and written at the same time as the others.
fn memory_bytes(
    media: &MediaSet,
    header: &SetHeader,
    to: &[Arc<dyn BackupDevice>],
) -> Result<u64, Error> {
    let data = media.family_count();
    // Of a stripe that goes on with remains, those are looked through before.
    let each = (WINDOW_BYTES + payload_max(header.buffer_bytes as usize)) as u64 + TAIL_MAX;
    let mut memory = BASE_BYTES + data as u64 * each + media.reading_bytes();
    for (m, device) in to.iter().enumerate() {
        let len = match m < data {
            true => media.member(m).read.len_bytes()?,
            false => None,
        };
        memory += STAGING_BYTES as u64 + device.writing_bytes(len);
    }
    // Rows are read of all stripes, and written.
    let rows = media.group().map_or(0, |group| group.memory_bytes());
    Ok(memory + rows + parity::memory_bytes(media.parity_count() as u16))
}

/// The set of media that hold no other.
fn only_set(media: &MediaSet) -> Result<SetSummary, Error> {
    let set = media.set(0)?;
    match set.header.position {
        1 => Ok(set),
        count => Err(Error::NoSuchSet {
            device: media.device(0).to_owned(),
            position: 1,
            count,
        }),
    }
}

/// A set that stripes are written of.
pub(crate) struct Parts<'a> {
    pub media: &'a MediaSet,
    pub header: &'a SetHeader,
    pub trailer: &'a SetTrailer,
    /// Whether it goes on with what an interrupted copy left, and leaves that for the next one.
    pub resumes: bool,
}

/// A stripe whose data is written, and which has no trailer yet.
enum Unsealed {
    Data(CopiedStripe),
    Parity(ParityStripe),
}

impl Parts<'_> {
    /// Writes stripes of the families `members` to `targets`, durable and with their trailers. They have no names yet. Returns
    /// also how many bytes were there already.
    pub fn write(
        &self,
        (members, targets): (&[usize], &[Arc<dyn BackupDevice>]),
        moved: Moved<'_>,
    ) -> Result<(Vec<NamedStripe>, u64), Error> {
        let data = self.media.family_count();
        let known = self.media.group().filter(|group| {
            let table = group.table(0);
            table.is_ok_and(|table| table.is_complete())
        });
        let work = |i: usize| -> Result<Option<Unsealed>, Error> {
            let (m, to) = (members[i], &*targets[i]);
            if m < data {
                let stripe = self.data(m, to, moved)?;
                return Ok(Some(Unsealed::Data(stripe)));
            }
            let Some(group) = known else { return Ok(None) };
            let media = parity::header_of(self.media.header(0), m);
            let write = (self.create(&media, to)?, to.name());
            let stripe = parity::write_known(group, m, write, (&media, self.header), moved)?;
            Ok(Some(Unsealed::Parity(stripe)))
        };
        let done = side_by_side(members.len(), work).map_err(|source| Error::Io {
            action: "start a thread to copy",
            device: self.media.device(0).to_owned(),
            offset: 0,
            source,
        })?;
        let (mut stripes, mut failed) = (Vec::new(), Vec::new());
        for one in done {
            match one {
                Ok(stripe) => stripes.extend(stripe),
                Err(error) => failed.push(error),
            }
        }
        if !failed.is_empty() {
            // Nothing goes on with a copy of what is damaged.
            if !failed.iter().any(is_damage) {
                self.leave(&mut stripes);
            }
            return Err(failed.remove(0));
        }
        let kept = |stripe: &Unsealed| match stripe {
            Unsealed::Data(stripe) => stripe.kept,
            Unsealed::Parity(_) => 0,
        };
        let kept_bytes = stripes.iter().map(kept).sum();
        if known.is_none() {
            match self.with_new_rows((members, targets), moved) {
                Ok(rows) => stripes.extend(rows),
                Err(error) => {
                    self.leave(&mut stripes);
                    return Err(error);
                }
            }
        }
        self.check_blocks(&stripes)?;
        if let Err(error) = self.seal(&mut stripes) {
            self.leave(&mut stripes);
            return Err(error);
        }
        let named = stripes.into_iter().map(|stripe| match stripe {
            Unsealed::Data(stripe) => (stripe.device, stripe.write),
            Unsealed::Parity(stripe) => stripe.into_stripe(),
        });
        Ok((named.collect(), kept_bytes))
    }

    /// Leaves stripes of data for the next copy.
    fn leave(&self, stripes: &mut [Unsealed]) {
        for stripe in stripes {
            if let (Unsealed::Data(stripe), true) = (stripe, self.resumes) {
                stripe.write.keep();
            }
        }
    }

    /// A data stripe. One that is damaged is read before, so that its bad places are known when it is written.
    fn data(
        &self,
        m: usize,
        to: &dyn BackupDevice,
        moved: Moved<'_>,
    ) -> Result<CopiedStripe, Error> {
        let member = self.media.member(m);
        let copied = copy_stripe(member, self.header, (to, self.resumes), moved);
        let is_damage = copied.as_ref().err().is_some_and(is_damage);
        if !is_damage || self.media.rebuilt(m).is_none() {
            return copied;
        }
        look_through(member, self.header, moved)?;
        copy_stripe(member, self.header, (to, self.resumes), moved)
    }

    fn create(
        &self,
        media: &MediaHeader,
        to: &dyn BackupDevice,
    ) -> Result<Box<dyn FamilyWrite>, Error> {
        // A parity stripe is about as long as the longest stripe of data.
        let data = (0..self.media.family_count()).map(|m| self.media.member(m));
        let longest = data.filter_map(|m| m.read.len_bytes().ok()?).max();
        to.create_stripe(&Stripe {
            via: Via::Direct,
            label: format!("{}/{}/{}", media.media_set, media.family, Uuid::new_v4()),
            expected_bytes: longest.map(|bytes| bytes + bytes / 50),
            is_repeatable: false,
        })
    }

    /// All parity stripes, when their rows are not known. Data stripes are read with every check before.
    fn with_new_rows(
        &self,
        (members, targets): (&[usize], &[Arc<dyn BackupDevice>]),
        moved: Moved<'_>,
    ) -> Result<Vec<Unsealed>, Error> {
        let data = self.media.family_count();
        let of_parity = members.iter().zip(targets);
        let of_parity: Vec<_> = of_parity.filter(|(m, _)| **m >= data).collect();
        if of_parity.is_empty() {
            return Ok(Vec::new());
        }
        for family in 0..data {
            look_through(self.media.member(family), self.header, moved)?;
        }
        let mut writes = Vec::new();
        for (m, to) in of_parity {
            let media = parity::header_of(self.media.header(0), *m);
            writes.push((self.create(&media, &**to)?, to.name()));
        }
        let data = (0..data).map(|m| self.media.member(m));
        let data: Vec<_> = data.map(|m| (m.device.as_str(), &*m.read)).collect();
        let media = (self.media.header(0), self.header);
        let stripes = parity::write_new(&data, writes, media, moved)?;
        Ok(stripes.into_iter().map(Unsealed::Parity).collect())
    }

    /// Where all data stripes were read, they must hold all blocks.
    fn check_blocks(&self, stripes: &[Unsealed]) -> Result<(), Error> {
        let blocks: Vec<u64> = stripes
            .iter()
            .filter_map(|stripe| match stripe {
                Unsealed::Data(stripe) => Some(stripe.blocks),
                Unsealed::Parity(_) => None,
            })
            .collect();
        let is_all = blocks.len() == self.media.family_count();
        match is_all && blocks.iter().sum::<u64>() != self.trailer.blocks_total {
            false => Ok(()),
            true => Err(Error::SetDamaged {
                device: self.media.device(0).to_owned(),
                position: self.header.position,
                what: "its stripes do not hold all of its blocks".to_owned(),
            }),
        }
    }

    /// Writes the trailers, each after all data of all stripes, and makes the stripes durable.
    fn seal(&self, stripes: &mut [Unsealed]) -> Result<(), Error> {
        for stripe in &mut *stripes {
            match stripe {
                Unsealed::Data(stripe) => stripe.write.settle(Settle::Ordered)?,
                Unsealed::Parity(stripe) => stripe.settle(Settle::Ordered)?,
            }
        }
        let whole = parity::whole_of(self.trailer);
        let root = self.trailer.proof.map(|proof| proof.root);
        for stripe in &mut *stripes {
            match stripe {
                Unsealed::Data(stripe) => {
                    stripe.write.write(&stripe.tail)?;
                    stripe.write.settle(Settle::Begun)?;
                }
                Unsealed::Parity(stripe) => {
                    stripe.put_trailer(&whole, root)?;
                    stripe.settle(Settle::Begun)?;
                }
            }
        }
        for stripe in stripes {
            match stripe {
                Unsealed::Data(stripe) => stripe.write.sync()?,
                Unsealed::Parity(stripe) => stripe.sync()?,
            }
        }
        Ok(())
    }
}

/// A stripe whose trailer is not written yet.
pub(crate) struct CopiedStripe {
    device: String,
    write: Box<dyn FamilyWrite>,
    tail: Vec<u8>,
    blocks: u64,
    /// The bytes that were there already.
    kept: u64,
}

/// Whether bytes are not what they should be.
fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Damaged { .. }
            | Error::BlockDamaged { .. }
            | Error::SetDamaged { .. }
            | Error::Incomplete { .. }
    )
}

/// Reads a stripe up to its end, checks it, and writes all of it but the trailer; goes on with what an interrupted copy left,
/// if it `resumes`.
fn copy_stripe(
    member: &Member,
    expected: &SetHeader,
    (to, resumes): (&dyn BackupDevice, bool),
    moved: Moved<'_>,
) -> Result<CopiedStripe, Error> {
    if !resumes {
        return copy_after(member, expected, (to, resumes), None, moved);
    }
    let left = match to.remains(Via::Direct)? {
        Some(remains) => kept_of(member, expected, remains, (to, moved))?,
        None => None,
    };
    let is_left = left.is_some();
    let copied = copy_after(member, expected, (to, resumes), left, moved);
    match &copied {
        // The remains may be to blame, though they have their own checksums.
        Err(error) if is_left && is_damage(error) => {
            copy_after(member, expected, (to, resumes), None, moved)
        }
        _ => copied,
    }
}

/// The beginning of a stripe that an interrupted copy left, and the writer that goes on after it.
struct Kept {
    read: Arc<dyn FamilyRead>,
    len: u64,
    write: Box<dyn FamilyWrite>,
}

/// As much of what was left as is this stripe's by its header and its blocks' checksums; `None`: nothing.
fn kept_of(
    member: &Member,
    expected: &SetHeader,
    remains: Remains,
    (to, moved): (&dyn BackupDevice, Moved<'_>),
) -> Result<Option<Kept>, Error> {
    let read = remains.read();
    let len = good_bytes(member, expected, (to.name(), &read), moved)?;
    if len == 0 {
        return Ok(None);
    }
    let device = to.name();
    tracing::info!(
        device,
        len,
        "goes on with a stripe that an interrupted copy left"
    );
    let write = remains.write_from(len)?;
    Ok(Some(Kept { read, len, write }))
}

/// Where the blocks end that are good one after the other from the beginning on.
///
/// Errors: those of `moved` alone.
fn good_bytes(
    member: &Member,
    expected: &SetHeader,
    (device, read): (String, &Arc<dyn FamilyRead>),
    moved: Moved<'_>,
) -> Result<u64, Error> {
    let Some(seal) = member.part(expected.position)?.seal.as_ref() else {
        return Ok(0);
    };
    let begun = || -> Result<BlockStream, Error> {
        let mut window = Window::new(device.clone(), read.clone(), 0)?;
        if media_header(&mut window)? != member.header {
            return Err(Error::Missing { device });
        }
        BlockStream::begin(window, &member.header, expected.position, Reading::Copy)
    };
    let mut good = 0;
    let Ok(mut stream) = begun() else {
        return Ok(good);
    };
    if stream.header() != expected {
        return Ok(good);
    }
    let mut payload = vec![0; payload_max(expected.buffer_bytes as usize)];
    while let Ok(Some(block)) = stream.next(&mut payload) {
        let stored = &payload[..block.header.stored_len as usize];
        if crc32c(stored) != block.header.stored_crc || stream.offset() > seal.offset {
            break;
        }
        good = stream.offset();
        moved(0)?;
    }
    Ok(good)
}

/// [`copy_stripe`], after what is there already.
fn copy_after(
    member: &Member,
    expected: &SetHeader,
    (to, resumes): (&dyn BackupDevice, bool),
    kept: Option<Kept>,
    moved: Moved<'_>,
) -> Result<CopiedStripe, Error> {
    let damaged = |what: &str| Error::SetDamaged {
        device: member.device.clone(),
        position: expected.position,
        what: what.to_owned(),
    };
    let part = member.part(expected.position)?;
    let seal = part.seal.as_ref().ok_or_else(|| Error::Incomplete {
        device: member.device.clone(),
        position: expected.position,
    })?;
    let len = member.read.len_bytes()?.unwrap_or(seal.end);
    if len != seal.end {
        return Err(damaged("bytes follow its trailer"));
    }
    if len - seal.offset > TAIL_MAX {
        return Err(damaged("its trailer is too long"));
    }
    let create = || {
        // The same for each attempt that goes on with another's parts. A repair is not repeated.
        let of = match resumes {
            true => expected.set,
            false => Uuid::new_v4(),
        };
        to.create_stripe(&Stripe {
            via: Via::Direct,
            label: format!("{}/{}/{of}", member.header.media_set, member.header.family),
            expected_bytes: Some(len),
            is_repeatable: resumes,
        })
    };
    let (kept, write) = match kept {
        Some(Kept { read, len, write }) => (Some((read, len)), write),
        None => (None, create()?),
    };
    let kept_len = kept.as_ref().map_or(0, |(_, len)| *len);
    let tee = Arc::new(Tee {
        read: member.read.clone(),
        kept,
        device: member.device.clone(),
        held_from: seal.offset,
        end: len,
        out: Mutex::new(Out {
            write,
            tail: Vec::new(),
            at: 0,
        }),
    });
    let read_through = || -> Result<(), Error> {
        let mut window = Window::new(member.device.clone(), tee.clone(), 0)?;
        if media_header(&mut window)? != member.header {
            return Err(damaged("its header has changed since it was opened"));
        }
        let position = expected.position;
        let mut stream = BlockStream::begin(window, &member.header, position, Reading::Copy)?;
        if stream.header() != expected {
            return Err(damaged("its header is not that of the other stripes"));
        }
        read_all(&mut stream, moved)?;
        match stream.trailer() == Some(&seal.trailer) {
            true => Ok(()),
            false => Err(damaged("its trailer has changed since it was opened")),
        }
    };
    let through = read_through();
    let tee = Arc::into_inner(tee).ok_or_else(|| damaged("it is still being read"))?;
    let mut out = tee.out.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = through {
        // The next copy goes on with it.
        if resumes && !is_damage(&error) {
            out.write.keep();
        }
        return Err(error);
    }
    if out.at != len {
        return Err(damaged("its length has changed since it was opened"));
    }
    Ok(CopiedStripe {
        device: to.name(),
        write: out.write,
        tail: out.tail,
        blocks: seal.trailer.blocks_here,
        kept: kept_len,
    })
}

/// Reads a stripe from its first byte to its trailer, with every check that needs no key, and each doubtful place again.
///
/// Errors: what is wrong with it, also with what was rebuilt.
pub(crate) fn look_through(
    member: &Member,
    expected: &SetHeader,
    moved: Moved<'_>,
) -> Result<(), Error> {
    let mut window = Window::new(member.device.clone(), member.read.clone(), 0)?;
    let is_same = media_header(&mut window)? == member.header;
    let mut stream = BlockStream::begin(window, &member.header, expected.position, Reading::Copy)?;
    if !is_same || stream.header() != expected {
        return Err(Error::SetDamaged {
            device: member.device.clone(),
            position: expected.position,
            what: "its header is not that of the other stripes".to_owned(),
        });
    }
    read_all(&mut stream, moved)
}

/// Reads every block up to the trailer and compares the checksums of the stored bytes.
fn read_all(stream: &mut BlockStream, moved: Moved<'_>) -> Result<(), Error> {
    let mut payload = vec![0; payload_max(stream.header().buffer_bytes as usize)];
    let mut at = 0;
    while let Some(block) = stream.next(&mut payload)? {
        let stored = &mut payload[..block.header.stored_len as usize];
        let mut is_good = crc32c(stored) == block.header.stored_crc;
        if !is_good {
            let again = stream.second_look().read(stored, block.payload_offset)?;
            is_good = again && crc32c(stored) == block.header.stored_crc;
        }
        if !is_good {
            return Err(Error::BlockDamaged {
                device: stream.device().to_owned(),
                offset: block.payload_offset,
                sequence: block.header.sequence,
                what: "its stored bytes do not match their checksum".to_owned(),
            });
        }
        let now = stream.offset();
        moved(now - std::mem::replace(&mut at, now))?;
    }
    moved(stream.offset() - at)
}

/// A stripe that is read once, from its first byte to its last, and writes what is read. Its length is unknown to its
/// reader, as that of a pipe, so that no byte is skipped and none is read twice.
struct Tee {
    device: String,
    read: Arc<dyn FamilyRead>,
    /// The bytes before this length are at the destination already, and are read and checked there.
    kept: Option<(Arc<dyn FamilyRead>, u64)>,
    /// Bytes from this offset on are kept back: the trailer.
    held_from: u64,
    /// The length of the stripe when it was opened.
    end: u64,
    out: Mutex<Out>,
}

struct Out {
    write: Box<dyn FamilyWrite>,
    tail: Vec<u8>,
    /// Bytes that have passed.
    at: u64,
}

impl std::fmt::Debug for Tee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tee")
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl Tee {
    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FamilyRead for Tee {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut out = self.out();
        if offset != out.at {
            return Err(Error::Unsupported {
                device: self.device.clone(),
                action: "be read out of order while it is copied",
            });
        }
        let mut kept = 0;
        if let Some((read, len)) = &self.kept
            && offset < *len
        {
            let here = (*len - offset).min(buf.len() as u64) as usize;
            kept = read.read_at(&mut buf[..here], offset)?;
        }
        let at = offset + kept as u64;
        let n = kept + self.read.read_at(&mut buf[kept..], at)?;
        let before = self.held_from.saturating_sub(at).min((n - kept) as u64) as usize;
        let (now, later) = buf[kept..n].split_at(before);
        if !now.is_empty() {
            out.write.write(now)?;
        }
        out.at += n as u64;
        if out.at > self.end {
            return Err(Error::SetDamaged {
                device: self.device.clone(),
                position: 1,
                what: "it has grown since it was opened".to_owned(),
            });
        }
        out.tail.extend_from_slice(later);
        Ok(n)
    }

    fn reading_bytes(&self) -> u64 {
        self.read.reading_bytes()
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::{SimDisk, Storage};

    use super::*;
    use crate::device::DeviceSpec;

    /// Goal: a stripe on its way into a copy is read as a pipe is, and the copy gets each byte once, whatever else was
    /// asked for.
    #[test]
    fn a_stripe_that_is_copied_is_read_in_order_and_passes_on_each_byte_once() {
        let bytes: Vec<u8> = (0..9_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let disk = SimDisk::new(5);
        disk.write_file("/d/from", &bytes).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let device = |path: &str| DeviceSpec::File(path.into()).open(&storage);
        let to = device("/d/to");
        let tee = Tee {
            device: "/d/from".to_owned(),
            read: device("/d/from").open().unwrap().unwrap(),
            kept: None,
            held_from: 8_000,
            end: 9_000,
            out: Mutex::new(Out {
                write: to.create(Via::Cache).unwrap(),
                tail: Vec::new(),
                at: 0,
            }),
        };
        crate::reading::keeps_its_contract(&tee, &bytes);
        let Out {
            mut write,
            tail,
            at,
        } = tee.out.into_inner().unwrap();
        assert_eq!((write.offset(), at), (8_000, 9_000));
        assert!(tail == bytes[8_000..]);
        write.sync().unwrap();
        write.keep();
        write.complete().unwrap();
        let mut copy = vec![0; 9_000];
        let n = to.open().unwrap().unwrap().read_at(&mut copy, 0).unwrap();
        assert!(copy[..n] == bytes[..8_000]);
    }
}
