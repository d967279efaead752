//! A media set opened for reading: which stripes belong together, and which sets they hold.
//!
//! All members must agree on media set and generation. Where they do not, because a crash came between
//! the renames that complete a set, finished stripes under temporary names take their place.

use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use crate::Error;
use crate::device::{BackupDevice, DeviceClass, FamilyRead};
use crate::header::{MediaHeader, SetHeader, SetTrailer, TRAILER_LEN};
use crate::index::{self, Chunk};
use crate::manifest::{self, Item};
use crate::record::{Container, Kind, Malformed, PREFIX_MAX};
use crate::stream::BlockStream;
use crate::window::Window;

/// One stripe of an opened media set.
#[derive(Debug)]
struct Member {
    device: String,
    read: Arc<dyn FamilyRead>,
    header: MediaHeader,
    /// Where the first set header stands.
    sets_offset: u64,
    /// Index into the devices as the caller gave them.
    device_index: usize,
    /// Whether this stripe's rename is still to be made.
    pending: bool,
    /// A pipe's position: it cannot be opened twice.
    window: Mutex<Option<Window>>,
}

/// One family's part of a set, as found on its stripe.
#[derive(Debug, Clone)]
struct Part {
    header: SetHeader,
    offset: u64,
    /// Trailer, its offset, and the offset behind it.
    trailer: Option<(SetTrailer, u64, u64)>,
}

/// A backup set as all members together show it.
#[derive(Debug, Clone)]
pub struct SetSummary {
    pub header: SetHeader,
    /// Present when the set is complete on every family.
    pub trailer: Option<SetTrailer>,
}

/// Where the next set goes on one family.
pub(crate) struct Tail {
    pub end: u64,
    pub last_trailer: u64,
}

pub(crate) struct Tails {
    pub sets: u32,
    pub ends: Vec<Tail>,
}

