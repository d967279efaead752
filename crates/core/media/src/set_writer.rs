//! Begins, continues and seals one backup set over all families.
//!
//! Steps, in this order on every family: media header (new media) · set header · blocks and index chunks · data synced
//! · trailer · synced · complete.
//!
//! Invariants
//! - [`SetWriter::seal`] writes the first trailer only when the data of *all* families is durable, so a trailer never
//!   promises data that a crash could lose.
//! - Stripes are completed one after the other, in the order of their devices' names, so two writers without locks meet
//!   at the first name that both have.
//!
//! Leaves to others: one stripe's blocks, index and trailer (`family_writer.rs`), the content of blocks
//! (`longshore-pipeline`), and where a stripe's bytes go (`device.rs`).

use std::io;
use std::sync::Arc;

use longshore_crypt::{NewKey, Root, SetKeys};
use longshore_io::Via;
use uuid::Uuid;

use crate::device::{BackupDevice, DeviceClass, Stripe, complete_all};
use crate::encrypted::Roots;
use crate::family_writer::FamilyWriter;
use crate::header::{FAMILIES_MAX, LogEnd, MediaHeader, SETS_MAX, SetHeader, SetTrailer};
use crate::index::ChunkKeys;
use crate::record::{Container, RecordKind};
use crate::{Error, MediaSet};

/// The treatment of media that exist on the devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Disposition {
    /// Start a new media set; fail if anything exists.
    #[default]
    New,
    /// Add a set after the last one (NOINIT). Starts a new media set if none exists.
    Append,
    /// Replace all sets of the media (INIT); fail for unexpired ones unless `skip`.
    Init { skip: bool },
    /// Start a new media set over existing content, readable or not.
    Format,
}

/// The caller's decisions about a set; the rest follows from the media.
#[derive(Debug, Clone)]
pub struct SetPlan {
    pub disposition: Disposition,
    pub media_name: String,
    pub media_description: String,
    /// [`SetWriter::begin`] fills in `position`.
    pub header: SetHeader,
    pub via: Via,
    /// About how many bytes the set will have, if that is known.
    pub expected_bytes: Option<u64>,
    /// How the set is encrypted; `None`: it is not.
    pub encryption: Option<EncryptTo>,
}

/// How a set is encrypted.
#[derive(Debug, Clone)]
pub struct EncryptTo {
    /// For this set alone.
    pub key: Arc<NewKey>,
    /// The root of the set that a differential one differs from; zeros if there is none, or it is not encrypted.
    pub parent_root: Root,
}

/// Totals known only at the end of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub damaged: bool,
    pub log: LogEnd,
    pub finish_us: i64,
    pub plain_bytes: u64,
    pub entries: u64,
    pub files: u64,
}

/// The content of a set's first records.
struct Start {
    /// The media headers of the stripes.
    media: Vec<MediaHeader>,
    header: SetHeader,
    encryption: Option<EncryptTo>,
}

/// A set being written. [`SetWriter::families`] are given to the writer threads and returned to be sealed.
pub struct SetWriter {
    pub media_set: Uuid,
    pub header: SetHeader,
    pub container: Container,
    pub families: Vec<FamilyWriter>,
    /// Those of an encrypted set: blocks are encrypted with them.
    pub keys: Option<Arc<SetKeys>>,
}

