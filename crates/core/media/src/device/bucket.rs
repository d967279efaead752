//! A stripe in an object store: one object, which appears when its upload is completed.
//!
//! A stripe is sent in parts of one size, of which the last may be shorter: some stores take no others. `sync` sends
//! what the last part has so far, and when more follows, that part is sent again and replaces it. So a stripe is durable
//! when `sync` returns, and only `complete` is left to be done when all stripes of a set are. Order within a stripe
//! needs nothing: nobody sees a part of an object.
//!
//! How many parts or windows are in flight is up to the bucket, which measures what they are worth.
//!
//! An upload that is not completed has no name. So nothing waits to be completed by somebody else, and a set whose
//! completion is interrupted lacks families, which its reader names. Writers do not exclude each other, but of two that
//! began with the same object under a name, or none, the store completes one: the condition of a completion is what the
//! name had when the writer began. All writers complete the stripes of their sets in one order, that of the names, so
//! the later one fails at the first name that both have, before it has replaced anything of the other.
//!
//! A reader holds the object's ETag from its first look on, so an object that is replaced is never read as a mix. That
//! look is a read of the object's two ends, which have all that tells whether a set is whole: two requests for each
//! stripe, one for a short stripe.
//! Ranges that are read in order are requested ahead, in windows that grow; other ranges are requested as they are.
//!
//! Invariants
//! - `sync` succeeds only when the store has every byte that was written, and the name still has the object that was
//!   there when the writer began.
//! - Parts are numbered without gaps, and only the last one may be shorter or be replaced.
//! - A stripe that is dropped before `complete` leaves no object, and its upload is aborted if the store answers. A repeatable
//!   stripe that is kept leaves its upload to the next writer.
//! - A writer holds at most 128 MiB of parts in flight, or four, and one more. A reader holds windows of at most 144 MiB.
//!
//! Leaves to others: requests, repetition, conditions and aborts (`longshore-bucket`); the order of completions and the
//! last look at all stripes (`set_writer.rs`); which stripes make a set (`set_reader.rs`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use longshore_bucket::{
    Address, Bucket, Bytes, Ends, Error as BucketError, Head, IN_FLIGHT_LEAST, IN_FLIGHT_MOST, Key,
    PARTS_MAX, Ticket, Upload, UploadPart, UploadTrace, described,
};
use longshore_facts as facts;
use longshore_io::{Buffer, Clock, HostClock, Pool, Storage, Via};

use super::door::{
    BackupDevice, DeviceClass, FIRST_BYTES, FamilyRead, FamilyWrite, LastLook, LeftStripe,
    PendingStripe, Settle, Stripe, Surroundings,
};
use super::folder::Folder;
use crate::Error;

/// The memory that one stripe's parts in flight, or its windows, may take; four of them may take more.
const HELD_BYTES: u64 = 128 << 20;
/// A stripe's share of the memory that the process may have: a chain has many stripes.
const HELD_SHARE: u64 = 256;
/// One request of a reader that reads in order, at first and at most.
const WINDOW_MIN: u64 = 1 << 20;
const WINDOW_MAX: u64 = 8 << 20;
/// The last bytes of a stripe, which are read when it is opened: its trailer lies in them.
const LAST_BYTES: u64 = 4 << 10;
/// A reader that goes back by less than this still reads in order: fetches begin at multiples of the alignment.
const BACK: u64 = 64 << 10;

/// The memory that this process lets a stripe hold in requests in flight. A look at a target opens thousands of stripes, and
/// the limits stay as they are: they are read once.
static HELD: LazyLock<u64> = LazyLock::new(|| {
    let limits = [facts::memory_allowed(), facts::address_space_left()];
    let shares = limits.into_iter().flatten().map(|limit| limit / HELD_SHARE);
    shares.fold(HELD_BYTES, u64::min)
});

/// How many requests of `bytes` each a stripe may ever have in flight. The bucket says how many are worth having.
fn most_in_flight(bytes: u64) -> usize {
    let fitting = *HELD / bytes.max(1);
    fitting.clamp(IN_FLIGHT_LEAST.into(), IN_FLIGHT_MOST.into()) as usize
}

