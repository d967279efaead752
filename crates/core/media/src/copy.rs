//! Copies a complete set to other devices, byte for byte: nothing is decoded, and every checksum is compared on the way.
//!
//! A stripe is read as [`BlockStream`] reads it, from its first byte to its trailer, and the bytes that were read are the
//! bytes that are written: nothing reaches the copy that was not checked, and nothing is read twice.
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
use crate::device::{BackupDevice, FamilyRead, FamilyWrite, Stripe, complete_all};
use crate::header::{SetHeader, SetTrailer, payload_max};
use crate::member::{Member, media_header};
use crate::set_reader::{MediaSet, SetSummary};
use crate::stream::BlockStream;
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
}

/// A copy whose stripes are durable and have no name yet. Dropping it leaves nothing.
#[must_use = "the stripes have no name yet"]
pub struct ReadyCopy {
    set: CopiedSet,
    stripes: Vec<CopiedStripe>,
}

impl ReadyCopy {
    /// Gives the stripes their names.
    ///
    /// Errors: those of the devices. If some stripes have their names by then, the next reader takes the others as they are,
    /// where the device can complete them later.
    pub fn complete(mut self) -> Result<CopiedSet, Error> {
        for stripe in &mut self.stripes {
            stripe.write.keep();
        }
        let named = self.stripes.into_iter().map(|s| (s.device, s.write));
        complete_all(named.collect(), &mut || {})?;
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
    if to.len() != media.family_count() {
        return Err(Error::DeviceCount { given: to.len() });
    }
    let trailer = set.trailer.ok_or_else(|| Error::Incomplete {
        device: media.device(0).to_owned(),
        position: set.header.position,
    })?;
    let work = |i: usize| copy_stripe(media.member(i), &set.header, &*to[i], moved);
    let copied = side_by_side(to.len(), work).map_err(|source| Error::Io {
        action: "start a thread to copy",
        device: media.device(0).to_owned(),
        offset: 0,
        source,
    })?;
    let mut stripes = copied.into_iter().collect::<Result<Vec<_>, _>>()?;
    let blocks: u64 = stripes.iter().map(|stripe| stripe.blocks).sum();
    if blocks != trailer.blocks_total {
        return Err(Error::SetDamaged {
            device: media.device(0).to_owned(),
            position: set.header.position,
            what: "its stripes do not hold all of its blocks".to_owned(),
        });
    }
    let bytes = stripes.iter().map(|stripe| stripe.len).sum();
    for stripe in &mut stripes {
        stripe.write.sync()?;
    }
    for stripe in &mut stripes {
        stripe.write.write(&stripe.tail)?;
    }
    for stripe in &mut stripes {
        stripe.write.sync()?;
    }
    Ok(ReadyCopy {
        set: CopiedSet {
            header: set.header,
            trailer,
            bytes,
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

/// A stripe whose trailer is not written yet.
struct CopiedStripe {
    device: String,
    write: Box<dyn FamilyWrite>,
    tail: Vec<u8>,
    blocks: u64,
    len: u64,
}

/// Reads a stripe up to its end, checks it, and writes all of it but the trailer.
fn copy_stripe(
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
    let mut stream = BlockStream::begin(window, &member.header, expected.position, None)?;
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
        len,
    })
}

/// Reads every block up to the trailer and compares the checksums of the stored bytes.
fn read_all(stream: &mut BlockStream, moved: Moved<'_>) -> Result<(), Error> {
    let mut payload = vec![0; payload_max(stream.header().buffer_bytes as usize)];
    let mut at = 0;
    while let Some(block) = stream.next(&mut payload)? {
        let stored = &payload[..block.header.stored_len as usize];
        if crc32c(stored) != block.header.stored_crc {
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
