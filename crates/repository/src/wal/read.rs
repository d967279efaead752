//! Files on their way out of the archive: found, checked, decoded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_codec::{Decompressor, payload_bound};
use longshore_io::{Clock, Dir, File, Via, crc32c};
use longshore_media::record::Malformed;
use longshore_pg::Timeline;
use longshore_pg::wal::{History, WalName};

use super::archive::{WAIT_MAX, wait};
use super::object::{End, Head};
use super::staged::Staged;
use super::{Error, WalArchive};

/// Bytes that hold any head.
const HEAD_MAX: u64 = 4096;

/// One file of the archive, its head and end read and checked.
#[derive(Debug)]
pub(super) struct Object {
    file: Arc<dyn File>,
    path: PathBuf,
    pub(super) head: Head,
    pub(super) end: End,
}

impl Object {
    /// Errors: `Damaged` for any bytes that are not a whole file of this name, `Newer`, `Io`.
    pub(super) fn open(file: Arc<dyn File>, path: PathBuf, name: WalName) -> Result<Object, Error> {
        let io = |e| Error::io("read", &path)(e);
        let damaged = |what| Error::malformed(path.clone(), what);
        let len = file.stat().map_err(io)?.len;
        let mut bytes = vec![0; len.min(HEAD_MAX) as usize];
        file.read_exact_at(&mut bytes, 0, Via::Cache).map_err(io)?;
        let head = Head::parse(&bytes).map_err(damaged)?;
        if head.name != name {
            return Err(damaged(Malformed::Field));
        }
        let after = head.len_after() as u64;
        if len < head.len_before() as u64 + after {
            return Err(damaged(Malformed::Length));
        }
        let mut framed = vec![0; after as usize];
        file.read_exact_at(&mut framed, len - after, Via::Cache)
            .map_err(io)?;
        let end = End::parse(&head, &framed, len).map_err(damaged)?;
        Ok(Object {
            file,
            path,
            head,
            end,
        })
    }

    /// Decodes and checks every block, in order.
    fn decode(&self, mut sink: impl FnMut(&[u8], u64) -> Result<(), Error>) -> Result<(), Error> {
        let mut decompressor = Decompressor::new();
        let mut plain = vec![0; self.head.block_bytes as usize];
        let mut payload = vec![0; payload_bound(self.head.algorithm, plain.len())];
        let mut at = self.head.len_before() as u64;
        for (number, row) in self.end.rows.iter().enumerate() {
            let damaged = |what: String| Error::Damaged {
                path: self.path.clone(),
                what: format!("block {number} at byte {at}: {what}"),
            };
            let payload = &mut payload[..row.stored_len as usize];
            let plain = &mut plain[..self.head.block_len(number)];
            self.file
                .read_exact_at(payload, at, Via::Cache)
                .map_err(Error::io("read", &self.path))?;
            let same = |what: &str, found: u32, expected: u32| match found == expected {
                true => Ok(()),
                false => Err(damaged(format!(
                    "CRC-32C of its {what} bytes is {found:#010x}, not {expected:#010x}"
                ))),
            };
            same("stored", crc32c(payload), row.stored_crc)?;
            decompressor
                .decompress(self.head.algorithm, payload, plain)
                .map_err(|e| damaged(e.to_string()))?;
            same("plain", crc32c(plain), row.plain_crc)?;
            sink(plain, number as u64 * u64::from(self.head.block_bytes))?;
            at += payload.len() as u64;
        }
        Ok(())
    }
}

impl WalArchive {
    fn object(&self, name: WalName) -> Result<Object, Error> {
        match self.find(name)? {
            Some(object) => Ok(object),
            None => Err(Error::Missing {
                name,
                archive: self.path().to_owned(),
            }),
        }
    }

    /// Writes a file of the archive to `to` in `dir`, replacing what is there: checked, whole and durable before it
    /// has that name. Gives its length. `path` is the directory, for messages.
    ///
    /// Waits while another process writes the same file.
    ///
    /// Errors: `Missing`; `Damaged`, `Newer`, `Busy`, `Io`.
    pub fn fetch(
        &self,
        name: WalName,
        dir: &Arc<dyn Dir>,
        path: &Path,
        to: &str,
        clock: &dyn Clock,
    ) -> Result<u64, Error> {
        let object = self.object(name)?;
        let target = path.join(to);
        let staged = wait(WAIT_MAX, name, clock, || {
            Staged::begin(dir.clone(), to).map_err(Error::io("create", &target))
        })?;
        object.decode(|plain, offset| {
            staged
                .file
                .write_all_at(plain, offset, Via::Cache)
                .map_err(Error::io("write", &target))
        })?;
        staged
            .publish(Path::new(to))
            .map_err(Error::io("store", target))?;
        Ok(object.head.plain_len.into())
    }

    /// Decodes a file and compares every checksum; gives its length.
    ///
    /// Errors: as [`WalArchive::fetch`].
    pub fn verify(&self, name: WalName) -> Result<u64, Error> {
        let object = self.object(name)?;
        object.decode(|_, _| Ok(()))?;
        Ok(object.head.plain_len.into())
    }

    /// The line of timelines that leads to `timeline`.
    ///
    /// Errors: `Missing` without its history file (the first has none); `NotHistory`, and as [`WalArchive::fetch`].
    pub fn history(&self, timeline: Timeline) -> Result<History, Error> {
        let name = WalName::History(timeline);
        if timeline.number() == 1 {
            return Ok(History::first(timeline));
        }
        let object = self.object(name)?;
        let mut bytes = Vec::new();
        object.decode(|plain, _| {
            bytes.extend_from_slice(plain);
            Ok(())
        })?;
        History::parse(timeline, &bytes).map_err(|source| Error::NotHistory {
            path: object.path.clone(),
            source,
        })
    }
}
