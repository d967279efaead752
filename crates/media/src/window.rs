//! Sequential reading of a stripe through one aligned buffer.

use std::sync::Arc;

use longshore_io::Buffer;

use crate::Error;
use crate::ahead::ReadAhead;
use crate::device::FamilyRead;
use crate::record::{Container, Kind, Malformed, PREFIX_MAX};

/// Bytes fetched at a time.
pub const WINDOW_BYTES: usize = 1 << 20;
const ALIGN: u64 = 4096;

/// A stripe read from front to back. Fetches at multiples of the alignment, so that reads may go
/// past the page cache.
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
    /// Nothing behind this offset is wanted.
    until: Option<u64>,
}

impl Window {
    pub fn new(device: String, read: Arc<dyn FamilyRead>, offset: u64) -> Result<Window, Error> {
        let buffer = crate::device::buffer(&device, WINDOW_BYTES)?;
        let start = offset - offset % ALIGN;
        let mut window = Window {
            device,
            read,
            buffer,
            ahead: None,
            start,
            len: 0,
            at: 0,
            until: None,
        };
        if offset > start {
            window.fetch()?;
            window.at = (offset - start) as usize;
        }
        Ok(window)
    }

    /// From now on, reads up to so many fetches ahead, each into a buffer of its own. A pipe is not read ahead.
    pub fn read_ahead(&mut self, count: usize) -> Result<(), Error> {
        if let (1.., Some(end)) = (count, self.read.len_bytes()?) {
            let mut buffers = crate::device::buffers(&self.device, count + 1, WINDOW_BYTES)?;
            // Buffers go round: the window's becomes one of theirs.
            if let Some(mut ours) = buffers.pop() {
                ours[..self.len].copy_from_slice(&self.buffer[..self.len]);
                self.buffer = ours;
            }
            self.ahead = Some(ReadAhead::start(&self.device, &self.read, buffers, end)?);
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

    /// Replaces the used-up buffer by the next bytes of the stripe; says whether there were any.
    fn fetch(&mut self) -> Result<bool, Error> {
        self.start += self.len as u64;
        self.at -= self.len.min(self.at);
        let wanted = match self.until {
            Some(until) => until.next_multiple_of(ALIGN).saturating_sub(self.start),
            None => WINDOW_BYTES as u64,
        };
        let wanted = wanted.clamp(ALIGN, WINDOW_BYTES as u64) as usize;
        self.len = match &mut self.ahead {
            Some(ahead) => ahead.read_at(&mut self.buffer, self.start)?,
            None => self.read.read_at(&mut self.buffer[..wanted], self.start)?,
        };
        Ok(self.len > 0)
    }

    /// Goes on at `offset`; of what stands behind `until`, no more than an alignment demands will be read.
    pub fn go_to(&mut self, offset: u64, until: u64) -> Result<(), Error> {
        self.until = Some(until);
        if !(self.start..=self.start + self.len as u64).contains(&offset) {
            (self.start, self.len, self.at) = (offset - offset % ALIGN, 0, 0);
            self.fetch()?;
        }
        self.at = (offset - self.start) as usize;
        Ok(())
    }

    /// Fills `out` unless the stripe ends first; says how many bytes it got.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let mut done = 0;
        while done < out.len() {
            if self.at >= self.len && !self.fetch()? {
                break;
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

    /// Copies the next bytes without moving on; fewer than asked only at the end of the stripe.
    pub fn peek(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        if self.at >= self.len {
            self.fetch()?;
        }
        let n = out.len().min(self.len.saturating_sub(self.at));
        out[..n].copy_from_slice(&self.buffer[self.at..self.at + n]);
        Ok(n)
    }

    fn damaged(&self, offset: u64, what: Malformed) -> Error {
        Error::Damaged {
            device: self.device.clone(),
            offset,
            what,
        }
    }

    /// Reads the next framed record into `framed`. `None` at the end of the stripe, also in the
    /// middle of a record: the caller knows whether an end may come here.
    pub fn record<'a>(
        &mut self,
        container: Container,
        framed: &'a mut Vec<u8>,
    ) -> Result<Option<(Kind, &'a [u8])>, Error> {
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
        container
            .parse(framed)
            .map(Some)
            .map_err(|e| self.damaged(offset, e))
    }
}