impl SetWriter {
    /// Opens the devices, finishes an interrupted completion, applies the disposition's rules and writes the headers.
    /// `now_us` is the creation time of new media.
    pub fn begin(
        devices: &[Arc<dyn BackupDevice>],
        plan: SetPlan,
        now_us: i64,
    ) -> Result<SetWriter, Error> {
        check_devices(devices)?;
        let encrypted = plan.encryption.is_some();
        let container = Container::of_set(plan.header.algorithm, encrypted);
        let compressed = plan.header.algorithm != longshore_codec::Algorithm::None;
        let existing = existing_media(devices, &plan, now_us)?;
        if let (Some(media), Disposition::Append) = (&existing, plan.disposition) {
            media.check_kind(container, compressed, encrypted)?;
            return SetWriter::append(devices, media, plan, container);
        }
        // INIT keeps the media's identity and only drops its sets; the media's container may change.
        let keep = existing.filter(|_| matches!(plan.disposition, Disposition::Init { .. }));
        let fingerprint = |m: &Option<MediaSet>| m.as_ref().map(MediaSet::fingerprint).transpose();
        let seen = fingerprint(&keep)?;
        let media_set = keep
            .as_ref()
            .map_or_else(Uuid::new_v4, |m| m.header(0).media_set);
        let uuids: Vec<_> = devices.iter().map(|_| Uuid::new_v4()).collect();
        let stripe_bytes = stripe_bytes(plan.expected_bytes, devices.len());
        let create = |((device, uuid), family): ((&Arc<dyn BackupDevice>, &Uuid), usize)| {
            device.create_stripe(&Stripe {
                via: plan.via,
                label: format!("{media_set}/{family}/{uuid}"),
                expected_bytes: stripe_bytes,
            })
        };
        let writes = devices.iter().zip(&uuids).zip(1..).map(create);
        let writes = writes.collect::<Result<Vec<_>, _>>()?;
        // No other writer is possible from here on. Another backup may have finished between the first look and the
        // lock, so the media must still be what they were.
        if plan.disposition != Disposition::Format
            && fingerprint(&existing_media(devices, &plan, now_us)?)? != seen
        {
            return Err(Error::Busy {
                device: devices[0].name(),
            });
        }
        let mut families = Vec::with_capacity(devices.len());
        let mut headers = Vec::with_capacity(devices.len());
        for (i, (device, mut write)) in devices.iter().zip(writes).enumerate() {
            let old = keep.as_ref().map(|m| m.header(i));
            let header = MediaHeader {
                media_set,
                family_uuid: uuids[i],
                family: i as u16 + 1,
                family_count: devices.len() as u16,
                parity_count: 0,
                container,
                compressed,
                encrypted,
                created_us: now_us,
                generation: old.map_or(0, |h| h.generation.wrapping_add(1)),
                name: old.map_or_else(|| plan.media_name.clone(), |h| h.name.clone()),
                description: old
                    .map_or_else(|| plan.media_description.clone(), |h| h.description.clone()),
                software: concat!("Longshore ", env!("CARGO_PKG_VERSION")).into(),
            };
            let mut start = container.preamble().to_vec();
            container.append(RecordKind::Media, &header.encode(), &mut start);
            write.write(&start)?;
            families.push(FamilyWriter::new(
                write,
                device.name(),
                container,
                i as u16 + 1,
                0,
            ));
            headers.push(header);
        }
        let header = SetHeader {
            position: 1,
            encrypted,
            ..plan.header
        };
        let set = Start {
            media: headers,
            header,
            encryption: plan.encryption,
        };
        SetWriter::start(set, container, families)
    }

    fn append(
        devices: &[Arc<dyn BackupDevice>],
        media: &MediaSet,
        plan: SetPlan,
        container: Container,
    ) -> Result<SetWriter, Error> {
        // Devices may be given in any order: the media tell which family each one is.
        let tails = media.tails()?;
        if tails.sets >= SETS_MAX {
            return Err(Error::Unsupported {
                device: devices[0].name(),
                action: "hold more than 65,536 backup sets",
            });
        }
        let mut families = Vec::with_capacity(devices.len());
        for (i, tail) in tails.ends.iter().enumerate() {
            let device = &devices[media.device_index(i)];
            let write = device.append(tail.end, plan.via)?;
            families.push(FamilyWriter::new(
                write,
                device.name(),
                container,
                i as u16 + 1,
                tail.last_trailer,
            ));
        }
        // As above: the append position was found before the locks were held.
        let again = MediaSet::open(devices)?;
        if again.header(0) != media.header(0) || again.tails()? != tails {
            return Err(Error::Busy {
                device: devices[0].name(),
            });
        }
        let header = SetHeader {
            position: tails.sets + 1,
            encrypted: plan.encryption.is_some(),
            ..plan.header
        };
        let families_of = 0..media.family_count();
        let set = Start {
            media: families_of.map(|i| media.header(i).clone()).collect(),
            header,
            encryption: plan.encryption,
        };
        SetWriter::start(set, container, families)
    }

