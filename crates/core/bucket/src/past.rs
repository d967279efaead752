//! A bucket as it was: of each object, the version that its name had at one moment.
//!
//! A store that keeps versions loses nothing to a removal or to another content under the name.
//!
//! Invariants
//! - Times are the store's own.
//! - A bucket that never kept versions is refused: the objects that it has lost since would be missed by nobody.
//! - A version that was found once is not looked for again: the past does not change.
//!
//! Leaves to others: which version each name had (S3's in `versions.rs`, Google's in `generations.rs`), refusing to write and
//! stores that cannot tell (`store.rs`), and the age of leases, which is judged by the present time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object_store::path::Path;
use object_store::{Error as StoreError, GetOptions};

use crate::own::{Asking, Sign};
use crate::then::Then;
use crate::{generations, versions, watched};

/// From now on this process reads every bucket as it was at this moment of the store's clock, in nanoseconds since the
/// Unix epoch, and writes to none. A caller says it before the first bucket is opened; the first call counts.
pub fn as_of(at_ns: i64) {
    let _ = AS_OF.set(at_ns);
}

/// The moment at which this process reads buckets; `None`: the present.
pub fn past_ns() -> Option<i64> {
    AS_OF.get().copied()
}

static AS_OF: OnceLock<i64> = OnceLock::new();

/// One moment of a bucket. Clones share what was found.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    /// In nanoseconds since the Unix epoch, by the store's clock.
    pub at_ns: i64,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    /// The store said that it keeps versions, or would not say.
    is_kept: bool,
    /// The version of each name that was looked for; `None`: it was not there.
    versions: HashMap<String, Option<String>>,
}

impl Past {
    pub fn at(at_ns: i64) -> Past {
        Past {
            at_ns,
            found: Arc::default(),
        }
    }

    /// `options` for the version that `key` had. Errors: `NotFound`, and the store's.
    pub async fn of(
        &self,
        asking: &Asking,
        key: &Path,
        options: GetOptions,
    ) -> Result<GetOptions, StoreError> {
        let name = key.as_ref();
        let known = |past: &Past| past.lock().versions.get(name).cloned();
        let version = match known(self) {
            Some(version) => version,
            None => {
                self.objects(asking, name).await?;
                known(self).flatten()
            }
        };
        let Some(version) = version else {
            self.lock().versions.insert(name.to_owned(), None);
            watched::note(|seen| {
                seen.status = Some(404);
                seen.code.clear();
            });
            return Err(StoreError::NotFound {
                path: name.to_owned(),
                source: "it was not there".into(),
            });
        };
        Ok(GetOptions {
            version: Some(version),
            ..options
        })
    }

    /// The objects whose keys began with `prefix`, in the order of their keys.
    pub async fn objects(&self, asking: &Asking, prefix: &str) -> Result<Vec<Then>, StoreError> {
        // Only Google's requests have a bearer.
        let is_google = matches!(asking.sign, Sign::Bearer(_));
        if !self.lock().is_kept {
            match is_google {
                true => generations::is_kept(asking).await?,
                false => versions::is_kept(asking).await?,
            }
            self.lock().is_kept = true;
        }
        let objects = match is_google {
            true => generations::objects(asking, prefix, self.at_ns).await?,
            false => versions::objects(asking, prefix, self.at_ns).await?,
        };
        let mut found = self.lock();
        for object in &objects {
            let version = Some(object.version.clone());
            found.versions.insert(object.key.clone(), version);
        }
        Ok(objects)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
