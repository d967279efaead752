//! A lease in an object store: an object that its holder writes again every minute.
//!
//! Its name says who holds it, as a lease's in a directory does; its content is the host, for people, and what tells the
//! process from others of its number.
//!
//! Invariants
//! - Whether a lease is alive is judged by the store's clock alone. So is whether its holder was in time: the store's
//!   answer to each writing has the store's time, and two answers further apart than a lease lives mean that others
//!   could take it for dead.
//! - A lease that was lost once stays lost: its holder's [`Hold::confirm`] fails from then on.
//! - A lease whose removal is forbidden says by its content that its holder has ended.
//!
//! Leaves to others: listing leases, and what a dead one allows (`place/buckets.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use longshore_bucket::{Bucket, Bytes, Key};
use longshore_io::STALE;

use super::door::Hold;
use crate::Error;
use crate::lease::{Holder, Use};

/// How often a holder writes its lease again.
const TOUCH: Duration = Duration::from_secs(60);
/// By so much sooner than others a holder takes its own lease for lost.
const MARGIN: Duration = Duration::from_secs(30);
/// The content of a lease whose holder has left its work undone, and of one whose holder could not remove it.
const LEFT: &str = "ended\n";
/// No other content is as short, so a listing tells it.
pub(super) const DONE: &str = "done\n";

/// How the holder of a lease that is still there has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Left,
    Done,
}

/// A lease that this process holds; the drop removes it.
#[derive(Debug)]
pub(crate) struct ObjectLease {
    shared: Arc<Shared>,
    what: Use,
    toucher: Option<(Sender<()>, JoinHandle<()>)>,
    leave: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    bucket: Bucket,
    key: Key,
    text: String,
    /// The store's time of the last writing.
    last_ns: Mutex<Option<i64>>,
    lost: AtomicBool,
    /// Ends a request in flight.
    stop: AtomicBool,
}

impl Shared {
    /// Writes the lease again. Errors: the store's.
    fn renew(&self, stop: &AtomicBool) -> Result<(), Error> {
        let text = Bytes::from(self.text.clone());
        let now_ns = match self.bucket.put(&self.key, text, stop)? {
            Some(now_ns) => now_ns,
            None => self.written_ns()?,
        };
        let mut last = self.last_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = i64::try_from((STALE - MARGIN).as_nanos()).unwrap_or(i64::MAX);
        if last.is_some_and(|last| now_ns.saturating_sub(last) > limit)
            && !self.lost.swap(true, Ordering::Relaxed)
        {
            let at = self.bucket.address(&self.key);
            tracing::warn!(
                at,
                "a lease was not kept alive in time: an expire may have removed what it protected"
            );
        }
        *last = Some(now_ns);
        Ok(())
    }

    /// When the store has written the lease, for a store whose answers have no date.
    fn written_ns(&self) -> Result<i64, Error> {
        let (folder, name) = self
            .key
            .as_ref()
            .rsplit_once('/')
            .unwrap_or(("", self.key.as_ref()));
        let folder = Key::parse(folder).unwrap_or_default();
        let level = self.bucket.level(&folder, &self.stop)?;
        let own = level.objects.iter().find(|object| object.name == name);
        Ok(own.map_or(level.now_ns, |own| own.modified_ns))
    }
}

impl ObjectLease {
    /// Takes a lease on what lies below `folder`.
    pub fn take((bucket, folder): (Bucket, Key), what: Use) -> Result<ObjectLease, Error> {
        let us = Holder::anywhere(what);
        let name = us.name();
        let name = name.to_str().unwrap_or_default();
        let key = match folder.as_ref() {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        };
        let shared = Arc::new(Shared {
            bucket,
            key: Key::parse(&key).unwrap_or_else(|_| Key::from(key)),
            text: us.content(),
            last_ns: Mutex::new(None),
            lost: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        // Held from here on: a request whose answer is lost may have been done.
        let mut lease = ObjectLease {
            shared,
            what,
            toucher: None,
            leave: AtomicBool::new(false),
        };
        if let Err(error) = lease.shared.renew(&AtomicBool::new(false)) {
            // A lease that could not be written need not be removed; one that may not be written cannot be.
            if matches!(&error, Error::Store(e) if e.is_forbidden()) {
                lease.shared.stop.store(true, Ordering::Relaxed);
            }
            return Err(error);
        }
        lease.toucher = Some(toucher(lease.shared.clone())?);
        Ok(lease)
    }

    /// The store's time of the last writing.
    pub fn last_ns(&self) -> i64 {
        let last = self.shared.last_ns.lock();
        last.unwrap_or_else(PoisonError::into_inner).unwrap_or(0)
    }

    pub fn key(&self) -> &Key {
        &self.shared.key
    }

    /// From now on, the drop leaves the object, as the lease of a holder that has ended.
    pub fn leave(&self) {
        self.leave.store(true, Ordering::Relaxed);
    }

    /// What the content of a lease says of its end; `None`: its holder has not ended.
    pub fn end_of(content: &str) -> Option<End> {
        match content {
            LEFT => Some(End::Left),
            DONE => Some(End::Done),
            _ => None,
        }
    }
}

impl Hold for ObjectLease {
    fn confirm(&self) -> Result<(), Error> {
        let renewed = self.shared.renew(&AtomicBool::new(false));
        match self.shared.lost.load(Ordering::Relaxed) {
            true => Err(Error::LeaseLost {
                at: self.shared.bucket.address(&self.shared.key),
            }),
            false => renewed,
        }
    }
}

impl Drop for ObjectLease {
    fn drop(&mut self) {
        let shared = &self.shared;
        // Nothing was written.
        if self.toucher.is_none() && shared.stop.load(Ordering::Relaxed) {
            return;
        }
        shared.stop.store(true, Ordering::Relaxed);
        if let Some((stop, thread)) = self.toucher.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::warn!("the thread that kept a lease alive panicked");
            }
        }
        let never = AtomicBool::new(false);
        let at = || shared.bucket.address(&shared.key);
        // A reader learns here whether it was protected to its end.
        if self.what == Use::Read
            && let Err(error) = shared.renew(&never)
        {
            tracing::warn!(at = at(), %error, "it is not known whether the lease held to the end");
        }
        let ended = |text: &'static str| {
            let text = Bytes::from_static(text.as_bytes());
            shared.bucket.put(&shared.key, text, &never).map(drop)
        };
        let done = match self.leave.load(Ordering::Relaxed) {
            true => ended(LEFT),
            false => match shared.bucket.remove(&shared.key, &never) {
                // A holder that may write, and not remove, says so by writing.
                Err(error) if error.is_forbidden() => ended(DONE),
                removed => removed,
            },
        };
        if let Err(error) = done {
            tracing::warn!(at = at(), %error, "a lease could not be removed: it counts for 15 minutes more");
        }
    }
}

fn toucher(shared: Arc<Shared>) -> Result<(Sender<()>, JoinHandle<()>), Error> {
    let (stop, stopped) = mpsc::channel::<()>();
    let at = shared.bucket.address(&shared.key);
    let work = move || {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(TOUCH) {
            if let Err(error) = shared.renew(&shared.stop) {
                tracing::warn!(%error, "a lease could not be kept alive");
            }
        }
    };
    let thread = std::thread::Builder::new().name("lease".into()).spawn(work);
    let thread = thread.map_err(|source| Error::Io {
        action: "start a thread for",
        path: at.into(),
        source,
    })?;
    Ok((stop, thread))
}
