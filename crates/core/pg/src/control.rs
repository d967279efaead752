//! `global/pg_control`: the cluster's properties and its position in the WAL.
//!
//! Invariants
//! - Nothing is used before the checksum matches, except the layout number that says where the checksum is.
//! - Each major version writes a layout number into the file; numbers that are not in the table are refused, never
//!   guessed.
//! - A value that no server writes is refused even if the checksum is right.
//!
//! Leaves to others: reading the file, again if it was being written, and what a state means for a backup or restore.
//! Offsets are those of 64-bit little-endian machines, on which this was tested.
//!
//! Source: PostgreSQL 14 to 18, `src/include/catalog/pg_control.h`.

use zeroize::Zeroizing;

use crate::{Lsn, SegmentSize, Timeline};

/// Bytes of the file in every major version (PG_CONTROL_FILE_SIZE).
pub const CONTROL_FILE_LEN: usize = 8192;

/// The differences between major versions.
struct Layout {
    /// PG_CONTROL_VERSION.
    version: u32,
    /// Offset of the checksum, which covers every byte before it.
    crc_at: usize,
    /// Offset of mock_authentication_nonce.
    nonce_at: usize,
}

const LAYOUTS: &[Layout] = &[
    // 13 to 16
    Layout {
        version: 1300,
        crc_at: 288,
        nonce_at: 256,
    },
    // 17
    Layout {
        version: 1700,
        crc_at: 288,
        nonce_at: 256,
    },
    // 18: the signedness of `char` precedes the nonce
    Layout {
        version: 1800,
        crc_at: 292,
        nonce_at: 257,
    },
];

/// The state of a cluster when the file was written (DBState).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ClusterState {
    Startup = 0,
    ShutDown = 1,
    ShutDownInRecovery = 2,
    ShuttingDown = 3,
    InCrashRecovery = 4,
    InArchiveRecovery = 5,
    InProduction = 6,
}

/// The contents of a control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    pub system: u64,
    /// PG_CONTROL_VERSION.
    pub version: u32,
    /// CATALOG_VERSION_NO: part of the name of directories in tablespaces.
    pub catalog_version: u32,
    pub state: ClusterState,
    /// The LSN of the latest checkpoint record.
    pub checkpoint: Lsn,
    /// The LSN at which replay from that checkpoint begins.
    pub redo: Lsn,
    pub timeline: Timeline,
    /// The next transaction number at that checkpoint, with its epoch. It never goes back.
    pub next_xid: u64,
    /// On a standby: the LSN that replay must reach before the files are consistent; 0 on a primary.
    pub min_recovery_point: Lsn,
    pub min_recovery_timeline: Option<Timeline>,
    /// Whether changes of hint bits are logged even without checksums.
    pub wal_log_hints: bool,
    /// 0: pages have no checksums.
    pub data_checksum_version: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of a relation's segment file.
    pub relation_segment_pages: u32,
    pub wal_segment: SegmentSize,
}

/// Why the bytes are not a usable control file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    #[error("it has {len} bytes, not {CONTROL_FILE_LEN}")]
    Length { len: usize },
    /// A file that is being written can have a wrong checksum for a moment: read it again.
    #[error("its checksum is {found:#010x}, not {expected:#010x}")]
    Checksum { expected: u32, found: u32 },
    #[error("its version {version} is unknown to this program")]
    Version { version: u32 },
    #[error("{what} is {value}")]
    Value { what: &'static str, value: u64 },
}