pub struct BucketDevice {
    storage: Arc<dyn Storage>,
    address: Address,
    cancel: Arc<AtomicBool>,
    place: OnceLock<(Bucket, Key)>,
    /// The size of a part, where it is not the usual one.
    part_bytes: Option<u64>,
    /// Of the stripe that was begun last.
    trace: Mutex<Option<UploadTrace>>,
}

impl std::fmt::Debug for BucketDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "BucketDevice({})", self.address)
    }
}

impl BucketDevice {
    pub fn new(storage: Arc<dyn Storage>, address: Address, cancel: Arc<AtomicBool>) -> Self {
        BucketDevice {
            storage,
            part_bytes: address.part_bytes(),
            address,
            cancel,
            place: OnceLock::new(),
            trace: Mutex::default(),
        }
    }

    /// The device in a bucket that is open already, with parts of `part_bytes`.
    pub fn of(
        bucket: Bucket,
        storage: Arc<dyn Storage>,
        address: Address,
        part_bytes: u64,
    ) -> Result<Self, Error> {
        let (_, _, key) = address.parts()?;
        let device = BucketDevice::new(storage, address, Arc::default());
        Ok(BucketDevice {
            place: (bucket, key).into(),
            part_bytes: Some(part_bytes),
            ..device
        })
    }

    fn part(&self, stripe_bytes: Option<u64>) -> u64 {
        let usual = || longshore_bucket::part_bytes(stripe_bytes);
        self.part_bytes.unwrap_or_else(usual)
    }

    fn place(&self) -> Result<&(Bucket, Key), Error> {
        if let Some(place) = self.place.get() {
            return Ok(place);
        }
        let place = self.address.place(&*self.storage)?;
        Ok(self.place.get_or_init(|| place))
    }

    fn unsupported(&self, action: &'static str) -> Error {
        Error::Unsupported {
            device: self.name(),
            action,
        }
    }
}

impl PendingStripe for BucketDevice {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        Ok(None)
    }

    fn complete_pending(&self) -> Result<(), Error> {
        Err(self.unsupported("complete a stripe"))
    }

    fn left(&self) -> Option<LeftStripe> {
        let trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let end = trace.as_ref()?.end();
        Some(LeftStripe {
            device: self.name(),
            standing: end.standing,
            upload: end.unaborted,
            server: self
                .place
                .get()
                .filter(|(bucket, _)| bucket.is_at_named_server())
                .map(|(bucket, _)| bucket.server().to_owned()),
        })
    }
}

impl Surroundings for BucketDevice {
    /// None where the settings of the store are wrong: reading the stripe tells that.
    fn folder(&self) -> Option<Folder> {
        let place = self.place().ok()?;
        Some(Folder::of_object(place, &self.cancel))
    }
}

