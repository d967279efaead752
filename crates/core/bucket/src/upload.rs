//! An object that is sent in parts and appears when it is complete.
//!
//! Two writers to one name are told apart by the store: a completion says what the name must still have, nothing or the
//! object that was found at the beginning. A store that does not heed this is found out by the last look.
//!
//! Invariants
//! - The object appears only through `complete`, which succeeds only after the store said so, or after the object was
//!   seen with this upload's length and label.
//! - An upload that is dropped is aborted, unless its writer left it for a later one. The abort is sent when no request
//!   for a part runs any longer; if it fails, the trace and a warning name the upload.
//! - A store may put a part away that came whole after it has answered the abort, and charges for it from then on. So the
//!   requests for parts outlive their tickets: before an abort they are waited for, and only then cut.
//! - Azure knows no uploads, only blocks that belong to no blob yet. It drops them after a week, or when anyone writes
//!   the blob. Each block has a random name, so two writers of one blob never share any. There is nothing to abort.
//! - An upload that is gone on with has the label of whoever began it, which may be another version or another program. So its
//!   object is also known by the tag that the store's answer to the completion has.
//! - While no answer says what a completion did, the trace says `Unknown`. In Azure it stays so if the blob is not
//!   there, since a completion that is still on its way cannot be stopped.
//!
//! Leaves to others: the size and order of parts, and sending one index again only after its first answer
//! (`longshore_media`, `device/bucket.rs`); adding a completion's headers (`watched.rs`); uploads that killed processes left
//! (`unfinished.rs`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, HeaderValue};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{PutMultipartOptions, PutPayload};
use tokio::task::AbortHandle;

use crate::resumed::KnownParts;
use crate::store::{Bucket, Head, labelled};
use crate::watched::{COMPLETION, Header, is_answered};
use crate::{Error, Scheme, Ticket};

/// The most parts that S3 and Google take. Azure takes 50,000 blocks.
pub const PARTS_MAX: u64 = 10_000;
/// How Google's conditions name an object's content; 0 is nothing.
const GENERATION_MATCH: HeaderName = HeaderName::from_static("x-goog-if-generation-match");
/// Azure takes an object's own metadata when it is completed.
const AZURE_LABEL: HeaderName = HeaderName::from_static("x-ms-meta-longshore");
/// An abort that the store does not answer is given up after one and a half times the grace within these limits, and
/// told of.
const ABORT_LIMITS: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(15));
/// The same where another abort was not answered.
const ABORT_NEXT: Duration = Duration::from_secs(1);
/// An abort is not repeated by `object_store` when no answer came.
const ABORT_TRIES: usize = 5;
/// How long the parts in flight are waited for before an abort: longer than a busy store takes to answer one that came
/// whole. One that did not is cut, and the store drops it.
const PARTING: Duration = Duration::from_secs(2);
/// The same where the parts of another upload were not answered in that time, which these had as well.
const PARTING_NEXT: Duration = Duration::from_millis(100);

/// A part that the store has.
#[derive(Debug, Clone)]
pub struct UploadPart(PartId);

/// Whether an upload's object stands under its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    #[default]
    No,
    Yes,
    /// Another object stands there, although the store took this one.
    Replaced,
    /// The store did not say.
    Unknown,
}

/// The state of an upload that has ended, or may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadEnd {
    pub standing: Standing,
    /// The identifier of the upload, if the store keeps its parts: it could not be aborted.
    pub unaborted: Option<String>,
}

/// Tells what an upload has become, also after its end.
#[derive(Debug, Clone, Default)]
pub struct UploadTrace(Arc<Mutex<UploadEnd>>);