    fn start(
        set: Start,
        container: Container,
        mut families: Vec<FamilyWriter>,
    ) -> Result<SetWriter, Error> {
        let mut set = set;
        if let (Some(to), Some(key)) = (&set.encryption, &mut set.header.sum_key) {
            // A person who knows it can look for two pages with one sum.
            *key = key.masked(&to.key.sums_mask(set.header.set.as_bytes()));
        }
        let header = set.header.encode();
        let (keys, records) = match &set.encryption {
            None => (None, Vec::new()),
            Some(to) => {
                let made = SetKeys::create(&header, &to.key, to.parent_root);
                let (keys, records) = made.map_err(|source| Error::Key {
                    device: families[0].device().to_owned(),
                    position: set.header.position,
                    source,
                })?;
                (Some(Arc::new(keys)), records)
            }
        };
        for (family, media) in families.iter_mut().zip(&set.media) {
            family.put_start(&header, &records)?;
            if let Some(keys) = &keys {
                let keys = ChunkKeys {
                    keys: keys.clone(),
                    set: *set.header.set.as_bytes(),
                    family: media.family,
                };
                family.encrypt(keys, media);
            }
        }
        Ok(SetWriter {
            media_set: set.media[0].media_set,
            header: set.header,
            container,
            families,
            keys,
        })
    }

    /// Finishes the set. The caller must first have called [`FamilyWriter::finish_data`] with success on every family.
    /// Returns the stored bytes of the set over all families.
    pub fn seal(self, totals: &Totals) -> Result<u64, Error> {
        self.seal_and_tell(totals, &mut || {})
    }

    /// [`SetWriter::seal`]; `tell` is called before the first stripe is completed, and after each.
    pub fn seal_and_tell(self, totals: &Totals, tell: &mut dyn FnMut()) -> Result<u64, Error> {
        let mut families = self.families;
        let roots: Option<Vec<Root>> = families.iter().map(FamilyWriter::root).collect();
        if let Some(roots) = &roots {
            let roots = Roots {
                set: self.header.set,
                families: roots.clone(),
            };
            // A trailer promises all that is before it, these included.
            for family in &mut families {
                family.put_roots(&roots)?;
            }
        }
        let blocks_total = families.iter().map(FamilyWriter::blocks).sum();
        let stored = families.iter().map(|f| f.stored_bytes()).sum();
        let whole = SetTrailer {
            set: self.header.set,
            position: self.header.position,
            damaged: totals.damaged,
            log: totals.log,
            finish_us: totals.finish_us,
            blocks_total,
            plain_bytes_total: totals.plain_bytes,
            stored_bytes_total: stored,
            entries_total: totals.entries,
            files_total: totals.files,
            ..SetTrailer::default()
        };
        let root = self.keys.as_ref().zip(roots);
        let root = root.map(|(keys, roots)| keys.set_root(&whole.whole(), &roots));
        for family in &mut families {
            family.put_trailer(&whole, root)?;
        }
        for family in &mut families {
            family.sync()?;
        }
        for family in &mut families {
            family.keep();
        }
        let stripes = families.into_iter().map(FamilyWriter::into_stripe);
        complete_all(stripes.collect(), tell)?;
        Ok(stored)
    }
}

/// About how many bytes one of `stripes` stripes will have: its share, and a fiftieth for what compression may add.
pub fn stripe_bytes(expected_bytes: Option<u64>, stripes: usize) -> Option<u64> {
    let bytes = expected_bytes?;
    Some((bytes + bytes / 50) / stripes.max(1) as u64)
}

fn check_devices(devices: &[Arc<dyn BackupDevice>]) -> Result<(), Error> {
    if devices.is_empty() || devices.len() > FAMILIES_MAX as usize {
        return Err(Error::DeviceCount {
            given: devices.len(),
        });
    }
    let class = devices[0].class();
    let mixed = devices.iter().find(|d| d.class() != class);
    let second_pipe = devices.get(1).filter(|_| class == DeviceClass::Pipe);
    match mixed.or(second_pipe) {
        Some(odd) => Err(Error::DeviceClass { device: odd.name() }),
        None => Ok(()),
    }
}

