//! Reads a stripe sequentially through one aligned buffer. Long runs of bytes in the page cache are read directly into
//! the consumer's buffer, which saves a copy.
//!
//! Invariants
//! - Fetches begin and end at multiples of the alignment, so that they can bypass the page cache.
//! - Offsets only grow, except on [`Window::go_to`]; a pipe never seeks.
//! - Memory is the window and what [`Window::read_ahead`] was given.
//!
//! Leaves to others: the meaning of the bytes (`stream.rs`), and the reads in flight (`ahead.rs`).

use std::ops::Range;
use std::sync::Arc;

use longshore_io::Buffer;

use crate::Error;
use crate::ahead::ReadAhead;
use crate::device::FamilyRead;
use crate::record::{Container, HEAD_LEN, PREFIX_MAX, RecordError, RecordKind};

/// Bytes fetched at a time.
pub const WINDOW_BYTES: usize = 1 << 20;
const ALIGN: u64 = 4096;
/// Requests of at least this many bytes may bypass the buffer.
const STRAIGHT_FROM: usize = 128 << 10;
/// Bytes fetched after a direct read: a block's header and manifest, so that its payload can be read directly too.
const SHORT_BYTES: usize = 16 << 10;

/// A stripe read from start to end. Fetches at multiples of the alignment, so that reads can bypass the page cache.
#[derive(Debug)]
pub struct Window {
    device: String,
    read: Arc<dyn FamilyRead>,
    buffer: Buffer,
    ahead: Option<ReadAhead>,
    /// Stripe offset of `buffer[0]`.
    start: u64,
    len: usize,
    at: usize,
    /// Bytes after this offset are not needed.
    until: Option<u64>,
    /// Whether any offset can be read: a pipe cannot seek.
    seekable: bool,
    /// Whether the last bytes bypassed the buffer.
    went_straight: bool,
}

impl Window {
    pub fn new(device: String, read: Arc<dyn FamilyRead>, offset: u64) -> Result<Window, Error> {
        let buffer = crate::device::buffer(&device, WINDOW_BYTES)?;
        let start = offset - offset % ALIGN;
        let seekable = read.len_bytes()?.is_some();
        let mut window = Window {
            device,
            read,
            buffer,
            ahead: None,
            start,
            len: 0,
            at: 0,
            until: None,
            seekable,
            went_straight: false,
        };
        if offset > start {
            window.fetch()?;
            window.at = (offset - start) as usize;
        }
        Ok(window)
    }

    /// From now on, reads up to `count` fetches ahead, each into a separate buffer. A pipe is not read ahead.
    pub fn read_ahead(&mut self, count: usize) -> Result<(), Error> {
        if let (1.., Some(end)) = (count, self.read.len_bytes()?) {
            let mut buffers = crate::device::buffers(&self.device, count + 1, WINDOW_BYTES)?;
            // Buffers circulate: the window's becomes one of the lanes'.
            if let Some(mut ours) = buffers.pop() {
                ours[..self.len].copy_from_slice(&self.buffer[..self.len]);
                self.buffer = ours;
            }
            self.ahead = Some(ReadAhead::start(&self.read, buffers, end));
        }
        Ok(())
    }

