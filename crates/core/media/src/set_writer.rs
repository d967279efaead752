//! Begins, continues and seals one backup set over all families.
//!
//! Steps, in this order on every family: media header (new media) · set header · blocks and index chunks · data synced
//! · trailer · synced · complete. Parity families have rows in place of blocks; their trailers come when those of the
//! data families and the last row are synced.
//!
//! Invariants
//! - [`SetWriter::seal`] writes the first trailer only when the data of *all* families is durable, so a trailer never
//!   promises data that a crash could lose.
//! - Stripes are completed one after the other, in the order of their devices' names, so two writers without locks meet
//!   at the first name that both have.
//! - The key object of a set with detached keys is durable at each of its places before the first trailer is written, and none is
//!   left of a set that fails before.
//! - Where the plan tolerates it, a stripe whose device fails is left out of all of this, and its bytes are in the rows alone.
//!
//! Leaves to others: one stripe's blocks, index and trailer (`family_writer.rs`), the content of blocks
//! (`longshore-pipeline`), and where a stripe's bytes go (`device.rs`).

use std::io;
use std::sync::Arc;

use longshore_crypt::{
    IndexSecret, NewKey, ObjectName, Root, SetKeys, Signed, SigningKey, StoredSignature,
    first_object,
};
use longshore_io::Via;
use uuid::Uuid;

use crate::device::{BackupDevice, DeviceClass, Folder, NamedStripe, Settle, Stripe, complete_all};
use crate::encrypted::Roots;
use crate::family_writer::FamilyWriter;
use crate::header::{
    FAMILIES_MAX, LogEnd, MediaHeader, PARITY_MAX, SETS_MAX, SetHeader, SetTrailer,
};
use crate::index::{ChunkKeys, ChunkOwner};
use crate::parity::{self, Bearing, Losses, ParityStripe, ROW_BYTES, Rows, StripeFault, Tap};
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
    pub parity: ParityPlan,
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
    /// Signs the set; `None`: it is not signed.
    pub sign: Option<Arc<SigningKey>>,
    /// Where the key object of a set with detached keys goes: to each of these places. Empty for others.
    pub places: Vec<Folder>,
}

/// The parity stripes of a new media set: the last ones of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParityPlan {
    pub count: u16,
    /// The most bytes that a row takes from a stripe, [`ROW_BYTES`] except in tests.
    pub row_bytes: u32,
    /// How many stripes may be lost to devices that fail while the set is written; at most `count`.
    pub tolerated: u16,
}

impl Default for ParityPlan {
    fn default() -> ParityPlan {
        ParityPlan::of(0)
    }
}

impl ParityPlan {
    /// `count` parity stripes.
    pub fn of(count: u16) -> ParityPlan {
        ParityPlan {
            count,
            row_bytes: ROW_BYTES,
            tolerated: 0,
        }
    }

    /// The same stripes; so many of all stripes may be lost while the set is written.
    pub fn tolerating(self, tolerated: u16) -> ParityPlan {
        ParityPlan { tolerated, ..self }
    }

    /// The memory that the parity takes while a set is written, without that of its devices.
    pub fn memory_bytes(self) -> u64 {
        parity::memory_bytes(self.count)
    }
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

impl Start {
    fn new(media: Vec<MediaHeader>, mut header: SetHeader, to: Option<EncryptTo>) -> Start {
        header.keys_detached = to.as_ref().is_some_and(|to| to.key.is_detached());
        if let (Some(to), Some(key)) = (&to, &mut header.sum_key) {
            // A person who knows it can look for two pages with one sum.
            *key = key.masked(&to.key.sums_mask(header.set.as_bytes()));
        }
        Start {
            media,
            header,
            encryption: to,
        }
    }
}

/// A set being written. [`SetWriter::families`] are given to the writer threads and returned to be sealed.
pub struct SetWriter {
    pub media_set: Uuid,
    pub header: SetHeader,
    pub container: Container,
    /// Of the data families.
    pub families: Vec<FamilyWriter>,
    /// Those of an encrypted set: blocks are encrypted with them.
    pub keys: Option<Arc<SetKeys>>,
    sign: Option<Arc<SigningKey>>,
    apart: Option<ApartKey>,
    rows: Option<Arc<Rows>>,
    losses: Option<Arc<Losses>>,
}

impl SetWriter {
    /// Opens the devices, finishes an interrupted completion, applies the disposition's rules and writes the headers.
    /// `now_us` is the creation time of new media.
    pub fn begin(
        devices: &[Arc<dyn BackupDevice>],
        plan: SetPlan,
        now_us: i64,
    ) -> Result<SetWriter, Error> {
        SetWriter::begin_mirrored(devices, &[], plan, now_us)
    }

