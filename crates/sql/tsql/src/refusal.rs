//! Translates the errors of lower crates to messages.
//!
//! Invariants
//! - One exhaustive match for each crate's errors: a new error without a message does not compile.
//! - If SQL Server's text says less than ours, ours follows as a message of its own, so that no helpful detail is lost.
//!
//! Leaves to others: the words of SQL Server's messages (`message/table.rs`).

use std::borrow::Cow;
use std::io;

use longshore_crypt::hexadecimal;
use longshore_media::{BEGINNING, Error as Media};
use longshore_pipeline::{ClusterError, Error, LandingError, left_lines};

use crate::message::{self, Message, OWN};
use crate::server::{Unusable, local};
use crate::value::date_time_text;

/// The messages of a failed run, without the closing 3013.
pub fn of(error: &Error) -> Vec<Message> {
    match error {
        Error::Media(error) => media(error),
        Error::OutOfRange { name, value } => {
            vec![message::NOT_WITHIN_RANGE.with(&[value, name])]
        }
        Error::Cancelled => vec![message::ABORTED.plain()],
        Error::Left { source, stripes } => {
            let mut messages = of(source);
            let left = left_lines(stripes).join("; ");
            messages.push(OWN.with(&[&format!("{left} (hint: {})", error.hint())]));
            messages
        }
        Error::Landing(refused) => landing(refused, error),
        Error::DeviceKept { device, .. } => {
            with_own(message::CANNOT_OPEN.with(&[device, &IN_USE]), error)
        }
        Error::NotInSet { path } => {
            vec![message::LOGICAL_FILE.with(&[&path.display(), &"of the backup set"])]
        }
        Error::Chain(chain) => {
            let first = match chain.number() {
                3136 => message::DIFFERENTIAL_BASE.plain(),
                _ => message::DAMAGE.plain(),
            };
            with_own(first, error)
        }
        Error::NoBase { .. }
        | Error::HistoryUnread { .. }
        | Error::Source(longshore_pipeline::SourceError::Base { .. }) => {
            let first = message::NO_DIFFERENTIAL_BASE.with(&[&"of this statement"]);
            with_own(first, error)
        }
        Error::Memory { .. } | Error::Room { .. } | Error::Thread { .. } => {
            with_own(message::NO_MEMORY.plain(), error)
        }
        Error::LogBroken { .. } => with_own(message::NO_CURRENT_BACKUP.plain(), error),
        Error::Source(longshore_pipeline::SourceError::RunningServer { .. }) => vec![own(
            error,
            "configure the server as a database of its own (url = \"postgres://…\") and back that up, or stop it first; if none \
             runs, remove its postmaster.pid",
        )],
        Error::Source(longshore_pipeline::SourceError::BeingRestored { .. }) => {
            with_own(message::SERIALIZED.plain(), error)
        }
        Error::Source(longshore_pipeline::SourceError::InUse { .. }) => {
            vec![message::SERIALIZED.plain()]
        }
        Error::SourceKind { .. } => vec![message::NEWER_VERSION.with(&[error])],
        Error::Changed { path, what } => {
            let name = path.file_name().unwrap_or(path.as_os_str());
            let first = message::BACKUP_READ_DAMAGE;
            vec![first.with(&[&name.display(), &path.display(), &format!("it {what}")])]
        }
        Error::LeftOut { path } => {
            let first = message::BACKUP_READ_DAMAGE;
            let what = "it cannot be named in a backup";
            vec![first.with(&[&path.display(), &path.display(), &what])]
        }
        Error::Source(_)
        | Error::Archive(_)
        | Error::Reliance(_)
        | Error::LogMissing { .. }
        | Error::NoLog
        | Error::LogUnproved
        | Error::Unarchived { .. }
        | Error::BaseOverwritten { .. }
        | Error::DeviceInside { .. }
        | Error::Codec(_)
        | Error::Spool { .. }
        | Error::Random { .. }
        | Error::NewKey { .. }
        | Error::PathTooLong { .. }
        | Error::EntryName { .. }
        | Error::FurtherName { .. }
        | Error::Panicked { .. } => vec![own(error, error.hint())],
    }
}

