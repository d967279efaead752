//! Copies a complete set to other devices, byte for byte: nothing is decoded, and every checksum is compared on the way.
//!
//! A stripe is read as [`BlockStream`] reads it, from its first byte to its trailer, and the bytes that were read are the
//! bytes that are written: nothing reaches the copy that was not checked, and nothing is read twice. Of media with parity
//! stripes, the copy is whole even if the source lacks stripes: what is lost or damaged is rebuilt on the way.
//!
//! Invariants
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
use crate::device::{
    BackupDevice, FamilyRead, FamilyWrite, NamedStripe, Settle, Stripe, complete_all,
};
use crate::header::{MediaHeader, SetHeader, SetTrailer, payload_max};
use crate::member::{Member, media_header};
use crate::parity::{self, ParityStripe, StripeFault};
use crate::set_reader::{MediaSet, SetSummary};
use crate::stream::{BlockStream, Reading};
use crate::window::Window;

/// Called after each read of a stripe with the number of its bytes, by several threads at once. It may wait, to hold a
/// rate; an error ends the copy.
pub type Moved<'a> = &'a (dyn Fn(u64) -> Result<(), Error> + Sync);

/// The set that was copied.
#[derive(Debug, Clone)]
pub struct CopiedSet {
    pub header: SetHeader,
    pub trailer: SetTrailer,
    /// Bytes of all stripes.
    pub bytes: u64,
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
    };
    let all: Vec<usize> = (0..to.len()).collect();
    let stripes = parts.write((&all, to), moved)?;
    let bytes = stripes.iter().map(|(_, write)| write.offset()).sum();
    Ok(ReadyCopy {
        set: CopiedSet {
            header: set.header,
            trailer,
            bytes,
            faults: media.faults(),
        },
        stripes,
    })
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
}

/// A stripe whose data is written, and which has no trailer yet.
enum Unsealed {
    Data(CopiedStripe),
    Parity(ParityStripe),
}

impl Parts<'_> {
    /// Writes stripes of the families `members` to `targets`, durable and with their trailers. They have no names yet.
    pub fn write(
        &self,
        (members, targets): (&[usize], &[Arc<dyn BackupDevice>]),
        moved: Moved<'_>,
    ) -> Result<Vec<NamedStripe>, Error> {
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
        let done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut stripes: Vec<Unsealed> = done.into_iter().flatten().collect();
        if known.is_none() {
            stripes.extend(self.with_new_rows((members, targets), moved)?);
        }
        self.check_blocks(&stripes)?;
        self.seal(stripes)
    }

    /// A data stripe. One that is damaged is read before, so that its bad places are known when it is written.
    fn data(
        &self,
        m: usize,
        to: &dyn BackupDevice,
        moved: Moved<'_>,
    ) -> Result<CopiedStripe, Error> {
        let member = self.media.member(m);
        let copied = copy_stripe(member, self.header, to, moved);
        let is_damage = matches!(
            copied,
            Err(Error::Damaged { .. }
                | Error::BlockDamaged { .. }
                | Error::SetDamaged { .. }
                | Error::Incomplete { .. })
        );
        if !is_damage || self.media.rebuilt(m).is_none() {
            return copied;
        }
        look_through(member, self.header, moved)?;
        copy_stripe(member, self.header, to, moved)
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
    fn seal(&self, mut stripes: Vec<Unsealed>) -> Result<Vec<NamedStripe>, Error> {
        for stripe in &mut stripes {
            match stripe {
                Unsealed::Data(stripe) => stripe.write.settle(Settle::Ordered)?,
                Unsealed::Parity(stripe) => stripe.settle(Settle::Ordered)?,
            }
        }
        let whole = parity::whole_of(self.trailer);
        let root = self.trailer.proof.map(|proof| proof.root);
        for stripe in &mut stripes {
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
        for stripe in &mut stripes {
            match stripe {
                Unsealed::Data(stripe) => stripe.write.sync()?,
                Unsealed::Parity(stripe) => stripe.sync()?,
            }
        }
        let named = stripes.into_iter().map(|stripe| match stripe {
            Unsealed::Data(stripe) => (stripe.device, stripe.write),
            Unsealed::Parity(stripe) => stripe.into_stripe(),
        });
        Ok(named.collect())
    }
}

/// A stripe whose trailer is not written yet.
pub(crate) struct CopiedStripe {
    device: String,
    write: Box<dyn FamilyWrite>,
    tail: Vec<u8>,
    blocks: u64,
}

/// Reads a stripe up to its end, checks it, and writes all of it but the trailer.
pub(crate) fn copy_stripe(
    member: &Member,
    expected: &SetHeader,
    to: &dyn BackupDevice,
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
    let write = to.create_stripe(&Stripe {
        via: Via::Direct,
        // Of its own for each attempt: a store must not take an earlier one's stripe for this.
        label: format!(
            "{}/{}/{}",
            member.header.media_set,
            member.header.family,
            Uuid::new_v4()
        ),
        expected_bytes: Some(len),
    })?;
    let tee = Arc::new(Tee {
        read: member.read.clone(),
        device: member.device.clone(),
        held_from: seal.offset,
        end: len,
        out: Mutex::new(Out {
            write,
            tail: Vec::new(),
            at: 0,
        }),
    });
    let mut window = Window::new(member.device.clone(), tee.clone(), 0)?;
    if media_header(&mut window)? != member.header {
        return Err(damaged("its header has changed since it was opened"));
    }
    let mut stream = BlockStream::begin(window, &member.header, expected.position, Reading::Copy)?;
    if stream.header() != expected {
        return Err(damaged("its header is not that of the other stripes"));
    }
    read_all(&mut stream, moved)?;
    if stream.trailer() != Some(&seal.trailer) {
        return Err(damaged("its trailer has changed since it was opened"));
    }
    drop(stream);
    let tee = Arc::into_inner(tee).ok_or_else(|| damaged("it is still being read"))?;
    let out = tee.out.into_inner().unwrap_or_else(PoisonError::into_inner);
    if out.at != len {
        return Err(damaged("its length has changed since it was opened"));
    }
    Ok(CopiedStripe {
        device: to.name(),
        write: out.write,
        tail: out.tail,
        blocks: seal.trailer.blocks_here,
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
        let n = self.read.read_at(buf, offset)?;
        let before = self.held_from.saturating_sub(offset).min(n as u64) as usize;
        let (now, later) = buf[..n].split_at(before);
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