    /// [`SetWriter::begin`]; each of the mirrors has as many devices, whose stripes get the bytes of those of `devices`, in order.
    /// So a stripe of a mirror stands for the one that it mirrors. A mirror whose device fails ends the set.
    ///
    /// Errors: also [`Error::FamilyCount`] for a mirror with another number of devices, and [`Error::Unsupported`] without
    /// [`Disposition::Format`] or with parity.
    pub fn begin_mirrored(
        devices: &[Arc<dyn BackupDevice>],
        mirrors: &[Vec<Arc<dyn BackupDevice>>],
        plan: SetPlan,
        now_us: i64,
    ) -> Result<SetWriter, Error> {
        check_devices(devices, plan.parity)?;
        check_mirrors(devices, mirrors, &plan)?;
        let encrypted = plan.encryption.is_some();
        let container = Container::of_set(plan.header.algorithm, encrypted);
        let compressed = plan.header.algorithm != longshore_codec::Algorithm::None;
        let existing = existing_media(devices, &plan, now_us)?;
        for mirror in mirrors {
            existing_media(mirror, &plan, now_us)?;
        }
        if let Some(media) = &existing {
            check_parity(media, &plan)?;
        }
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
        let generation = keep
            .as_ref()
            .map_or(0, |m| m.header(0).generation.wrapping_add(1));
        let data = devices.len() - usize::from(plan.parity.count);
        let uuid = |family: u16| match usize::from(family) > data {
            true => MediaHeader::parity_uuid(media_set, generation, family),
            false => Uuid::new_v4(),
        };
        let uuids: Vec<_> = (1..=devices.len() as u16).map(uuid).collect();
        let stripe_bytes = stripe_bytes(plan.expected_bytes, data);
        let create = |((device, uuid), family): ((&Arc<dyn BackupDevice>, &Uuid), usize)| {
            device.create_stripe(&Stripe {
                is_repeatable: false,
                via: plan.via,
                label: format!("{media_set}/{family}/{uuid}"),
                expected_bytes: stripe_bytes,
            })
        };
        let create_all = |devices: &[Arc<dyn BackupDevice>]| {
            let writes = devices.iter().zip(&uuids).zip(1..).map(create);
            writes.collect::<Result<Vec<_>, Error>>()
        };
        let writes = create_all(devices)?;
        let mut copies: Vec<Vec<NamedStripe>> = devices.iter().map(|_| Vec::new()).collect();
        for mirror in mirrors {
            let names = mirror.iter().map(|device| device.name());
            let written = names.zip(create_all(mirror)?);
            for (of_family, stripe) in copies.iter_mut().zip(written) {
                of_family.push(stripe);
            }
        }
        // No other writer is possible from here on. Another backup may have finished between the first look and the
        // lock, so the media must still be what they were.
        if plan.disposition != Disposition::Format
            && fingerprint(&existing_media(devices, &plan, now_us)?)? != seen
        {
            return Err(Error::Busy {
                device: devices[0].name(),
            });
        }
        let old = keep.as_ref().map(|m| m.header(0));
        let media = |i: usize| MediaHeader {
            media_set,
            family_uuid: uuids[i],
            family: i as u16 + 1,
            family_count: data as u16,
            parity_count: plan.parity.count,
            container: match i < data {
                true => container,
                false => parity::CONTAINER,
            },
            compressed,
            encrypted,
            created_us: now_us,
            generation,
            name: old.map_or_else(|| plan.media_name.clone(), |h| h.name.clone()),
            description: old
                .map_or_else(|| plan.media_description.clone(), |h| h.description.clone()),
            software: concat!("Longshore ", env!("CARGO_PKG_VERSION")).into(),
        };
        let header = SetHeader {
            position: 1,
            encrypted,
            ..plan.header
        };
        let media: Vec<MediaHeader> = (0..devices.len()).map(media).collect();
        let set = Start::new(media, header, plan.encryption);
        let names = devices.iter().map(|device| device.name());
        let stripes = names.zip(writes).zip(&set.media).collect();
        let (losses, stripes) = bear_losses(stripes, plan.parity);
        let (families, rows) = begin_stripes(stripes, copies, &set.header, plan.parity)?;
        let mut writer = SetWriter::start(set, container, families, rows)?;
        writer.losses = losses;
        Ok(writer)
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
            let Some(device) = media.device_index(i).map(|i| &devices[i]) else {
                continue;
            };
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
        let again = MediaSet::open_whole(devices)?;
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
        let headers = families_of.map(|i| media.header(i).clone()).collect();
        let set = Start::new(headers, header, plan.encryption);
        SetWriter::start(set, container, families, None)
    }

