//! Writes lost and damaged stripes of a media set with parity once more.
//!
//! Every stripe is read in full and compared with the checksums of its rows. Those that are lost or damaged are written
//! as new stripes, read back from the others, and get their names when all of them are durable.
//!
//! Invariants
//! - A stripe that is whole is not touched, and a damaged one is replaced, never changed.
//! - All bytes that a repair writes have passed every check of the format that needs no key on their way.
//! - Of a data stripe that is there, only bytes are replaced that fail those checks. If a stripe passes them and the parity
//!   stripes contradict it, nothing is written: one of the two was changed on purpose, and no key is there to say which.
//! - A file or object that belongs to something else is never replaced, and neither is a stripe that only did not answer:
//!   only an error of the medium is damage.
//!
//! Leaves to others: rebuilding (`parity`), and where stripes are (`device.rs`).

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_io::side_by_side;

use crate::Error;
use crate::copy::{Moved, Parts, look_through};
use crate::device::{BackupDevice, FamilyRead, complete_all};
use crate::header::{SetHeader, SetTrailer};
use crate::parity::{self, Group, StripeFault};
use crate::set_reader::MediaSet;

/// The findings of a repair, before it writes anything.
#[derive(Debug)]
pub struct Examined {
    media: MediaSet,
    header: SetHeader,
    trailer: SetTrailer,
    faults: Vec<StripeFault>,
}

impl Examined {
    /// Reads all stripes on the devices, which may be given in any order.
    ///
    /// Errors: those of [`MediaSet::open`]; [`Error::NoParity`];
    /// [`Error::Incomplete`]; [`Error::BeyondParity`] if more is lost than parity can stand for.
    pub fn of(devices: &[Arc<dyn BackupDevice>], moved: Moved<'_>) -> Result<Examined, Error> {
        let media = MediaSet::open(devices)?;
        let set = media.set(0)?;
        let incomplete = || Error::Incomplete {
            device: media.device(0).to_owned(),
            position: set.header.position,
        };
        let trailer = set.trailer.clone().ok_or_else(incomplete)?;
        let Some(group) = media.group() else {
            return Err(Error::NoParity {
                device: media.device(0).to_owned(),
            });
        };
        examine(group, 0, (&set.header, &trailer), moved)?;
        check_by_format(&media, &set.header, moved)?;
        let faults = media.faults();
        Ok(Examined {
            header: set.header,
            trailer,
            faults,
            media,
        })
    }

    pub fn media(&self) -> &MediaSet {
        &self.media
    }

    pub fn header(&self) -> &SetHeader {
        &self.header
    }

    /// The faults of the stripes; none if the media set is whole.
    pub fn faults(&self) -> &[StripeFault] {
        &self.faults
    }

    /// Writes the stripes that are lost or damaged, and gives them their names. Returns the bytes that were written.
    ///
    /// Errors: [`Error::Missing`] if no device was given for a lost stripe; [`Error::Exists`] where something else is;
    /// [`Error::Busy`]; [`Error::BeyondParity`]; those of the devices and of `moved`.
    pub fn repair(self, devices: &[Arc<dyn BackupDevice>], moved: Moved<'_>) -> Result<u64, Error> {
        // Renames that a crash prevented are part of the repair.
        if self.media.is_pending() {
            self.media.roll_forward(devices)?;
        }
        let Some(group) = self.media.group() else {
            return Ok(0);
        };
        let bad: Vec<usize> = (0..group.places.len())
            .filter(|m| group.is_bad(*m))
            .collect();
        let targets: Result<Vec<_>, Error> =
            bad.iter().map(|m| target(group, *m, devices)).collect();
        let targets = targets?;
        // If rows are unknown, all parity stripes get new ones.
        let parts = Parts {
            media: &self.media,
            header: &self.header,
            trailer: &self.trailer,
            resumes: false,
        };
        let (mut stripes, _) = parts.write((&bad, &targets), moved)?;
        let again = MediaSet::open(devices)?;
        let is_same = again.header(0).media_set == self.media.header(0).media_set
            && again.header(0).generation == self.media.header(0).generation
            && again.set(0)?.header.set == self.header.set;
        if !is_same {
            return Err(Error::Busy {
                device: self.media.device(0).to_owned(),
            });
        }
        let bytes = stripes.iter().map(|(_, write)| write.offset()).sum();
        for (_, write) in &mut stripes {
            write.keep();
        }
        complete_all(stripes, &mut || {})?;
        Ok(bytes)
    }
}

/// Reads data stripes that are not as the rows say, to see whether the checks of the format say so, too: a stripe that
/// passes them is not replaced, whatever the parity stripes say of it.
///
/// Errors: [`Error::Contradiction`]; [`Error::BeyondParity`]; what is wrong with a rebuilt stripe.
fn check_by_format(media: &MediaSet, header: &SetHeader, moved: Moved<'_>) -> Result<(), Error> {
    for m in 0..media.family_count() {
        let Some(stripe) = media.rebuilt(m) else {
            continue;
        };
        // A lost stripe is checked when it is written.
        let is_there = |group: &Arc<Group>| group.is_bad(m) && group.places[m].read.is_some();
        let member = media.member(m);
        if media.group().is_some_and(is_there) {
            look_through(member, header, moved)?;
            if let Some(offset) = stripe.contradiction()? {
                return Err(Error::Contradiction {
                    device: member.device.clone(),
                    offset,
                });
            }
        }
    }
    Ok(())
}