/// The stripes of one media set, in family order.
#[derive(Debug)]
pub struct MediaSet {
    members: Vec<Member>,
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
    /// Opens the media set that the devices hold; they may be given in any order.
    ///
    /// Errors name what is wrong: missing, empty, foreign, doubled or damaged stripes.
    pub fn open(devices: &[Arc<dyn BackupDevice>]) -> Result<MediaSet, Error> {
        let found: Vec<_> = devices
            .iter()
            .enumerate()
            .map(|(i, d)| in_place(i, &**d))
            .collect();
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
                missing,
            });
        }
        Ok(MediaSet { members })
    }

    /// Reads one stripe's label without its siblings (LABELONLY).
    pub fn label(device: &dyn BackupDevice) -> Result<MediaHeader, Error> {
        in_place(0, device).map(|m| m.header)
    }

    pub fn family_count(&self) -> usize {
        self.members.len()
    }

    /// The media header of the family with this 0-based index.
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

    pub(crate) fn check_kind(&self, container: Container, compressed: bool) -> Result<(), Error> {
        let header = &self.members[0].header;
        if header.container == container && header.compressed == compressed {
            return Ok(());
        }
        let kind = |c: Container, z: bool| {
            format!("{} {c:?}", if z { "compressed" } else { "uncompressed" })
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

    /// Finishes interrupted renames; says whether there were any.
    pub(crate) fn roll_forward(&self, devices: &[Arc<dyn BackupDevice>]) -> Result<bool, Error> {
        let mut any = false;
        for member in self.members.iter().filter(|m| m.pending) {
            devices[member.device_index].complete_pending()?;
            any = true;
        }
        Ok(any)
    }

    /// All backup sets in order of position. The last may be incomplete.
    pub fn sets(&self) -> Result<Vec<SetSummary>, Error> {
        let parts = self
            .members
            .iter()
            .map(Member::parts)
            .collect::<Result<Vec<_>, _>>()?;
        let mut sets = Vec::new();
        for first in &parts[0] {
            let same = |p: &&Part| p.header.set == first.header.set;
            let all: Vec<&Part> = parts.iter().filter_map(|m| m.iter().find(same)).collect();
            let complete = all.len() == parts.len() && all.iter().all(|p| p.trailer.is_some());
            let blocks_here: u64 = all
                .iter()
                .filter_map(|p| Some(p.trailer.as_ref()?.0.blocks_here))
                .sum();
            let trailer = first.trailer.as_ref().map(|t| t.0.clone());
            sets.push(SetSummary {
                header: first.header.clone(),
                trailer: trailer.filter(|t| complete && t.blocks_total == blocks_here),
            });
        }
        Ok(sets)
    }

    /// The complete set at a 1-based position; 0 means the last one.
    pub fn set(&self, position: u32) -> Result<SetSummary, Error> {
        let mut sets = self.sets()?;
        let count = sets.len() as u32;
        let device = || self.device(0).to_owned();
        let wanted = if position == 0 { count } else { position };
        let Some(i) = sets.iter().position(|s| s.header.position == wanted) else {
            return Err(Error::NoSuchSet {
                device: device(),
                position: wanted,
                count,
            });
        };
        let set = sets.swap_remove(i);
        match set.trailer {
            Some(_) => Ok(set),
            None => Err(Error::Incomplete {
                device: device(),
                position: wanted,
            }),
        }
    }

    /// Where an appended set goes: behind the last complete one.
    pub(crate) fn tails(&self) -> Result<Tails, Error> {
        let sets = self.sets()?;
        let complete = sets.iter().take_while(|s| s.trailer.is_some()).count();
        // A crash leaves one unfinished set at the very end. More than that is damage, and cutting
        // it off would destroy what might still be saved.
        if sets.len() > complete + 1 {
            return Err(Error::Incomplete {
                device: self.device(0).into(),
                position: complete as u32 + 1,
            });
        }
        let mut ends = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let parts = member.parts()?;
            let last = complete
                .checked_sub(1)
                .and_then(|i| parts.get(i)?.trailer.as_ref());
            ends.push(match last {
                Some((_, offset, end)) => Tail {
                    end: *end,
                    last_trailer: *offset,
                },
                None => Tail {
                    end: member.sets_offset,
                    last_trailer: 0,
                },
            });
        }
        Ok(Tails {
            sets: complete as u32,
            ends,
        })
    }

    /// The blocks that one family holds of the set at `position` (1-based).
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
                let parts = member.parts()?;
                let part = parts
                    .iter()
                    .find(|p| p.header.position == position)
                    .ok_or_else(|| {
                        let device = member.device.clone();
                        Error::NoSuchSet {
                            device,
                            position,
                            count: parts.len() as u32,
                        }
                    })?;
                Window::new(member.device.clone(), member.read.clone(), part.offset)?
            }
        };
        BlockStream::begin(window, member.header.container, position)
    }

    /// Calls `each` with every manifest item of a complete set, family by family, from the index alone.
    pub fn items(&self, position: u32, mut each: impl FnMut(Item)) -> Result<(), Error> {
        for member in &self.members {
            let parts = member.parts()?;
            let part = parts.iter().find(|p| p.header.position == position);
            let Some((trailer, ..)) = part.and_then(|p| p.trailer.as_ref()) else {
                return Err(Error::Incomplete {
                    device: member.device.clone(),
                    position,
                });
            };
            for at in member.chunk_places((trailer.index_offset, trailer.index_len))? {
                for row in member.chunk(at)?.rows {
                    let items = manifest::decode(&row.manifest, row.plain_len);
                    items
                        .map_err(|e| member.damaged(at.0, e))?
                        .into_iter()
                        .for_each(&mut each);
                }
            }
        }
        Ok(())
    }
}

fn agree(found: &[Result<Member, Error>]) -> bool {
    let mut ids = found.iter().flatten().map(|m| identity(&m.header));
    let first = ids.next();
    ids.all(|id| Some(id) == first)
}

/// What stands under the device's own name.
fn in_place(device_index: usize, device: &dyn BackupDevice) -> Result<Member, Error> {
    let read = device.open()?.ok_or_else(|| Error::Missing {
        device: device.name(),
    })?;
    Member::open(device, device_index, read, false)
}

