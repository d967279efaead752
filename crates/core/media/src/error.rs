//! Errors in reading or writing a media set.
//!
//! Invariants
//! - Every variant names the device that an operator must look at, but those that are about the devices as a whole
//!   (`DeviceCount`, `ContainerMix`); there is one for each remedy.
//! - The end of a pipe at a record's border is no error, and neither is a set that is incomplete: it is listed as such.
//!
//! Leaves to others: exit codes (`longshore-terminal`), and the messages of statements (`longshore-tsql`).

use std::io;

use longshore_crypt::SignatureState;
use uuid::Uuid;

use crate::record::RecordError;

/// Every variant names the device that an operator must look at. `number` is SQL Server's message number for the same
/// condition, if it has one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused. The cause is in `source()` and is not repeated in the text.
    #[error("cannot {action} backup device {device}{}", place(action, *offset))]
    Io {
        action: &'static str,
        device: String,
        offset: u64,
        source: io::Error,
    },

    /// The operating system refused it for a file next to stripes.
    #[error("cannot {action} {folder}")]
    Folder {
        action: &'static str,
        folder: String,
        source: io::Error,
    },

    #[error("cannot open backup device {device}: it does not exist")]
    Missing { device: String },

    /// An object store refused or did not answer. The text names the object.
    #[error(transparent)]
    Bucket(Box<longshore_bucket::Error>),

    #[error(
        "all stripes are full: {device} has {bytes} bytes in as many parts as an object may have"
    )]
    Full { device: String, bytes: u64 },

    #[error("the volume on device {device} is empty")]
    Empty { device: String },

    /// Not a stripe, or the stripe's first records are damaged.
    #[error("the media family on device {device} is incorrectly formed: at byte {offset}, {what}")]
    NotMedia {
        device: String,
        offset: u64,
        what: RecordError,
    },

    #[error("device {device} was written by a newer version: it needs feature bits {bits:#x}")]
    Newer { device: String, bits: u64 },

    /// Bytes between the first and the last record have changed.
    #[error("{device}: damaged at byte {offset}: {what}")]
    Damaged {
        device: String,
        offset: u64,
        what: RecordError,
    },

    /// A payload does not match the checksum written with it, or does not decode to its plain bytes.
    #[error("{device}: block {sequence} at byte {offset} is damaged: {what}")]
    BlockDamaged {
        device: String,
        offset: u64,
        sequence: u64,
        what: String,
    },

    /// All records are well formed, but blocks are missing, repeated or from elsewhere.
    #[error("{device}: backup set {position} is damaged: {what}")]
    SetDamaged {
        device: String,
        position: u32,
        what: String,
    },

    #[error(
        "the media set of {} has {count} media families but only {given} are provided; missing: {}",
        named(found),
        list(missing)
    )]
    FamilyMissing {
        media_set: Uuid,
        count: u16,
        given: usize,
        /// The devices of the stripes that were given.
        found: Vec<String>,
        missing: Vec<u16>,
    },

    #[error("devices {first} and {second} both hold media family {family}")]
    FamilyTwice {
        first: String,
        second: String,
        family: u16,
    },

    #[error("device {device} belongs to media set {found}, not to {expected} like {other}")]
    Foreign {
        device: String,
        other: String,
        found: String,
        expected: String,
    },

    #[error(
        "{} and {} are of one media set that was copied and then written at both places: the first hold backup set {first_set}, \
         the second {second_set}, and either could be meant",
        first.join(", "),
        second.join(", ")
    )]
    WrittenApart {
        /// The devices of each.
        first: Vec<String>,
        first_set: Uuid,
        second: Vec<String>,
        second_set: Uuid,
    },

    #[error("device {device} is formatted for {found} media families, but {expected} are given")]
    FamilyCount {
        device: String,
        found: u16,
        expected: usize,
    },

    #[error(
        "backup set {position} on device {device} was terminated while it was being created and is incomplete"
    )]
    Incomplete { device: String, position: u32 },

    /// Only when appending: a reader treats such a set as incomplete.
    #[error(
        "device {device}: the trailer of backup set {position} at byte {offset} is damaged; appending would cut the set off"
    )]
    TrailerDamaged {
        device: String,
        offset: u64,
        position: u32,
    },

    #[error("device {device} has no backup set at position {position}; it holds {count}")]
    NoSuchSet {
        device: String,
        position: u32,
        count: u32,
    },

    /// By name, the algorithms whose sets are allowed on one media set.
    #[error("the media set is formatted for {is}; a set of {asked} cannot be appended")]
    ContainerMix {
        is: &'static str,
        asked: &'static str,
    },

    /// The set is encrypted, and none of the identities at hand opens it.
    #[error("cannot open the encrypted backup set {position} on device {device}")]
    Key {
        device: String,
        position: u32,
        source: longshore_crypt::Error,
    },

    /// Encrypted sets and others do not mix on one media set.
    #[error("the media set on device {device} is formatted for sets that are {}, and this one is {}", secret(!encrypted), secret(*encrypted))]
    EncryptionMix { device: String, encrypted: bool },

    /// An encrypted set was asked for.
    #[error("backup set {position} on device {device} is not encrypted, and must be")]
    NotEncrypted { device: String, position: u32 },

    /// Its signature is wrong, or a trusted one was asked for.
    #[error(
        "backup set {position} on device {device} is not taken for that of a trusted signer: {what}"
    )]
    Unsigned {
        device: String,
        position: u32,
        what: SignatureState,
    },

    #[error("device {device} is in use by another backup")]
    Busy { device: String },

    #[error("device {device} is named twice")]
    DeviceTwice { device: String, family: u16 },

    /// A new media set was requested, but the device has content.
    #[error("device {device} already holds {}", if *is_media { "a media set" } else { "data that is not a media set" })]
    Exists { device: String, is_media: bool },

    #[error("backup set {position} on device {device} does not expire before {until}")]
    NotExpired {
        device: String,
        position: u32,
        until: String,
    },

    #[error(
        "backup set {position} on device {device} is damaged: until when it must be kept is unknown"
    )]
    ExpiryUnknown { device: String, position: u32 },

    #[error("the media name on device {device} is {found:?}, not {expected:?}")]
    MediaName {
        device: String,
        found: String,
        expected: String,
    },

    #[error(
        "{asked} parity stripes are asked for, of {devices} devices; up to 8 are allowed, and one device must hold data"
    )]
    TooMuchParity { asked: u16, devices: usize },

    #[error(
        "{asked} stripes are to be borne without, and {parity} parity stripes can stand for no more than as many"
    )]
    TooMuchTolerance { asked: u16, parity: u16 },

    /// Rows of parity begin with the media, so they hold one set.
    #[error(
        "device {device} belongs to a media set with parity stripes, which holds one backup set: nothing is appended"
    )]
    OneSet { device: String },

    #[error("device {device} cannot be repaired: its media set has no parity stripes")]
    NoParity { device: String },

    /// INIT keeps the number of parity stripes.
    #[error(
        "device {device} is formatted for {found} parity stripes, but {expected} are asked for"
    )]
    ParityCount {
        device: String,
        found: u16,
        expected: u16,
    },

    /// A stripe passes all checks of the format, and the parity stripes say otherwise: one of them was changed on purpose.
    #[error(
        "device {device}: the parity stripes contradict the stripe from byte {offset} on, which passes its own checks: somebody changed one of them"
    )]
    Contradiction { device: String, offset: u64 },

    /// A repair replaces only what was a stripe of the media set.
    #[error("device {device} is not overwritten: {why}")]
    Occupied { device: String, why: String },

    /// A repair needs a place for each lost stripe.
    #[error("no device was given for {family}, which is lost")]
    NoDevice { family: String },

    /// More members of a row are lost than there are parity stripes.
    #[error("{device} cannot be rebuilt at byte {offset}: {what}")]
    BeyondParity {
        device: String,
        offset: u64,
        what: String,
    },

    #[error("{given} backup devices are given; 1 to 64 are allowed")]
    DeviceCount { given: usize },

    #[error(
        "all backup devices must be of one class (files, objects, NUL, or one pipe), as each becomes whole in its own way: {device} is not"
    )]
    DeviceClass { device: String },

    /// Only for waits on a pipe or an object store.
    #[error("the wait for device {device} was cancelled")]
    Cancelled { device: String },

    #[error("device {device} cannot {action}")]
    Unsupported {
        device: String,
        action: &'static str,
    },
}