    /// Stripe offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    pub fn device(&self) -> &str {
        &self.device
    }

    /// Replaces the used-up buffer with the next bytes of the stripe; returns whether there were any.
    fn fetch(&mut self) -> Result<bool, Error> {
        self.start += self.len as u64;
        self.at -= self.len.min(self.at);
        let wanted = match self.until {
            Some(until) => until.next_multiple_of(ALIGN).saturating_sub(self.start),
            None => WINDOW_BYTES as u64,
        };
        let wanted = wanted.clamp(ALIGN, WINDOW_BYTES as u64) as usize;
        let short = std::mem::take(&mut self.went_straight) && self.is_at_hand(SHORT_BYTES);
        self.len = match &mut self.ahead {
            _ if short => {
                let wanted = wanted.min(SHORT_BYTES);
                self.read.read_at(&mut self.buffer[..wanted], self.start)?
            }
            Some(ahead) => ahead.read_at(&mut self.buffer, self.start)?,
            None => self.read.read_at(&mut self.buffer[..wanted], self.start)?,
        };
        Ok(self.len > 0)
    }

    /// Whether the next bytes need no wait, and no read in flight delivers them.
    fn is_at_hand(&self, len: usize) -> bool {
        let offset = self.offset();
        let ordered = self.ahead.as_ref().is_some_and(ReadAhead::is_under_way);
        !ordered
            && self
                .read
                .is_at_hand(offset..offset.saturating_add(len as u64))
    }

    /// Reads directly into `out` if that saves a copy; returns the number of bytes.
    fn read_straight(&mut self, out: &mut [u8]) -> Result<Option<usize>, Error> {
        if out.len() < STRAIGHT_FROM || !self.seekable || !self.is_at_hand(out.len()) {
            return Ok(None);
        }
        let offset = self.offset();
        let got = self.read.read_at(out, offset)?;
        let end = offset + got as u64;
        (self.start, self.len, self.at) = (end - end % ALIGN, 0, (end % ALIGN) as usize);
        self.went_straight = true;
        Ok(Some(got))
    }

    /// Continues at `offset`. Of the bytes after `until`, only those that the alignment requires are read.
    pub fn go_to(&mut self, offset: u64, until: u64) -> Result<(), Error> {
        self.until = Some(until);
        if !(self.start..=self.start + self.len as u64).contains(&offset) {
            (self.start, self.len, self.at) = (offset - offset % ALIGN, 0, 0);
            self.fetch()?;
        }
        self.at = (offset - self.start) as usize;
        Ok(())
    }

    /// Fills `out` unless the stripe ends first; returns the number of bytes.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let mut done = 0;
        while done < out.len() {
            if self.at >= self.len {
                match self.read_straight(&mut out[done..])? {
                    Some(0) => break,
                    Some(got) => {
                        done += got;
                        continue;
                    }
                    None if !self.fetch()? => break,
                    None => {}
                }
            }
            let n = (out.len() - done).min(self.len.saturating_sub(self.at));
            if n == 0 {
                break;
            }
            out[done..done + n].copy_from_slice(&self.buffer[self.at..self.at + n]);
            self.at += n;
            done += n;
        }
        Ok(done)
    }

    /// Copies the next bytes without advancing; fewer than requested only at the end of the stripe.
    pub fn peek(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        if self.at >= self.len {
            self.fetch()?;
        }
        let n = out.len().min(self.len.saturating_sub(self.at));
        out[..n].copy_from_slice(&self.buffer[self.at..self.at + n]);
        Ok(n)
    }

    fn damaged(&self, offset: u64, what: RecordError) -> Error {
        Error::Damaged {
            device: self.device.clone(),
            offset,
            what,
        }
    }

    /// Reads the next framed record into `framed`. `None` at the end of the stripe, even in the middle of a record:
    /// the caller knows whether the stripe may end here. A record that cannot be read is read once more if the stripe
    /// may have better bytes.
    pub fn record<'a>(
        &mut self,
        container: Container,
        framed: &'a mut Vec<u8>,
    ) -> Result<Option<(RecordKind, &'a [u8])>, Error> {
        let offset = self.offset();
        let mut found = self.try_record(container, framed);
        // No more is doubted than the record: first its length, then as many bytes.
        let mut len = container.prefix_len();
        for _ in 0..2 {
            if !matches!(found, Ok(None) | Err(Error::Damaged { .. })) {
                break;
            }
            if self.doubt(offset, len)? {
                found = self.try_record(container, framed);
            }
            let Ok(whole) = container.framed_len_at(framed) else {
                break;
            };
            len = whole;
        }
        Ok(found?.map(|(kind, body)| (kind, &framed[body])))
    }

    /// Whether the bytes at `offset` may be others if they are read again; then they are read next.
    fn doubt(&mut self, offset: u64, len: usize) -> Result<bool, Error> {
        if !self.seekable || !self.read.doubt(offset..offset.saturating_add(len as u64))? {
            return Ok(false);
        }
        // Bytes that were read ahead may be bad, too.
        self.ahead = None;
        (self.start, self.len, self.at) = (offset - offset % ALIGN, 0, (offset % ALIGN) as usize);
        self.went_straight = false;
        Ok(true)
    }

    fn try_record(
        &mut self,
        container: Container,
        framed: &mut Vec<u8>,
    ) -> Result<Option<(RecordKind, Range<usize>)>, Error> {
        let offset = self.offset();
        let prefix = container.prefix_len();
        framed.resize(PREFIX_MAX, 0);
        if self.read(&mut framed[..prefix])? < prefix {
            return Ok(None);
        }
        let len = container
            .framed_len_at(&framed[..prefix])
            .map_err(|e| self.damaged(offset, e))?;
        framed.resize(len, 0);
        if self.read(&mut framed[prefix..])? < len - prefix {
            return Ok(None);
        }
        let (kind, _) = container
            .parse(framed)
            .map_err(|e| self.damaged(offset, e))?;
        Ok(Some((
            kind,
            prefix + HEAD_LEN..len - container.suffix_len(),
        )))
    }

    /// The stripe that is read.
    pub(crate) fn stripe(&self) -> Arc<dyn FamilyRead> {
        self.read.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Bytes of which every other megabyte may be in the page cache, and a count of the bytes read.
    #[derive(Debug)]
    struct Bytes {
        all: Vec<u8>,
        cached: [bool; 2],
        read: AtomicU64,
        /// How many reads had a length that no internal buffer has.
        straight: AtomicU64,
    }

    impl FamilyRead for Bytes {
        fn len_bytes(&self) -> Result<Option<u64>, Error> {
            Ok(Some(self.all.len() as u64))
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
            let rest = &self.all[self.all.len().min(offset as usize)..];
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            self.read.fetch_add(n as u64, Ordering::Relaxed);
            let straight = !buf.len().is_multiple_of(ALIGN as usize);
            self.straight
                .fetch_add(u64::from(straight), Ordering::Relaxed);
            Ok(n)
        }

        fn is_at_hand(&self, range: Range<u64>) -> bool {
            let end = range.end.min(self.all.len() as u64).max(range.start + 1);
            (range.start >> 20..=(end - 1) >> 20).all(|mb| self.cached[mb as usize % 2])
        }
    }

    /// Goal: for any request size and any cache contents, the bytes arrive in order and once, and of cached ranges
    /// hardly more is read than their bytes.
    #[test]
    fn reads_return_the_content_at_any_offset() {
        let mut seed = 11u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..48 {
            let all: Vec<u8> = (0..9_000_000 + random(5000))
                .map(|i| ((i * i) >> 7) as u8)
                .collect();
            let cached = [round % 2 == 0, round % 4 < 2];
            let lanes = (round as usize / 4) % 3;
            let payload = [3000, 150_000, 450_000, 1_300_000][round as usize / 12];
            let read = Arc::new(Bytes {
                all,
                cached,
                read: AtomicU64::new(0),
                straight: AtomicU64::new(0),
            });
            let begin = random(10_000);
            let mut window = Window::new("x".into(), read.clone(), begin).unwrap();
            window.read_ahead(lanes).unwrap();
            let mut at = begin as usize;
            let mut is_header = true;
            while at < read.all.len() {
                let what = format!("round {round} at {at}");
                assert_eq!(window.offset(), at as u64, "{what}");
                let want = if is_header { 200 } else { payload } + random(300) as usize;
                is_header = !is_header;
                let mut out = vec![0; want];
                if random(4) == 0 {
                    let n = window.peek(&mut out[..12]).unwrap();
                    assert_eq!(out[..n], read.all[at..at + n], "{what}");
                }
                let n = window.read(&mut out).unwrap();
                assert_eq!(n, want.min(read.all.len() - at), "{what}");
                assert!(out[..n] == read.all[at..at + n], "{what}");
                at += n;
            }
            assert_eq!(window.read(&mut [0; 10]).unwrap(), 0);
            if cached == [true; 2] {
                let more = read.read.load(Ordering::Relaxed) - (read.all.len() as u64 - begin);
                assert!(
                    more < 2 << 20,
                    "round {round}: {more} bytes more than there are"
                );
                let straight = read.straight.load(Ordering::Relaxed);
                let payloads = (read.all.len() / (payload + 500)) as u64;
                assert!(
                    payload < 450_000 || straight + 2 >= payloads,
                    "{straight} of {payloads}"
                );
            }
        }
    }
}