/// The members of a set whose completion was interrupted: each device has it in place or pending,
/// at least one pending, all ending in a complete set.
fn rolled_forward(devices: &[Arc<dyn BackupDevice>]) -> Result<Option<Vec<Member>>, Error> {
    let mut pending = Vec::new();
    for (i, device) in devices.iter().enumerate() {
        let read = device.open_pending()?;
        pending.push(read.and_then(|r| Member::open(&**device, i, r, true).ok()));
    }
    let Some(wanted) = pending.iter().flatten().map(|m| identity(&m.header)).next() else {
        return Ok(None);
    };
    let is_wanted = |m: &Member| identity(&m.header) == wanted;
    let mut members = Vec::new();
    for (i, device) in devices.iter().enumerate() {
        let here = in_place(i, &**device).ok().filter(is_wanted);
        match here.or(pending[i].take().filter(is_wanted)) {
            Some(member) => members.push(member),
            None => return Ok(None),
        }
    }
    let Ok(media) = MediaSet::assemble(members) else {
        return Ok(None);
    };
    let complete = media
        .sets()
        .is_ok_and(|s| s.last().is_some_and(|s| s.trailer.is_some()));
    Ok(complete.then_some(media.members))
}

impl Member {
    fn open(
        device: &dyn BackupDevice,
        device_index: usize,
        read: Arc<dyn FamilyRead>,
        pending: bool,
    ) -> Result<Member, Error> {
        let name = device.name();
        if read.len_bytes()? == Some(0) {
            return Err(Error::Empty { device: name });
        }
        let mut window = Window::new(name.clone(), read.clone(), 0)?;
        let not_media = |offset, what| match what {
            Malformed::Feature(bits) => Error::Newer {
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
            Container::detect(&start[..got]).ok_or_else(|| not_media(0, Malformed::Framing))?;
        let preamble = container.preamble().len();
        window.read(&mut start[..preamble])?;
        let mut framed = Vec::new();
        let header = match window.record(container, &mut framed) {
            Ok(Some((Kind::Media, body))) => MediaHeader::decode(body),
            Ok(Some((kind, _))) => Err(Malformed::Kind(kind as u8)),
            Ok(None) => Err(Malformed::Length),
            Err(Error::Damaged { what, .. }) => Err(what),
            Err(e) => return Err(e),
        };
        let header = header.map_err(|e| not_media(preamble as u64, e))?;
        if header.container != container {
            return Err(not_media(preamble as u64, Malformed::Field));
        }
        let sets_offset = window.offset();
        // Only a pipe must go on where the label ended.
        let kept = (device.class() == DeviceClass::Pipe).then_some(window);
        let window = Mutex::new(kept);
        Ok(Member {
            device: name,
            read,
            header,
            sets_offset,
            device_index,
            pending,
            window,
        })
    }

    fn damaged(&self, offset: u64, what: Malformed) -> Error {
        match what {
            Malformed::Feature(bits) => Error::Newer {
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

    /// The record at `offset` and the offset behind it; `None` when the stripe ends before it does.
    fn record_at(&self, offset: u64) -> Result<Option<(Kind, Vec<u8>, u64)>, Error> {
        let container = self.header.container;
        let mut framed = vec![0; 4096];
        let got = self.read.read_at(&mut framed, offset)?;
        if got < container.prefix_len() {
            return Ok(None);
        }
        let bad = |e| self.damaged(offset, e);
        let len = container.framed_len_at(&framed[..got]).map_err(bad)?;
        if len > got {
            framed.resize(len, 0);
            if self.read.read_at(&mut framed, offset)? < len {
                return Ok(None);
            }
        }
        let (kind, body) = container.parse(&framed[..len]).map_err(bad)?;
        Ok(Some((kind, body.to_vec(), offset + len as u64)))
    }

    fn set_header_at(&self, offset: u64) -> Result<Option<SetHeader>, Error> {
        match self.record_at(offset)? {
            Some((Kind::Set, body, _)) => SetHeader::decode(&body)
                .map(Some)
                .map_err(|e| self.damaged(offset, e)),
            _ => Ok(None),
        }
    }

    /// All sets on this stripe: along the trailers when the last bytes are one, else by stepping over every
    /// block.
    fn parts(&self) -> Result<Vec<Part>, Error> {
        let Some(len) = self.read.len_bytes()? else {
            return Err(Error::Unsupported {
                device: self.device.clone(),
                action: "list its sets",
            });
        };
        match self.parts_backward(len) {
            Ok(Some(parts)) => Ok(parts),
            Ok(None) | Err(Error::Damaged { .. }) => self.parts_forward(),
            Err(e) => Err(e),
        }
    }

    fn parts_backward(&self, len: u64) -> Result<Option<Vec<Part>>, Error> {
        let trailer_len = self.header.container.framed_len(TRAILER_LEN) as u64;
        let mut parts = Vec::new();
        let mut end = len;
        while end > self.sets_offset {
            let Some(at) = end
                .checked_sub(trailer_len)
                .filter(|at| *at > self.sets_offset)
            else {
                return Ok(None);
            };
            let Some((Kind::Trailer, body, behind)) = self.record_at(at)? else {
                return Ok(None);
            };
            let trailer = SetTrailer::decode(&body).map_err(|e| self.damaged(at, e))?;
            let offset = trailer.set_offset;
            // Each step must go back, or a hostile chain would never end.
            if behind != end || offset >= at || offset < self.sets_offset {
                return Ok(None);
            }
            let Some(header) = self.set_header_at(offset)?.filter(|h| h.set == trailer.set) else {
                return Ok(None);
            };
            parts.push(Part {
                header,
                offset,
                trailer: Some((trailer, at, behind)),
            });
            end = offset;
        }
        parts.reverse();
        Ok(Some(parts))
    }

    fn parts_forward(&self) -> Result<Vec<Part>, Error> {
        let mut parts: Vec<Part> = Vec::new();
        let mut at = self.sets_offset;
        loop {
            let (kind, body, end) = match self.record_at(at) {
                Ok(Some(record)) => record,
                // What cannot be read ends the last set without a trailer.
                Ok(None) | Err(Error::Damaged { .. }) => return Ok(parts),
                Err(e) => return Err(e),
            };
            let start = at;
            let bad = |e| self.damaged(start, e);
            at = end;
            match kind {
                Kind::Set => {
                    let header = SetHeader::decode(&body).map_err(bad)?;
                    parts.push(Part {
                        header,
                        offset: start,
                        trailer: None,
                    });
                }
                Kind::Block => {
                    let (header, _) = crate::BlockHeader::decode(&body).map_err(bad)?;
                    at += u64::from(header.stored_len);
                }
                Kind::Trailer => {
                    let trailer = SetTrailer::decode(&body).map_err(bad)?;
                    if let Some(part) = parts.last_mut().filter(|p| p.header.set == trailer.set) {
                        part.trailer = Some((trailer, start, at));
                    }
                }
                Kind::Manifest | Kind::Index => {}
                Kind::Media => return Ok(parts),
            }
        }
    }

    fn chunk(&self, (offset, len): (u64, u32)) -> Result<Chunk, Error> {
        // Compressed data is never much longer than its raw bytes, so this bounds a hostile length.
        if len as usize > 2 * index::CHUNK_RAW_MAX {
            return Err(self.damaged(offset, Malformed::Length));
        }
        let mut framed = vec![0; len as usize];
        if self.read.read_at(&mut framed, offset)? < framed.len() {
            return Err(self.damaged(offset, Malformed::Length));
        }
        index::decode_chunk(self.header.container, &framed).map_err(|e| self.damaged(offset, e))
    }

    /// Offsets and lengths of a set's index chunks, first to last.
    fn chunk_places(&self, last: (u64, u32)) -> Result<Vec<(u64, u32)>, Error> {
        let mut places = Vec::new();
        let mut at = last;
        while at.1 > 0 {
            places.push(at);
            let previous = self.chunk(at)?.previous;
            if previous.1 > 0 && previous.0 >= at.0 {
                return Err(self.damaged(at.0, Malformed::Field));
            }
            at = previous;
        }
        places.reverse();
        Ok(places)
    }
}
