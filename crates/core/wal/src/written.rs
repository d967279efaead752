//! The bytes of a file on their way into the archive: read, compressed, perhaps encrypted, and put into a draft.
//!
//! Invariants
//! - Each block is read once: its checksum, its tag and its payload are of the same bytes.
//! - Nothing has its name yet, and nothing is durable.
//!
//! Leaves to others: which file, and giving it its name (`archive.rs`); engines and memory (`press.rs`); keys (`sealed.rs`).

use longshore_crypt::Root;
use longshore_io::{Via, crc32c, crc32c_join};
use longshore_pg::wal::WalName;

use super::archive::{FileFacts, TEXT_MAX};
use super::ends::Ends;
use super::object::{End, Head, PlainMark, Row, WholeMark};
use super::outflow::Outflow;
use super::place::Draft;
use super::press::{Press, block_bytes};
use super::sealed::{PAYLOAD_AT, Sealing, history_digest};
use super::{Error, Outgoing, StorageForm, WalArchive};

impl WalArchive {
    /// Compresses the file into its temporary name, encrypted if `form` says for whom; returns also the stored bytes.
    pub(super) fn write(
        &self,
        out: &Outgoing,
        judged: &FileFacts,
        form: &StorageForm,
        draft: &mut dyn Draft,
    ) -> Result<(Ends, u64), Error> {
        let mut head = Head {
            system: judged.system,
            plain_len: judged.len,
            block_bytes: block_bytes(judged.len),
            segment_bytes: judged.segment_bytes,
            magic: judged.magic,
            algorithm: form.algorithm,
            unfinished: judged.unfinished,
            name: out.name,
            sealed: None,
        };
        let target = self.path().join(out.name.to_string());
        let full = |e| Error::io("write", &target)(e);
        let sealing = match &form.recipients {
            Some(recipients) if head.holds_more() => {
                let history = match (&out.history, out.name.segment()) {
                    (Some(history), _) => Some(digest_of_history(history)?),
                    // A receiver has compared the archive's with its server's.
                    (None, Some(name)) if name.timeline.number() > 1 => {
                        self.known_history(name.timeline)?
                    }
                    (None, _) => None,
                };
                let history = history.unwrap_or_default();
                let place = (&mut head, history);
                Some(Sealing::begin(recipients, &self.keys, place, &target)?)
            }
            _ => None,
        };
        let mut press = self
            .presses
            .take(form, head.block_bytes as usize, &target)?;
        let Press {
            compressor,
            decompressor,
            plain,
            check,
            out: buffer,
            ..
        } = &mut press;
        let mut sink = |bytes: &[u8], at: u64| draft.write(bytes, at);
        let mut outflow = Outflow::new(&mut sink, buffer);
        outflow.put(&head.framed()).map_err(full)?;
        if let Some(sealing) = &sealing {
            outflow.put(&sealing.records).map_err(full)?;
        }
        let mut whole_crc = 0;
        let mut rows = Vec::with_capacity(head.blocks());
        for number in 0..head.blocks() {
            let offset = number as u64 * u64::from(head.block_bytes);
            let plain = &mut plain[..head.block_len(number)];
            out.file
                .read_exact_at(plain, offset, Via::Cache)
                .map_err(Error::io_at("read", &out.path, offset))?;
            let plain_crc = crc32c(plain);
            let space = outflow.space(head.stored_max(0)).map_err(full)?;
            let at = sealing.as_ref().map_or(0, |_| PAYLOAD_AT);
            let len = compressor.compress(plain, &mut space[at..]).len;
            if form.verify {
                check.resize(plain.len(), 0);
                let payload = &space[at..at + len];
                let decoded = decompressor.decompress(form.algorithm, payload, check);
                if decoded.is_err() || *check != plain {
                    return Err(Error::Damaged {
                        path: target.clone(),
                        what: format!(
                            "{} does not decode to the bytes that it compressed",
                            compressor.engine()
                        ),
                    });
                }
            }
            let (stored, mark) = match &sealing {
                None => (len, PlainMark::Crc(plain_crc)),
                Some(sealing) => (
                    sealing.seal(number, plain_crc, space, len),
                    sealing.mark(number, plain),
                ),
            };
            whole_crc = crc32c_join(whole_crc, plain_crc, plain.len() as u64);
            rows.push(Row {
                stored_len: stored as u32,
                plain: mark,
                stored_crc: crc32c(&space[..stored]),
            });
            outflow.taken(stored);
        }
        let head_crc = crc32c(&head.encode());
        let end = match &sealing {
            Some(sealing) => sealing.end(head_crc, rows),
            None => End {
                head_crc,
                whole: WholeMark::Crc(whole_crc),
                rows,
            },
        };
        outflow.put(&end.framed(&head)).map_err(full)?;
        let stored_bytes = outflow.finish().map_err(full)?;
        self.presses.give_back(press);
        Ok((Ends { head, end }, stored_bytes))
    }
}

/// The digest of a history that a server has.
fn digest_of_history(history: &Outgoing) -> Result<Root, Error> {
    let WalName::History(timeline) = history.name else {
        return Ok(Root::default());
    };
    let io = |e| Error::io("read", &history.path)(e);
    let len = history.file.stat().map_err(io)?.len.min(TEXT_MAX);
    let mut text = vec![0; len as usize];
    let read = history.file.read_exact_at(&mut text, 0, Via::Cache);
    read.map_err(io)?;
    Ok(history_digest(timeline, &text))
}