impl ControlError {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            ControlError::Version { .. } => {
                "this program knows PostgreSQL 14 to 18; newer majors need a newer program"
            }
            ControlError::Length { .. }
            | ControlError::Checksum { .. }
            | ControlError::Value { .. } => {
                "the control file is damaged: check the cluster with pg_controldata"
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

/// The layout of a file whose checksum matches, and its version.
fn layout(bytes: &[u8]) -> Result<&'static Layout, ControlError> {
    if bytes.len() != CONTROL_FILE_LEN {
        return Err(ControlError::Length { len: bytes.len() });
    }
    let version = u32_at(bytes, 8);
    let layout = LAYOUTS.iter().find(|layout| layout.version == version);
    let layout = layout.ok_or(ControlError::Version { version })?;
    let expected = u32_at(bytes, layout.crc_at);
    let found = longshore_io::crc32c(&bytes[..layout.crc_at]);
    match found == expected {
        true => Ok(layout),
        false => Err(ControlError::Checksum { expected, found }),
    }
}

/// 32 random bytes that all servers of a cluster have, and nobody else; erased when they are dropped.
pub type ClusterSecret = Zeroizing<[u8; 32]>;

/// The 32 random bytes of a control file that `initdb` made, and that all physical copies of a cluster have
/// (mock_authentication_nonce). They are in no WAL, and servers show to nobody more than digests of them.
///
/// Errors: those of [`Control::parse`]; a value of zeros, which tells nothing.
pub fn cluster_secret(bytes: &[u8]) -> Result<ClusterSecret, ControlError> {
    let at = layout(bytes)?.nonce_at;
    let mut secret = Zeroizing::new([0; 32]);
    secret.copy_from_slice(&bytes[at..at + 32]);
    match *secret == [0; 32] {
        true => Err(ControlError::Value {
            what: "the cluster's secret",
            value: 0,
        }),
        false => Ok(secret),
    }
}

impl Control {
    /// Parses the bytes of the file. Nothing is used before the checksum matches.
    pub fn parse(bytes: &[u8]) -> Result<Control, ControlError> {
        let version = layout(bytes)?.version;
        let u32_at = |at: usize| u32_at(bytes, at);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let wrong = |what, value: u32| ControlError::Value {
            what,
            value: u64::from(value),
        };
        let state = match u32_at(16) {
            0 => ClusterState::Startup,
            1 => ClusterState::ShutDown,
            2 => ClusterState::ShutDownInRecovery,
            3 => ClusterState::ShuttingDown,
            4 => ClusterState::InCrashRecovery,
            5 => ClusterState::InArchiveRecovery,
            6 => ClusterState::InProduction,
            other => return Err(wrong("the cluster's state", other)),
        };
        let page_bytes = u32_at(216);
        if !page_bytes.is_power_of_two() || !(1 << 10..=1 << 15).contains(&page_bytes) {
            return Err(wrong("the page size", page_bytes));
        }
        let relation_segment_pages = u32_at(220);
        if relation_segment_pages == 0 {
            return Err(wrong(
                "the size of a relation's segment",
                relation_segment_pages,
            ));
        }
        Ok(Control {
            system: u64_at(0),
            version,
            catalog_version: u32_at(12),
            state,
            checkpoint: Lsn(u64_at(32)),
            redo: Lsn(u64_at(40)),
            timeline: Timeline::new(u32_at(48)).ok_or_else(|| wrong("the timeline", 0))?,
            next_xid: u64_at(64),
            min_recovery_point: Lsn(u64_at(136)),
            min_recovery_timeline: Timeline::new(u32_at(144)),
            wal_log_hints: bytes[176] != 0,
            data_checksum_version: u32_at(252),
            page_bytes,
            relation_segment_pages,
            wal_segment: SegmentSize::new(u64::from(u32_at(228)))
                .ok_or_else(|| wrong("the WAL segment size", u32_at(228)))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(mut bytes: Vec<u8>, crc_at: usize) -> Vec<u8> {
        let crc = longshore_io::crc32c(&bytes[..crc_at]);
        bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn plain() -> Vec<u8> {
        let mut bytes = vec![0; CONTROL_FILE_LEN];
        for (at, value) in [
            (8, 1300u32),
            (48, 1),
            (216, 8192),
            (220, 131_072),
            (228, 16 << 20),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_file_torn_anywhere_is_refused() {
        let whole = sealed(plain(), 288);
        assert!(Control::parse(&whole).is_ok());
        for at in 0..292 {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            assert!(Control::parse(&torn).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_secret_is_where_each_version_has_it_and_never_zeros() {
        for (version, crc_at, at) in [(1300u32, 288, 256), (1700, 288, 256), (1800, 292, 257)] {
            let mut bytes = plain();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            assert!(cluster_secret(&sealed(bytes.clone(), crc_at)).is_err());
            bytes[at..at + 32].fill(7);
            let torn = cluster_secret(&bytes);
            assert!(
                matches!(torn, Err(ControlError::Checksum { .. })),
                "{torn:?}"
            );
            assert_eq!(*cluster_secret(&sealed(bytes, crc_at)).unwrap(), [7; 32]);
        }
    }

    #[test]
    fn values_that_cannot_be_are_refused_even_with_a_fitting_checksum() {
        for (at, value) in [
            (8, 1301u32),
            (16, 7),
            (48, 0),
            (216, 8191),
            (220, 0),
            (228, 3),
        ] {
            let mut bytes = plain();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(Control::parse(&sealed(bytes, 288)).is_err(), "byte {at}");
        }
        assert!(Control::parse(&[]).is_err());
        assert!(Control::parse(&vec![0; CONTROL_FILE_LEN - 1]).is_err());
    }
}