/// The messages for a restore whose target refused; `error` is the same error as the run reports it.
fn landing(refused: &LandingError, error: &Error) -> Vec<Message> {
    match refused {
        LandingError::TargetExists { path } | LandingError::TargetTaken { path } => {
            let path = path.display();
            vec![message::FILE_EXISTS.with(&[&path, &path])]
        }
        LandingError::TargetBusy { .. } => vec![message::EXCLUSIVE_ACCESS.plain()],
        LandingError::TargetRead { .. } => with_own(message::EXCLUSIVE_ACCESS.plain(), error),
        LandingError::KilledRestore { path, .. } => {
            let path = path.display();
            with_own(message::FILE_EXISTS.with(&[&path, &path]), error)
        }
        LandingError::TargetKept { path, .. }
        | LandingError::Mounted { path }
        | LandingError::ForeignLog { path, .. }
        | LandingError::Cluster(
            ClusterError::NoDataDirectory { path } | ClusterError::NotReplaced { path, .. },
        ) => {
            let path = path.display();
            with_own(message::CANNOT_RESTORE_TO.with(&[&path, &path]), error)
        }
        LandingError::DatabaseInUse { .. }
        | LandingError::DatabaseLinked { .. }
        | LandingError::DatabaseUseUnknown { .. } => {
            with_own(message::EXCLUSIVE_ACCESS.plain(), error)
        }
        LandingError::TargetFull { path, free, needed } => {
            vec![message::NO_SPACE.with(&[&path.display(), needed, free])]
        }
        LandingError::BadMove { from, to, .. } => {
            let first = message::CANNOT_RESTORE_TO.with(&[&from.display(), &to.display()]);
            with_own(first, error)
        }
        LandingError::Cluster(ClusterError::Running { .. }) => {
            with_own(message::EXCLUSIVE_ACCESS.plain(), error)
        }
        LandingError::Cluster(ClusterError::Another { path, found, .. }) => {
            let path = path.display();
            let owner = format!("PostgreSQL in {path}, system {found}");
            with_own(message::FILE_IN_USE.with(&[&path, &owner]), error)
        }
        LandingError::Cluster(ClusterError::NotHeld { .. }) => {
            with_own(message::NOT_READY_TO_ROLL.plain(), error)
        }
        LandingError::Cluster(ClusterError::RestoredLogLost { .. }) => {
            with_own(message::LOG_NOT_RESTORED.plain(), error)
        }
        LandingError::Media(error) => media(error),
        LandingError::Cluster(_) | LandingError::Target { .. } | LandingError::DeadLink { .. } => {
            vec![own(error, error.hint())]
        }
    }
}

/// The messages for an action on a device that failed.
fn device_failed(error: &Media, action: &str, device: &str, source: &io::Error) -> Vec<Message> {
    let why = system(source);
    match action {
        // Our own text names the offset.
        "write" | "sync" | "complete" => {
            with_own(message::WRITE_FAILED.with(&[&device, &why]), error)
        }
        "read" | BEGINNING => with_own(message::READ_FAILED.with(&[&device, &why]), error),
        _ => {
            let mut text = message::CANNOT_OPEN.with(&[&device, &why]);
            // State 1 if it cannot be created, 2 if it does not exist.
            text.state = if source.kind() == io::ErrorKind::NotFound {
                2
            } else {
                1
            };
            vec![text]
        }
    }
}

