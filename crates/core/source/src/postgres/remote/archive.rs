//! The answer to `BASE_BACKUP`: a stream of archives, one after another, each a tar stream.
//!
//! Since PostgreSQL 15 a single COPY carries all archives, with a type byte before each message. Before, there was one
//! COPY for each tablespace and a last one for the data directory.
//!
//! Invariants
//! - Members are given in the order in which they arrive; nothing is stored. The caller takes all bytes of a member
//!   before the next one.
//! - An archive that ends within a member is an error, never a short member.
//! - A report of damaged pages at the end is a finding of a complete backup; any other refusal loses the session.
//!
//! Leaves to others: the headers in an archive (`tar.rs`), and the connection (`longshore-pg`).
//!
//! Source: PostgreSQL 18 documentation, "Streaming Replication Protocol", BASE_BACKUP.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use bytes::{Buf, Bytes};
use longshore_pg::client::{self, Connection, Reply};
use longshore_pg::{Lsn, Tablespace, Timeline};

use super::tar::{self, Member, UNIT};
use crate::Error;
use crate::postgres::session::misread;

/// "checksum verification failure during base backup": the server has sent everything and reports this at the end.
const DATA_CORRUPTED: &str = "XX001";

pub(super) struct Archives {
    connection: Connection,
    /// Whether a single COPY carries all archives.
    is_tagged: bool,
    /// Bytes of the archive that were received and not yet taken.
    data: Bytes,
    /// Before version 15, the archives to come and the current one, in reverse order.
    pub(super) tablespaces: Vec<Tablespace>,
    at: At,
    /// Bytes of everything, as the server estimates them.
    pub(super) about_bytes: Option<u64>,
    /// Archives begun, before version 15.
    begun: usize,
    pub(super) ended: Option<EndReport>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum At {
    /// Before the first archive, or between two.
    Between,
    /// In the archive of a tablespace, or of the data directory.
    Inside(Option<u32>),
    End,
}

/// The server's report at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndReport {
    pub(super) stop: Lsn,
    pub(super) timeline: Timeline,
    /// Whether the server found pages with wrong checksums, which its own log names.
    pub(super) damaged: bool,
}

/// The server's report at the start.
pub(super) struct Begun {
    pub(super) start: Lsn,
    pub(super) timeline: Timeline,
}

fn said(what: &'static str, text: impl Into<String>) -> Error {
    Error::ServerSaid {
        what,
        text: text.into(),
    }
}

fn place(rows: &client::Rows) -> Result<(Lsn, Timeline), Error> {
    let timeline = rows.value(0, 1).map_err(misread)?;
    let timeline = Timeline::new(timeline).ok_or_else(|| said("a timeline", "0"))?;
    Ok((rows.value(0, 0).map_err(misread)?, timeline))
}

impl Archives {
    /// Sends the command and reads up to the first archive. Blocks for the checkpoint.
    pub(super) fn begin(
        mut connection: Connection,
        major: u32,
        command: &str,
    ) -> Result<(Archives, Begun), Error> {
        let refused = |e| Error::Server {
            action: "begin the backup of",
            source: Box::new(e),
        };
        connection.start(command).map_err(refused)?;
        let mut rows = || match connection.reply().map_err(refused)? {
            Some(Reply::Rows(rows)) => Ok(rows),
            _ => Err(said("the start of a backup", "something else")),
        };
        let (start, timeline) = place(&rows()?)?;
        let list = rows()?;
        let mut tablespaces = Vec::new();
        // In KiB, and null unless it was asked for.
        let mut kib = (0..list.len()).map(|row| list.value::<u64>(row, 2).ok());
        let about_bytes = kib
            .try_fold(0u64, |sum, kib| sum.checked_add(kib?))
            .and_then(|kib| kib.checked_mul(1024));
        for row in 0..list.len() {
            // The data directory has no OID.
            let (Some(_), Some(location)) = (list.bytes(row, 0), list.bytes(row, 1)) else {
                continue;
            };
            tablespaces.push(Tablespace {
                oid: list.value(row, 0).map_err(misread)?,
                location: OsString::from_vec(location.to_vec()).into(),
            });
        }
        let archives = Archives {
            connection,
            is_tagged: major >= 15,
            data: Bytes::new(),
            tablespaces,
            at: At::Between,
            about_bytes,
            begun: 0,
            ended: None,
        };
        Ok((archives, Begun { start, timeline }))
    }