fn secret(encrypted: bool) -> &'static str {
    match encrypted {
        true => "encrypted",
        false => "not encrypted",
    }
}

fn list(families: &[u16]) -> String {
    families
        .iter()
        .map(|f| format!("family {f}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The first devices by name: a set has up to 64.
fn named(devices: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = devices.iter().take(SHOWN).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match devices.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl From<longshore_bucket::Error> for Error {
    fn from(error: longshore_bucket::Error) -> Error {
        match error {
            longshore_bucket::Error::Cancelled { at: device, .. } => Error::Cancelled { device },
            error => Error::Bucket(Box::new(error)),
        }
    }
}

/// The offset, if bytes were being transferred.
fn place(action: &str, offset: u64) -> String {
    match action {
        "read" | "write" => format!(" at byte {offset}"),
        _ => String::new(),
    }
}

/// The next step where a signature is refused.
fn hint_of_signature(what: &SignatureState) -> &'static str {
    match what {
        SignatureState::Wrong(_) => {
            "somebody changed it, or put it there: use another copy of this stripe, or an earlier backup"
        }
        SignatureState::Unknown(_) => "restore with the version that wrote it, or a later one",
        _ => {
            "find out who put it there; if it is yours, name its signer (--signer, or `signers` in [encryption]), or restore it \
             without `require_signature`"
        }
    }
}

/// The hint for a set that does not open.
fn hint_of_key(source: &longshore_crypt::Error) -> &'static str {
    match source {
        longshore_crypt::Error::Scheme { .. } => {
            "restore with the version that wrote it, or a later one"
        }
        longshore_crypt::Error::Command { .. } => {
            "run the command of `unwrap_command` by hand (docs/recipes.md), or name the identity of another recipient (--identity FILE)"
        }
        longshore_crypt::Error::Malformed { .. } => {
            "use another copy of this stripe, or restore an earlier backup set (`longshore list` shows its --position)"
        }
        _ => {
            "name the file with the identity of one of its recipients (--identity FILE, or `identities` in [encryption]), or \
             with its passphrase (--identity passphrase:FILE)"
        }
    }
}

/// The hint for an error of the operating system on a device.
fn io_hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => {
            "create the directory, or correct the path; then run the command again"
        }
        io::ErrorKind::IsADirectory => "name a file in it, such as DIRECTORY/NAME.bak",
        // A file system reports this for a name that is a device node, a FIFO or a socket.
        io::ErrorKind::InvalidInput => {
            "name a regular file that does not exist yet, nul: to keep nothing, or - for standard output"
        }
        io::ErrorKind::ResourceBusy => "name another device",
        io::ErrorKind::PermissionDenied => {
            "run as a user who can use the device and its directory, or name another one"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "its file system is mounted read-only: mount it read-write, or name another device"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space there, or name another device; then run the command again"
        }
        io::ErrorKind::FileTooLarge => {
            "raise the limit on a file's size (`ulimit -f`; LimitFSIZE= in a systemd unit), or name more devices, or one \
             whose file system takes larger files; then run the command again"
        }
        io::ErrorKind::OutOfMemory => {
            "lower --buffer-count or --max-transfer-size, or raise the limit on memory"
        }
        _ => "check the device, its free space and its permissions, then run the command again",
    }
}

