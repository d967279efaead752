//! SQL Server's columns for a set, in msdb and in RESTORE HEADERONLY, and what people are shown in their place.

use longshore_media::{BackupType, SetHeader};
use serde::Serializer;

/// Bits of the flags; the documented ones we can have, and one that SQL Server sets on every set.
const FLAG_CHECKSUMS: i64 = 16;
const FLAG_DAMAGED: i64 = 32;
const FLAG_ALWAYS: i64 = 512;
const FLAG_COPY_ONLY: i64 = 1024;

/// The column `flags`.
pub fn flags(header: &SetHeader, damaged: bool) -> i64 {
    let flag = |on: bool, bit: i64| if on { bit } else { 0 };
    FLAG_CHECKSUMS
        | FLAG_ALWAYS
        | flag(damaged, FLAG_DAMAGED)
        | flag(header.copy_only, FLAG_COPY_ONLY)
}

/// The recovery model. Only a log set tells that its database's log is kept; of other clusters' sets it is not known.
pub fn recovery_model(header: &SetHeader) -> Option<&'static str> {
    match (header.backup_type, header.log.system) {
        (BackupType::Log, _) => Some("FULL"),
        (BackupType::Database | BackupType::Differential, 0) => Some("SIMPLE"),
        (BackupType::Database | BackupType::Differential, _) => None,
    }
}

/// What stands for a timeline of a cluster where SQL Server has a recovery fork: the system identifier and the number.
pub fn fork_guid(system: u64, timeline: u32) -> u128 {
    (u128::from(system) << 64) | u128::from(timeline)
}

/// The word for msdb's letter of a backup's or a restore's type; what is no such letter stays as it is.
pub fn type_word(letter: &str) -> &str {
    match letter {
        "D" => "full",
        "F" => "files",
        "I" => "diff",
        "L" => "log",
        other => other,
    }
}

pub(crate) fn as_word<S: Serializer>(letter: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(type_word(letter))
}