impl BackupDevice for BucketDevice {
    fn name(&self) -> String {
        self.address.to_string()
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::Bucket
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        let (bucket, key) = self.place()?;
        let look = bucket.ends(key, FIRST_BYTES as u64, LAST_BYTES)?;
        let ends = match look.wait(&self.cancel) {
            Ok(ends) => Some(ends),
            Err(BucketError::Missing { .. }) => None,
            // An empty object has no ends.
            Err(BucketError::Refused { status: 416, .. }) => {
                let head = bucket.head(key, &self.cancel)?;
                head.map(|head| Ends {
                    head,
                    first: Bytes::new(),
                    last: Bytes::new(),
                })
            }
            Err(error) => return Err(error.into()),
        };
        Ok(ends.map(|ends| {
            Arc::new(BucketRead {
                bucket: bucket.clone(),
                key: key.clone(),
                head: ends.head,
                first: ends.first,
                last: ends.last,
                cancel: self.cancel.clone(),
                ahead: Mutex::default(),
            }) as Arc<dyn FamilyRead>
        }))
    }

    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        self.create_stripe(&Stripe {
            via,
            label: uuid::Uuid::new_v4().to_string(),
            expected_bytes: None,
            is_repeatable: false,
        })
    }

    fn create_stripe(&self, stripe: &Stripe) -> Result<Box<dyn FamilyWrite>, Error> {
        let (bucket, key) = self.place()?;
        let part = self.part(stripe.expected_bytes);
        let memory = |source| Error::Io {
            action: "get memory for",
            device: self.name(),
            offset: 0,
            source,
        };
        let part =
            usize::try_from(part).map_err(|_| memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let pool = Pool::new(most_in_flight(part as u64) + 1, part).map_err(memory)?;
        let found = bucket.head(key, &self.cancel)?;
        let label = stripe.label.clone();
        let upload = match stripe.is_repeatable {
            true => bucket.begin_or_resume(key, label, part as u64, &self.cancel)?,
            false => bucket.begin(key, label, &self.cancel)?,
        };
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        *trace = Some(upload.trace());
        Ok(Box::new(BucketWrite {
            device: self.name(),
            bucket: bucket.clone(),
            key: key.clone(),
            found,
            cancel: self.cancel.clone(),
            part,
            pool,
            staging: None,
            staged: 0,
            sent: Vec::new(),
            under_way: VecDeque::new(),
            full_parts: 0,
            tail_is_sent: false,
            is_repeatable: stripe.is_repeatable,
            upload: Some(upload),
        }))
    }

    fn writing_bytes(&self, stripe_bytes: Option<u64>) -> u64 {
        let part = self.part(stripe_bytes);
        part.saturating_mul(most_in_flight(part) as u64 + 1)
    }

    fn append(&self, _offset: u64, _via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Err(self.unsupported("be appended to: an object is written once"))
    }
}

struct BucketWrite {
    device: String,
    bucket: Bucket,
    key: Key,
    /// The object that this one replaces.
    found: Option<Head>,
    cancel: Arc<AtomicBool>,
    part: usize,
    pool: Pool,
    /// The part that is filled; `None` while it is empty.
    staging: Option<Buffer>,
    staged: usize,
    /// The parts that the store has, in order, without gaps.
    sent: Vec<UploadPart>,
    under_way: VecDeque<(usize, Ticket<UploadPart>)>,
    /// Parts before the one that is filled: sent, or on their way.
    full_parts: usize,
    /// Whether the part that is filled was sent, as far as it is filled.
    tail_is_sent: bool,
    is_repeatable: bool,
    /// `None` once it was completed.
    upload: Option<Upload>,
}

impl BucketWrite {
    fn wait_for_one(&mut self) -> Result<(), Error> {
        let Some((index, ticket)) = self.under_way.pop_front() else {
            return Ok(());
        };
        let part = ticket.wait(&self.cancel)?;
        // Parts are waited for in the order in which they were sent.
        self.sent.truncate(index);
        self.sent.push(part);
        Ok(())
    }

    fn wait_for_all(&mut self) -> Result<(), Error> {
        while !self.under_way.is_empty() {
            self.wait_for_one()?;
        }
        Ok(())
    }

    /// A free buffer, when no more parts are in flight than is worth it. A request that ended may hold its buffer for
    /// some moments more.
    fn buffer(&mut self) -> Result<Buffer, Error> {
        // The pool bounds them, too.
        let wanted = self.bucket.parts_in_flight();
        while self.under_way.len() > wanted {
            self.wait_for_one()?;
        }
        loop {
            if let Some(buffer) = self.pool.try_take() {
                return Ok(buffer);
            }
            match self.under_way.is_empty() {
                false => self.wait_for_one()?,
                true if self.cancel.load(Ordering::Relaxed) => {
                    return Err(Error::Cancelled {
                        device: self.device.clone(),
                    });
                }
                true => HostClock.sleep(Duration::from_millis(1)),
            }
        }
    }

    fn send(&mut self, index: usize, buffer: Buffer, len: usize) -> Result<(), Error> {
        if index as u64 >= PARTS_MAX {
            return Err(Error::Full {
                device: self.device.clone(),
                bytes: self.offset(),
            });
        }
        let Some(upload) = &self.upload else {
            return Ok(());
        };
        let bytes = Bytes::from_owner(Owned(buffer)).slice(..len);
        let ticket = upload.part(index, bytes)?;
        self.under_way.push_back((index, ticket));
        Ok(())
    }