/// The messages for media that cannot be read or written.
pub fn media(error: &Media) -> Vec<Message> {
    match error {
        Media::Io {
            action,
            device,
            source,
            ..
        } => device_failed(error, action, device, source),
        Media::Missing { device } => {
            let missing = "2(The system cannot find the file specified.)";
            vec![message::CANNOT_OPEN.with(&[device, &missing])]
        }
        Media::Empty { device } => vec![message::VOLUME_EMPTY.with(&[device])],
        Media::NotMedia { device, .. } => with_own(message::MALFORMED.with(&[device]), error),
        Media::Newer { .. } => vec![message::NEWER_VERSION.with(&[error])],
        Media::Damaged { .. }
        | Media::BlockDamaged { .. }
        | Media::SetDamaged { .. }
        | Media::TrailerDamaged { .. }
        | Media::BeyondParity { .. } => with_own(message::DAMAGE.plain(), error),
        Media::FamilyMissing { count, given, .. } => {
            with_own(message::FAMILY_MISSING.with(&[count, given]), error)
        }
        Media::FamilyTwice {
            first,
            second,
            family,
        } => vec![message::FAMILY_TWICE.with(&[second, family, first])],
        Media::DeviceTwice { device, family } => {
            vec![message::FAMILY_TWICE.with(&[device, family, device])]
        }
        Media::Foreign { device, .. } => with_own(message::FOREIGN_VOLUME.with(&[device]), error),
        Media::WrittenApart { second, .. } => {
            let devices = second.join(", ");
            with_own(message::FOREIGN_VOLUME.with(&[&devices]), error)
        }
        Media::FamilyCount {
            device,
            found,
            expected,
        } => vec![message::FAMILY_COUNT.with(&[device, found, expected])],
        Media::Incomplete { device, .. } => vec![message::SET_INCOMPLETE.with(&[device])],
        Media::NoSuchSet {
            device, position, ..
        } => vec![message::POSITION_MISSING.with(&[position, device])],
        Media::ContainerMix { asked, .. } => with_own(compression_mix(asked), error),
        Media::Key {
            source:
                longshore_crypt::Error::NoIdentity {
                    certificate: Some(thumbprint),
                    ..
                },
            ..
        } => {
            let thumbprint = hexadecimal(thumbprint);
            let first = message::NO_SERVER_CERTIFICATE.with(&[&"certificate", &thumbprint]);
            vec![first]
        }
        Media::EncryptionMix { .. } => with_own(message::ENCRYPTION_MIX.plain(), error),
        Media::Busy { .. } => vec![message::SERIALIZED.plain()],
        Media::Cancelled { .. } => vec![message::ABORTED.plain()],
        Media::NotExpired { device, until, .. } => {
            vec![message::NOT_EXPIRED.with(&[device, &expiry(until)])]
        }
        Media::ExpiryUnknown { device, .. } => vec![
            message::NOT_EXPIRED.with(&[device, &"an unknown date"]),
            own(
                error,
                "look at it first with RESTORE VERIFYONLY; name another device, or overwrite it anyway WITH SKIP",
            ),
        ],
        Media::MediaName {
            device,
            found,
            expected,
        } => vec![message::MEDIA_NAME.with(&[expected, found, device])],
        Media::DeviceCount { .. } => vec![message::TOO_MANY_DEVICES.with(&[&64])],
        Media::Bucket(_)
        | Media::Key { .. }
        | Media::NotEncrypted { .. }
        | Media::Exists { .. }
        | Media::Unsigned { .. }
        | Media::Folder { .. }
        | Media::Full { .. }
        | Media::Occupied { .. }
        | Media::NoDevice { .. }
        | Media::NoParity { .. }
        | Media::Contradiction { .. } => vec![own(error, error.hint())],
        Media::TooMuchParity { .. }
        | Media::TooMuchTolerance { .. }
        | Media::ParityCount { .. }
        | Media::OneSet { .. } => vec![own(error, &hint_of_parity(error))],
        Media::DeviceClass { .. } => vec![message::DEVICE_CLASSES.plain()],
        Media::Unsupported { device, .. } if device.contains("://") => {
            vec![own(error, "name another object, or replace it WITH FORMAT")]
        }
        Media::Unsupported { .. } => vec![own(error, error.hint())],
    }
}

/// The message for a set that is compressed, or not, other than those on its media. `asked`: the algorithm.
fn compression_mix(asked: &str) -> Message {
    let (with, without) = ("COMPRESSION", "NO_COMPRESSION");
    let (option, other) = match asked {
        "NONE" => (without, with),
        _ => (with, without),
    };
    message::COMPRESSION_MIX.with(&[&option, &option, &other])
}

/// The next step, in the words of statements.
fn hint_of_parity(error: &Media) -> Cow<'static, str> {
    match error {
        Media::TooMuchParity { .. } => "name more devices, or fewer WITH PARITY".into(),
        Media::TooMuchTolerance { .. } => {
            "write WITH PARITY and as many, or a lower TOLERATE".into()
        }
        Media::ParityCount { found, .. } => {
            format!("write WITH PARITY = {found}, or replace the media WITH FORMAT").into()
        }
        Media::OneSet { .. } => "name other devices, or replace the set WITH INIT".into(),
        other => other.hint().into(),
    }
}

/// The media store seconds; people read local dates.
fn expiry(until: &str) -> String {
    let seconds = until.split(' ').next().and_then(|n| n.parse::<i64>().ok());
    match seconds.and_then(|n| n.checked_mul(1_000_000)) {
        Some(us) => date_time_text(&local(us)),
        None => until.to_owned(),
    }
}

/// The message for a configured database that cannot be used.
pub fn unusable(error: &Unusable) -> Message {
    match error.hint.is_empty() {
        true => OWN.with(&[error]),
        false => OWN.with(&[&format!("{error} ({})", error.hint)]),
    }
}

/// Our own text with its causes and the hint.
pub fn own(error: &(dyn std::error::Error + 'static), hint: &str) -> Message {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Transparent wrappers repeat their cause.
        if !text.ends_with(&cause_text) {
            text += &format!(": {cause_text}");
        }
        next = cause.source();
    }
    OWN.with(&[&format!("{text} (hint: {hint})")])
}

/// SQL Server's message, then our details.
fn with_own(first: Message, error: &dyn std::error::Error) -> Vec<Message> {
    vec![first, message::DETAIL.with(&[&error])]
}

