//! The base of a differential backup: which set it is, and what the source must know about it.
//!
//! Invariants
//! - A set is a base only if it is complete, unmarked, not copy-only, of the kind of source and of the database that were
//!   asked for, and has page sums. The newest one that fits is taken.
//! - Nothing is guessed: if no set qualifies, the error tells for each set why.
//! - The media that hold the base are never overwritten by the backup that needs it.
//! - The index of an encrypted base is read with what this machine kept of its own set, or with an identity. Of a set of which
//!   this machine knows the root, no other is taken, encrypted or not.
//!
//! Leaves to others: whether the cluster is still on the base's branch (the source), comparing pages (`page_sums.rs`),
//! and the sets of a restore (`chain`).

use std::sync::Arc;

use longshore_media::{
    BackupDevice, BackupType, Disposition, KeyError, MediaSet, Root, SetHeader, SetSummary,
    SetTrailer,
};
use longshore_pg::{Lsn, Timeline};
use longshore_repository::branch::earlier;
use longshore_source::{Base, LogStart, SourceKind};
use uuid::Uuid;

use crate::history::{self, Known};
use crate::page_sums::PageSums;
use crate::request::{Against, BaseRequest};
use crate::{Error, RunContext};

/// The set that a backup will be compared with.
pub struct BaseSet {
    pub media_set: Uuid,
    pub header: SetHeader,
    /// The facts that a PostgreSQL server is compared with; `None` for other sources.
    pub server: Option<Base>,
    pub sums: Arc<PageSums>,
    /// Its root if it is encrypted, else zeros.
    pub root: Root,
}

/// Chooses the set and reads its index. `encrypts`: whether the backup will be encrypted.
///
/// Errors: [`Error::NoBase`] if none of the sets on the media can be a base; those of [`MediaSet`].
pub fn find(
    context: &RunContext,
    request: &BaseRequest,
    wanted: (SourceKind, Option<&str>),
    encrypts: bool,
) -> Result<BaseSet, Error> {
    let devices = context.devices(&request.devices);
    let media = context.media(&devices)?;
    let (header, trailer) = choose(&media.sets()?, request, wanted, encrypts)?;
    let server = match wanted.0 {
        SourceKind::Postgres => Some(read(&media, &header, &trailer)?),
        SourceKind::Sqlite | SourceKind::Files => None,
    };
    let root = trailer.proof.map(|proof| proof.root);
    let known = history::known_set(context, header.set);
    // Also where an identity would open it, or where it is not encrypted: anybody could have put such a set there.
    if let Ok(Known::Root(own)) = &known
        && root.as_ref() != Some(own)
    {
        return Err(Error::NoBase {
            reasons: format!(
                "set {} is not the one that this machine made under its identifier: somebody has exchanged it",
                header.position
            ),
        });
    }
    let sums = PageSums::read(&*context.storage, &media, &header);
    let sums = sums.map_err(|error| closed(error, known))?;
    Ok(BaseSet {
        media_set: media.header(0).media_set,
        header,
        server,
        sums: Arc::new(sums),
        root: root.unwrap_or_default(),
    })
}

/// A set whose index nothing here opens is no base; a history that cannot be read now says nothing of that.
fn closed(error: Error, known: Result<Known, String>) -> Error {
    let Error::Media(longshore_media::Error::Key {
        position,
        source: source @ KeyError::NoIdentity { .. },
        device,
    }) = error
    else {
        return error;
    };
    match known {
        Ok(Known::Nothing(why)) => Error::NoBase {
            reasons: format!("set {position}: {source}, and {why}"),
        },
        Err(why) => Error::HistoryUnread { why },
        Ok(Known::Root(_)) => Error::Media(longshore_media::Error::Key {
            device,
            position,
            source,
        }),
    }
}

/// Refuses to overwrite the media that hold the base. `devices` are those of the backup.
pub fn check_kept(
    found: &BaseSet,
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
    request: &BaseRequest,
    wanted: (SourceKind, Option<&str>),
    encrypts: bool,
) -> Result<(SetHeader, SetTrailer), Error> {
    let mut reasons = Vec::new();
    for set in sets.iter().rev() {
        if request.set.is_some_and(|base| base != set.header.set) {
            reasons.push(format!(
                "set {} is not the newest full backup of the history",
                set.header.position
            ));
            continue;
        }
        match unfit(set, request.against, wanted, encrypts) {
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
    (kind, database): (SourceKind, Option<&str>),
    encrypts: bool,
) -> Result<&'a SetTrailer, &'static str> {
    let header = &set.header;
    let trailer = set.trailer.as_ref().ok_or("is incomplete")?;
    if header.source_kind != kind as u8 {
        return Err("is of another kind of source");
    }
    if database.is_some_and(|name| name != header.database) {
        return Err("is of another database");
    }
    if header.encrypted && !encrypts {
        return Err("is encrypted, and this backup would not be");
    }
    if header.copy_only {
        return Err("is copy-only");
    }
    if trailer.damaged {
        return Err("is marked as damaged");
    }
    if header.backup_type == BackupType::Log {
        return Err("holds only log");
    }
    if header.sum_key.is_none() {
        return Err(
            "holds no page sums: it was made without --page-sums, or by an earlier version",
        );
    }
    if against == Against::LastFull && header.backup_type != BackupType::Database {
        return Err("is differential itself");
    }
    Ok(trailer)
}

fn read(media: &MediaSet, header: &SetHeader, trailer: &SetTrailer) -> Result<Base, Error> {
    let position = header.position;
    let timeline = |number| {
        Timeline::new(number).ok_or_else(|| {
            Error::Media(longshore_media::Error::SetDamaged {
                device: media.device(0).to_owned(),
                position,
                what: "it has no timeline".to_owned(),
            })
        })
    };
    Ok(Base {
        start: LogStart {
            system: header.log.system,
            timeline: timeline(header.log.timeline)?,
            first: Lsn(header.log.first_lsn),
        },
        end: (timeline(trailer.log.timeline)?, Lsn(trailer.log.last_lsn)),
        server_started_us: header.server_started_us,
        identity: earlier(header, trailer),
    })
}