impl UploadTrace {
    pub fn end(&self) -> UploadEnd {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, change: impl FnOnce(&mut UploadEnd)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// An upload in progress. Dropping it before it is complete aborts it.
#[derive(Debug)]
pub struct Upload {
    bucket: Bucket,
    key: Path,
    id: Arc<String>,
    label: String,
    /// An earlier writer began it.
    is_resumed: bool,
    /// The parts that an earlier writer sent.
    known: Arc<KnownParts>,
    /// Requests of parts that have not ended.
    in_flight: Arc<AtomicUsize>,
    /// Handles that cut those requests, and some of ended ones.
    cuts: Mutex<Vec<AbortHandle>>,
    /// It is complete, or its abort was tried.
    done: bool,
    trace: UploadTrace,
}

/// An object that an upload made.
#[derive(Debug)]
pub struct Completed {
    bucket: Bucket,
    key: Path,
    label: String,
    is_resumed: bool,
    /// The object's ETag in the answer to the completion.
    tag: Option<String>,
    len: u64,
    trace: UploadTrace,
}

impl Bucket {
    /// Begins an object that will appear when it is completed. `label` tells this upload from all others.
    pub fn begin(&self, key: &Path, label: String, cancel: &AtomicBool) -> Result<Upload, Error> {
        Upload::begin(self.clone(), key.clone(), label, cancel)
    }

    /// [`Bucket::begin`], or goes on with the upload that an interrupted writer of the same size of parts left, with those parts
    /// that have the same bytes. The caller knows that no other writer is at work there.
    pub fn begin_or_resume(
        &self,
        key: &Path,
        label: String,
        part_bytes: u64,
        cancel: &AtomicBool,
    ) -> Result<Upload, Error> {
        self.may_write("begin an upload to", key)?;
        let Some((id, known)) = self.left_upload(key, part_bytes, cancel)? else {
            return self.begin(key, label, cancel);
        };
        tracing::info!(
            object = self.address(key),
            "goes on with an upload that was left"
        );
        Ok(Upload {
            bucket: self.clone(),
            key: key.clone(),
            id: Arc::new(id),
            label,
            is_resumed: true,
            known: Arc::new(known),
            in_flight: Arc::default(),
            cuts: Mutex::default(),
            done: false,
            trace: UploadTrace::default(),
        })
    }
}

impl Upload {
    pub(crate) fn begin(
        bucket: Bucket,
        key: Path,
        label: String,
        cancel: &AtomicBool,
    ) -> Result<Upload, Error> {
        bucket.may_write("begin an upload to", &key)?;
        let id = match bucket.scheme() {
            Scheme::Azure => String::new(),
            Scheme::S3 | Scheme::Google => {
                let (store, at) = (bucket.parts(), key.clone());
                let options = PutMultipartOptions {
                    attributes: labelled(label.clone()),
                    ..PutMultipartOptions::default()
                };
                let asked = bucket.ask("begin an upload to", &key, async move {
                    store.create_multipart_opts(&at, options).await
                })?;
                asked.wait(cancel)?
            }
        };
        let id = Arc::new(id);
        Ok(Upload {
            bucket,
            key,
            id,
            label,
            is_resumed: false,
            known: Arc::default(),
            in_flight: Arc::default(),
            cuts: Mutex::default(),
            done: false,
            trace: UploadTrace::default(),
        })
    }

    pub fn trace(&self) -> UploadTrace {
        self.trace.clone()
    }

    /// Sends a part. One that was sent before is replaced; the caller waits for the first before it sends the second. The
    /// request outlives its ticket, and ends with the upload.
    pub fn part(&self, index: usize, bytes: Bytes) -> Result<Ticket<UploadPart>, Error> {
        let (store, at, id) = (self.bucket.parts(), self.key.clone(), self.id.clone());
        let count = Counted::new(&self.in_flight);
        let running = self.bucket.sending().begin();
        let known = self.known.clone();
        let asked = self.bucket.ask("write a part of", &self.key, async move {
            let _count = count;
            if let Some(content_id) = known.has(index, &bytes) {
                return Ok(UploadPart(PartId { content_id }));
            }
            let len = bytes.len() as u64;
            let payload = PutPayload::from_bytes(bytes);
            let part = store.put_part(&at, &id, index, payload).await?;
            running.done(len);
            Ok(UploadPart(part))
        })?;
        let (ticket, cut) = asked.detached();
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.retain(|cut| !cut.is_finished());
        cuts.extend(cut);
        Ok(ticket)
    }

    fn take_cuts(&self) -> Vec<AbortHandle> {
        std::mem::take(&mut self.cuts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the object appear, durably, if its name still has what was `found` there, or still nothing. `len` is the
    /// length of all parts together. Once `cancel` is set, the store is waited for some seconds longer.
    ///
    /// The answer may be lost although the store did it, and the repeated request then fails. So an error counts only
    /// if the object is not there as it was meant to be. Where no answer says whether it is, [`UploadTrace`] says that.
    pub fn complete(
        mut self,
        parts: Vec<UploadPart>,
        len: u64,
        found: Option<&Head>,
        cancel: &AtomicBool,
    ) -> Result<Completed, Error> {
        let mut made = Completed {
            bucket: self.bucket.clone(),
            key: self.key.clone(),
            label: self.label.clone(),
            is_resumed: self.is_resumed,
            tag: None,
            len,
            trace: self.trace.clone(),
        };
        // The store looks too, if it heeds conditions. Where it does not, only a moment is left.
        let now = made.found(cancel)?;
        if now.as_ref() != found {
            return Err(Error::Overtaken {
                at: self.bucket.address(&self.key),
                now: described(now.as_ref()),
            });
        }
        let headers = self.headers(found)?;
        let (store, at, id) = (self.bucket.parts(), self.key.clone(), self.id.clone());
        let parts = parts.into_iter().map(|UploadPart(id)| id).collect();
        let asked = self.bucket.ask(
            "complete",
            &self.key,
            COMPLETION.scope(headers, async move {
                let made = store.complete_multipart(&at, &id, parts).await?;
                Ok(made.e_tag)
            }),
        )?;
        // Until the store has answered, nobody knows.
        self.trace.set(|end| end.standing = Standing::Unknown);
        match asked.wait_within(cancel, self.bucket.grace()) {
            Ok(tag) => made.tag = tag,
            Err(error) => self.settle(&made, (error, found), cancel)?,
        }
        self.done = true;
        self.trace.set(|end| {
            *end = UploadEnd {
                standing: Standing::Yes,
                unaborted: None,
            }
        });
        Ok(made)
    }

    /// The headers of the completion: the condition on what the name still has, and in Azure the label, which other
    /// stores get at the beginning. An object that the store gives no tag cannot be required.
    fn headers(&self, found: Option<&Head>) -> Result<Vec<Header>, Error> {
        let text = |text: &str| HeaderValue::from_str(text).ok();
        let tag = found.and_then(|head| text(head.tag.as_deref()?));
        let nothing = HeaderValue::from_static("*");
        let condition = match (self.bucket.scheme(), found) {
            (Scheme::Google, None) => Some((GENERATION_MATCH, HeaderValue::from(0))),
            (Scheme::Google, Some(head)) => {
                let version = head.version.as_deref().and_then(text);
                version.map(|version| (GENERATION_MATCH, version))
            }
            (Scheme::S3 | Scheme::Azure, None) => Some((IF_NONE_MATCH, nothing)),
            (Scheme::S3 | Scheme::Azure, Some(_)) => tag.map(|tag| (IF_MATCH, tag)),
        };
        let mut headers = Vec::from_iter(condition);
        if self.bucket.scheme() == Scheme::Azure {
            let label = text(&self.label).ok_or_else(|| Error::Settings {
                bucket: self.bucket.address(&self.key),
                why: "the label has characters that no header has".to_owned(),
            })?;
            headers.push((AZURE_LABEL, label));
        }
        Ok(headers)
    }

    /// Finds out what a completion did that ended with `error`. `Ok` if the object is there. `before`: what was there.
    fn settle(
        &mut self,
        made: &Completed,
        (error, before): (Error, Option<&Head>),
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let there = |found: &Option<Head>| {
            let is_ours = made.is(found.as_ref());
            if is_ours {
                tracing::info!(
                    object = made.bucket.address(&made.key),
                    %error,
                    "the answer to a completion was lost; the object is there"
                );
            }
            is_ours
        };
        let first = made.found(cancel);
        if first.as_ref().is_ok_and(there) {
            return Ok(());
        }
        // After this, a completion that is still on its way finds no upload.
        let is_aborted = self.abort();
        let is_refused = error.is_refusal();
        let last = match is_refused {
            true => first,
            false => made.found(cancel),
        };
        if last.as_ref().is_ok_and(there) {
            self.trace.set(|end| end.unaborted = None);
            return Ok(());
        }
        if let Ok(Some(now)) = &last
            && !is_refused
            && before != Some(now)
            && made.may_be(now)
        {
            return Err(made.other_label(now));
        }
        // Where the condition does not hold, nothing that was sent before can still be done.
        let is_other = matches!(error, Error::Changed { .. });
        if is_refused || ((is_aborted || is_other) && last.is_ok()) {
            self.trace.set(|end| end.standing = Standing::No);
        }
        Err(match (error, last) {
            (Error::Changed { at }, Ok(found)) => Error::Overtaken {
                at,
                now: described(found.as_ref()),
            },
            // Azure drops the blocks of all other writers when one completes the blob.
            (Error::Refused { code, .. }, Ok(found)) if code == "InvalidBlockList" => {
                Error::Overtaken {
                    at: self.bucket.address(&self.key),
                    now: described(found.as_ref()),
                }
            }
            (error, _) => error,
        })
    }

    /// From now on a drop aborts nothing: a later writer of the same bytes goes on with it ([`Bucket::begin_or_resume`]).
    pub fn leave(&mut self) {
        // Azure has nothing that could be gone on with, and keeps the blocks for a week either way.
        self.done = true;
        let id = Some(self.id.to_string()).filter(|id| !id.is_empty());
        self.trace.set(|end| end.unaborted = id);
    }

    /// Ends the upload. Whether the store keeps nothing of it, so that it cannot be completed any longer.
    fn abort(&mut self) -> bool {
        self.done = true;
        if self.bucket.scheme() == Scheme::Azure {
            return false;
        }
        let (store, at, id) = (self.bucket.parts(), self.key.clone(), self.id.clone());
        let in_flight = self.in_flight.clone();
        let mut cuts = self.take_cuts();
        let wait = self.bucket.grace() / 50;
        let bucket = self.bucket.clone();
        let parting = match bucket.is_silent().load(Ordering::Relaxed)
            || bucket.is_slow().load(Ordering::Relaxed)
        {
            true => PARTING_NEXT,
            false => PARTING,
        };
        let asked = self
            .bucket
            .ask("abort the upload to", &self.key, async move {
                let begun = Instant::now();
                let mut is_slow = false;
                while in_flight.load(Ordering::Acquire) > 0 {
                    if begun.elapsed() >= parting {
                        is_slow = true;
                        cuts.drain(..).for_each(|cut| cut.abort());
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                bucket.is_slow().store(is_slow, Ordering::Relaxed);
                for _ in 1..ABORT_TRIES {
                    let aborted = store.abort_multipart(&at, &id).await;
                    if aborted.is_ok() || is_answered() {
                        return aborted;
                    }
                    tokio::time::sleep(wait).await;
                }
                store.abort_multipart(&at, &id).await
            });
        let at_most = match self.bucket.is_silent().load(Ordering::Relaxed) {
            true => ABORT_NEXT,
            false => (self.bucket.grace() * 3 / 2).clamp(ABORT_LIMITS.0, ABORT_LIMITS.1),
        };
        let aborted = asked.and_then(|asked| asked.wait_for(parting + at_most));
        let is_timeout = matches!(aborted, Err(Error::Cancelled { .. }));
        self.bucket.is_silent().store(is_timeout, Ordering::Relaxed);
        match aborted {
            Ok(()) => true,
            // An upload that is not there needs no abort.
            Err(Error::Refused { code, .. }) if code == "NoSuchUpload" => true,
            Err(error) => {
                self.trace
                    .set(|end| end.unaborted = Some(self.id.to_string()));
                tracing::warn!(
                    object = self.bucket.address(&self.key),
                    upload = *self.id,
                    %error,
                    "an unfinished upload could not be aborted: the store keeps its parts, and charges for them, until it is"
                );
                false
            }
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.done {
            self.abort();
        }
        // Of an upload that was left, or that no abort is sent for.
        self.take_cuts().iter().for_each(AbortHandle::abort);
    }
}

impl Completed {
    /// Looks whether the object stands there, as it was sent. To be asked when all objects of a set are complete: a
    /// writer that was faster is noticed by the store's conditions or here, also in a store that heeds no conditions or
    /// loses what it took.
    pub fn look(&self, cancel: &AtomicBool) -> Result<(), Error> {
        let found = self.found(cancel)?;
        if self.is(found.as_ref()) {
            return Ok(());
        }
        if let Some(now) = &found
            && self.may_be(now)
        {
            self.trace.set(|end| end.standing = Standing::Unknown);
            return Err(self.other_label(now));
        }
        let at = self.bucket.address(&self.key);
        self.trace.set(|end| {
            end.standing = match found {
                Some(_) => Standing::Replaced,
                None => Standing::No,
            }
        });
        Err(match found {
            Some(_) => Error::Overtaken {
                at,
                now: described(found.as_ref()),
            },
            None => Error::NotKept { at },
        })
    }

    fn found(&self, cancel: &AtomicBool) -> Result<Option<Head>, Error> {
        let grace = self.bucket.grace() / 2;
        self.bucket.head_within(&self.key, cancel, grace)
    }

    fn is(&self, found: Option<&Head>) -> bool {
        found.is_some_and(|head| {
            let is_same = head.label.as_ref() == Some(&self.label)
                || (self.is_resumed && self.tag.is_some() && head.tag == self.tag);
            head.len_bytes == self.len && is_same
        })
    }

    /// Whether an object that [`Completed::is`] does not know may be this upload's all the same, under the label of whoever began
    /// it.
    fn may_be(&self, now: &Head) -> bool {
        self.is_resumed && now.len_bytes == self.len
    }

    fn other_label(&self, now: &Head) -> Error {
        Error::OtherLabel {
            at: self.bucket.address(&self.key),
            now: described(Some(now)),
        }
    }
}

/// The object that is there now, for messages.
pub fn described(found: Option<&Head>) -> String {
    let Some(Head {
        len_bytes: len,
        label,
        ..
    }) = found
    else {
        return "nothing is there now".to_owned();
    };
    match label {
        // Media set, family, number of the upload.
        Some(label) => format!("now there are {len} bytes of {}", plain(label)),
        None => format!("now there are {len} bytes without a label of Longshore's"),
    }
}

/// A label as a message can show it: anyone may have written it.
fn plain(label: &str) -> String {
    let set = label.split('/').next().unwrap_or_default();
    let set: String = set.chars().filter(|c| !c.is_control()).take(40).collect();
    format!("media set {set}")
}

/// One more request, as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::AcqRel);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
