//! The base of a differential backup: which set it is, and what the source must know of it.

use std::path::Path;
use std::sync::Arc;

use longshore_codec::Decompressor;
use longshore_media::header::stored_max;
use longshore_media::{
    BackupDevice, BackupType, Disposition, EntryKind, Item, MediaSet, SetHeader, SetSummary,
    SetTrailer, manifest,
};
use longshore_pg::{CONTROL_FILE_LEN, Control, Lsn, Timeline};
use longshore_source::{Base, LogStart, SourceKind};
use uuid::Uuid;

use crate::request::{Against, BaseRequest};
use crate::{Error, House};

const CONTROL_FILE: &str = "global/pg_control";

/// The set that a backup will differ from.
pub struct Found {
    pub media_set: Uuid,
    pub header: SetHeader,
    pub base: Base,
}

/// Chooses the set and reads its index.
///
/// Errors: [`Error::NoBase`] when none of the media's sets can be a base; what [`MediaSet`] refuses.
pub fn find(house: &House, request: &BaseRequest, database: Option<&str>) -> Result<Found, Error> {
    let devices = house.devices(&request.devices);
    let media = MediaSet::open(&devices)?;
    let (header, trailer) = choose(&media.sets()?, request.against, database)?;
    let base = read(&media, &header, &trailer)?;
    Ok(Found {
        media_set: media.header(0).media_set,
        header,
        base,
    })
}

/// Refuses to write over the media that hold the base. `devices` are those of the backup.
pub fn check_kept(
    found: &Found,
    disposition: Disposition,
    devices: &[Arc<dyn BackupDevice>],
) -> Result<(), Error> {
    let overwrites = match disposition {
        Disposition::New | Disposition::Append => false,
        Disposition::Init { .. } | Disposition::Format => true,
    };
    let is_base = |device: &Arc<dyn BackupDevice>| {
        MediaSet::label(&**device).is_ok_and(|label| label.media_set == found.media_set)
    };
    match devices.iter().find(|device| overwrites && is_base(device)) {
        Some(device) => Err(Error::BaseOverwritten {
            device: device.name(),
        }),
        None => Ok(()),
    }
}

/// The newest set that can be the base.
fn choose(
    sets: &[SetSummary],
    against: Against,
    database: Option<&str>,
) -> Result<(SetHeader, SetTrailer), Error> {
    let mut reasons = Vec::new();
    for set in sets.iter().rev() {
        match unfit(set, against, database) {
            Ok(trailer) => return Ok((set.header.clone(), trailer.clone())),
            Err(what) => reasons.push(format!("set {} {what}", set.header.position)),
        }
    }
    let reasons = match reasons.is_empty() {
        true => "they hold no set".to_owned(),
        false => reasons.join("; "),
    };
    Err(Error::NoBase { reasons })
}

fn unfit<'a>(
    set: &'a SetSummary,
    against: Against,
    database: Option<&str>,
) -> Result<&'a SetTrailer, &'static str> {
    let header = &set.header;
    let trailer = set.trailer.as_ref().ok_or("is incomplete")?;
    if header.source_kind != SourceKind::Postgres as u8 {
        return Err("is not of a PostgreSQL cluster");
    }
    if database.is_some_and(|name| name != header.database) {
        return Err("is of another database");
    }
    if header.copy_only {
        return Err("is copy-only");
    }
    if trailer.damaged {
        return Err("is marked as damaged");
    }
    if header.backup_type == BackupType::Log {
        return Err("holds log alone");
    }
    if against == Against::LastFull && header.backup_type != BackupType::Database {
        return Err("is differential itself");
    }
    Ok(trailer)
}

fn read(media: &MediaSet, header: &SetHeader, trailer: &SetTrailer) -> Result<Base, Error> {
    let position = header.position;
    let damaged = |what: &str| {
        Error::Media(longshore_media::Error::SetDamaged {
            device: media.device(0).to_owned(),
            position,
            what: what.to_owned(),
        })
    };
    let bytes = control(media, header)?;
    let control = bytes.and_then(|bytes| Control::parse(&bytes).ok());
    let control = control.ok_or_else(|| damaged("it holds no usable control file"))?;
    let timeline = |number| Timeline::new(number).ok_or_else(|| damaged("it has no timeline"));
    let start = LogStart {
        system: header.log.system,
        timeline: timeline(header.log.timeline)?,
        first: Lsn(header.log.first_lsn),
    };
    let end = (timeline(trailer.log.timeline)?, Lsn(trailer.log.last_lsn));
    let mut base = Base::new(start, end, header.start_us, control);
    base.is_differential = header.backup_type == BackupType::Differential;
    media.items(position, |item| {
        if let Item::Entry(entry) = item
            && entry.first
            && entry.kind == EntryKind::File
        {
            base.add(&entry.path, entry.len, entry.mtime_ns);
        }
    })?;
    base.complete();
    Ok(base)
}

/// The set's `global/pg_control`; `None` when it is not there whole.
fn control(media: &MediaSet, header: &SetHeader) -> Result<Option<Vec<u8>>, Error> {
    let wants = |items: &[Item]| {
        let is_it =
            |item: &Item| matches!(item, Item::Entry(e) if e.path == Path::new(CONTROL_FILE));
        items.iter().any(is_it)
    };
    let buffer_bytes = header.buffer_bytes as usize;
    let mut payload = vec![0; stored_max(buffer_bytes)];
    let mut plain = vec![0; buffer_bytes];
    let mut decompressor = Decompressor::new();
    for family in 0..media.family_count() {
        let Some(mut stream) = media.stream_of(family, header.position, &wants)? else {
            continue;
        };
        while let Some(block) = stream.next(&mut payload)? {
            let (stored, plain) = (
                &payload[..block.header.stored_len as usize],
                &mut plain[..block.header.plain_len as usize],
            );
            let decoded = plain.is_empty()
                || decompressor
                    .decompress(block.header.algorithm, stored, plain)
                    .is_ok();
            let items = manifest::decode(&block.manifest, block.header.plain_len);
            let (true, Ok(items)) = (decoded, items) else {
                continue;
            };
            if let Some(bytes) = extent_of(&items, plain) {
                return Ok(Some(bytes));
            }
        }
    }
    Ok(None)
}

/// The control file's bytes in a block.
fn extent_of(items: &[Item], plain: &[u8]) -> Option<Vec<u8>> {
    let (mut at, mut is_it) = (0, false);
    for item in items {
        match item {
            Item::Entry(entry) => is_it = entry.path == Path::new(CONTROL_FILE),
            Item::Extent(extent) => {
                let end = at + extent.len as usize;
                if is_it && extent.offset == 0 && extent.len as usize == CONTROL_FILE_LEN {
                    return Some(plain.get(at..end)?.to_vec());
                }
                at = end;
            }
            Item::Mark(_) => {}
        }
    }
    None
}