    /// Sends what the last part has so far.
    fn send_tail(&mut self) -> Result<(), Error> {
        if self.staged == 0 || self.tail_is_sent {
            return Ok(());
        }
        let index = self.full_parts;
        let mut copy = self.buffer()?;
        if let Some(staging) = &self.staging {
            copy[..self.staged].copy_from_slice(&staging[..self.staged]);
        }
        self.send(index, copy, self.staged)?;
        self.tail_is_sent = true;
        Ok(())
    }

    /// Errors: [`BucketError::Overtaken`] if the object is not what it was when this writer began.
    fn check_unchanged(&self) -> Result<(), Error> {
        let now = self.bucket.head(&self.key, &self.cancel)?;
        if now == self.found {
            return Ok(());
        }
        let at = self.device.clone();
        let now = described(now.as_ref());
        Err(BucketError::Overtaken { at, now }.into())
    }
}

/// A buffer as the owner of its bytes.
struct Owned(Buffer);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl FamilyWrite for BucketWrite {
    fn offset(&self) -> u64 {
        self.full_parts as u64 * self.part as u64 + self.staged as u64
    }

    fn room(&self) -> u64 {
        (PARTS_MAX * self.part as u64).saturating_sub(self.offset())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let index = self.full_parts;
            if std::mem::take(&mut self.tail_is_sent) {
                // It is sent again, with what follows.
                self.wait_for_all()?;
                self.sent.truncate(index);
            }
            let mut buffer = match self.staging.take() {
                Some(buffer) => buffer,
                None => self.buffer()?,
            };
            let n = bytes.len().min(self.part - self.staged);
            buffer[self.staged..self.staged + n].copy_from_slice(&bytes[..n]);
            self.staged += n;
            bytes = &bytes[n..];
            if self.staged == self.part {
                self.send(index, buffer, self.part)?;
                self.full_parts += 1;
                self.staged = 0;
            } else {
                self.staging = Some(buffer);
            }
        }
        Ok(())
    }

    fn settle(&mut self, how: Settle) -> Result<(), Error> {
        match how {
            Settle::Ordered => Ok(()),
            Settle::Begun => self.send_tail(),
        }
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.send_tail()?;
        self.wait_for_all()?;
        self.check_unchanged()
    }

    /// The parts that the store has serve the next writer of this stripe.
    fn keep(&mut self) {
        if let Some(upload) = self.upload.as_mut().filter(|_| self.is_repeatable) {
            upload.leave();
        }
    }

    fn complete(mut self: Box<Self>) -> Result<Option<LastLook>, Error> {
        let len = self.offset();
        let parts = std::mem::take(&mut self.sent);
        let Some(upload) = self.upload.take() else {
            return Ok(None);
        };
        // Other stripes may be complete already, so an interruption lets this one come to its end, if the store answers.
        let made = upload.complete(parts, len, self.found.as_ref(), &self.cancel)?;
        let cancel = self.cancel.clone();
        Ok(Some(Box::new(move || Ok(made.look(&cancel)?))))
    }
}

/// Bytes of the object that were requested: those at `start` and after.
#[derive(Debug)]
struct Span {
    start: u64,
    len: u64,
    state: Fetched,
}

#[derive(Debug)]
enum Fetched {
    UnderWay(Ticket<Vec<Bytes>>),
    Here(Vec<Bytes>),
}

impl Span {
    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// The state of a reader that reads in order.
#[derive(Debug, Default)]
struct Ahead {
    /// In order, without gaps.
    spans: VecDeque<Span>,
    /// Where the last read ended, and how many bytes were read in order before.
    last_end: u64,
    run: u64,
}

#[derive(Debug)]
struct BucketRead {
    bucket: Bucket,
    key: Key,
    head: Head,
    /// The two ends, of the content that `head` names.
    first: Bytes,
    last: Bytes,
    cancel: Arc<AtomicBool>,
    ahead: Mutex<Ahead>,
}

impl BucketRead {
    /// The bytes of a range that lies in one of the two ends.
    fn at_an_end(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let last_start = self.head.len_bytes - self.last.len() as u64;
        let mut ends = [(0, &self.first), (last_start, &self.last)].into_iter();
        ends.find_map(|(start, bytes)| {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            bytes.get(from..from.checked_add(len)?)
        })
    }