/// The action of an error of the medium below a stripe's header, where the rest of the stripe can be read: with parity, it may
/// still be one of the set's.
pub const BEGINNING: &str = "read the beginning of";

impl Error {
    /// SQL Server's message number for this error.
    pub fn number(&self) -> Option<u32> {
        Some(match self {
            Error::Io {
                action: "write" | "sync" | "complete",
                ..
            } => 3202,
            Error::Io {
                action: "read" | BEGINNING,
                ..
            } => 3203,
            Error::Io { .. } | Error::Missing { .. } => 3201,
            Error::Empty { .. } => 3254,
            Error::NotMedia { .. } => 3241,
            Error::Newer { .. } => 3169,
            Error::Damaged { .. }
            | Error::BlockDamaged { .. }
            | Error::SetDamaged { .. }
            | Error::TrailerDamaged { .. } => 3189,
            Error::FamilyMissing { .. } => 3132,
            Error::FamilyTwice { .. } | Error::DeviceTwice { .. } => 3227,
            Error::Foreign { .. } | Error::WrittenApart { .. } => 3258,
            Error::FamilyCount { .. } => 3231,
            Error::Incomplete { .. } => 3256,
            Error::NoSuchSet { .. } => 3287,
            Error::ContainerMix { .. } => 3098,
            Error::EncryptionMix { .. } => 3095,
            Error::Busy { .. } => 3023,
            Error::NotExpired { .. } | Error::ExpiryUnknown { .. } => 4030,
            Error::MediaName { .. } => 4037,
            Error::DeviceCount { .. }
            | Error::TooMuchParity { .. }
            | Error::TooMuchTolerance { .. } => 3205,
            Error::ParityCount { .. } => 3231,
            Error::BeyondParity { .. } => 3189,
            Error::DeviceClass { .. } => 3011,
            Error::Unsupported { .. } => 3032,
            Error::Cancelled { .. } => 3204,
            Error::Full { .. } => 3202,
            Error::Bucket(_)
            | Error::Folder { .. }
            | Error::Exists { .. }
            | Error::Key { .. }
            | Error::NotEncrypted { .. }
            | Error::Unsigned { .. }
            | Error::Occupied { .. }
            | Error::NoDevice { .. }
            | Error::NoParity { .. }
            | Error::OneSet { .. }
            | Error::Contradiction { .. } => return None,
        })
    }