/// Reads the parity stripes of media with parity in full and notes what is wrong with them; nothing else tells.
///
/// Errors: [`Error::Cancelled`], those of `moved`, and those of reading if the medium is not at fault.
pub fn check_parity(media: &MediaSet, moved: Moved<'_>) -> Result<(), Error> {
    let Some(group) = media.group() else {
        return Ok(());
    };
    let set = media.set(0)?;
    match &set.trailer {
        Some(trailer) => examine(group, group.data, (&set.header, trailer), moved),
        None => Ok(()),
    }
}

/// A stripe being examined. Remembers why a read failed, unless the medium was at fault: a disk or a store that does not
/// answer now says nothing of the bytes.
#[derive(Debug)]
struct Watched<'a> {
    read: &'a dyn FamilyRead,
    failed: Mutex<Option<Error>>,
}

impl Watched<'_> {
    fn new(read: &dyn FamilyRead) -> Watched<'_> {
        Watched {
            read,
            failed: Mutex::default(),
        }
    }

    /// Hands a result on, and keeps the first failure that is not of the medium: it says more than the bytes it kept back.
    fn heed<T>(&self, done: Result<T, Error>, offset: u64) -> Result<T, Error> {
        match done {
            Err(error) if !parity::is_lost_to_medium(&error) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
                Err(Error::Io {
                    action: "read",
                    device: String::new(),
                    offset,
                    source: io::Error::other("it failed before"),
                })
            }
            done => done,
        }
    }

    /// The finding, if nothing but the medium kept the bytes back.
    fn judged<T>(self, found: T) -> Result<T, Error> {
        let failed = self.failed.into_inner();
        match failed.unwrap_or_else(PoisonError::into_inner) {
            None => Ok(found),
            Some(error) => Err(error),
        }
    }
}

impl FamilyRead for Watched<'_> {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        self.heed(self.read.len_bytes(), 0)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.heed(self.read.read_at(buf, offset), offset)
    }
}

/// Compares all bytes of the stripes from `first` on with the checksums of their rows, and notes what is wrong.
///
/// Errors: [`Error::Cancelled`], those of `moved`, and those of reading if the medium is not at fault.
fn examine(
    group: &Arc<Group>,
    first: usize,
    set: (&SetHeader, &SetTrailer),
    moved: Moved<'_>,
) -> Result<(), Error> {
    let Ok(table) = group.table(0) else {
        for m in group.data..group.places.len() {
            if let Some(read) = group.places[m].read.as_deref() {
                let watched = Watched::new(read);
                let table = parity::RowTable::of_index(&watched);
                watched.judged(table)?;
            }
            group.note(m, "its rows cannot be read");
        }
        return Ok(());
    };
    let work = |i: usize| -> Result<(), Error> {
        let m = first + i;
        let Some(read) = group.places[m].read.as_deref() else {
            return Ok(());
        };
        let watched = Watched::new(read);
        if m >= group.data {
            let what = match table.is_complete() {
                true => parity::examined(table, m, &watched, set, moved)?,
                false => Some("some of its rows cannot be read".to_owned()),
            };
            if let Some(what) = watched.judged(what)? {
                group.note(m, &what);
            }
            return Ok(());
        }
        let has_len = read.len_bytes()? == Some(table.stripe_len(m));
        if table.is_whole && !has_len {
            group.note(m, "it does not have the length that was written");
        }
        for entry in (0..table.len()).filter(|entry| table.is_known(*entry)) {
            let watched = Watched::new(read);
            let bytes = parity::own(table, entry, m, &watched)?;
            if watched.judged(bytes)?.is_none() {
                group.note_row(table, entry, m);
            }
            moved(u64::from(table.member(entry, m).len))?;
        }
        Ok(())
    };
    let done = side_by_side(group.places.len() - first, work).map_err(|source| Error::Io {
        action: "start a thread to read",
        device: group.places[0].name.clone(),
        offset: 0,
        source,
    })?;
    done.into_iter().collect()
}

/// The device that a stripe is written to.
fn target(
    group: &Group,
    member: usize,
    devices: &[Arc<dyn BackupDevice>],
) -> Result<Arc<dyn BackupDevice>, Error> {
    let place = &group.places[member];
    if let Some(why) = &place.kept {
        return Err(Error::Occupied {
            device: place.name.clone(),
            why: why.clone(),
        });
    }
    match place.device_index {
        Some(index) => Ok(devices[index].clone()),
        None => Err(Error::NoDevice {
            family: place.name.clone(),
        }),
    }
}