/// The refusal of a file that another process uses.
pub const IN_USE: &str =
    "32(The process cannot access the file because it is being used by another process.)";

/// An operating system's error with Windows' number, which scripts look for.
fn system(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "2(The system cannot find the file specified.)".into(),
        io::ErrorKind::NotADirectory => "3(The system cannot find the path specified.)".into(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "5(Access is denied.)".into()
        }
        io::ErrorKind::ResourceBusy => IN_USE.into(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "112(There is not enough space on the disk.)".into()
        }
        io::ErrorKind::IsADirectory => "5(Access is denied.)".into(),
        io::ErrorKind::InvalidInput => "87(The parameter is incorrect.)".into(),
        _ => match error.raw_os_error() {
            Some(number) => format!("{number}({error})"),
            // 31: a device attached to the system is not functioning. The message needs a number.
            None => format!("31({error})"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operating_systems_error_always_has_a_number_and_the_offset_is_named() {
        let kinds = [
            io::ErrorKind::IsADirectory,
            io::ErrorKind::InvalidInput,
            io::ErrorKind::Other,
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::StorageFull,
            io::ErrorKind::WriteZero,
        ];
        for (action, number) in [("write", 3202), ("read", 3203), ("open", 3201)] {
            for kind in kinds {
                let error = Media::Io {
                    action,
                    device: "a.bak".to_owned(),
                    offset: 4242,
                    source: kind.into(),
                };
                let messages = media(&error);
                assert_eq!(messages[0].number, number);
                let text = &messages[0].text;
                let parts = ["perating system error ", "failed: "];
                let after = parts.iter().find_map(|part| Some(text.split_once(part)?.1));
                let after = after.unwrap_or_else(|| panic!("{text}"));
                assert!(after.starts_with(|c: char| c.is_ascii_digit()), "{text}");
                let is_named = messages.iter().any(|m| m.text.contains("4242"));
                assert_eq!(is_named, action != "open", "{messages:?}");
            }
        }
    }

    #[test]
    fn numbers_agree_with_those_that_the_rooms_give() {
        let device = || "a.bak".to_owned();
        let errors = [
            Media::Missing { device: device() },
            Media::Empty { device: device() },
            Media::Busy { device: device() },
            Media::DeviceCount { given: 65 },
            Media::DeviceClass { device: device() },
            Media::Incomplete {
                device: device(),
                position: 1,
            },
            Media::NoSuchSet {
                device: device(),
                position: 9,
                count: 1,
            },
            Media::MediaName {
                device: device(),
                found: "a".into(),
                expected: "b".into(),
            },
        ];
        for error in errors {
            assert_eq!(media(&error)[0].number, error.number().unwrap(), "{error}");
        }
    }

    #[test]
    fn a_run_s_errors_have_the_same_number_here_and_on_the_command_line() {
        let path = || std::path::PathBuf::from("/a");
        let io = || io::Error::other("no");
        let errors = [
            Error::Cancelled,
            Error::Memory {
                bytes: 1,
                source: io(),
            },
            Error::Thread { source: io() },
            Error::Room {
                what: "files",
                needed: 2,
                allowed: 1,
            },
            Error::Changed {
                path: path(),
                what: "grew",
            },
            Error::LeftOut { path: path() },
            Error::NotInSet { path: path() },
            Error::SourceKind { kind: 9 },
            Error::DeviceKept {
                device: "a".into(),
                what: "b",
            },
            Error::Source(longshore_pipeline::SourceError::InUse { path: path() }),
            Error::Landing(LandingError::TargetExists { path: path() }),
            Error::Landing(LandingError::Cluster(ClusterError::RestoredLogLost {
                path: path(),
            })),
            Error::Landing(LandingError::Cluster(ClusterError::NotHeld {
                path: path(),
                what: "no".into(),
            })),
            Error::Landing(LandingError::Cluster(ClusterError::NoDataDirectory {
                path: path(),
            })),
            Error::Landing(LandingError::Cluster(ClusterError::Another {
                path: path(),
                found: 1,
                system: 2,
            })),
            Error::Landing(LandingError::Cluster(ClusterError::Running {
                path: path(),
                process: "1".into(),
            })),
            Error::NoLog,
            Error::LogUnproved,
        ];
        for error in errors {
            let number = error.number().unwrap_or(OWN.number);
            assert_eq!(of(&error)[0].number, number, "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_what_scripts_look_for() {
        let text = media(&Media::Missing {
            device: "/tmp/x.bak".into(),
        });
        assert_eq!(
            text[0].text,
            "Cannot open backup device '/tmp/x.bak'. Operating system error 2(The system cannot find the file specified.)."
        );
    }
}