/// The existing media on the devices, if the disposition allows; `None` if a new media set begins.
fn existing_media(
    devices: &[Arc<dyn BackupDevice>],
    plan: &SetPlan,
    now_us: i64,
) -> Result<Option<MediaSet>, Error> {
    if !matches!(devices[0].class(), DeviceClass::File | DeviceClass::Bucket) {
        return Ok(None);
    }
    if plan.disposition == Disposition::Format {
        refuse_databases(devices)?;
        // A backup whose renames a crash prevented is kept until this one replaces it.
        if let Ok(media) = MediaSet::open(devices) {
            media.roll_forward(devices)?;
        }
        return Ok(None);
    }
    let mut here = 0;
    for device in devices {
        let read = device.open()?;
        let empty = match &read {
            // A file may have been created for the backup. An object of no bytes is somebody's.
            Some(read) => device.class() == DeviceClass::File && read.len_bytes()? == Some(0),
            None => true,
        };
        if empty {
            continue;
        }
        here += 1;
        if plan.disposition == Disposition::New {
            return Err(Error::Exists {
                device: device.name(),
                is_media: MediaSet::label(&**device).is_ok(),
            });
        }
    }
    if here == 0 && plan.disposition == Disposition::New {
        // Finished stripes whose renames a crash prevented are no obstacle: that backup was never reported as
        // complete.
        return Ok(None);
    }
    let media = match MediaSet::open(devices) {
        Err(_) if here == 0 => return Ok(None),
        Err(e @ (Error::Missing { .. } | Error::Empty { .. } | Error::FamilyMissing { .. })) => {
            return Err(family_count(devices).unwrap_or(e));
        }
        other => other?,
    };
    let media = match media.roll_forward(devices)? {
        false => media,
        // The renames replaced the stripes under the names.
        true => MediaSet::open(devices)?,
    };
    match plan.disposition {
        Disposition::Init { skip: true } => {}
        Disposition::Init { skip: false } => {
            media.check_name(&plan.media_name)?;
            media.check_expiry(now_us)?;
        }
        _ => media.check_name(&plan.media_name)?,
    }
    Ok(Some(media))
}

/// FORMAT overwrites unreadable content, but never a database, its log or its journal: another program may have it
/// open, and it may be the source itself.
fn refuse_databases(devices: &[Arc<dyn BackupDevice>]) -> Result<(), Error> {
    /// SQLite file format, sections 1.3, 4.1 and 3.
    const MAGICS: [(&[u8], &str); 4] = [
        (b"SQLite format 3\0", "it is a SQLite database"),
        (
            b"\x37\x7f\x06\x82",
            "it is the write-ahead log of a SQLite database",
        ),
        (
            b"\x37\x7f\x06\x83",
            "it is the write-ahead log of a SQLite database",
        ),
        (
            b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
            "it is the journal of a SQLite database",
        ),
    ];
    for device in devices {
        let mut head = [0; 16];
        let read = device.open()?;
        let Some(read) = read else { continue };
        let len = read.read_at(&mut head, 0)?;
        if let Some((_, what)) = MAGICS.iter().find(|(m, _)| head[..len].starts_with(m)) {
            return Err(Error::Io {
                action: "open",
                device: device.name(),
                offset: 0,
                source: io::Error::new(io::ErrorKind::ResourceBusy, *what),
            });
        }
    }
    Ok(())
}

/// The error if the number of devices differs from what the media on one of them were formatted for.
fn family_count(devices: &[Arc<dyn BackupDevice>]) -> Option<Error> {
    devices.iter().find_map(|device| {
        let label = MediaSet::label(&**device).ok()?;
        (usize::from(label.family_count) != devices.len()).then(|| Error::FamilyCount {
            device: device.name(),
            found: label.family_count,
            expected: devices.len(),
        })
    })
}