    /// The next member and its tablespace; `None` when all archives have ended. The caller must have taken all bytes
    /// of the previous member.
    pub(super) fn next(&mut self) -> Result<Option<(Option<u32>, Member)>, Error> {
        loop {
            let space = match &self.at {
                At::End => return Ok(None),
                At::Between => {
                    self.receive()?;
                    continue;
                }
                At::Inside(space) => *space,
            };
            let mut unit = [0; UNIT];
            if !self.fill(&mut unit)? {
                continue;
            }
            match tar::parse(&unit) {
                Ok(Some(member)) => return Ok(Some((space, member))),
                Ok(None) => self.skip_archive()?,
                Err(what) => return Err(said("an archive", what)),
            }
        }
    }

    /// Takes the next bytes of a member of `len` bytes; `is_last` says that the member ends with them.
    pub(super) fn take(&mut self, buf: &mut [u8], len: u64, is_last: bool) -> Result<(), Error> {
        let mut padding = [0; UNIT];
        let padding = match is_last {
            true => &mut padding[..tar::padding(len)],
            false => &mut [],
        };
        for part in [buf, padding] {
            if !part.is_empty() && !self.fill(part)? {
                return Err(said("an archive", "it ends within a member"));
            }
        }
        Ok(())
    }

    /// Fills `buf` with the archive's next bytes; false if the archive ends first.
    fn fill(&mut self, buf: &mut [u8]) -> Result<bool, Error> {
        let mut filled = 0;
        while filled < buf.len() {
            if self.data.is_empty() {
                let before = self.at.clone();
                self.receive()?;
                if self.at != before {
                    return match filled {
                        0 => Ok(false),
                        _ => Err(said("an archive", "it ends within a member")),
                    };
                }
                continue;
            }
            let len = self.data.len().min(buf.len() - filled);
            self.data.copy_to_slice(&mut buf[filled..filled + len]);
            filled += len;
        }
        Ok(true)
    }

    /// Skips everything after an archive's end mark.
    fn skip_archive(&mut self) -> Result<(), Error> {
        let before = self.at.clone();
        while self.at == before {
            self.data.clear();
            self.receive()?;
        }
        Ok(())
    }

    /// Receives one message: data, or the end of an archive or of everything.
    fn receive(&mut self) -> Result<(), Error> {
        let reply = match self.connection.reply() {
            Ok(reply) => reply,
            Err(e) => {
                // All data was sent; only the final verdict is bad.
                if let (Some(ended), Some(DATA_CORRUPTED)) = (&mut self.ended, e.sqlstate()) {
                    ended.damaged = true;
                    self.at = At::End;
                    return Ok(());
                }
                return Err(Error::SessionLost {
                    address: self.connection.address().to_owned(),
                    source: Box::new(e),
                });
            }
        };
        match reply {
            Some(Reply::CopyOut) if !self.is_tagged => {
                let space = self.tablespaces.get(self.begun).map(|space| space.oid);
                self.begun += 1;
                self.at = At::Inside(space);
            }
            Some(Reply::CopyOut) => {}
            Some(Reply::Data(data)) if self.is_tagged => self.tagged(data)?,
            Some(Reply::Data(data)) => self.data = data,
            Some(Reply::CopyDone) => self.at = At::Between,
            Some(Reply::Rows(rows)) => {
                let (stop, timeline) = place(&rows)?;
                self.ended = Some(EndReport {
                    stop,
                    timeline,
                    damaged: false,
                });
            }
            Some(Reply::Complete(_)) => {}
            None if self.ended.is_some() => self.at = At::End,
            Some(Reply::CopyIn | Reply::CopyBoth) | None => {
                return Err(said("the archives", "something else"));
            }
        }
        Ok(())
    }

    fn tagged(&mut self, mut message: Bytes) -> Result<(), Error> {
        if message.is_empty() {
            return Err(said("an archive", "an empty message"));
        }
        match message.get_u8() {
            b'd' => self.data = message,
            b'n' => {
                let name = message.split(|b| *b == 0).next().unwrap_or_default();
                let name = String::from_utf8_lossy(name).into_owned();
                let stem = name.strip_suffix(".tar");
                self.at = match stem {
                    Some("base") => At::Inside(None),
                    Some(oid) => match oid.parse() {
                        Ok(oid) => At::Inside(Some(oid)),
                        Err(_) => return Err(said("the name of an archive", name)),
                    },
                    None => return Err(said("the name of an archive", name)),
                };
            }
            // A progress report, which is ignored: this side counts bytes itself.
            b'p' => {}
            tag => return Err(said("a message's kind", char::from(tag).to_string())),
        }
        Ok(())
    }
}
