//! Takes an encrypted file of another archive as it is: nobody here needs a key for that.
//!
//! Invariants
//! - The bytes are those of the first archive, each block and the slots of its key compared with their checksums before the file
//!   gets its name.
//! - No file is replaced. Whether the archive's own file of that name has the same content is found out by tags, or by
//!   an identity; where neither tells, the file is refused.
//!
//! Leaves to others: which files are copied, and in which order (`copy.rs`).

use longshore_io::{Clock, crc32c};
use longshore_media::record::RecordError;
use longshore_pg::wal::WalName;

use super::archive::PushResult;
use super::copy::CopyError;
use super::place::{Published, Wanted, directory_of};
use super::stored::Object;
use super::waiting::{WAIT_MAX, wait};
use super::{Error, Identity, WalArchive};

/// Bytes of each read and write: a multiple of every alignment.
const PIECE_BYTES: usize = 4 << 20;

impl WalArchive {
    /// Puts an encrypted file of another archive, of the cluster `identity`, into this one, durably.
    ///
    /// Waits while another process writes the same file.
    ///
    /// Errors: `OtherCluster`, `OtherSegmentSize`, `OtherContent`, `Unopened`, `Busy`, `Damaged`, `Io`.
    pub(super) fn adopt(
        &self,
        object: &Object,
        identity: Identity,
        clock: &dyn Clock,
    ) -> Result<PushResult, CopyError> {
        let head = object.head();
        let name = head.name;
        if self.identity().is_none() {
            self.claim(identity, clock)?;
        }
        self.check(identity, &object.path)?;
        let is_segment = matches!(name, WalName::Segment(_) | WalName::Partial(_));
        let is_of = u64::from(head.segment_bytes) == identity.segment_size.bytes()
            && head.plain_len == head.segment_bytes
            && head.system == identity.system;
        if is_segment && !is_of {
            let malformed = Error::malformed(object.path.clone(), RecordError::Field);
            return Err(CopyError::File(malformed));
        }
        let below = directory_of(name);
        let there = |found: Option<Object>| match found {
            None => Ok(false),
            Some(own) if own.is_same_as(object)? => Ok(true),
            Some(_) => Err(Error::OtherContent {
                name,
                path: object.path.clone(),
            }),
        };
        let mut is_there = false;
        let draft = wait(WAIT_MAX, name, clock, || {
            is_there = there(self.find(name)?)?;
            match is_there {
                true => Ok(Some(None)),
                false => Ok(self.place.begin(&below, &name.to_string())?.map(Some)),
            }
        })?;
        let Some(mut draft) = draft else {
            self.place.settle(&below, false)?;
            return Ok(PushResult::Already);
        };
        check_stored(object).map_err(CopyError::File)?;
        let len = object.file.len().map_err(CopyError::File)?;
        let mut piece = vec![0; PIECE_BYTES.min(len as usize)];
        let mut at = 0;
        while at < len {
            let piece = &mut piece[..PIECE_BYTES.min((len - at) as usize)];
            let read = object.file.read_exact_at(piece, at);
            read.map_err(CopyError::File)?;
            let written = draft.write(piece, at);
            written.map_err(Error::io_at(
                "write",
                self.path().join(name.to_string()),
                at,
            ))?;
            at += piece.len() as u64;
        }
        let synced = draft.sync();
        synced.map_err(Error::io("store", self.path().join(&below)))?;
        // A writer may have stored it meanwhile, whose lock is not visible here.
        if there(self.find(name)?)? {
            self.place.settle(&below, false)?;
            return Ok(PushResult::Already);
        }
        let ending = self.ground().ending("zst");
        let published = draft.publish(&format!("{name}.{ending}"))?;
        if published != (Published::Ours { surely: true }) {
            there(self.find(name)?)?;
        }
        Ok(match published {
            Published::Theirs => PushResult::Already,
            Published::Ours { .. } => PushResult::Stored {
                stored_bytes: len,
                unfinished: head.unfinished,
            },
        })
    }
}

impl WalArchive {
    /// Shows that the file of this name is whole and one that readers take: its signature, the slots of its key, and every
    /// stored block.
    ///
    /// Errors: `Missing`, and those of [`WalArchive::find`]; `Damaged`, `Unsigned`.
    pub(super) fn check_whole(&self, name: WalName) -> Result<(), Error> {
        let object = self.object_for(name, Wanted::All)?;
        object.check_signature()?;
        check_stored(&object)
    }
}

/// Compares the slots of its key and every stored block with their checksums. No key is needed for that.
fn check_stored(object: &Object) -> Result<(), Error> {
    // The sums at both ends of the file do not cover them, and without them nobody opens it.
    object.records()?;
    let mut at = object.head().len_before() as u64;
    let mut stored = Vec::new();
    for (number, row) in object.ends.end.rows.iter().enumerate() {
        stored.resize(row.stored_len as usize, 0);
        object.file.read_exact_at(&mut stored, at)?;
        let found = crc32c(&stored);
        if found != row.stored_crc {
            return Err(Error::Damaged {
                path: object.path.clone(),
                what: format!(
                    "block {number} at byte {at}: CRC-32C of its stored bytes is {found:#010x}, not {:#010x}",
                    row.stored_crc
                ),
            });
        }
        at += u64::from(row.stored_len);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_io::SimDisk;

    use super::super::IDENTITY_NAME;
    use super::*;

    /// Goal: a file that somebody moves away between the push that found it and the look at its blocks pays nothing.
    #[test]
    fn a_file_that_is_gone_is_not_whole() {
        let disk = SimDisk::new(1);
        let lines = "longshore wal archive 1\nof no cluster yet\n";
        let mark = format!("{lines}crc32c {:08x}\n", crc32c(lines.as_bytes()));
        let path = Path::new("/archive");
        let marked = disk.write_file(path.join(IDENTITY_NAME), mark.as_bytes());
        marked.unwrap();
        let archive = WalArchive::open(&disk, path).unwrap();
        let name = "000000010000000000000003".parse().unwrap();
        let gone = archive.check_whole(name).unwrap_err();
        assert!(matches!(gone, Error::Missing { .. }), "{gone}");
    }
}