    fn start(
        set: Start,
        container: Container,
        mut families: Vec<FamilyWriter>,
        rows: Option<Arc<Rows>>,
    ) -> Result<SetWriter, Error> {
        let header = set.header.encode();
        let failed = |source| Error::Key {
            device: families[0].device().to_owned(),
            position: set.header.position,
            source,
        };
        let (keys, records, apart) = match &set.encryption {
            None => (None, Vec::new(), None),
            Some(to) => {
                let made = SetKeys::create(&header, &to.key, to.parent_root);
                let (keys, records) = made.map_err(failed)?;
                let made = first_object(&header, &records, (&to.key, set.header.start_us));
                let object = made.map_err(failed)?;
                let parts = object.map(|o| Ok((o.name()?, o.encode()?))).transpose();
                let apart = match parts.map_err(failed)? {
                    None => None,
                    // Nobody could ever open what is written.
                    Some(_) if to.places.is_empty() => {
                        let what = "no place for it is named";
                        return Err(failed(longshore_crypt::Error::Object { what }));
                    }
                    Some(parts) => Some(ApartKey::written(parts, to)?),
                };
                (Some(Arc::new(keys)), records, apart)
            }
        };
        for (family, media) in families.iter_mut().zip(&set.media) {
            family.put_start(&header, &records)?;
            if let Some(keys) = &keys {
                let keys = ChunkKeys {
                    keys: keys.clone(),
                    owner: ChunkOwner {
                        set: *set.header.set.as_bytes(),
                        family: media.family,
                    },
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
            sign: set.encryption.and_then(|to| to.sign),
            apart,
            rows,
            losses: None,
        })
    }

    /// Finishes the set. The caller must first have called [`FamilyWriter::finish_data`] with success on every family.
    /// Returns the stored bytes of the set over all families.
    pub fn seal(self, totals: &Totals) -> Result<u64, Error> {
        Ok(self.seal_and_tell(totals, &mut || {})?.stored_bytes)
    }

    /// [`SetWriter::seal`]; `tell` is called before the first stripe is completed, and after each.
    pub fn seal_and_tell(self, totals: &Totals, tell: &mut dyn FnMut()) -> Result<Sealed, Error> {
        let mut families = self.families;
        let roots: Option<Vec<Root>> = families.iter().map(FamilyWriter::root).collect();
        let blocks_total = families.iter().map(FamilyWriter::blocks).sum();
        let mut stored: u64 = families.iter().map(|f| f.stored_bytes()).sum();
        if roots.is_some() {
            // The signature is over the totals, which count the records that have it.
            let body = Roots::body_len(families.len(), self.sign.is_some());
            stored += (families.len() * self.container.framed_len(body)) as u64;
        }
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
        let sealing = self.keys.as_ref().zip(roots);
        let mut index = None;
        if let Some((keys, roots)) = sealing {
            let root = keys.set_root(&whole.whole(), &roots);
            index = Some(keys.index_secret(root));
            let signed = Signed::set(&self.header.encode(), &root);
            let claim = self
                .sign
                .as_ref()
                .map(|key| StoredSignature::Ed25519(key.sign(&signed)));
            let roots = Roots {
                set: self.header.set,
                families: roots,
                claim: claim.unwrap_or_default(),
            };
            // A trailer promises all that is before it, these included.
            for family in &mut families {
                family.put_roots(&roots)?;
            }
        }
        let root = index.as_ref().map(|index| index.root);
        if let Some(apart) = self.apart {
            apart.keep()?;
        }
        for family in &mut families {
            family.put_trailer(&whole, root)?;
        }
        // The last row covers the trailers. All that the parity stripes' own trailers promise is durable, or in order,
        // before them.
        let mut parity = match &self.rows {
            None => Vec::new(),
            Some(rows) => rows.end()?,
        };
        for family in &mut families {
            family.begin_sync()?;
        }
        for family in &mut families {
            family.sync()?;
        }
        for stripe in &mut parity {
            stripe.settle(Settle::Ordered)?;
        }
        for stripe in &mut parity {
            stripe.put_trailer(&whole, root)?;
            stripe.settle(Settle::Begun)?;
        }
        for stripe in &mut parity {
            stripe.sync()?;
        }
        for family in &mut families {
            family.keep();
        }
        for stripe in &mut parity {
            stripe.keep();
        }
        let stripes = families.into_iter().flat_map(FamilyWriter::into_stripes);
        let stripes = stripes.chain(parity.into_iter().map(ParityStripe::into_stripe));
        complete_all(stripes.collect(), tell)?;
        Ok(Sealed {
            stored_bytes: stored,
            index,
            lost: self.losses.map_or_else(Vec::new, |losses| losses.faults()),
        })
    }
}

/// The key object of a set that is being written. Dropped before the set is sealed, it takes the object away again: nothing else has
/// the key, and the set will never be whole.
struct ApartKey {
    places: Vec<Folder>,
    name: ObjectName,
    bytes: Vec<u8>,
    is_kept: bool,
}

impl ApartKey {
    /// Writes the object to each place, so that a backup that cannot have its keys there fails before its data moves.
    fn written((name, bytes): (ObjectName, Vec<u8>), to: &EncryptTo) -> Result<ApartKey, Error> {
        let key = ApartKey {
            places: to.places.clone(),
            name,
            bytes,
            is_kept: false,
        };
        key.write()?;
        Ok(key)
    }

