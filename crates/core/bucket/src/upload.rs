//! An object that is sent in parts and appears when it is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{PutMultipartOptions, PutPayload};

use crate::store::{Bucket, labelled};
use crate::{Error, Ticket};

/// The most parts that S3 takes.
pub const PARTS_MAX: u64 = 10_000;
/// An abort that the store does not answer is given up after that long, and told of.
const ABORT_MAX: Duration = Duration::from_secs(15);

/// A part that the store has.
#[derive(Debug, Clone)]
pub struct UploadPart(PartId);

/// An upload under way. Dropping it before it is complete aborts it.
#[derive(Debug)]
pub struct Upload {
    bucket: Bucket,
    key: Path,
    id: Arc<String>,
    label: String,
    /// Requests of parts that have not ended.
    in_flight: Arc<AtomicUsize>,
    done: bool,
}

impl Bucket {
    /// Begins an object that will appear when it is completed. `label` tells this upload from all others.
    pub fn begin(&self, key: &Path, label: String, cancel: &AtomicBool) -> Result<Upload, Error> {
        Upload::begin(self.clone(), key.clone(), label, cancel)
    }
}

impl Upload {
    pub(crate) fn begin(
        bucket: Bucket,
        key: Path,
        label: String,
        cancel: &AtomicBool,
    ) -> Result<Upload, Error> {
        let (store, at) = (bucket.store(), key.clone());
        let options = PutMultipartOptions {
            attributes: labelled(label.clone()),
            ..PutMultipartOptions::default()
        };
        let asked = bucket.ask("begin an upload to", &key, async move {
            store.create_multipart_opts(&at, options).await
        })?;
        let id = Arc::new(asked.wait(cancel)?);
        Ok(Upload {
            bucket,
            key,
            id,
            label,
            in_flight: Arc::default(),
            done: false,
        })
    }

    /// Sends a part. One that was sent before is replaced; the caller waits for the first before it sends the second.
    pub fn part(&self, index: usize, bytes: Bytes) -> Result<Ticket<UploadPart>, Error> {
        let (store, at, id) = (self.bucket.store(), self.key.clone(), self.id.clone());
        let count = Counted::new(&self.in_flight);
        self.bucket.ask("write a part of", &self.key, async move {
            let _count = count;
            let payload = PutPayload::from_bytes(bytes);
            store
                .put_part(&at, &id, index, payload)
                .await
                .map(UploadPart)
        })
    }

    /// Makes the object appear, durably. `len` is the length of all parts together.
    ///
    /// The answer may be lost although the store did it, and the repeated request then fails. So an error counts only
    /// if the object is not there as it was meant to be.
    pub fn complete(
        mut self,
        parts: Vec<UploadPart>,
        len: u64,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let (store, at, id) = (self.bucket.store(), self.key.clone(), self.id.clone());
        let parts = parts.into_iter().map(|UploadPart(id)| id).collect();
        let asked = self.bucket.ask("complete", &self.key, async move {
            store.complete_multipart(&at, &id, parts).await.map(drop)
        })?;
        let result = asked.wait(cancel);
        if let Err(error) = result {
            // Ctrl-C must not hide that the object is there.
            let found = self.bucket.head(&self.key, &AtomicBool::new(false));
            let is_ours = matches!(&found, Ok(Some(head))
                if head.len == len && head.label.as_ref() == Some(&self.label));
            if !is_ours {
                return Err(error);
            }
            tracing::info!(
                object = self.bucket.address(&self.key),
                %error,
                "the answer to a completion was lost; the object is there"
            );
        }
        self.done = true;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (store, at, id) = (self.bucket.store(), self.key.clone(), self.id.clone());
        let in_flight = self.in_flight.clone();
        let aborted = self
            .bucket
            .ask("abort the upload to", &self.key, async move {
                // A part that arrives after the abort would stay. Whoever held the tickets has dropped them.
                while in_flight.load(Ordering::Acquire) > 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                store.abort_multipart(&at, &id).await
            });
        let aborted = aborted.and_then(|asked| asked.wait_for(ABORT_MAX));
        if let Err(error) = aborted
            // An upload that is not there needs no abort.
            && !matches!(&error, Error::Refused { code, .. } if code == "NoSuchUpload")
        {
            tracing::warn!(
                object = self.bucket.address(&self.key),
                upload = *self.id,
                %error,
                "an unfinished upload could not be aborted: the store keeps its parts, and charges for them, until it is"
            );
        }
    }
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