    fn fetch(&self, start: u64, len: u64) -> Result<Span, Error> {
        let tag = self.head.tag.clone();
        let ticket = self
            .bucket
            .fetch_ahead(&self.key, start..start + len, tag)?;
        Ok(Span {
            start,
            len,
            state: Fetched::UnderWay(ticket),
        })
    }

    /// Requests the windows after the last one.
    fn top_up(&self, ahead: &mut Ahead, offset: u64) -> Result<(), Error> {
        let window = ahead.run.clamp(WINDOW_MIN, WINDOW_MAX);
        let wanted = self
            .bucket
            .ranges_in_flight()
            .min(most_in_flight(WINDOW_MAX));
        while ahead.spans.iter().filter(|s| s.start > offset).count() < wanted {
            let start = ahead.spans.back().map_or(offset, Span::end);
            let len = window.min(self.head.len_bytes - start);
            if len == 0 {
                break;
            }
            let span = self.fetch(start, len)?;
            ahead.spans.push_back(span);
        }
        Ok(())
    }

    /// Copies what the windows have at `offset`; 0 if there is no window.
    fn copy(&self, ahead: &mut Ahead, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let holds = |span: &Span| (span.start..span.end()).contains(&offset);
        let Some(index) = ahead.spans.iter().position(holds) else {
            return Ok(0);
        };
        let Some(mut span) = ahead.spans.remove(index) else {
            return Ok(0);
        };
        let pieces = match span.state {
            Fetched::Here(pieces) => pieces,
            Fetched::UnderWay(ticket) => ticket.wait(&self.cancel)?,
        };
        let mut skip = (offset - span.start) as usize;
        let mut done = 0;
        for piece in &pieces {
            let here = piece.get(skip..).unwrap_or_default();
            skip -= skip.min(piece.len());
            let n = here.len().min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&here[..n]);
            done += n;
        }
        span.state = Fetched::Here(pieces);
        ahead.spans.insert(index, span);
        Ok(done)
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let in_order =
            (ahead.last_end.saturating_sub(BACK)..=ahead.last_end + BACK).contains(&offset);
        if !in_order {
            ahead.run = 0;
            ahead.spans.clear();
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            if ahead.run >= WINDOW_MIN {
                ahead.spans.retain(|span| span.end() + BACK > at);
                self.top_up(&mut ahead, at)?;
            }
            let n = self.copy(&mut ahead, &mut buf[done..], at)?;
            if n == 0 {
                let tag = self.head.tag.clone();
                self.bucket
                    .read(&self.key, at, tag, &mut buf[done..], &self.cancel)?;
                done = buf.len();
            }
            done += n;
        }
        let end = offset + buf.len() as u64;
        ahead.run += end.saturating_sub(ahead.last_end.max(offset));
        ahead.last_end = end;
        Ok(())
    }
}

impl FamilyRead for BucketRead {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(Some(self.head.len_bytes))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let len = self
            .head
            .len_bytes
            .saturating_sub(offset)
            .min(buf.len() as u64) as usize;
        match self.at_an_end(offset, len) {
            Some(bytes) => buf[..len].copy_from_slice(bytes),
            None if len > 0 => self.read(&mut buf[..len], offset)?,
            None => {}
        }
        Ok(len)
    }

    fn reading_bytes(&self) -> u64 {
        WINDOW_MAX * (most_in_flight(WINDOW_MAX) as u64 + 2)
    }

    fn again(&self) -> Option<Arc<dyn FamilyRead>> {
        Some(Arc::new(BucketRead {
            bucket: self.bucket.clone(),
            key: self.key.clone(),
            head: self.head.clone(),
            first: self.first.clone(),
            last: self.last.clone(),
            cancel: self.cancel.clone(),
            ahead: Mutex::default(),
        }))
    }
}