    fn write(&self) -> Result<(), Error> {
        let mut places = self.places.iter();
        places.try_for_each(|place| place.write(&self.name, &self.bytes))
    }

    /// The set is whole from now on: its object stays, and is looked at once more at each place.
    fn keep(mut self) -> Result<(), Error> {
        self.write()?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for ApartKey {
    fn drop(&mut self) {
        if !self.is_kept {
            for place in &self.places {
                // One that stays is of a set that is never whole, and opens nothing.
                let _left = place.remove(&self.name);
            }
        }
    }
}

/// A set that was sealed.
#[derive(Debug)]
pub struct Sealed {
    /// Of the set over all families.
    pub stored_bytes: u64,
    /// The key that opens the index of an encrypted set.
    pub index: Option<IndexSecret>,
    /// Stripes whose devices failed, and for which parity stands.
    pub lost: Vec<StripeFault>,
}

/// Stripes of which as many may be lost as the plan tolerates.
fn bear_losses<'a>(
    stripes: Vec<(NamedStripe, &'a MediaHeader)>,
    plan: ParityPlan,
) -> (Option<Arc<Losses>>, Vec<(NamedStripe, &'a MediaHeader)>) {
    if plan.tolerated == 0 {
        return (None, stripes);
    }
    let data = stripes.len() - usize::from(plan.count);
    let losses = Arc::new(Losses::new(plan.tolerated, data));
    let bear = |((name, write), media): (NamedStripe, &'a MediaHeader)| -> (NamedStripe, _) {
        let write = Bearing::new(write, &name, media, &losses);
        ((name, Box::new(write)), media)
    };
    let stripes = stripes.into_iter().map(bear).collect();
    (Some(losses), stripes)
}

/// The stripes of a new media set, the parity stripes last; writes the media headers, and all headers of parity stripes.
fn begin_stripes(
    stripes: Vec<(NamedStripe, &MediaHeader)>,
    mut mirrors: Vec<Vec<NamedStripe>>,
    set: &SetHeader,
    plan: ParityPlan,
) -> Result<(Vec<FamilyWriter>, Option<Arc<Rows>>), Error> {
    let (of_parity, of_data): (Vec<_>, Vec<_>) = stripes
        .into_iter()
        .partition(|(_, media)| media.is_parity());
    let mut parity = Vec::new();
    for ((name, write), media) in of_parity {
        parity.push(ParityStripe::begin(write, name, media, set)?);
    }
    let rows = match parity.is_empty() {
        true => None,
        false => {
            let rows = Rows::begin(parity, of_data.len(), set.set, plan.row_bytes)?;
            Some(Arc::new(rows))
        }
    };
    let mut families = Vec::with_capacity(of_data.len());
    for (stripe, ((name, mut write), media)) in of_data.into_iter().enumerate() {
        let container = media.container;
        let mut start = container.preamble().to_vec();
        container.append(RecordKind::Media, &media.encode(), &mut start);
        write.write(&start)?;
        let mut mirrors = std::mem::take(&mut mirrors[stripe]);
        for (_, mirror) in &mut mirrors {
            mirror.write(&start)?;
        }
        let family = FamilyWriter::new(write, name, container, media.family, 0).mirrored(mirrors);
        families.push(match &rows {
            None => family,
            Some(rows) => {
                let rows = rows.clone();
                let tap = Tap { rows, stripe };
                tap.lend(&start)?;
                family.tapped(tap)
            }
        });
    }
    Ok((families, rows))
}

/// About how many bytes one of `stripes` stripes will have: its share, and a fiftieth for what compression may add.
pub fn stripe_bytes(expected_bytes: Option<u64>, stripes: usize) -> Option<u64> {
    let bytes = expected_bytes?;
    Some(bytes.saturating_add(bytes / 50) / stripes.max(1) as u64)
}

fn check_devices(devices: &[Arc<dyn BackupDevice>], parity: ParityPlan) -> Result<(), Error> {
    if devices.is_empty() || devices.len() > FAMILIES_MAX as usize {
        return Err(Error::DeviceCount {
            given: devices.len(),
        });
    }
    let class = devices[0].class();
    let mixed = devices.iter().find(|d| d.class() != class);
    let second_pipe = devices.get(1).filter(|_| class == DeviceClass::Pipe);
    if let Some(odd) = mixed.or(second_pipe) {
        return Err(Error::DeviceClass { device: odd.name() });
    }
    if parity.count > PARITY_MAX || usize::from(parity.count) >= devices.len() {
        return Err(Error::TooMuchParity {
            asked: parity.count,
            devices: devices.len(),
        });
    }
    match parity.tolerated <= parity.count {
        true => Ok(()),
        false => Err(Error::TooMuchTolerance {
            asked: parity.tolerated,
            parity: parity.count,
        }),
    }
}

/// A mirror is written from the beginning of its media, and is of the same kind as what it mirrors.
fn check_mirrors(
    devices: &[Arc<dyn BackupDevice>],
    mirrors: &[Vec<Arc<dyn BackupDevice>>],
    plan: &SetPlan,
) -> Result<(), Error> {
    for mirror in mirrors {
        if mirror.len() != devices.len() {
            return Err(Error::FamilyCount {
                device: mirror.first().map_or_else(String::new, |d| d.name()),
                found: mirror.len() as u16,
                expected: devices.len(),
            });
        }
        let class = devices[0].class();
        if let Some(odd) = mirror.iter().find(|d| d.class() != class) {
            return Err(Error::DeviceClass { device: odd.name() });
        }
        let what = match plan.disposition {
            _ if plan.parity.count > 0 => "have parity",
            Disposition::Format => continue,
            _ => "be written without FORMAT",
        };
        return Err(Error::Unsupported {
            device: mirror[0].name(),
            action: what,
        });
    }
    Ok(())
}

/// Media keep their number of parity stripes, and those with parity hold one set.
fn check_parity(media: &MediaSet, plan: &SetPlan) -> Result<(), Error> {
    let found = media.header(0).parity_count;
    let device = || media.device(0).to_owned();
    if found > 0 && plan.disposition == Disposition::Append {
        return Err(Error::OneSet { device: device() });
    }
    match found == plan.parity.count {
        true => Ok(()),
        false => Err(Error::ParityCount {
            device: device(),
            found,
            expected: plan.parity.count,
        }),
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
        if let Ok(media) = MediaSet::open_whole(devices) {
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
    let media = match MediaSet::open_whole(devices) {
        Err(_) if here == 0 => return Ok(None),
        Err(e @ (Error::Missing { .. } | Error::Empty { .. } | Error::FamilyMissing { .. })) => {
            return Err(family_count(devices).unwrap_or(e));
        }
        other => other?,
    };
    let media = match media.roll_forward(devices)? {
        false => media,
        // The renames replaced the stripes under the names.
        true => MediaSet::open_whole(devices)?,
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
        (usize::from(label.all_count()) != devices.len()).then(|| Error::FamilyCount {
            device: device.name(),
            found: label.all_count(),
            expected: devices.len(),
        })
    })
}