    /// Whether the media may be sound, and only the reader's identities or rules keep the set closed.
    pub fn is_closed(&self) -> bool {
        match self {
            Error::Key { source, .. } => {
                !matches!(source, longshore_crypt::Error::Malformed { .. })
            }
            Error::NotEncrypted { .. } | Error::Unsigned { .. } => true,
            _ => false,
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { source, .. } | Error::Folder { source, .. } => io_hint(source.kind()),
            Error::Bucket(error) => error.hint(),
            Error::Full { .. } => {
                "back up to more stripes (more --to), or set LONGSHORE_PART_MIB to twice what it was (32 where the source's size is not known)"
            }
            Error::Missing { .. } => "check the path; a restore needs every stripe of the backup",
            Error::Empty { .. } => "the file is empty; use the file that the backup reported",
            Error::NotMedia { .. } => {
                "this is not a Longshore stripe, or its header is damaged; use another copy"
            }
            Error::Newer { .. } => "restore with the version that wrote it, or a later one",
            Error::Damaged { .. } | Error::BlockDamaged { .. } | Error::SetDamaged { .. } => {
                "use another copy of this stripe, or restore an earlier backup set (`longshore list` shows its --position)"
            }
            Error::FamilyMissing { .. } => {
                "name every stripe of the media set; `longshore list --label-only STRIPE` shows a stripe's media set"
            }
            Error::FamilyTwice { .. } => "name each stripe once; one of these is a copy",
            Error::Foreign { .. } => {
                "name only stripes of one media set; `longshore list` shows a stripe's media set"
            }
            Error::WrittenApart { .. } => {
                "name only the devices of one of them; `longshore list DEVICE...` shows when each was written"
            }
            Error::FamilyCount { .. } => {
                "name as many devices as the media set has, or use --format for a new media set"
            }
            Error::Incomplete { .. } => {
                "restore an earlier set with --position, or run the backup again"
            }
            Error::TrailerDamaged { .. } => {
                "keep these stripes, since their data may be undamaged, and back up to a new media set"
            }
            Error::NoSuchSet { .. } => "`longshore list` shows the positions there are",
            Error::Key { source, .. } => hint_of_key(source),
            Error::EncryptionMix { .. } => {
                "name other devices, or start a new media set with --format"
            }
            Error::NotEncrypted { .. } => {
                "find out who put it there; restore it without require_encryption if it is yours"
            }
            Error::Unsigned { what, .. } => hint_of_signature(what),
            Error::ContainerMix { .. } => {
                "append with the algorithm of the media set, or start a new one with --format"
            }
            Error::Busy { .. } => {
                "wait until the other backup ends (one that died on another machine or mount counts as running for 15 minutes), or choose other devices"
            }
            Error::DeviceTwice { .. } => "name each device once: every stripe is a file of its own",
            Error::Exists {
                is_media: false, ..
            } => "name another file; only --format overwrites a file that is not a backup",
            Error::Exists { is_media: true, .. } => {
                "use --append to add a set, --init to replace its sets, or --format for a new media set"
            }
            Error::ExpiryUnknown { .. } => {
                "look at it first with `longshore verify`; choose another device, or overwrite it anyway with --skip"
            }
            Error::NotExpired { .. } => {
                "wait, choose another device, or overwrite it anyway with --skip"
            }
            Error::MediaName { .. } => {
                "check that these are the right media, or use --format for a new media set"
            }
            Error::DeviceCount { .. } => "name between 1 and 64 devices",
            Error::TooMuchParity { .. } => {
                "name more devices (--to), or ask for fewer parity stripes (--parity)"
            }
            Error::TooMuchTolerance { .. } => {
                "tolerate fewer (--tolerate), or ask for more parity stripes (--parity)"
            }
            Error::OneSet { .. } => {
                "back up to other devices (--to), or replace the set with --init"
            }
            Error::NoParity { .. } => "use a copy of the backup, or make a new one with --parity",
            Error::ParityCount { .. } => {
                "ask for as many parity stripes as the media have, or use --format for a new media set"
            }
            Error::Occupied { .. } => "move it away, then repair again",
            Error::Contradiction { .. } => {
                "run longshore verify on the data stripes alone, with --identity if they are encrypted; if they are sound, move the parity stripes away and repair again"
            }
            Error::NoDevice { .. } => {
                "name the devices of all stripes in the order of the backup, also those that are lost"
            }
            Error::BeyondParity { .. } => {
                "use another copy of one of these stripes, or restore an earlier backup"
            }
            Error::DeviceClass { .. } => "do not mix files, objects, nul: and - in one media set",
            Error::Unsupported { .. } => "write the backup to files",
            Error::Cancelled { .. } => "nothing was left behind; run the command again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nobody is sent to free space where the limit is on a file's size.
    #[test]
    fn a_file_that_may_not_grow_has_another_next_step_than_a_full_disk() {
        let full = io_hint(io::ErrorKind::StorageFull);
        assert!(full.contains("free space"), "{full}");
        assert_eq!(io_hint(io::ErrorKind::QuotaExceeded), full);
        let large = io_hint(io::ErrorKind::FileTooLarge);
        assert!(large.contains("`ulimit -f`"), "{large}");
        assert!(!large.contains("free space"), "{large}");
    }
}
